//! The audit of tool calls, and the command that reads it.

mod chain;
mod follow;

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::support::ati::{Setup, ati, command, stderr, stdout};
use crate::support::eventually;
use crate::support::tokens::{bearer, claims, key_pair};
use crate::support::upstream::Upstream;

pub const TOOLS: &str = r#"
    [[tools]]
    name = 'look'

    [[tools]]
    name = 'strict'
    input_schema = { type = 'object', required = ['q'] }
"#;

#[test]
fn audit_of_every_outcome_has_one_redacted_line() {
    let api = Upstream::echo();
    let (signer, public) = key_pair();
    let proxy = Setup::new()
        .jwt(&public)
        .tools("p", &api.url(), "", TOOLS)
        .start();
    let claims = ati::auth::token::Claims {
        job_id: Some("job-1".into()),
        sandbox_id: Some("box-2".into()),
        scope: "tool:*".into(),
        ati: Some(ati::auth::token::Namespace {
            v: 1,
            rate: [("tool:look".to_owned(), "1/hour".to_owned())]
                .into_iter()
                .collect(),
            customer_id: None,
            delegation: None,
        }),
        ..claims()
    };
    let token = bearer(&signer, &claims);
    let narrow = bearer(
        &signer,
        &ati::auth::token::Claims {
            scope: "help".into(),
            ..claims
        },
    );
    let args = json!({"q": "ü".repeat(300), "deep": [{"api_key": "planted-in-args"}], "password": "planted-too"});
    for (token, tool, args) in [
        (&token, "look", args),
        (&token, "look", json!({})),
        (&token, "strict", json!({})),
        (&narrow, "strict", json!({"q": 1})),
        (&token, "absent", json!({})),
    ] {
        proxy.call(Some(token), tool, args);
    }
    let lines = proxy.wait_for_audit(4);
    assert_eq!(lines.len(), 4, "a call of an unknown tool is not audited");
    let first = &lines[0];
    assert_eq!(first["args"]["deep"], json!([{"api_key": "[REDACTED]"}]));
    assert_eq!(first["args"]["password"], "[REDACTED]");
    assert_eq!(first["args"]["q"], "ü".repeat(200) + "...[truncated]");
    for (key, value) in [
        ("tool", "look"),
        ("status", "ok"),
        ("agent_sub", "agent-7"),
        ("job_id", "job-1"),
        ("sandbox_id", "box-2"),
    ] {
        assert_eq!(first[key], value);
    }
    assert!(first["ts"].as_str().unwrap().ends_with("+00:00") && first["duration_ms"].is_u64());
    assert!(first.get("error").is_none());
    let errors: Vec<&str> = lines[1..]
        .iter()
        .map(|line| line["error"].as_str().unwrap())
        .collect();
    assert!(errors[0].starts_with("Rate limit exceeded"), "{errors:?}");
    assert!(errors[1].starts_with("Invalid arguments: q"), "{errors:?}");
    assert!(
        errors[2].starts_with("Access denied: 'strict'"),
        "{errors:?}"
    );
    let mode = std::fs::metadata(proxy.path("audit.jsonl"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
}

/// What can't be parsed, and what a caller without the scope sends, costs no thread and still has
/// its line.
#[test]
fn audit_of_arguments_that_are_not_parsed_has_a_line_for_the_call() {
    let api = Upstream::echo();
    let (signer, public) = key_pair();
    let tools = format!("{TOOLS}\n[[tools]]\nname = 'send'\nmethod = 'POST'\n");
    let proxy = Setup::new()
        .jwt(&public)
        .tools("p", &api.url(), "", &tools)
        .start();
    let token = bearer(&signer, &claims());
    let narrow = ati::auth::token::Claims {
        scope: "help".into(),
        ..claims()
    };
    let narrow = bearer(&signer, &narrow);
    let mut deep = json!(1);
    for _ in 0..200 {
        deep = json!([deep]);
    }
    let many = json!(vec![0; 200_001]);
    let big = json!({"q": "x".repeat(100_000), "password": "planted-big"});
    let not_parsed = json!({"...": "[not parsed]"});
    for (token, args, status, audited) in [
        (&token, json!({"deep": deep}), 422, &not_parsed),
        (&token, json!({"many": many}), 422, &not_parsed),
        (&narrow, json!({"deep": deep}), 403, &not_parsed),
        (&narrow, json!({"many": many}), 403, &not_parsed),
        (&narrow, big.clone(), 403, &not_parsed),
        (
            &narrow,
            json!({"password": "planted-small"}),
            403,
            &json!({"password": "[REDACTED]"}),
        ),
    ] {
        let before = proxy.audit().len();
        assert_eq!(proxy.call(Some(token), "look", args).status, status);
        let line = proxy.wait_for_audit(before + 1).pop().unwrap();
        assert_eq!(
            (&line["tool"], &line["status"]),
            (&json!("look"), &json!("error"))
        );
        assert_eq!(&line["args"], audited);
    }
    assert_eq!(proxy.call(Some(&token), "send", big).status, 200);
    let line = proxy.wait_for_audit(7).pop().unwrap();
    assert_eq!(line["args"]["q"], "x".repeat(200) + "...[truncated]");
    assert_eq!(line["args"]["password"], "[REDACTED]");
}

#[test]
fn audit_lines_of_all_calls_survive_sigterm() {
    let api = Upstream::echo();
    let mut proxy = Setup::new().tools("p", &api.url(), "", TOOLS).start();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..50 {
                    assert_eq!(proxy.call(None, "look", json!({})).status, 200);
                }
            });
        }
    });
    proxy.signal("TERM");
    assert!(proxy.wait().success());
    assert_eq!(proxy.audit().len(), 400);
}

