//! `ati assist` on a terminal: the answer is shown while it comes.

use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;
use std::sync::mpsc;

use super::llm::{Llm, events};
use super::{QUOTE, folder};
use crate::support::PATIENCE;
use crate::support::ati::{BINARY, stdout};
use crate::support::upstream::Upstream;

/// Runs a command on a terminal, prints what it shows, and ends as it ends.
const SHOW: &str = r#"
import os, pty, sys
status = pty.spawn(sys.argv[1:])
sys.exit(os.waitstatus_to_exitcode(status))
"#;

fn on_a_terminal(dir: &std::path::Path, args: &[&str]) -> Command {
    let mut command = Command::new("python3");
    command
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", dir)
        .env("ATI_DIR", dir)
        .env("ATI_KEY_FILE", dir.join("one-shot"))
        .args(["-c", SHOW, BINARY])
        .args(args)
        .stdin(Stdio::null());
    command
}

fn shown(output: &Output) -> String {
    stdout(output).replace("\r\n", "\n")
}

#[test]
fn answer_in_pieces_is_shown_without_commands_that_would_not_run() {
    for is_anthropic in [false, true] {
        let llm = Llm::saying(&format!("{QUOTE}\n`ati run market:bogus`\nDone."));
        let dir = folder(&llm.url());
        let mut command = on_a_terminal(dir.path(), &["assist", "a price?"]);
        if is_anthropic {
            crate::support::ati::write(&dir.path().join("credentials"), "{}");
            command.env("ANTHROPIC_API_KEY", "planted-a");
            command.env("ANTHROPIC_BASE_URL", llm.url());
        }
        let output = command.output().unwrap();
        let text = shown(&output);
        assert!(output.status.success(), "{text}");
        assert!(
            text.contains("\nati run market:quote --symbol AAPL\n"),
            "{text}"
        );
        assert!(
            text.contains("Done.") && text.contains("Quick Reference"),
            "{text}"
        );
        assert!(!text.contains("`ati run market:bogus`"), "{text}");
        assert_eq!(llm.asked()["stream"], true);
    }
}

#[test]
fn first_line_is_shown_while_the_rest_is_awaited() {
    let (go, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let llm = Llm(Upstream::answering(move |_, stream| {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
                    connection: close\r\n\r\n";
        let _ = stream.write_all(head.as_bytes());
        for event in &events("First line.\nSecond", false)[..3] {
            let _ = stream.write_all(event.as_bytes());
        }
        let _ = wait.lock().unwrap().recv_timeout(PATIENCE);
        let _ = stream.write_all(b"data: [DONE]\n\n");
        false
    }));
    let dir = folder(&llm.url());
    let mut command = on_a_terminal(dir.path(), &["assist", "a price?"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut out, &mut line).unwrap();
    assert_eq!(line.trim_end(), "First line.");
    go.send(()).unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn half_a_stream_is_a_failure_after_what_was_shown() {
    let whole = events("First line.\nSecond line", false);
    let half = whole[..3].concat();
    let llm = Llm::raw(format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n{half}"
    ));
    let dir = folder(&llm.url());
    let output = on_a_terminal(dir.path(), &["assist", "a price?"])
        .output()
        .unwrap();
    let text = shown(&output);
    assert_eq!(output.status.code(), Some(4), "{text}");
    assert!(text.starts_with("First line.\n"), "{text}");
    assert!(
        text.contains("LLM request failed: its answer ended in the middle"),
        "{text}"
    );
}
