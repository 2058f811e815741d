//! What takes long: `make test-full` runs it.

use serde_json::json;

use super::{ask, names, request};
use crate::mcp::manifest;
use crate::support::ati::{Proxy, Setup, tool};
use crate::support::eventually;
use crate::support::http::Client;

fn resident_mb(proxy: &Proxy) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", proxy.pid())).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
}

#[test]
#[ignore = "heavy: a catalogue of 10,000 tools"]
fn ten_thousand_tools_page_through_in_bounded_memory() {
    let schema = "input_schema = { type = 'object', properties = { a = { type = 'string', description = 'A text' } } }";
    let tools: String = (0..10_000)
        .map(|n| tool(&format!("p:tool{n:05}"), schema))
        .collect();
    let text = format!("[provider]\nname = 'p'\nbase_url = 'http://127.0.0.1:1'\n{tools}");
    let proxy = Setup::new().manifest("p", &text).start();
    let walk = || {
        let (mut all, mut cursor, mut pages) = (Vec::new(), json!(null), 0);
        loop {
            let list = ask(&proxy, "tools/list", json!({"cursor": cursor}));
            all.extend(names(&list));
            pages += 1;
            cursor = list["result"]["nextCursor"].clone();
            if cursor.is_null() {
                return (all, pages);
            }
        }
    };
    let (all, pages) = walk();
    // With the two for files, one page more.
    assert_eq!((all.len(), pages), (10_000, 11));
    assert!(all.windows(2).all(|pair| pair[0] < pair[1]));
    let before = resident_mb(&proxy);
    std::thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(walk);
        }
    });
    let after = resident_mb(&proxy);
    assert!(after < before + 100, "{before} MB, then {after} MB");
}

#[test]
#[ignore = "heavy: 1,000 clients"]
fn thousand_clients_that_vanish_leave_nothing_behind() {
    let proxy = Setup::new().manifest("s", &manifest("s", "", "")).start();
    proxy.log.wait_for("tools listed");
    let before = proxy.descriptors();
    let gate = proxy.path("gate");
    let params =
        json!({"name": "s:once", "arguments": {"text": gate}, "_meta": {"progressToken": 1}});
    let body = request("tools/call", params).to_string();
    let head = format!(
        "POST /mcp HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\naccept: text/event-stream\r\n\
         content-length: {}\r\n\r\n{body}",
        proxy.edge,
        body.len()
    );
    for _ in 0..10 {
        let clients: Vec<Client> = (0..100)
            .map(|_| {
                let mut client = proxy.client();
                client.write(head.as_bytes());
                client
            })
            .collect();
        proxy.rises_to("ati_in_flight{route=\"/mcp\"}", 100.0);
        drop(clients);
        proxy.settles("ati_in_flight{route=\"/mcp\"}", 0.0);
    }
    eventually("the end of their connections", || {
        (proxy.descriptors() <= before + 5).then_some(())
    });
    let answer = ask(
        &proxy,
        "tools/call",
        json!({"name": "s:echo", "arguments": {"text": "here"}}),
    );
    assert_eq!(answer["result"]["content"][0]["text"], "here");
}