/// Lines reach the kernel a few milliseconds after the answer, and survive the process from then
/// on.
#[test]
fn audit_of_a_killed_process_lacks_at_most_its_last_second() {
    let api = Upstream::echo();
    let mut proxy = Setup::new().tools("p", &api.url(), "", TOOLS).start();
    let answered = AtomicUsize::new(0);
    let before_last_second = std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut client = proxy.client();
                let request = "POST /call HTTP/1.1\r\nhost: x\r\ncontent-length: 20\r\n\r\n{\"tool_name\":\"look\"}";
                while client.try_write(request.as_bytes()).is_ok() && client.try_read(false).is_some() {
                    answered.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        eventually("a load", || {
            (answered.load(Ordering::SeqCst) > 500).then_some(())
        });
        let mark = (std::time::Instant::now(), answered.load(Ordering::SeqCst));
        eventually("another second", || {
            (mark.0.elapsed().as_millis() >= 1000).then_some(())
        });
        proxy.signal("KILL");
        mark.1
    });
    proxy.wait();
    let written = proxy.audit().len();
    assert!(
        written >= before_last_second,
        "{written} of {before_last_second} that were answered a second before the end"
    );
    // An incomplete last line is skipped.
    let mut file = std::fs::OpenOptions::new()
        .append(true)
        .open(proxy.path("audit.jsonl"))
        .unwrap();
    write!(file, r#"{{"tool":"half"#).unwrap();
    let tail = ati(proxy.dir.path(), &["audit", "tail", "-n", "3"]);
    let entries: Value = serde_json::from_str(&stdout(&tail)).unwrap();
    assert_eq!(entries.as_array().unwrap().len(), 3);
    assert!(
        stdout(&tail).trim().lines().count() == 1,
        "one line of JSON"
    );
}

#[test]
fn audit_that_cannot_be_written_is_logged_and_fails_no_call() {
    let api = Upstream::echo();
    for file in ["/dev/full", "/proc/nowhere/audit.jsonl"] {
        let proxy = Setup::new()
            .env("ATI_AUDIT_FILE", file)
            .tools("p", &api.url(), "", TOOLS)
            .start();
        for _ in 0..3 {
            assert_eq!(proxy.call(None, "look", json!({})).status, 200);
        }
        let line = proxy.log.wait_for("audit lines are being lost");
        assert_eq!(line["level"], "ERROR");
        proxy.settles("ati_audit_lost_total", 3.0);
    }
}

