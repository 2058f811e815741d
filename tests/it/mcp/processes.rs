//! Server processes: their environment, their end, and their supervisor.

use std::collections::HashSet;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;

use super::{Gate, failure, is_alive, kill, result, started, with};
use crate::support::ati::BINARY;
use crate::support::eventually;
use crate::support::http::Client;

#[test]
fn server_process_sees_only_its_configured_environment() {
    let proxy = started(
        with("good", "[provider.mcp_env]\nGIVEN = \"v-${key}-w\"\n")
            .credentials(&json!({"key": "planted-secret-of-the-child"}))
            .env("NOT_FOR_CHILDREN", "1"),
    );
    let seen = result(&proxy, "s:env", json!({}));
    let seen = seen.as_str().unwrap();
    let names: HashSet<&str> = seen
        .lines()
        .map(|line| line.split('=').next().unwrap())
        .collect();
    assert_eq!(names, HashSet::from(["PATH", "HOME", "GIVEN"]));
    // A secret that the server repeats is redacted.
    assert!(
        seen.contains("GIVEN=v-") && !seen.contains("planted"),
        "{seen}"
    );

    // A secret in the list of tools is redacted too, also in the cache on disk.
    let telling = started(
        with("telltale", "[provider.mcp_env]\nGIVEN = \"v-${key}-w\"\n")
            .credentials(&json!({"key": "planted-secret-of-the-child"})),
    );
    let tool = telling.client().get("/tools/s%3Aecho").text();
    assert!(tool.contains("v-[REDACTED]-w"), "{tool}");
    eventually("the cache", || {
        telling.path("cache/tools/s.json").exists().then_some(())
    });
    let kept = std::fs::read_to_string(telling.path("cache/tools/s.json")).unwrap();
    assert!(!kept.contains("planted"), "{kept}");

    let proxy = with("good", "[provider.mcp_env]\nGIVEN = \"${absent}\"\n").start();
    proxy.log.wait_for("its tools can't be listed");
    let states = Client::connect(proxy.admin).get("/providers").json();
    assert!(
        states["s"]["error"]
            .as_str()
            .unwrap()
            .contains("'absent' not found in keyring"),
        "{states}"
    );
}

#[test]
fn server_process_killed_fails_only_calls_in_flight() {
    let proxy = started(with("good", ""));
    let pid = result(&proxy, "s:pid", json!({})).as_u64().unwrap() as u32;
    let gate = Gate::new(&proxy);
    let once: Vec<_> = (0..50).map(|_| gate.call(&proxy, "s:once")).collect();
    let again: Vec<_> = (0..50).map(|_| gate.call(&proxy, "s:slow")).collect();
    proxy.settles(r#"ati_in_flight{route="/call"}"#, 100.0);
    gate.wait_for("once");
    kill(pid);
    gate.open();
    // Calls that the server had received fail. Calls that still waited for it go to the next
    // process.
    let mut lost = 0;
    for thread in once {
        let (status, answer) = thread.join().unwrap();
        if status != 200 {
            lost += 1;
            assert_eq!(status, 502, "{answer}");
            let error = answer["error"].as_str().unwrap();
            assert!(
                error.contains("MCP transport error: [s] the server ended"),
                "{error}"
            );
        }
    }
    assert!((1..=50).contains(&lost), "{lost}");
    // Idempotent calls were repeated.
    for thread in again {
        let (status, answer) = thread.join().unwrap();
        assert_eq!(status, 200, "{answer}");
    }
    let started = Instant::now();
    let next = result(&proxy, "s:pid", json!({})).as_u64().unwrap() as u32;
    assert_ne!(next, pid);
    assert!(started.elapsed() < Duration::from_secs(5));
    assert!(failure(&proxy, "s:crash", json!({})).contains("its last words: crashing now"));
    // After two ends in so short a time the next start is delayed.
    eventually("the next server", || {
        let answer = proxy.call(None, "s:echo", json!({"text": "x"}));
        (answer.status == 200).then_some(())
    });
}

#[test]
fn server_processes_end_with_ati_even_when_it_is_killed() {
    for (signal, mode) in [
        ("KILL", "good"),
        ("TERM", "good"),
        ("KILL", "holding"),
        ("TERM", "holding"),
    ] {
        let mut proxy = started(with(mode, ""));
        let server = result(&proxy, "s:pid", json!({})).as_u64().unwrap() as u32;
        let grandchild = result(&proxy, "s:child", json!({})).as_u64().unwrap() as u32;
        assert!(is_alive(server) && is_alive(grandchild));
        proxy.signal(signal);
        proxy.wait();
        eventually("the end of all of them", || {
            (!is_alive(server) && !is_alive(grandchild)).then_some(())
        });
    }
}

#[test]
fn server_process_with_a_generated_token_serves_one_call() {
    let setup = with(
        "good",
        r#"
            [provider.auth_generator]
            type = "command"
            command = "sh"
            args = ["-c", "echo planted-minted-$(date +%N)"]
        "#,
    );
    let proxy = started(setup);
    // Each call has a token of its own, and so a server process of its own.
    let mut pids = HashSet::new();
    for _ in 0..3 {
        let seen = result(&proxy, "s:env", json!({}));
        let seen = seen.as_str().unwrap();
        assert!(seen.contains("ATI_AUTH_TOKEN=[REDACTED]"), "{seen}");
        pids.insert(result(&proxy, "s:pid", json!({})).as_u64().unwrap());
    }
    assert_eq!(pids.len(), 3);
    // The process ends with the call, also where the caller left.
    eventually("the end of the servers", || {
        pids.iter().all(|pid| !is_alive(*pid as u32)).then_some(())
    });
    let before = proxy.descriptors();
    let callers: Vec<Client> = (0..3)
        .map(|_| {
            let mut client = proxy.client();
            let body = json!({"tool_name": "s:once", "args": {"ms": 30_000}}).to_string();
            let length = body.len();
            let request =
                format!("POST /call HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n{body}");
            client.write(request.as_bytes());
            client
        })
        .collect();
    proxy.settles(r#"ati_in_flight{route="/call"}"#, 3.0);
    drop(callers);
    eventually("the descriptors", || {
        (proxy.descriptors() <= before).then_some(())
    });
}

#[test]
fn supervisor_ends_its_processes_when_its_stdin_closes() {
    let mut child = Command::new(BINARY)
        .args([
            "__supervise",
            "--",
            "sh",
            "-c",
            "trap '' TERM HUP; setsid sleep 3600 & echo $!; echo $$; sleep 3600",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let pids: Vec<u32> = (0..2)
        .map(|_| lines.next().unwrap().unwrap().parse().unwrap())
        .collect();
    assert!(pids.iter().all(|pid| is_alive(*pid)));
    drop(child.stdin.take());
    eventually("the end of all of them", || {
        pids.iter().all(|pid| !is_alive(*pid)).then_some(())
    });
    assert!(child.wait().unwrap().success());
}
