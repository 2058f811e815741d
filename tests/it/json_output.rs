//! Every command prints one JSON value on stdout where JSON was asked for.

use std::path::Path;
use std::process::Output;

use serde_json::{Value, json};

use crate::support::ati::{ati, command, stderr, stdout, tool, write};
use crate::support::upstream::Upstream;

const SPEC: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/it/specs/petstore-3.0.yaml"
);

/// Each way to ask for JSON.
const WAYS: [&[&str]; 2] = [&["-J"], &["--output", "json"]];

fn json_of(output: &Output, line: &[&str]) -> Value {
    let text = stdout(output);
    serde_json::from_str(&text)
        .unwrap_or_else(|e| panic!("{line:?}: {e}\n{text}\n{}", stderr(output)))
}

/// Runs a command in every way of asking, each time in a folder that `prepare` made, and returns
/// its last answer. The exit code must be 0.
fn in_every_way(prepare: impl Fn(&Path), line: &[&str]) -> Value {
    let mut answer = Value::Null;
    for way in WAYS {
        let dir = tempfile::tempdir().unwrap();
        prepare(dir.path());
        let before = [way, line].concat();
        let output = ati(dir.path(), &before);
        assert!(output.status.success(), "{before:?}: {}", stderr(&output));
        answer = json_of(&output, &before);
        // After the command, and by the environment.
        prepare(dir.path());
        let output = command(dir.path())
            .args(line)
            .env("ATI_OUTPUT", "json")
            .output()
            .unwrap();
        assert!(output.status.success(), "{line:?}: {}", stderr(&output));
        json_of(&output, line);
    }
    answer
}

fn empty(dir: &Path) {
    std::fs::remove_dir_all(dir).unwrap();
    std::fs::create_dir(dir).unwrap();
}

#[test]
fn empty_lists_are_empty_json_lists() {
    for line in [
        &["key", "list"][..],
        &["provider", "list"],
        &["audit", "tail"],
        &["audit", "search", "--since", "1h"],
        &["edge", "keyring", "list"],
    ] {
        assert_eq!(in_every_way(empty, line), json!([]), "{line:?}");
    }
}

#[test]
fn commands_that_need_nothing_print_json() {
    let about = in_every_way(empty, &["version"]);
    assert_eq!(
        about,
        json!({"name": "ati", "version": env!("CARGO_PKG_VERSION")})
    );
    for (line, key) in [
        (&["check"][..], "ok"),
        (&["init"], "next"),
        (&["init", "--proxy"], "next"),
        (&["init", "--example"], "next"),
        (&["token", "keygen"], "private_key"),
        (&["token", "keygen", "--algorithm", "HS256"], "secret"),
        (&["provider", "schema"], "$schema"),
        (&["key", "set", "a", "planted-a"], "status"),
        (
            &["provider", "add-cli", "gh", "--command", "gh"],
            "manifest",
        ),
        (
            &[
                "provider",
                "add-mcp",
                "m",
                "--transport",
                "http",
                "--url",
                "http://127.0.0.1:1/",
            ],
            "manifest",
        ),
        (&["provider", "import-openapi", SPEC], "manifest"),
        (
            &["provider", "import-openapi", SPEC, "--dry-run"],
            "generated",
        ),
        (&["provider", "inspect-openapi", SPEC], "operations"),
        (&["provider", "load", SPEC], "status"),
        (&["provider", "load", SPEC, "--save"], "manifest"),
    ] {
        let answer = in_every_way(empty, line);
        assert!(answer.get(key).is_some(), "{line:?}: {answer}");
    }
    let found = in_every_way(empty, &["doctor", "--offline"]);
    assert!(found[0]["check"].is_string(), "{found}");
    let steps = in_every_way(empty, &["demo", "--check"]);
    assert!(
        steps
            .as_array()
            .unwrap()
            .iter()
            .all(|step| step["ok"] == true),
        "{steps}"
    );
}

/// A folder with keys, tokens, providers and a call in the audit.
fn filled(dir: &Path) {
    empty(dir);
    write(
        &dir.join("credentials"),
        r#"{"a_key": "abcdefghijklmnop", "b_key": "abc"}"#,
    );
    let api = Upstream::answering(|_, stream| {
        use std::io::Write;
        stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
            .is_ok()
    });
    let one = tool("shop_find", "endpoint = '/find'");
    let manifest = format!(
        "[provider]\nname = 'shop'\nbase_url = '{}'\n{one}",
        api.url()
    );
    write(&dir.join("manifests/shop.toml"), manifest);
    assert!(ati(dir, &["run", "shop_find"]).status.success());
    assert!(
        ati(dir, &["provider", "load", SPEC, "--name", "pets"])
            .status
            .success()
    );
}

