//! Clients that vanish in the middle.

use serde_json::json;

use super::*;
use crate::support::{POLL, eventually};

/// Every client opens a session, starts a call that doesn't end, and closes its connections.
fn vanish(proxy: &Proxy, clients: usize) {
    let gate = proxy.path("never");
    let args = json!({"name": "slow", "arguments": {"text": gate}});
    for _ in 0..clients {
        let session = Session::open(proxy);
        let standing = session.begin("GET", None);
        let call = session.begin("POST", Some(&request("tools/call", args.clone())));
        drop((standing, call));
    }
}

fn programs(proxy: &Proxy) -> usize {
    let pid = proxy.pid().to_string();
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let stats = all.filter_map(|one| std::fs::read_to_string(one.path().join("stat")).ok());
    let parent = |stat: &str| {
        Some(
            stat.rsplit_once(')')?
                .1
                .split_whitespace()
                .nth(1)?
                .to_owned(),
        )
    };
    stats
        .filter(|stat| parent(stat) == Some(pid.clone()))
        .count()
}

fn leaves_nothing_behind(clients: usize) {
    let proxy = started(with_program(""));
    drop(Session::open(&proxy).send("DELETE", b""));
    let before = eventually("only the shared session's server", || {
        (programs(&proxy) == 1).then(|| proxy.descriptors())
    });
    vanish(&proxy, clients);
    // Longer than other waits: a client may come back within half a minute.
    let start = std::time::Instant::now();
    while programs(&proxy) > 1 {
        assert!(
            start.elapsed().as_secs() < 180,
            "{} programs are left",
            programs(&proxy)
        );
        std::thread::sleep(POLL);
    }
    eventually("the end of every connection", || {
        (proxy.descriptors() <= before + 2).then_some(())
    });
    assert_eq!(
        text(&Session::open(&proxy).call("echo", json!({"text": "x"}))),
        "x"
    );
}

/// It takes the time after which a session whose client broke off ends.
#[test]
#[ignore = "waits for half a minute"]
fn ten_clients_that_vanish_leave_nothing_behind() {
    leaves_nothing_behind(10);
}

#[test]
#[ignore = "starts a thousand programs"]
fn thousand_clients_that_vanish_leave_nothing_behind() {
    leaves_nothing_behind(1000);
}
