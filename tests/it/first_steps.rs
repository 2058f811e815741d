//! What a newcomer types first: the example, the manual, and commands that aren't there yet.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::Value;

use crate::support::ati::{BINARY, ati, stderr, stdout, write};
use crate::support::eventually;
use crate::support::skip::skip;

/// The lines that `ati init --example` tells the user to paste.
fn next_lines(dir: &Path) -> Vec<String> {
    let output = ati(dir, &["-J", "init", "--example"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let done: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let lines = done["next"].as_array().unwrap().iter();
    lines
        .map(|line| line.as_str().unwrap().to_owned())
        .collect()
}

/// A bash in namespaces of its own: its loopback has every port free, there is no other network,
/// and no process of it outlives it.
fn shell(dir: &Path) -> Option<Child> {
    let bin = Path::new(BINARY).parent().unwrap();
    let path = std::env::var("PATH").unwrap();
    for flags in [&["--net"][..], &["--map-root-user", "--net"]] {
        let possible = Command::new("unshare")
            .args(flags)
            .args(["ip", "link"])
            .output();
        if !possible.is_ok_and(|output| output.status.success()) {
            continue;
        }
        // Job control, as at a prompt: the last line ends jobs by their numbers.
        let script = "ip link set lo up && exec bash --norc -m";
        let child = Command::new("unshare")
            .args(flags)
            .args(["--pid", "--fork", "--kill-child", "sh", "-c", script])
            .env_clear()
            .env("PATH", format!("{}:{path}", bin.display()))
            .env("HOME", dir)
            .current_dir(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn();
        return Some(child.unwrap());
    }
    skip("this machine allows no network namespaces");
    None
}

#[test]
fn quick_start_of_the_readme_is_what_the_example_says() {
    let dir = tempfile::tempdir().unwrap();
    let readme = include_str!("../../README.md");
    let (_, after) = readme.split_once("## Quick start").unwrap();
    let (_, block) = after.split_once("```sh\n").unwrap();
    let (block, _) = block.split_once("```").unwrap();
    let mut lines = vec!["ati init --example".to_owned()];
    lines.extend(next_lines(dir.path()));
    assert_eq!(block.lines().collect::<Vec<_>>(), lines);
}

/// Types these lines into a shell with namespaces of its own, and returns what it printed. None
/// where this machine can't make one.
fn pasted(dir: &Path, lines: &[String], last_answer: &str) -> Option<String> {
    let mut shell = shell(dir)?;
    let printed = Arc::new(Mutex::new(String::new()));
    let (mut stdout, kept) = (shell.stdout.take().unwrap(), printed.clone());
    std::thread::spawn(move || {
        let mut piece = [0; 4096];
        while let Ok(n @ 1..) = stdout.read(&mut piece) {
            kept.lock()
                .unwrap()
                .push_str(&String::from_utf8_lossy(&piece[..n]));
        }
    });
    let shows = |text: &str| printed.lock().unwrap().contains(text).then_some(());
    let mut prompt = shell.stdin.take().unwrap();
    for line in lines {
        writeln!(prompt, "{line}").unwrap();
        if line.starts_with("ati demo") {
            eventually("the API", || shows("serves on 127.0.0.1:18090"));
        }
    }
    drop(prompt);
    eventually("the end of the last line", || shell.try_wait().unwrap());
    eventually("the last answer", || shows(last_answer));
    let printed = printed.lock().unwrap().clone();
    Some(printed)
}

#[test]
fn pasted_lines_of_the_example_end_in_the_answer_of_a_tool() {
    let dir = tempfile::tempdir().unwrap();
    // In the folder of the home: ATI_DIR isn't set here.
    let mut lines = vec!["ati init --example".to_owned()];
    lines.extend(next_lines(dir.path()));
    let Some(printed) = pasted(dir.path(), &lines, "this API wants a key") else {
        return;
    };
    assert!(printed.contains("\"status\":\"ok\""), "{printed}");
    assert!(
        printed.contains("\"path\": \"/hello?name=Ada\""),
        "{printed}"
    );
    assert!(
        printed.contains("\"path\":\"/hello?name=Ada\""),
        "{printed}"
    );
    let shown = printed
        .matches("Bearer ****(17 characters, not yours)")
        .count();
    assert_eq!(shown, 2, "{printed}");
    assert!(!printed.contains("the-operators-key"), "{printed}");
}

#[test]
fn pasted_lines_of_the_readme_end_in_a_call_from_a_sandbox() {
    let dir = tempfile::tempdir().unwrap();
    let readme = include_str!("../../README.md");
    let (_, after) = readme.split_once("## A sandboxed agent").unwrap();
    let (_, block) = after.split_once("```sh\n").unwrap();
    let (block, _) = block.split_once("```").unwrap();
    let lines: Vec<String> = block.lines().map(str::to_owned).collect();
    let Some(printed) = pasted(dir.path(), &lines, "/hello?name=Ada") else {
        return;
    };
    assert!(printed.contains("\"tool\": \"example:hello\""), "{printed}");
    assert!(
        printed.contains("Bearer ****(17 characters, not yours)"),
        "{printed}"
    );
}

#[test]
fn init_with_example_keeps_what_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    write(&dir.join("credentials"), r#"{"example_api_key": "mine"}"#);
    write(
        &dir.join("manifests/example-tool.toml"),
        "[provider]\nname = 'mine'\n",
    );
    write(&dir.join("config.toml"), "[mine]\nx = 1\n");
    for _ in 0..2 {
        let output = ati(dir, &["init", "--example"]);
        assert!(output.status.success(), "{}", stderr(&output));
        assert_eq!(stdout(&output), "");
        assert!(stderr(&output).contains("kept "), "{}", stderr(&output));
    }
    let read = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap();
    assert_eq!(
        read("manifests/example-tool.toml"),
        "[provider]\nname = 'mine'\n"
    );
    assert_eq!(read("config.toml"), "[mine]\nx = 1\n");
    let keys: Value = serde_json::from_str(&read("credentials")).unwrap();
    assert_eq!(keys["example_api_key"], "mine");
    assert_eq!(
        keys["sandbox_signing_shared_secret"]
            .as_str()
            .unwrap()
            .len(),
        64
    );
    let mode = std::fs::metadata(dir.join("credentials"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn init_with_example_writes_no_key_next_to_a_sealed_keyring() {
    let dir = tempfile::tempdir().unwrap();
    write(&dir.path().join("keyring.enc"), "sealed");
    let output = ati(dir.path(), &["init", "--example"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("keyring.enc"),
        "{}",
        stderr(&output)
    );
    assert!(!dir.path().join("credentials").exists());
}

#[test]
fn init_says_what_to_do_next() {
    let dir = tempfile::tempdir().unwrap();
    let output = ati(dir.path(), &["init"]);
    assert_eq!(stdout(&output), "");
    for part in ["initialized ", "ati init --example", "ati key set"] {
        assert!(
            stderr(&output).contains(part),
            "{part}: {}",
            stderr(&output)
        );
    }
}

#[test]
fn added_program_that_is_not_installed_is_said_to_be_missing() {
    let dir = tempfile::tempdir().unwrap();
    let command = ["provider", "add-cli", "gh", "--command", "no-such-program"];
    let text = stderr(&ati(dir.path(), &command));
    assert!(text.contains("saved manifest"), "{text}");
    let run = ati(dir.path(), &["run", "gh", "issue", "list"]);
    assert_eq!(run.status.code(), Some(1));
    let text = stderr(&run);
    let expected = "Failed to spawn CLI process: no-such-program: no such program";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn tool_of_a_provider_with_an_unknown_handler_is_said_to_be_absent() {
    let dir = tempfile::tempdir().unwrap();
    write(
        &dir.path().join("manifests/odd.toml"),
        "[provider]\nname = 'odd'\nhandler = 'teleport'",
    );
    let run = ati(dir.path(), &["run", "odd"]);
    assert_eq!(run.status.code(), Some(1));
    let text = stderr(&run);
    assert!(
        text.contains("Unknown tool: 'odd'") && text.contains("unknown handler 'teleport'"),
        "{text}"
    );
}

#[test]
fn manual_has_a_page_for_each_command() {
    let dir = tempfile::tempdir().unwrap();
    let page = stdout(&ati(dir.path(), &["man"]));
    assert!(page.starts_with(".TH ati 1 "), "{page}");
    let issue = stdout(&ati(dir.path(), &["man", "token", "issue"]));
    assert!(issue.starts_with(".TH ati-token-issue 1 "), "{issue}");
    assert!(
        issue.contains(".SH EXAMPLES") && issue.contains("\\-\\-scope"),
        "{issue}"
    );
    let unknown = ati(dir.path(), &["man", "nonsense"]);
    assert_eq!(unknown.status.code(), Some(2));
    let pages = dir.path().join("pages/man1");
    let written = ati(dir.path(), &["man", "--dir", pages.to_str().unwrap()]);
    assert!(written.status.success(), "{}", stderr(&written));
    let help = stdout(&ati(dir.path(), &["--help"]));
    let commands = help
        .split("Commands:\n")
        .nth(1)
        .unwrap()
        .split("\n\n")
        .next()
        .unwrap();
    let mut count = 0;
    for line in commands.lines().filter(|line| !line.starts_with("   ")) {
        let name = line.split_whitespace().next().unwrap();
        if name == "help" {
            continue;
        }
        let text = std::fs::read_to_string(pages.join(format!("ati-{name}.1"))).unwrap();
        assert!(text.starts_with(".TH "), "{name}");
        assert!(
            page.contains(&format!("ati\\-{name}(1)")),
            "{name} in\n{page}"
        );
        count += 1;
    }
    assert!(count > 15, "{count}");
    assert!(pages.join("ati-edge-keyring-list.1").exists());
    assert!(!pages.join("ati-__complete.1").exists());
}
