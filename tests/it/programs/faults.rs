//! Programs that fail, and programs that don't behave.

use std::time::{Duration, Instant};

use serde_json::json;

use super::{call, error, failed, here, result, setup, through, with_program, with_script};
use crate::support::ati::Proxy;
use crate::support::eventually;

/// Processes of this machine with this text among their words, zombies aside.
pub fn running(text: &str) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|it| std::fs::read(it.path().join("cmdline")).ok());
    let has = |line: &Vec<u8>| String::from_utf8_lossy(line).contains(text);
    lines.filter(has).count()
}

fn ends(marker: &str) {
    eventually("the end of all processes of a call", || {
        (running(marker) == 0).then_some(())
    });
}

fn bounded(proxy: &Proxy, tool: &str) -> (u16, String) {
    let begun = Instant::now();
    let answer = error(proxy, tool, &[]);
    assert!(
        begun.elapsed() < Duration::from_secs(20),
        "{:?}",
        begun.elapsed()
    );
    answer
}

#[test]
fn each_failure_has_its_own_text_and_code() {
    let mut setup = setup();
    for (name, script, more) in [
        ("exits", "echo out; echo broken >&2; exit 3", ""),
        ("tells", "echo 'told on stdout'; exit 4", ""),
        ("dies", "echo last >&2; kill -9 $$", ""),
        ("slow", "sleep 600", "cli_timeout_secs = 1"),
        ("loud", "yes", ""),
    ] {
        setup = with_script(setup, name, script, more);
    }
    setup = with_program(setup, "missing", "no-such-program", "");
    let plain = setup.path().join("plain");
    setup = with_program(
        setup.file("plain", "text"),
        "plain",
        plain.to_str().unwrap(),
        "",
    );
    setup = with_program(setup, "nowhere", "true", "cli_cwd = '/nonexistent/folder'");
    setup = with_program(setup, "poor", "true", "cli_env = { K = '${absent}' }");
    let dir = setup.path().to_owned();
    let proxy = setup.conf("[tools]\nmax_response_bytes = 100000").start();
    for (tool, text, code) in [
        ("exits", "CLI exited with code 3: broken", 1),
        ("tells", "CLI exited with code 4: told on stdout", 1),
        ("dies", "CLI was ended by signal 9 (SIGKILL): last", 1),
        ("slow", "CLI timed out after 1s", 4),
        (
            "missing",
            "Failed to spawn CLI process: no-such-program: no such program",
            1,
        ),
        ("plain", "/plain: no file that can be executed", 1),
        ("nowhere", "/nonexistent/folder", 1),
        ("poor", "Missing keyring key: absent", 3),
    ] {
        let (status, error) = bounded(&proxy, tool);
        assert_eq!(status, 502, "{tool}: {error}");
        assert!(
            error.starts_with("CLI error: ") && error.contains(text),
            "{tool}: {error}"
        );
        for (mut command, begin) in [(here(&dir), ""), (through(&proxy), "Proxy error (502): ")] {
            let (output, told) = failed(command.args(["run", tool]));
            assert_eq!(output.status.code(), Some(code), "{tool}: {told}");
            assert!(
                told.contains(&format!("{begin}CLI error: ")),
                "{tool}: {told}"
            );
            assert!(told.contains(text), "{tool}: {told}");
        }
    }
    let (status, error) = bounded(&proxy, "loud");
    assert_eq!(
        (status, error.as_str()),
        (
            502,
            "CLI error: CLI wrote more than 100000 bytes to its output"
        )
    );
}

#[test]
fn program_that_ignores_sigterm_is_killed_with_all_that_it_started() {
    let marker = "4242.517";
    let script =
        format!("trap '' TERM; (trap '' TERM; sleep {marker}) & while :; do sleep {marker}; done");
    let proxy = with_script(setup(), "stubborn", &script, "cli_timeout_secs = 1").start();
    assert_eq!(
        bounded(&proxy, "stubborn"),
        (502, "CLI error: CLI timed out after 1s".to_owned())
    );
    ends(marker);
}

#[test]
fn program_that_forks_and_leaves_has_ended_with_the_call() {
    let marker = "4242.518";
    let script =
        format!("setsid sh -c 'trap \"\" HUP TERM; sleep {marker}' & sleep {marker} & echo done");
    let proxy = with_script(setup(), "forks", &script, "").start();
    let begun = Instant::now();
    assert_eq!(result(&proxy, "forks", &[]), "done");
    assert!(begun.elapsed() < Duration::from_secs(20));
    ends(marker);
}

#[test]
fn program_that_fills_stderr_is_answered_and_told_in_part() {
    let script = "head -c 50000000 /dev/zero | tr '\\0' e >&2; echo the end >&2; exit $1";
    let proxy = with_script(setup(), "chatty", script, "").start();
    assert_eq!(result(&proxy, "chatty", &["0"]), "");
    let (_, error) = error(&proxy, "chatty", &["1"]);
    assert!(error.len() < 20_000, "{}", error.len());
    assert!(
        error.starts_with("CLI error: CLI exited with code 1: eee"),
        "{}",
        &error[..100]
    );
    assert!(
        error.ends_with("the end"),
        "{}",
        &error[error.len() - 100..]
    );
}

#[test]
fn program_that_reads_its_input_finds_none_on_a_proxy() {
    let proxy = with_program(setup(), "cat", "cat", "").start();
    assert_eq!(result(&proxy, "cat", &[]), "");
}

/// The 10 GiB are limited to what passes before the program is ended.
#[test]
fn program_that_writes_without_end_is_ended() {
    let marker = "10737418240";
    let script = format!("head -c {marker} /dev/zero");
    let proxy = with_script(setup(), "endless", &script, "").start();
    let (status, error) = bounded(&proxy, "endless");
    assert_eq!(
        (status, error.as_str()),
        (
            502,
            "CLI error: CLI wrote more than 67108864 bytes to its output"
        )
    );
    ends(marker);
}

#[test]
fn caller_that_leaves_ends_the_program() {
    let marker = "4242.519";
    let script = format!("sleep {marker}");
    let proxy = with_script(setup(), "long", &script, "").start();
    let body = json!({"tool_name": "long"}).to_string();
    let head = format!(
        "POST /call HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut client = proxy.client();
    client.write(head.as_bytes());
    eventually("the program's start", || {
        (running(marker) > 0).then_some(())
    });
    drop(client);
    ends(marker);
    let audited = proxy.wait_for_audit(1);
    assert!(
        audited[0]["error"]
            .as_str()
            .unwrap()
            .starts_with("abandoned")
    );
    // There is room for others.
    let answer = call(&proxy, &json!({"tool_name": "nothing"}));
    assert_eq!(answer.status, 404);
}

#[test]
fn big_output_is_spooled_and_the_same() {
    let json = "seq -s , 1 400000 | sed 's/^/[/; s/$/]/'";
    let setup = with_script(setup(), "numbers", json, "");
    let setup = with_script(setup, "lines", "echo; seq 1 400000; echo", "");
    let dir = setup.path().to_owned();
    let proxy = setup.start();
    let numbers = result(&proxy, "numbers", &[]);
    assert_eq!(numbers.as_array().unwrap().len(), 400_000);
    let lines = result(&proxy, "lines", &[]);
    let lines = lines.as_str().unwrap();
    assert!(lines.starts_with("1\n2\n") && lines.ends_with("\n400000"));
    let local = super::printed(here(&dir).args(["run", "lines"]));
    assert!(local == lines);
}
