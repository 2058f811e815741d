//! Manifests at the start and at a reload.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;

use super::{BEARER, upstream, with_key};
use crate::support::ati::{Setup, write};

#[test]
fn reload_of_tools_and_keys_under_load_loses_no_call() {
    let api = upstream(|received| {
        (
            200,
            String::new(),
            json!(received.header("authorization")).to_string(),
        )
    });
    let manifest = |tool: &str| {
        format!(
            r#"
                [provider]
                name = 'p'
                base_url = '{}'
                {BEARER}

                [[tools]]
                name = 'steady'

                [[tools]]
                name = '{tool}'
            "#,
            api.url()
        )
    };
    let proxy = with_key(Setup::new())
        .manifest("p", &manifest("t0"))
        .start();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut client = proxy.client();
                while !stop.load(Ordering::Relaxed) {
                    let body = br#"{"tool_name":"steady"}"#;
                    let response = client.send("POST", "/call", &[], body);
                    assert_eq!(response.status, 200, "{}", response.text());
                }
            });
        }
        for n in 1..8 {
            write(&proxy.path("manifests/p.toml"), manifest(&format!("t{n}")));
            write(
                &proxy.path("credentials"),
                json!({"api": format!("planted-key-{n}")}).to_string(),
            );
            assert_eq!(proxy.reload()["message"], "reload done");
            assert_eq!(proxy.call(None, &format!("t{n}"), json!({})).status, 200);
            let expected = format!("Bearer planted-key-{n}");
            assert!(
                api.saw(|received| received.header("authorization") == Some(expected.as_str()))
            );
            assert_eq!(
                proxy.call(None, &format!("t{}", n - 1), json!({})).status,
                404
            );
        }
        stop.store(true, Ordering::Relaxed);
    });
    // A reload with an unreadable manifest changes nothing.
    write(&proxy.path("manifests/p.toml"), "[provider");
    assert!(
        proxy.reload()["message"]
            .as_str()
            .unwrap()
            .starts_with("reload failed")
    );
    assert_eq!(proxy.call(None, "t7", json!({})).status, 200);
}

#[test]
fn manifest_with_problems_stops_the_start() {
    let output = Setup::new()
        .manifest(
            "a",
            r#"
                [provider]
                name = 'a'
                auth_type = 'magic'

                [[tools]]
                name = 't'
                method = 'BREW'
            "#,
        )
        .manifest("b", "[provider")
        .output();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    for expected in [
        "unknown auth type 'magic'",
        "unknown method 'BREW'",
        "Failed to parse manifest",
        "b.toml",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
}
