//! Work whose cost a caller, a manifest or a server chooses: other callers don't wait for it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

use serde_json::{Value, json};

use super::{json_upstream, upstream};
use crate::support::ati::{Proxy, Setup, ati, stderr, tool};
use crate::support::eventually;
use crate::support::http::Response;

/// One worker, so that nothing else could serve other callers while it works.
const ONE_WORKER: &str = "[server]\nworkers = 1\n";

/// A tool whose list is checked against this many subschemas, item by item.
fn checking_tool(name: &str, subschemas: usize) -> String {
    let parts = "{ not = { const = 0 } },".repeat(subschemas);
    format!(
        "\n[[tools]]\nname = '{name}'\nmethod = 'POST'\n[tools.input_schema]\ntype = 'object'\n\
         [tools.input_schema.properties.l]\ntype = 'array'\nitems = {{ allOf = [{parts}] }}\n"
    )
}

/// Calls in threads of their own.
fn calls(proxy: &Proxy, tool: &str, args: &Value, count: usize) -> Vec<JoinHandle<Response>> {
    let body = json!({"tool_name": tool, "args": args}).to_string();
    (0..count)
        .map(|_| {
            let (mut client, body) = (proxy.client(), body.clone());
            std::thread::spawn(move || client.send("POST", "/call", &[], body.as_bytes()))
        })
        .collect()
}

/// What others ask for while that work is under way: a request to a route and a call.
fn others_are_served(proxy: &Proxy) {
    assert_eq!(proxy.client().get("/route/x").status, 200);
    assert_eq!(proxy.call(None, "t:cheap", json!({"q": "a"})).status, 200);
}

/// Waits until the work has begun, and counts how often others are served before all of it is done.
/// A few times are enough: the work has a low priority, and must get on, too.
fn served_meanwhile(proxy: &Proxy, costly: &[JoinHandle<Response>]) -> usize {
    let is_running = || proxy.metric(RUNNING).is_some_and(|jobs| jobs > 0.0);
    let is_over = || costly.iter().all(JoinHandle::is_finished);
    eventually("the work", || (is_running() || is_over()).then_some(()));
    let mut served = 0;
    for _ in 0..5 {
        others_are_served(proxy);
        served += usize::from(is_running());
    }
    served
}

/// On a busy machine this test may get its turn only when the work is done. Others that had to wait
/// for the work would be served in time in no round.
fn others_are_served_in_time(round: impl Fn() -> usize) {
    let served = (0..10).any(|_| round() > 0);
    assert!(served, "the others waited for the work");
}

const RUNNING: &str = "ati_compute_jobs{state=\"running\"}";

#[test]
fn arguments_with_the_worst_schema_are_refused_and_others_are_served() {
    let api = json_upstream(json!({}));
    let tools = checking_tool("t:all", 9000) + &tool("t:cheap", "");
    let proxy = Setup::new()
        .conf(ONE_WORKER)
        .route("route", &api.url(), "path_prefix = '/route'")
        .tools("t", &api.url(), "", &tools)
        .start();
    let args = json!({"l": vec!["y"; 190_000]});
    let costly = calls(&proxy, "t:all", &args, 2);
    others_are_served(&proxy);
    for call in costly {
        let refused = call.join().unwrap();
        assert_eq!(refused.status, 422);
        let error = refused.json()["error"].as_str().unwrap().to_owned();
        assert!(
            error.starts_with("Invalid arguments: arguments: too costly to check"),
            "{error}"
        );
    }
    // The same tool takes what it can check.
    let fine = proxy.call(None, "t:all", json!({"l": ["y", "z"]}));
    assert_eq!(fine.status, 200);
    assert_eq!(proxy.call(None, "t:all", json!({"l": [0]})).status, 422);
}

#[test]
fn others_are_served_while_arguments_are_checked() {
    let api = json_upstream(json!({}));
    let tools = checking_tool("t:all", 90) + &tool("t:cheap", "");
    let proxy = Setup::new()
        .conf(ONE_WORKER)
        .route("route", &api.url(), "path_prefix = '/route'")
        .tools("t", &api.url(), "", &tools)
        .start();
    let args = json!({"l": vec!["y"; 10_000]});
    others_are_served_in_time(|| {
        let costly = calls(&proxy, "t:all", &args, 3);
        let served = served_meanwhile(&proxy, &costly);
        for call in costly {
            assert_eq!(call.join().unwrap().status, 200);
        }
        served
    });
}

#[test]
fn others_are_served_while_an_answer_is_searched() {
    let asked = AtomicUsize::new(0);
    let rows = vec![json!({"b": {"c": [1, 2, 3]}}); 60_000];
    let big = json!({ "rows": rows }).to_string();
    let api = upstream(move |received| {
        let body = if received.target.starts_with("/big") {
            asked.fetch_add(1, Ordering::SeqCst);
            big.clone()
        } else {
            "{}".to_owned()
        };
        (200, String::new(), body)
    });
    let tools = tool(
        "t:big",
        "endpoint = '/big'\nresponse = { extract = '$..a' }",
    );
    let proxy = Setup::new()
        .conf(ONE_WORKER)
        .route("route", &api.url(), "path_prefix = '/route'")
        .tools("t", &api.url(), "", &(tools + &tool("t:cheap", "")))
        .start();
    others_are_served_in_time(|| {
        let costly = calls(&proxy, "t:big", &json!({}), 2);
        let served = served_meanwhile(&proxy, &costly);
        for call in costly {
            assert_eq!(call.join().unwrap().json(), json!({"result": null}));
        }
        served
    });
}

#[test]
fn unusable_pattern_is_left_out_alone_and_strict_checks_fail_on_it() {
    let api = json_upstream(json!({}));
    let tools = r#"
[[tools]]
name = "t:open"
[tools.input_schema.properties]
file = { type = "string", pattern = "^[a-z]+$" }
other = { type = "string", pattern = "(" }
"#;
    let setup = Setup::new().tools("t", &api.url(), "", tools);
    let checked = ati(setup.path(), &["check", "--strict"]);
    assert!(!checked.status.success());
    let shown = format!(
        "{}{}",
        crate::support::ati::stdout(&checked),
        stderr(&checked)
    );
    assert!(
        shown.contains("checked without the pattern '(' of other"),
        "{shown}"
    );
    assert!(ati(setup.path(), &["check"]).status.success());
    let proxy = setup.start();
    let escaping = proxy.call(None, "t:open", json!({"file": "../../etc/passwd"}));
    assert_eq!(escaping.status, 422);
    let fine = json!({"file": "a", "other": "anything ("});
    assert_eq!(proxy.call(None, "t:open", fine).status, 200);
}
