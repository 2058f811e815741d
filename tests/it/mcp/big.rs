//! Messages that are too big for a worker: they arrive whole, and others don't wait for them.

use serde_json::{Value, json};

use super::{http_server, over_http, result, started, streamed, with, with_result};
use crate::support::ati::{Proxy, Setup};
use crate::support::eventually;
use crate::support::upstream::Upstream;

const RUNNING: &str = "ati_compute_jobs{state=\"running\"}";

/// A server that answers a call with its arguments: as JSON, as events or as a batch.
fn mirror() -> Upstream {
    http_server(|_, message| {
        let args = &message["params"]["arguments"];
        let result = json!({"content": [], "structuredContent": args});
        let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
        let progress = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {}});
        match args["form"].as_str().unwrap() {
            "json" => with_result(message, "", &result),
            "events" => streamed(&[progress, answer]),
            "batch" => {
                let body = json!([progress, answer]).to_string();
                let length = body.len();
                format!(
                    "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
                )
            }
            form => panic!("{form}"),
        }
    })
}

#[test]
fn big_arguments_and_results_over_http_arrive_whole() {
    let server = mirror();
    let proxy = started(over_http(&server, ""));
    for form in ["json", "events", "batch"] {
        for count in [10, 50_000] {
            let list: Vec<Value> = (0..count).map(|n| json!({"n": n})).collect();
            let args = json!({"form": form, "list": list, "text": "ü".repeat(count)});
            assert_eq!(
                result(&proxy, "s:who", args.clone()),
                args,
                "{form} {count}"
            );
        }
    }
}

#[test]
fn big_arguments_and_results_of_a_program_arrive_whole() {
    let proxy = started(with("", ""));
    let list: Vec<Value> = (0..50_000).map(|n| json!({"n": n})).collect();
    let text = Value::from(list).to_string();
    let echoed = result(&proxy, "s:echo", json!({"text": text}));
    assert_eq!(echoed.to_string(), text);
}

/// With one worker, which would have to do the work if it weren't done by another thread.
fn with_one_worker(setup: Setup) -> Proxy {
    let api = Upstream::fixed("HTTP/1.1 200 X\r\ncontent-length: 2\r\n\r\n{}");
    let setup =
        setup
            .conf("[server]\nworkers = 1\n")
            .route("route", &api.url(), "path_prefix = '/route'");
    let proxy = started(setup);
    // The upstream is needed until the end of the test.
    std::mem::forget(api);
    proxy
}

#[test]
fn others_are_served_while_a_big_message_is_parsed() {
    let server = http_server(|_, message| {
        let values = vec![json!({"a": [1, 2]}); 90_000];
        let result = json!({"content": [], "structuredContent": values});
        let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
        streamed(&[answer])
    });
    let proxy = with_one_worker(over_http(&server, ""));
    let body = json!({"tool_name": "s:who", "args": {}}).to_string();
    let mut client = proxy.client();
    let call = std::thread::spawn(move || client.send("POST", "/call", &[], body.as_bytes()));
    let is_running = || proxy.metric(RUNNING).is_some_and(|jobs| jobs > 0.0);
    eventually("the work", || {
        (is_running() || call.is_finished()).then_some(())
    });
    let mut served = 0;
    for _ in 0..5 {
        assert_eq!(proxy.client().get("/route/x").status, 200);
        served += usize::from(is_running());
    }
    let answer = call.join().unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.json()["result"].as_array().unwrap().len(), 90_000);
    assert!(served > 0, "the others waited for the work");
}
