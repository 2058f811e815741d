//! `ati plan execute`, killed in the middle and run again.

use std::io::Write;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;

use super::execute::{execute, here, plan};
use super::{code, market_manifest};
use crate::support::ati::{Setup, command, stderr};
use crate::support::tokens::{bearer, claims, key_pair};
use crate::support::upstream::Upstream;
use crate::support::{PATIENCE, eventually};
use ati::auth::token::Claims;

/// Answers all but requests for HANG, while that is so.
fn hanging() -> (Upstream, Arc<AtomicBool>) {
    let hangs = Arc::new(AtomicBool::new(true));
    let still = hangs.clone();
    let upstream = Upstream::answering(move |received, stream| {
        let body = String::from_utf8_lossy(&received.body).into_owned();
        let is_meant = received.target.contains("HANG") || body.contains("HANG");
        if is_meant && still.load(Ordering::SeqCst) {
            // Until the caller is gone.
            let _ = stream.set_read_timeout(Some(PATIENCE));
            let _ = std::io::Read::read(stream, &mut [0; 1]);
            return false;
        }
        let answer = json!({"symbol": "AAPL", "id": 7}).to_string();
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n",
            answer.len()
        );
        stream.write_all((head + &answer).as_bytes()).is_ok()
    });
    (upstream, hangs)
}

/// Starts a plan, and kills it once the upstream has got so many requests.
fn killed_after(requests: usize, dir: &std::path::Path, file: &str, upstream: &Upstream) {
    let mut child = command(dir)
        .args(["plan", "execute", file])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    eventually("the request", || {
        (upstream.received().len() >= requests).then_some(())
    });
    child.kill().unwrap();
    child.wait().unwrap();
}

fn count(upstream: &Upstream, method: &str) -> usize {
    let received = upstream.received();
    received.iter().filter(|one| one.method == method).count()
}

#[test]
fn idempotent_step_repeats_and_the_one_before_it_does_not() {
    let (upstream, hangs) = hanging();
    let dir = here(&upstream);
    let steps = json!([
        ["market:order", {"symbol": "A"}],
        ["market:quote", {"symbol": "HANG"}],
        ["market:order", {"symbol": "{{steps.1.symbol}}"}],
    ]);
    let file = plan(dir.path(), steps);
    killed_after(2, dir.path(), &file, &upstream);
    hangs.store(false, Ordering::SeqCst);
    let output = execute(dir.path(), &file, &[]);
    let said = stderr(&output);
    assert_eq!(code(&output), Some(0), "{said}");
    assert!(said.contains("[SKIP] done by the earlier run"), "{said}");
    assert_eq!((count(&upstream, "GET"), count(&upstream, "POST")), (2, 2));
    // The result of the step that wasn't repeated is in the journal.
    let body = String::from_utf8(upstream.last().body).unwrap();
    assert!(body.contains("AAPL"), "{body}");
}

#[test]
fn step_that_is_not_idempotent_is_not_repeated_until_its_caller_says_so() {
    let (upstream, hangs) = hanging();
    let dir = here(&upstream);
    let steps = json!([
        ["market:quote", {"symbol": "A"}],
        ["market:order", {"symbol": "HANG"}],
        ["market:quote", {"symbol": "B"}],
    ]);
    let file = plan(dir.path(), steps);
    killed_after(2, dir.path(), &file, &upstream);
    hangs.store(false, Ordering::SeqCst);
    for _ in 0..2 {
        let output = execute(dir.path(), &file, &[]);
        let said = stderr(&output);
        assert_eq!(code(&output), Some(1), "{said}");
        assert!(said.contains("Step 2 ('market:order') had begun"), "{said}");
        assert!(
            said.contains("--from 3") && said.contains("--from 2"),
            "{said}"
        );
        assert_eq!(count(&upstream, "POST"), 1);
    }
    // What only reads is read again.
    assert_eq!(count(&upstream, "GET"), 3);
    let output = execute(dir.path(), &file, &["--from", "3"]);
    assert_eq!(code(&output), Some(0), "{}", stderr(&output));
    assert_eq!((count(&upstream, "GET"), count(&upstream, "POST")), (4, 1));
}

#[test]
fn two_executions_of_one_plan_do_not_run_at_the_same_time() {
    let (upstream, _hangs) = hanging();
    let dir = here(&upstream);
    let file = plan(dir.path(), json!([["market:quote", {"symbol": "HANG"}]]));
    let mut first = command(dir.path())
        .args(["plan", "execute", &file])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    eventually("the request", || {
        (!upstream.received().is_empty()).then_some(())
    });
    let output = execute(dir.path(), &file, &[]);
    first.kill().unwrap();
    first.wait().unwrap();
    assert_eq!(code(&output), Some(1));
    assert!(
        stderr(&output).contains("executed by another process"),
        "{}",
        stderr(&output)
    );
    assert_eq!(upstream.received().len(), 1);
}

#[test]
fn gateway_that_had_no_answer_leaves_a_step_in_doubt() {
    for status in [
        "504 Gateway Timeout",
        "502 Bad Gateway",
        "408 Request Timeout",
    ] {
        let upstream = Upstream::answering(move |_, stream| {
            super::llm::whole(stream, status, "", r#"{"error": "no answer"}"#)
        });
        let (signer, public) = key_pair();
        let proxy = Setup::new()
            .manifest("market", &market_manifest(&upstream.url()))
            .credentials(&json!({"market_key": "planted-market"}))
            .jwt(&public)
            .start();
        let dir = here(&upstream);
        let file = plan(dir.path(), json!([["market:order", {"symbol": "A"}]]));
        let scope = "tool:market:*".to_owned();
        let token = bearer(&signer, &Claims { scope, ..claims() });
        let run = |is_proxied: bool| {
            let journal = format!("{file}.{is_proxied}");
            let mut command = command(dir.path());
            command.args(["plan", "execute", &file, "--journal", &journal]);
            if is_proxied {
                command.env("ATI_PROXY_URL", format!("http://{}", proxy.edge));
                command.env("ATI_SESSION_TOKEN", token.trim_start_matches("Bearer "));
            }
            command.output().unwrap()
        };
        for is_proxied in [false, true] {
            let before = count(&upstream, "POST");
            let output = run(is_proxied);
            assert_eq!(code(&output), Some(4), "{status}: {}", stderr(&output));
            let sent = count(&upstream, "POST");
            assert!(sent > before);
            let output = run(is_proxied);
            let said = stderr(&output);
            assert_eq!(code(&output), Some(1), "{status}: {said}");
            assert!(said.contains("Step 1 ('market:order') had begun"), "{said}");
            assert_eq!(count(&upstream, "POST"), sent);
        }
    }
}