#[test]
fn commands_about_what_is_there_print_json() {
    let keys = in_every_way(filled, &["key", "list"]);
    let expected = json!([
        {"name": "a_key", "masked": "abcd...mnop"},
        {"name": "b_key", "masked": "***"},
    ]);
    assert_eq!(keys, expected);
    let removed = in_every_way(filled, &["key", "remove", "a_key"]);
    assert_eq!(removed, json!({"status": "removed", "name": "a_key"}));
    for line in [
        &["provider", "list"][..],
        &["provider", "info", "shop"],
        &["provider", "remove", "shop"],
        &["provider", "unload", "pets"],
        &["tool", "list"],
        &["tool", "info", "shop_find"],
        &["tool", "search", "shop"],
    ] {
        in_every_way(filled, line);
    }
    let tail = in_every_way(filled, &["audit", "tail"]);
    assert_eq!(tail[0]["tool"], "shop_find");
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    let file = dir.path().join("manifests/shop.toml");
    let line = ["-J", "provider", "validate", file.to_str().unwrap()];
    assert_eq!(json_of(&ati(dir.path(), &line), &line)[0]["ok"], true);
}

#[test]
fn token_commands_print_json() {
    let (dir, secret, other) = (
        tempfile::tempdir().unwrap(),
        "ab".repeat(32),
        "cd".repeat(32),
    );
    let dir = dir.path();
    for way in WAYS {
        let ask = |words: &[&str]| {
            let line = [way, words].concat();
            let output = ati(dir, &line);
            (json_of(&output, &line), output.status.code())
        };
        let issue = [
            "token", "issue", "--sub", "a", "--scope", "tool:x", "--secret", &secret,
        ];
        let (issued, code) = ask(&issue);
        assert_eq!((&issued["sub"], code), (&json!("a"), Some(0)));
        let token = issued["token"].as_str().unwrap();
        assert_eq!(ask(&["token", "inspect", token]).0["exp"], issued["exp"]);
        let validate = |secret| ask(&["token", "validate", token, "--secret", secret]);
        assert_eq!(validate(&secret), (json!({"valid": true}), Some(0)));
        let (refused, code) = validate(&other);
        assert_eq!((&refused["valid"], code), (&json!(false), Some(1)));
        assert!(refused["reason"].is_string(), "{refused}");
    }
}

#[test]
fn edge_commands_print_json() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (old, new) = (dir.join("old.json"), dir.join("new.json"));
    write(&old, r#"{"a": "planted-1", "b": "planted-2"}"#);
    write(&new, r#"{"a": "planted-3", "c": "planted-2"}"#);
    let (old, new) = (old.to_str().unwrap(), new.to_str().unwrap());
    for way in WAYS {
        let edge = |words: &[&str]| {
            let line = [way, &["edge"], words, &["--ati-dir", dir.to_str().unwrap()]].concat();
            let output = ati(dir, &line);
            assert!(output.status.success(), "{line:?}: {}", stderr(&output));
            json_of(&output, &line)
        };
        let made = edge(&["bootstrap-keyring", "--from-file", old]);
        assert_eq!(made["status"], "written");
        assert_eq!(edge(&["keyring", "list"]), json!(["a", "b"]));
        assert_eq!(edge(&["keyring", "diff", "--from-file", old]), json!([]));
        assert_eq!(
            edge(&["keyring", "diff", "--from-file", new]),
            json!([
                {"name": "a", "change": "changed"},
                {"name": "b", "change": "removed"},
                {"name": "c", "change": "added"},
            ])
        );
        let rotated = edge(&["rotate-keyring", "--no-signal", "--from-file", new]);
        assert_eq!(rotated["status"], "rotated");
        assert_eq!(rotated["signal"]["status"], "skipped");
        let print = edge(&["keyring", "fingerprint"]);
        assert_eq!(print["fingerprint"], rotated["fingerprint"]);
    }
}

#[test]
fn failures_leave_stdout_empty() {
    let dir = tempfile::tempdir().unwrap();
    for line in [
        &["provider", "remove", "gone"][..],
        &["provider", "unload", "gone"],
        &["provider", "inspect-openapi", "/nonexistent"],
        &["edge", "keyring", "fingerprint"],
        &["token", "issue", "--sub", "a", "--scope", "*"],
    ] {
        let output = ati(dir.path(), &[&["-J"], line].concat());
        assert!(!output.status.success(), "{line:?}");
        assert_eq!(stdout(&output), "", "{line:?}");
        let error = stderr(&output);
        let error: Value = serde_json::from_str(error.lines().last().unwrap()).unwrap();
        assert!(error["error"]["code"].is_string(), "{line:?}");
    }
}
