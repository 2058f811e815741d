//! Calls of programs among all the others: limits, scopes, the audit.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use super::{call, here, printed, result, setup, through, with_program, with_script, with_words};
use crate::support::eventually;
use crate::support::tokens::{bearer, claims, key_pair};

/// Writes a line, and waits for a file that its first word names.
const WAIT: &str = r#"echo x >> "$1.begun"; while ! [ -e "$1" ]; do sleep 0.01; done; echo ok"#;

fn begun(go: &str) -> usize {
    let text = std::fs::read_to_string(format!("{go}.begun")).unwrap_or_default();
    text.lines().count()
}

#[test]
fn calls_beyond_the_limit_wait_and_beyond_the_queue_get_503() {
    let proxy = with_script(setup(), "wait", WAIT, "cli_max_concurrent = 1").start();
    let go = proxy.path("go").to_str().unwrap().to_owned();
    let (accepted, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..12 {
            scope.spawn(|| {
                let answer = call(&proxy, &json!({"tool_name": "wait", "args": [go]}));
                if answer.status == 200 {
                    accepted.fetch_add(1, Ordering::Relaxed);
                    return;
                }
                assert_eq!(answer.status, 503, "{}", answer.text());
                assert_eq!(answer.header("retry-after"), Some("1"));
                let text = answer.json()["error"].as_str().unwrap().to_owned();
                assert_eq!(text, "CLI error: too many calls wait for provider 'wait'");
                refused.fetch_add(1, Ordering::Relaxed);
            });
        }
        // One runs and eight wait.
        eventually("refusals", || {
            (refused.load(Ordering::Relaxed) == 3).then_some(())
        });
        eventually("the first program", || (begun(&go) > 0).then_some(()));
        assert_eq!(begun(&go), 1);
        std::fs::write(&go, "").unwrap();
    });
    assert_eq!(accepted.load(Ordering::Relaxed), 9);
    assert_eq!(begun(&go), 9);
}

#[test]
fn call_that_waits_longer_than_its_time_gets_503() {
    let setup = with_script(setup(), "wait", WAIT, "cli_max_concurrent = 1");
    let proxy = setup.conf("[tools]\ntimeout_seconds = 1").start();
    let go = proxy.path("go").to_str().unwrap().to_owned();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| result(&proxy, "wait", &[&go]));
        eventually("the first program", || (begun(&go) == 1).then_some(()));
        let (status, error) = super::error(&proxy, "wait", &[&go]);
        assert_eq!(status, 503);
        assert!(
            error.contains("before provider 'wait' had room for it"),
            "{error}"
        );
        std::fs::write(&go, "").unwrap();
        // A program may take longer than a call of other tools.
        assert_eq!(first.join().unwrap(), "ok");
    });
    assert_eq!(begun(&go), 1);
}

#[test]
fn scopes_rates_and_extraction_hold_for_programs() {
    let (signer, public) = key_pair();
    let tools = r#"
        [[tools]]
        name = 'jq:first'
        scope = 'tool:jq_first'
        [tools.response]
        extract = '$.list[0]'
    "#;
    let setup = with_program(
        with_words(setup()),
        "jq",
        "jq",
        &format!("cli_default_args = ['-n']\n{tools}"),
    );
    let setup = with_program(setup, "hidden", "true", "internal = true");
    let proxy = setup.jwt(&public).start();
    let token = |scope: &str, rate: Value| {
        let mut claims = claims();
        claims.scope = scope.to_owned();
        claims.ati = serde_json::from_value(json!({"v": 1, "rate": rate})).unwrap();
        bearer(&signer, &claims)
    };
    let ask = |token: &str, tool: &str| {
        let answer = proxy.call(Some(token), tool, json!(["{list: [5, 6]}"]));
        (answer.status, answer.json())
    };
    let words = token("tool:words", json!({"tool:words": "2/hour"}));
    let (status, denied) = ask(&words, "jq:first");
    assert_eq!(status, 403);
    assert_eq!(
        denied["error"],
        "Access denied: 'jq:first' is not in your scopes"
    );
    assert_eq!(ask(&words, "hidden").0, 404);
    // A call that could never be sent doesn't count.
    let nul = proxy.call(Some(&words), "words", json!(["\u{0}"]));
    assert_eq!(nul.status, 422);
    for _ in 0..2 {
        assert_eq!(ask(&words, "words").0, 200);
    }
    assert_eq!(ask(&words, "words").0, 429);
    let jq = token("tool:jq_*", json!({}));
    for name in ["jq:first", "jq_first"] {
        let (status, answer) = ask(&jq, name);
        assert_eq!((status, &answer["result"]), (200, &json!(5)), "{answer}");
    }
    let audited = proxy.wait_for_audit(6);
    let denied = audited
        .iter()
        .find(|line| line["tool"] == "jq:first")
        .unwrap();
    assert_eq!(denied["args"], json!(["{list: [5, 6]}"]));
}

#[test]
fn words_are_audited_without_their_secrets() {
    let script = r#"echo "bad token: $2" >&2; exit $3"#;
    let setup = with_script(setup(), "login", script, "");
    let dir = setup.path().to_owned();
    let proxy = setup.start();
    let line = [
        "login",
        "--token",
        "planted-typed",
        "1",
        "--password=planted-too",
        "-H",
        "Authorization: Bearer planted-header",
    ];
    let words = &line[1..];
    let (_, error) = super::error(&proxy, "login", words);
    // The caller is told what it typed; the audit isn't.
    assert!(error.contains("bad token: planted-typed"), "{error}");
    let local = here(&dir).arg("run").args(line).output().unwrap();
    assert_eq!(local.status.code(), Some(1));
    let remote = through(&proxy).arg("run").args(line).output().unwrap();
    assert_eq!(remote.status.code(), Some(1));
    let ok = ["login", "--token", "planted-typed", "0", "list"];
    assert!(
        through(&proxy)
            .arg("run")
            .args(ok)
            .output()
            .unwrap()
            .status
            .success()
    );
    let expected = json!([
        "--token",
        "[REDACTED]",
        "1",
        "--password=[REDACTED]",
        "-H",
        "Authorization: [REDACTED]"
    ]);
    let audited = proxy.wait_for_audit(4);
    for line in &audited[..3] {
        assert_eq!(line["args"], expected);
        assert_eq!(
            line["error"],
            "CLI error: CLI exited with code 1: bad token: [REDACTED]"
        );
    }
    let own = std::fs::read_to_string(proxy.path("sandbox/audit.jsonl")).unwrap();
    let own: Vec<Value> = own
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(own[0]["args"], expected);
    assert_eq!(
        own[1]["args"],
        json!(["--token", "[REDACTED]", "0", "list"])
    );
    crate::support::ati::tells_nothing("the caller's audit", &own[1].to_string());
}

#[test]
fn output_flag_of_a_program_is_not_read_by_ati() {
    let setup = with_words(setup());
    let dir = setup.path().to_owned();
    let proxy = setup.start();
    for mut command in [here(&dir), through(&proxy)] {
        // As JSON, which is the default, and not as the text that the program is asked for.
        let result = printed(command.args(["run", "words", "--output", "text", "--format=table"]));
        assert_eq!(result, "--output|text|--format=table|");
    }
    for mut command in [here(&dir), through(&proxy)] {
        let output = command
            .args(["--output", "text", "run", "words", "a"])
            .output()
            .unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "a|\n");
    }
    assert!(Path::new(&dir).join("audit.jsonl").exists());
}
