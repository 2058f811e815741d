//! The hash chain over audit lines: what writes it, and what `ati audit verify` finds.

use std::path::Path;

use serde_json::{Value, json};

use super::TOOLS;
use crate::support::ati::{Setup, ati, command, stderr, stdout};
use crate::support::upstream::Upstream;

const CHAIN: &str = "[audit]\nchain = true\n";

/// The exit code, and what is printed as JSON.
fn verify(dir: &Path, files: &[&str]) -> (i32, Value) {
    let mut command = command(dir);
    command.args(["--output", "json", "audit", "verify"]);
    command.args(files.iter().map(|name| dir.join(name)));
    let output = command.output().unwrap();
    let text = stdout(&output);
    let found = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}{}", stderr(&output)));
    (output.status.code().unwrap(), found)
}

#[test]
fn chain_survives_rotation_hand_over_restart_and_commands_that_write_to_it() {
    let api = Upstream::echo();
    let mut proxy = Setup::new()
        .conf(CHAIN)
        .tools("p", &api.url(), "", TOOLS)
        .start();
    let calls = |count: usize, proxy: &crate::support::ati::Proxy| {
        for _ in 0..count {
            assert_eq!(proxy.call(None, "look", json!({})).status, 200);
        }
    };
    calls(3, &proxy);
    proxy.wait_for_audit(3);
    let dir = proxy.dir.path().to_path_buf();
    assert_eq!(verify(&dir, &[]).0, 0);
    std::fs::rename(dir.join("audit.jsonl"), dir.join("audit.jsonl.1")).unwrap();
    calls(2, &proxy);
    proxy.wait_for_audit(2);
    // A command of the same folder, without the conf file.
    let run = ati(&dir, &["run", "look"]);
    assert!(run.status.success(), "{}", stderr(&run));
    let mut former = proxy.upgrade();
    calls(2, &proxy);
    assert!(former.wait().success());
    proxy.wait_for_audit(5);
    proxy.signal("TERM");
    assert!(proxy.wait().success());
    let (code, found) = verify(&dir, &["audit.jsonl.1", "audit.jsonl"]);
    assert_eq!(
        (code, &found["ok"], &found["lines"]),
        (0, &json!(true), &json!(8))
    );
    let (code, found) = verify(&dir, &[]);
    assert_eq!(
        (code, &found["first_seq"], &found["last_seq"]),
        (0, &json!(4), &json!(8))
    );
    // Entries read as ever.
    let tail = ati(&dir, &["audit", "tail", "-n", "2"]);
    let entries: Value = serde_json::from_str(&stdout(&tail)).unwrap();
    assert_eq!(entries[1]["tool"], "look");
}

#[test]
fn verify_names_the_first_line_that_does_not_fit() {
    let api = Upstream::echo();
    let mut proxy = Setup::new()
        .conf(CHAIN)
        .tools("p", &api.url(), "", TOOLS)
        .start();
    for n in 0..5 {
        assert_eq!(proxy.call(None, "look", json!({"n": n})).status, 200);
    }
    proxy.signal("TERM");
    assert!(proxy.wait().success());
    let (dir, file) = (proxy.dir.path(), proxy.path("audit.jsonl"));
    let whole = std::fs::read_to_string(&file).unwrap();
    let lines: Vec<&str> = whole.lines().collect();
    let changed = lines[1].replace("\"n\":1", "\"n\":7");
    assert_ne!(changed, lines[1]);
    for (kept, line) in [
        (vec![lines[0], &changed, lines[2], lines[3], lines[4]], 2),
        (vec![lines[0], lines[2], lines[3], lines[4]], 2),
        (vec![lines[1], lines[2], lines[3], lines[4]], 1),
        (vec![lines[0], lines[2], lines[1], lines[3], lines[4]], 2),
        (vec![lines[0], lines[1], lines[2], lines[3]], 5),
        (
            vec![lines[0], lines[1], "{}", lines[2], lines[3], lines[4]],
            3,
        ),
        (vec![], 1),
    ] {
        let kept: String = kept.iter().map(|line| format!("{line}\n")).collect();
        std::fs::write(&file, kept).unwrap();
        let (code, found) = verify(dir, &[]);
        assert_eq!((code, &found["ok"]), (1, &json!(false)), "{found}");
        assert_eq!(found["line"], line, "{found}");
        // The same for one who names the file, and has nothing else of its owner's.
        let other = tempfile::tempdir().unwrap();
        let named = ati(
            other.path(),
            &["audit", "verify", &file.display().to_string()],
        );
        assert_eq!(named.status.code(), Some(1), "{}", stdout(&named));
    }
    std::fs::write(&file, &whole).unwrap();
    let text = command(dir).args(["audit", "verify"]).output().unwrap();
    assert!(
        stdout(&text).starts_with("OK: 5 lines"),
        "{}",
        stdout(&text)
    );
    let (_, found) = verify(dir, &[]);
    let noted = found["hash"].as_str().unwrap();
    let contains = ati(dir, &["audit", "verify", "--contains", noted]);
    assert!(contains.status.success());
    let other = ati(dir, &["audit", "verify", "--contains", &"0".repeat(64)]);
    assert_eq!(other.status.code(), Some(1));
    let bad = ati(dir, &["audit", "verify", "--contains", "0"]);
    assert_eq!(bad.status.code(), Some(2));
}

#[test]
fn verify_of_a_file_without_chain_says_how_to_get_one() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("audit.jsonl"), "{\"tool\":\"a\"}\n").unwrap();
    let output = ati(dir.path(), &["audit", "verify"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("has no hash chain"),
        "{}",
        stderr(&output)
    );
    assert!(stderr(&output).contains("chain = true"));
    let missing = ati(dir.path(), &["audit", "verify", "/nowhere/audit.jsonl"]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(stderr(&missing).contains("/nowhere/audit.jsonl"));
}
