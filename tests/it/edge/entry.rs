//! One credential of a sealed keyring, changed in place; and `ati key`, which stores others.

use std::io::Write;
use std::path::Path;
use std::process::{Output, Stdio};

use serde_json::json;
use tempfile::TempDir;

use super::{edge, litter, names};
use crate::support::ati::{Setup, command, stderr, stdout, tells_nothing, tool, write};
use crate::support::eventually;
use crate::support::upstream::Upstream;

/// A folder with a sealed keyring of these credentials.
fn sealed(dir: &Path, entries: &serde_json::Value) {
    let source = dir.join("source.json");
    write(&source, entries.to_string());
    let args = ["bootstrap-keyring", "--from-file", source.to_str().unwrap()];
    let made = edge(dir, &args);
    assert!(made.status.success(), "{}", stderr(&made));
}

fn folder() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    sealed(
        dir.path(),
        &json!({"api": "planted-one", "other": "planted-two"}),
    );
    dir
}

/// `ati` with this on its standard input.
fn fed(dir: &Path, args: &[&str], input: &str) -> Output {
    let mut child = command(dir)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that refuses doesn't read it.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    tells_nothing("stdout", &stdout(&output));
    tells_nothing("stderr", &stderr(&output));
    output
}

fn set(dir: &Path, name: &str, value: &str) -> Output {
    let folder = dir.to_str().unwrap();
    let args = ["edge", "keyring", "set", name, "--ati-dir", folder];
    fed(dir, &args, value)
}

/// What a rotation to these credentials would change.
fn differences(dir: &Path, entries: &serde_json::Value) -> String {
    let source = dir.join("source.json");
    write(&source, entries.to_string());
    let source = source.to_str().unwrap();
    stdout(&edge(dir, &["keyring", "diff", "--from-file", source]))
}

#[test]
fn entry_set_from_standard_input_is_added_or_replaced_under_the_same_session_key() {
    let dir = folder();
    let dir = dir.path();
    let key = std::fs::read(dir.join(".keyring-key")).unwrap();
    let replaced = set(dir, "api", "planted-changed\n");
    assert!(replaced.status.success(), "{}", stderr(&replaced));
    let said = stdout(&replaced);
    assert!(
        said.starts_with(&format!("replaced 'api' in {}", dir.display())),
        "{said}"
    );
    assert!(said.contains("SIGHUP"), "{said}");
    assert!(stdout(&set(dir, "new", "planted-multi\nline")).starts_with("added 'new'"));
    let now =
        json!({"api": "planted-changed", "other": "planted-two", "new": "planted-multi\nline"});
    assert_eq!(differences(dir, &now), "");
    assert_eq!(std::fs::read(dir.join(".keyring-key")).unwrap(), key);
    assert!(litter(dir).is_empty(), "{:?}", litter(dir));
}