#[test]
fn audit_command_tails_and_searches_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let empty = ati(dir.path(), &["audit", "tail"]);
    assert_eq!(
        (stdout(&empty).as_str(), empty.status.success()),
        ("", true)
    );
    assert!(stderr(&empty).contains("No audit entries"));
    let line = |tool: &str, age: u64, error: Option<&str>| {
        let ts = ati::telemetry::audit::timestamp(
            std::time::SystemTime::now() - std::time::Duration::from_secs(age),
        );
        let status = if error.is_some() { "error" } else { "ok" };
        json!({"ts": ts, "tool": tool, "args": {}, "status": status, "duration_ms": 5, "agent_sub": "a", "error": error}).to_string()
    };
    let text = [
        line("git:old", 7200, None),
        line("git:new", 60, Some("went\n\r\x1b[2Kwrong")),
        "broken".into(),
        line("web", 1, None),
    ]
    .join("\n");
    std::fs::write(dir.path().join("audit.jsonl"), text).unwrap();
    let tools = |args: &[&str]| -> Vec<String> {
        let entries: Value = serde_json::from_str(&stdout(&ati(dir.path(), args))).unwrap();
        entries
            .as_array()
            .unwrap()
            .iter()
            .map(|e| e["tool"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(tools(&["audit", "tail"]), ["git:old", "git:new", "web"]);
    assert_eq!(
        tools(&["audit", "search", "--tool", "git:*"]),
        ["git:old", "git:new"]
    );
    assert_eq!(
        tools(&["audit", "search", "--tool", "git:*", "--since", "1h"]),
        ["git:new"]
    );
    assert_eq!(tools(&["audit", "search", "--tool", "web"]), ["web"]);
    let lines = stdout(&ati(
        dir.path(),
        &["--output", "text", "audit", "search", "--tool", "git:new"],
    ));
    assert!(
        lines.contains(" [ERR] git:new (5ms) agent=a went   [2Kwrong"),
        "{lines}"
    );
    let bad = command(dir.path())
        .args(["audit", "search", "--since", "soon"])
        .output()
        .unwrap();
    assert_eq!(bad.status.code(), Some(2));
}

#[test]
fn call_cut_off_by_the_drain_deadline_is_audited_as_abandoned() {
    let silent = Upstream::raw(|stream| {
        let _ = std::io::Read::read(&mut &stream, &mut [0; 1 << 16]);
        let _ = std::io::Read::read(&mut &stream, &mut [0; 1]);
    });
    let mut proxy = Setup::new()
        .conf("[server]\ndrain_seconds = 1\n")
        .tools("p", &silent.url(), "", TOOLS)
        .start();
    let mut client = proxy.client();
    client.write(
        b"POST /call HTTP/1.1\r\nhost: x\r\ncontent-length: 20\r\n\r\n{\"tool_name\":\"look\"}",
    );
    eventually("the call", || {
        (silent.open_connections() == 1).then_some(())
    });
    proxy.signal("TERM");
    assert!(proxy.wait().success());
    let lines = proxy.audit();
    assert_eq!(lines.len(), 1);
    assert!(
        lines[0]["error"].as_str().unwrap().starts_with("abandoned"),
        "{lines:?}"
    );
}

#[test]
fn redacted_argument_is_absent_from_the_audited_error() {
    let proxy = Setup::new()
        .tools(
            "p",
            "http://127.0.0.1:1",
            "",
            r#"
                [[tools]]
                name = 'p'
                endpoint = '/x/{token}'
                [tools.input_schema.properties]
                token = { x-ati-param-location = 'path' }
            "#,
        )
        .start();
    let refused = proxy.call(None, "p", json!({"token": "planted/../x"}));
    assert!(
        refused
            .text()
            .contains("value 'planted/../x' contains forbidden characters"),
        "{}",
        refused.text()
    );
    let line = &proxy.wait_for_audit(1)[0];
    assert_eq!(line["args"]["token"], "[REDACTED]");
    assert_eq!(
        line["error"],
        "Upstream API error: Invalid path parameter 'token'"
    );
}
