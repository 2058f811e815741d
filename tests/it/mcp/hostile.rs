//! Servers that send too much, or the wrong thing.

use serde_json::json;

use super::{failure, listed, result, started, with};

#[test]
fn hostile_servers_are_bounded_and_named() {
    let proxy = started(with("nasty", ""));
    let names = listed(&proxy);
    assert!(
        names.contains(&"s:__/__/etc/passwd".to_owned()),
        "{names:?}"
    );
    assert!(names.contains(&"s:a__31mb_".to_owned()), "{names:?}");
    assert!(
        names
            .iter()
            .all(|name| name.len() <= 128 && !name.contains("..")),
        "{names:?}"
    );
    drop(proxy);

    for (mode, answer) in [
        ("wrong-ids", "hello"),
        ("chatty", "hello"),
        ("duplicate-ids", "first"),
    ] {
        let proxy = started(with(mode, ""));
        for _ in 0..3 {
            assert_eq!(
                result(&proxy, "s:echo", json!({"text": "hello"})),
                answer,
                "{mode}"
            );
        }
    }
    // A schema that takes forever to validate against, and an answer that takes gigabytes to parse.
    let proxy = started(with("bomb", ""));
    assert_eq!(result(&proxy, "s:echo", json!({"text": "quick"})), "quick");
    drop(proxy);
    let proxy = started(with("many-values", ""));
    let error = failure(&proxy, "s:echo", json!({"text": "x"}));
    assert!(error.contains("too many values"), "{error}");
    let status = std::fs::read_to_string(format!("/proc/{}/status", proxy.pid())).unwrap();
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(peak < 400_000, "{peak} kB");
    drop(proxy);
    // A server that sends 100,000 requests of its own before its answer.
    let proxy = started(with("demanding", ""));
    let answer = proxy.call(None, "s:echo", json!({"text": "x"}));
    assert!(matches!(answer.status, 200 | 502), "{}", answer.text());
    assert_eq!(proxy.client().get("/health").status, 200);
    drop(proxy);

    let proxy = started(with("long-line", ""));
    for _ in 0..2 {
        let error = failure(&proxy, "s:echo", json!({"text": "x"}));
        assert!(error.contains("a line of more than 50 MB"), "{error}");
    }
    assert_eq!(proxy.client().get("/health").status, 200);
    drop(proxy);

    for (mode, says) in [
        (
            "endless",
            "a list of tools that doesn't end after 100 pages",
        ),
        ("toolless", "did not return tools capability"),
        (
            "garbage",
            "lines to stdout that are no JSON-RPC (the first: \\\"this is no JSON-RPC\\\")",
        ),
        ("die", "its last words: I can't go on"),
    ] {
        let proxy = with(mode, "").start();
        let line = proxy.log.wait_for("its tools can't be listed");
        assert!(line.to_string().contains(says), "{mode}: {line}");
        assert_eq!(proxy.client().get("/health").status, 200);
    }
}