#[test]
fn entry_that_cannot_be_set_leaves_the_keyring_as_it_is() {
    let dir = folder();
    let dir = dir.path();
    let before = std::fs::read(dir.join("keyring.enc")).unwrap();
    for (name, value, code) in [
        ("api", "", 2),
        ("api", "\n", 2),
        ("", "planted-x", 2),
        ("planted-secret=x", "planted-x", 2),
    ] {
        let failed = set(dir, name, value);
        assert_eq!(failed.status.code(), Some(code), "{name}");
    }
    let missing = edge(dir, &["keyring", "remove", "gone"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(
        stderr(&missing).contains("'gone' is not in"),
        "{}",
        stderr(&missing)
    );
    // Another session key than the one that sealed it.
    let key = std::fs::read(dir.join(".keyring-key")).unwrap();
    let other = ati::keyring::SessionKey::generate().unwrap();
    write(&dir.join(".keyring-key"), other.to_base64().as_bytes());
    let foreign = set(dir, "api", "planted-x");
    assert_eq!(foreign.status.code(), Some(3));
    assert!(
        stderr(&foreign).contains("can't be decrypted"),
        "{}",
        stderr(&foreign)
    );
    write(&dir.join(".keyring-key"), key);
    assert_eq!(std::fs::read(dir.join("keyring.enc")).unwrap(), before);
    let nowhere = set(&dir.join("nowhere"), "api", "planted-x");
    assert!(
        stderr(&nowhere).contains("bootstrap-keyring"),
        "{}",
        stderr(&nowhere)
    );
    assert!(!dir.join("nowhere").exists());
}

#[test]
fn entry_is_removed_unless_it_is_the_last_one() {
    let dir = folder();
    let dir = dir.path();
    let removed = edge(dir, &["keyring", "remove", "other"]);
    assert!(removed.status.success(), "{}", stderr(&removed));
    assert!(stdout(&removed).starts_with("removed 'other' in "));
    assert_eq!(names(dir), ["api"]);
    let last = edge(dir, &["keyring", "remove", "api"]);
    assert_eq!(last.status.code(), Some(2));
    assert_eq!(names(dir), ["api"]);
}

#[test]
fn entry_that_was_set_reaches_a_running_proxy() {
    let api = Upstream::echo();
    let setup = Setup::new().tools(
        "p",
        &api.url(),
        "auth_type = 'bearer'\nauth_key_name = 'api'",
        &tool("p", ""),
    );
    sealed(
        setup.path(),
        &json!({"api": "planted-one", "other": "planted-two"}),
    );
    let proxy = setup.start();
    let sent = || {
        proxy.call(None, "p", json!({}));
        api.last().header("authorization").unwrap().to_owned()
    };
    assert_eq!(sent(), "Bearer planted-one");
    let pid_file = proxy.path("pid");
    write(&pid_file, proxy.pid().to_string());
    let folder = proxy.dir.path().to_str().unwrap();
    let mut args = vec!["edge", "keyring", "set", "api", "--ati-dir", folder];
    args.extend(["--pid-file", pid_file.to_str().unwrap()]);
    let set = fed(proxy.dir.path(), &args, "planted-next");
    assert!(stdout(&set).contains("SIGHUP sent to"), "{}", stderr(&set));
    proxy.log.wait_for("reload done");
    eventually("the new credential", || {
        (sent() == "Bearer planted-next").then_some(())
    });
}

#[test]
fn differences_give_exit_code_1_only_where_it_is_asked_for() {
    let dir = folder();
    let dir = dir.path();
    let diff = |entries: serde_json::Value, more: &[&str]| {
        let source = dir.join("source.json");
        write(&source, entries.to_string());
        let args = ["keyring", "diff", "--from-file", source.to_str().unwrap()];
        edge(dir, &[&args, more].concat()).status.code()
    };
    let same = json!({"api": "planted-one", "other": "planted-two"});
    assert_eq!(diff(same, &["--exit-code"]), Some(0));
    assert_eq!(diff(json!({"api": "planted-one"}), &[]), Some(0));
    assert_eq!(
        diff(json!({"api": "planted-one"}), &["--exit-code"]),
        Some(1)
    );
}

#[test]
fn key_set_where_a_sealed_keyring_is_used_is_refused_without_force() {
    let dir = folder();
    let dir = dir.path();
    let refused = fed(dir, &["key", "set", "api", "planted-vain"], "");
    assert_eq!(refused.status.code(), Some(2));
    let said = stderr(&refused);
    assert!(
        said.contains("keyring.enc is used instead") && said.contains("ati edge keyring set api"),
        "{said}"
    );
    assert!(!dir.join("credentials").exists());
    assert!(
        fed(dir, &["key", "set", "api", "-", "--force"], "planted-kept")
            .status
            .success()
    );
    assert!(dir.join("credentials").exists());
    // A keyring that doesn't open here: 'ati run' uses the file.
    std::fs::remove_file(dir.join(".keyring-key")).unwrap();
    let unopened = fed(dir, &["key", "set", "more", "planted-more"], "");
    assert!(unopened.status.success());
    assert!(
        stderr(&unopened).contains("can't be opened here"),
        "{}",
        stderr(&unopened)
    );
}

#[test]
fn key_set_without_a_value_reads_standard_input() {
    let dir = tempfile::tempdir().unwrap();
    let json = "{\n  \"type\": \"planted-account\"\n}\n";
    let stored = fed(dir.path(), &["key", "set", "gcp_credentials"], json);
    assert!(stored.status.success(), "{}", stderr(&stored));
    let text = std::fs::read_to_string(dir.path().join("credentials")).unwrap();
    let all: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(all["gcp_credentials"], json.trim_end());
    let nothing = fed(dir.path(), &["key", "set", "empty"], "");
    assert_eq!(nothing.status.code(), Some(2));
}

#[test]
fn keyring_source_and_missing_key_are_told_by_a_local_call() {
    let dir = folder();
    let dir = dir.path();
    let manifest = |name: &str, key: &str| {
        let auth = format!("auth_type = 'bearer'\nauth_key_name = '{key}'");
        let tools = tool(name, "");
        format!("[provider]\nname = '{name}'\nbase_url = 'http://127.0.0.1:1'\n{auth}\n{tools}")
    };
    write(&dir.join("manifests/has.toml"), manifest("has", "api"));
    write(
        &dir.join("manifests/lacks.toml"),
        manifest("lacks", "absent"),
    );
    let open =
        "[provider]\nname = 'open'\nbase_url = 'http://127.0.0.1:1'\n[[tools]]\nname = 'open'\n";
    write(&dir.join("manifests/open.toml"), open);
    let run = |args: &[&str]| stderr(&fed(dir, args, ""));
    let line = "keyring: keyring.enc (persistent key)";
    for tool in ["has", "open"] {
        let said = run(&["--verbose", "run", tool]);
        assert!(
            said.contains("mode: local") && said.contains(line),
            "{said}"
        );
    }
    assert!(!run(&["run", "has"]).contains("keyring:"));
    let said = run(&["run", "lacks"]);
    assert!(said.contains("hint: ati edge keyring set absent"), "{said}");
    std::fs::remove_file(dir.join("keyring.enc")).unwrap();
    let said = run(&["run", "lacks"]);
    assert!(said.contains("hint: ati key set absent -"), "{said}");
}
