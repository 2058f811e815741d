//! A failed command tells why: the printed message ends with the causes, and `--verbose` lists
//! them.

use std::process::Output;

use serde_json::{Value, json};

use crate::support::ati::{command, stderr};

/// The JSON line that scripts read.
fn error_of(output: &Output) -> Value {
    let stderr = stderr(output);
    let line = stderr.lines().rev().find(|line| line.starts_with('{'));
    let line: Value = serde_json::from_str(line.expect(&stderr)).unwrap();
    line["error"].clone()
}

#[test]
fn verbose_failure_lists_its_causes_in_json() {
    let dir = tempfile::tempdir().unwrap();
    let issue = |more: &[&str]| {
        command(dir.path())
            .args(["token", "issue", "--sub", "a", "--scope", "b", "--key"])
            .arg(dir.path().join("absent.pem"))
            .args(more)
            .output()
            .unwrap()
    };
    let path = dir.path().join("absent.pem").display().to_string();
    let message = format!("{path}: can't be read: No such file or directory (os error 2)");

    let short = error_of(&issue(&[]));
    assert_eq!(short["message"], message.as_str());
    assert_eq!(short.get("chain"), None);
    let long = error_of(&issue(&["--verbose"]));
    assert_eq!(long["message"], message.as_str());
    assert_eq!(
        long["chain"],
        json!(["No such file or directory (os error 2)"])
    );
}

#[test]
fn verbose_failure_lists_its_causes_as_text() {
    let dir = tempfile::tempdir().unwrap();
    let output = command(dir.path())
        .args(["--output", "text", "--verbose", "tool", "list"])
        .env("ATI_PROXY_URL", "http://127.0.0.1:1/base?key=planted-key")
        .output()
        .unwrap();
    let stderr = stderr(&output);
    assert_eq!(output.status.code(), Some(4), "{stderr}");
    assert!(
        stderr.contains(
            "Proxy request failed: connection refused or unreachable: \
             Connection refused (os error 111)"
        ),
        "{stderr}"
    );
    assert!(
        stderr.contains("because: connection refused or unreachable")
            && stderr.contains("because: Connection refused (os error 111)"),
        "{stderr}"
    );
    // The error of the HTTP library would quote the URL.
    assert!(!stderr.contains("planted-"), "{stderr}");
}

#[test]
fn invalid_session_token_names_the_fault_as_its_cause() {
    let dir = tempfile::tempdir().unwrap();
    let output = command(dir.path())
        .args(["--verbose", "tool", "list"])
        .env("ATI_JWT_SECRET", "ab".repeat(32))
        .env("ATI_SESSION_TOKEN", "not-a-token")
        .output()
        .unwrap();
    let error = error_of(&output);
    assert_eq!(error["code"], "auth.invalid_token");
    let cause = error["chain"][0].as_str().unwrap();
    assert_eq!(
        error["message"],
        format!("Invalid ATI_SESSION_TOKEN: {cause}")
    );
}
