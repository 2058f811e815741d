//! `ati audit tail -f`, and the options that choose entries.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::support::ati::{ati, command, stdout};

fn entry(n: u64, more: &Value) -> String {
    let ts = ati::telemetry::audit::timestamp(std::time::SystemTime::now());
    let mut entry = json!({"ts": ts, "tool": "t", "args": {}, "status": "ok", "duration_ms": n, "agent_sub": "a"});
    for (name, value) in more.as_object().unwrap() {
        entry[name] = value.clone();
    }
    format!("{entry}\n")
}

#[test]
fn tail_follows_the_file_across_a_rotation() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.jsonl");
    let append = |text: &str| {
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.create(true).append(true).open(&path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    };
    append(&entry(1, &json!({})));
    append(&entry(2, &json!({})));
    let mut following = command(dir.path())
        .args(["audit", "tail", "-f", "-n", "1", "--status", "ok"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(following.stdout.take().unwrap()).lines();
    let mut next = || -> u64 {
        let entry: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        entry["duration_ms"].as_u64().unwrap()
    };
    assert_eq!(next(), 2);
    append(&entry(3, &json!({"status": "error"})));
    append(&entry(4, &json!({})));
    assert_eq!(next(), 4);
    std::fs::rename(&path, dir.path().join("old")).unwrap();
    append(&entry(5, &json!({})));
    assert_eq!(next(), 5);
    following.kill().unwrap();
    following.wait().unwrap();
}

#[test]
fn entries_are_chosen_by_caller_job_status_and_request() {
    let dir = tempfile::tempdir().unwrap();
    let text = [
        entry(
            1,
            &json!({"agent_sub": "x", "job_id": "j", "request_id": "r-1"}),
        ),
        entry(2, &json!({"status": "error", "error": "no"})),
        entry(
            3,
            &json!({"tool": null, "route": "r", "http_status": 429, "status": "error"}),
        ),
    ];
    std::fs::write(dir.path().join("audit.jsonl"), text.concat()).unwrap();
    for (args, found) in [
        (&["--sub", "x"][..], &[1][..]),
        (&["--job", "j"], &[1]),
        (&["--request-id", "r-1"], &[1]),
        (&["--request-id", "r"], &[]),
        (&["--status", "error"], &[2, 3]),
        (&["--status", "429"], &[3]),
        (&["--status", "4xx", "--route", "r*"], &[3]),
        (&["--status", "ok", "--since", "1h", "--file"], &[1]),
    ] {
        for command in ["tail", "search"] {
            let args = [&["--output", "json", "audit", command][..], args].concat();
            let entries: Value = serde_json::from_str(&stdout(&ati(dir.path(), &args))).unwrap();
            let numbers = entries.as_array().unwrap().iter();
            let numbers: Vec<u64> = numbers
                .map(|it| it["duration_ms"].as_u64().unwrap())
                .collect();
            assert_eq!(numbers, found, "{args:?}");
        }
    }
    let bad = ati(dir.path(), &["audit", "search", "--status", "good"]);
    assert_eq!(bad.status.code(), Some(2));
    let other = dir.path().join("other.jsonl");
    std::fs::write(&other, entry(9, &json!({}))).unwrap();
    let named = format!("--file={}", other.display());
    assert!(stdout(&ati(dir.path(), &["audit", "tail", &named])).contains("\"duration_ms\":9"));
}
