//! `ati plan execute`: what is checked before the first step, and what each step gets.

use std::path::Path;
use std::process::{Output, Stdio};

use serde_json::{Value, json};

use super::{code, market, market_manifest, run};
use crate::support::ati::{Setup, command, stderr, stdout, tells_nothing, write};
use crate::support::tokens::{bearer, claims, key_pair};
use crate::support::upstream::{Received, Upstream};
use ati::auth::token::Claims;

pub fn plan(dir: &Path, steps: Value) -> String {
    let steps: Vec<Value> = steps
        .as_array()
        .unwrap()
        .iter()
        .map(|step| json!({"tool": step[0], "args": step[1], "description": "a step"}))
        .collect();
    let plan = json!({"query": "q", "steps": steps, "created_at": "2025-01-01T00:00:00Z"});
    let path = dir.join("plan.json");
    write(&path, plan.to_string());
    path.to_str().unwrap().to_owned()
}

pub fn execute(dir: &Path, plan: &str, more: &[&str]) -> Output {
    run(
        &mut command(dir),
        &[&["plan", "execute", plan], more].concat(),
    )
}

/// Answers with the request's target and body, and fails on symbol FAIL.
pub fn shop() -> Upstream {
    Upstream::answering(|received, stream| {
        let body = String::from_utf8_lossy(&received.body).into_owned();
        let failing = received.target.contains("FAIL") || body.contains("FAIL");
        let answer = json!({
            "symbol": "AAPL",
            "data": [{"name": "COOK", "id": 7}],
            "target": received.target,
            "body": serde_json::from_str::<Value>(&body).unwrap_or_default(),
        });
        let status = if failing { "500 Oops" } else { "200 OK" };
        super::llm::whole(stream, status, "", &answer.to_string())
    })
}

pub fn here(upstream: &Upstream) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    market(dir.path(), &upstream.url());
    write(
        &dir.path().join("credentials"),
        r#"{"market_key": "planted-market"}"#,
    );
    dir
}

fn targets(upstream: &Upstream) -> Vec<String> {
    let received = upstream.received().into_iter();
    received
        .map(|one: Received| format!("{} {}", one.method, one.target))
        .collect()
}

#[test]
fn steps_run_in_order_with_results_of_earlier_ones() {
    let upstream = shop();
    let dir = here(&upstream);
    let file = plan(
        dir.path(),
        json!([
            ["market:quote", {"symbol": "AAPL"}],
            ["market:insiders", {"symbol": "{{steps.1.symbol}}"}],
            ["market:order", {"symbol": "{{steps.2.data.0.name}}", "count": "{{steps.2.data.0.id}}", "note": "--x [1] {{steps.1.data[0].id}}"}],
        ]),
    );
    let output = execute(dir.path(), &file, &[]);
    assert_eq!(code(&output), Some(0), "{}", stderr(&output));
    assert_eq!(
        targets(&upstream),
        [
            "GET /quote?symbol=AAPL",
            "GET /insiders?symbol=AAPL",
            "POST /order"
        ]
    );
    let body: Value = serde_json::from_slice(&upstream.last().body).unwrap();
    assert_eq!(
        body,
        json!({"symbol": "COOK", "count": 7, "note": "--x [1] 7"})
    );
    assert_eq!(stderr(&output).matches("[OK]").count(), 3);
    assert_eq!(stdout(&output).matches("\"data\"").count(), 3);
    tells_nothing(
        "the journal",
        &std::fs::read_to_string(format!("{file}.journal")).unwrap(),
    );
    // A finished plan begins anew.
    assert_eq!(code(&execute(dir.path(), &file, &[])), Some(0));
    assert_eq!(upstream.received().len(), 6);
}

#[test]
fn every_step_is_checked_before_the_first_runs() {
    let upstream = shop();
    let dir = here(&upstream);
    let strict = "[[tools]]\nname = 'market:strict'\n[tools.input_schema]\ntype = 'object'\n\
                  additionalProperties = false\nproperties = { symbol = { type = 'string' } }\n";
    let text = market_manifest(&upstream.url()) + strict;
    super::manifest(dir.path(), "market", &text);
    let good = json!(["market:quote", {"symbol": "A"}]);
    for (bad, expected, why) in [
        (
            json!(["market:quotes", {"symbol": "A"}]),
            1,
            "Step 2: unknown tool 'market:quotes'",
        ),
        (
            json!(["market:quote", {}]),
            2,
            "Step 2: 'market:quote': Invalid arguments: symbol",
        ),
        (
            json!(["market:order", {"symbol": "A", "count": "many"}]),
            2,
            "count",
        ),
        (
            json!(["market:strict", {"symbol": "A", "bogus": 1}]),
            2,
            "bogus",
        ),
        // What an earlier step gives says nothing about the other arguments.
        (
            json!(["market:order", {"symbol": "{{steps.1.symbol}}", "count": "abc"}]),
            2,
            "Step 2: 'market:order': Invalid arguments: count",
        ),
        (
            json!(["market:order", {"count": "{{steps.1.id}}"}]),
            2,
            "Step 2: 'market:order': Invalid arguments: symbol: is required",
        ),
        (
            json!(["market:strict", {"symbol": "{{steps.1.symbol}}", "bogus": 1}]),
            2,
            "Step 2: 'market:strict': Invalid arguments: bogus",
        ),
        (
            json!(["market:strict", {"symbol": "A", "bogus": "{{steps.1.symbol}}"}]),
            2,
            "Step 2: 'market:strict': Invalid arguments: bogus",
        ),
        (
            json!(["market:quote", {"symbol": "{{steps.2.x}}"}]),
            2,
            "is not a step before",
        ),
        (
            json!(["market:quote", {"symbol": "{{steps.0.x}}"}]),
            2,
            "the number of a step",
        ),
        (
            json!(["market:quote", {"symbol": "{{steps[1].id}}"}]),
            2,
            "{{steps[1].id}}: what an earlier step gave is written {{steps.N.path}}",
        ),
    ] {
        let file = plan(dir.path(), json!([good, bad]));
        let output = execute(dir.path(), &file, &[]);
        let said = stderr(&output);
        assert_eq!(code(&output), Some(expected), "{bad}: {said}");
        assert!(said.contains(why), "{bad}: {said}");
    }
    for (text, why) in [
        ("nope", "Invalid plan JSON"),
        ("[]", "it is a list; expected an object with `steps`"),
        (
            r#"{"query": "q", "steps": [{"tool": "market:quote"}], "created_at": "t"}"#,
            "Invalid plan JSON",
        ),
    ] {
        let path = dir.path().join("bad.json");
        write(&path, text);
        let output = execute(dir.path(), path.to_str().unwrap(), &[]);
        assert_eq!(code(&output), Some(2));
        assert!(stderr(&output).contains(why), "{}", stderr(&output));
    }
    let output = execute(dir.path(), "/nonexistent/plan.json", &[]);
    assert_eq!(code(&output), Some(2));
    assert!(
        stderr(&output).contains("Cannot read plan file"),
        "{}",
        stderr(&output)
    );
    assert!(upstream.received().is_empty());
}

#[test]
fn argument_that_the_schema_does_not_name_is_sent_with_a_warning() {
    let upstream = shop();
    let dir = here(&upstream);
    let steps = json!([
        ["market:quote", {"symbol": "A", "zz": "b"}],
        ["market:quote", {"symbol": "{{steps.1.symbol}}", "zz": "{{steps.1.symbol}}"}],
    ]);
    let file = plan(dir.path(), steps);
    let checked = execute(dir.path(), &file, &["--dry-run"]);
    assert!(upstream.received().is_empty());
    for output in [checked, execute(dir.path(), &file, &[])] {
        let said = stderr(&output);
        assert_eq!(code(&output), Some(0), "{said}");
        for step in ["Step 1", "Step 2"] {
            let warning = format!("{step}: 'market:quote': unknown argument 'zz'");
            assert!(said.contains(&warning), "{said}");
        }
    }
    assert_eq!(upstream.received()[0].target, "/quote?symbol=A&zz=b");
}

#[test]
fn person_confirms_what_is_sent_and_not_a_reference() {
    let upstream = shop();
    let dir = here(&upstream);
    let steps = json!([
        ["market:quote", {"symbol": "A"}],
        ["market:order", {"symbol": "{{steps.1.data.0.name}}"}],
    ]);
    let file = plan(dir.path(), steps);
    let mut confirming = command(dir.path());
    confirming.args(["plan", "execute", &file, "--confirm-each"]);
    let answers = dir.path().join("answers");
    write(&answers, "y\nn\n");
    let output = confirming
        .stdin(std::fs::File::open(&answers).unwrap())
        .output()
        .unwrap();
    let said = stderr(&output);
    assert_eq!(code(&output), Some(0), "{said}");
    assert!(
        said.contains("Run 'ati run market:order --symbol COOK'? [y/N]"),
        "{said}"
    );
    assert_eq!(targets(&upstream), ["GET /quote?symbol=A"]);
}

#[test]
fn missing_argument_has_the_code_that_it_has_for_one_call() {
    let dir = here(&shop());
    let file = plan(dir.path(), json!([["market:quote", {}]]));
    let planned = execute(dir.path(), &file, &["-J"]);
    let called = run(&mut command(dir.path()), &["-J", "run", "market:quote"]);
    for output in [planned, called] {
        let said = stderr(&output);
        assert_eq!(code(&output), Some(2), "{said}");
        assert!(said.contains("input.missing_arg"), "{said}");
    }
}

#[test]
fn plan_without_steps_says_so_and_leaves_no_journal() {
    let dir = here(&shop());
    let file = plan(dir.path(), json!([]));
    for more in [&[][..], &["--dry-run"]] {
        let output = execute(dir.path(), &file, more);
        let said = stderr(&output);
        assert_eq!(code(&output), Some(0), "{said}");
        assert!(said.contains("the plan has no steps"), "{said}");
    }
    assert!(!dir.path().join("plan.json.journal").exists());
}

#[test]
fn failing_step_ends_the_plan_with_its_exit_code() {
    let upstream = shop();
    let dir = here(&upstream);
    let steps = json!([
        ["market:quote", {"symbol": "A"}],
        ["market:quote", {"symbol": "FAIL"}],
        ["market:quote", {"symbol": "B"}],
    ]);
    let file = plan(dir.path(), steps);
    let output = execute(dir.path(), &file, &[]);
    let said = stderr(&output);
    let mut alone = command(dir.path());
    let same = run(&mut alone, &["run", "market:quote", "--symbol", "FAIL"]);
    assert_eq!(code(&output), code(&same), "{said}");
    assert_eq!(code(&output), Some(4), "{said}");
    assert!(
        said.contains("[ERROR] ") && said.contains("stopped at step 2"),
        "{said}"
    );
    assert_eq!(upstream.received().len(), 3);
    let output = execute(dir.path(), &file, &["--keep-going"]);
    let said = stderr(&output);
    assert_eq!(code(&output), Some(0), "{said}");
    assert!(said.contains("1 of 3 steps failed"), "{said}");
    assert_eq!(upstream.last().target, "/quote?symbol=B");
    let output = execute(dir.path(), &file, &["--from", "3"]);
    assert_eq!(code(&output), Some(0), "{}", stderr(&output));
    assert_eq!(code(&execute(dir.path(), &file, &["--from", "4"])), Some(2));
}

#[test]
fn dry_run_shows_the_steps_and_runs_none() {
    let upstream = shop();
    let dir = here(&upstream);
    let steps = json!([["market:quote", {"symbol": "it's"}], ["market:order", {"symbol": "A"}]]);
    let file = plan(dir.path(), steps);
    let text = stdout(&execute(dir.path(), &file, &["--dry-run"]));
    assert!(
        text.starts_with("1. ati run market:quote --symbol 'it'\\''s'\n"),
        "{text}"
    );
    assert!(text.contains("(only reads)"), "{text}");
    let json = execute(dir.path(), &file, &["--dry-run", "-J"]);
    let json: Value = serde_json::from_str(&stdout(&json)).unwrap();
    assert_eq!(json["steps"][0]["idempotent"], true);
    assert_eq!(json["steps"][1]["idempotent"], false);
    assert!(upstream.received().is_empty());
    assert!(!dir.path().join("plan.json.journal").exists());
}

#[test]
fn each_step_can_be_confirmed_and_what_destroys_must_be() {
    let upstream = shop();
    let dir = here(&upstream);
    let text = market_manifest(&upstream.url())
        + "[[tools]]\nname = 'market:wipe'\nendpoint = '/wipe'\nmethod = 'POST'\n\
           [tools.effects]\ndestructive = true\n";
    super::manifest(dir.path(), "market", &text);
    let file = plan(
        dir.path(),
        json!([["market:quote", {"symbol": "A"}], ["market:wipe", {}]]),
    );
    let output = execute(dir.path(), &file, &[]);
    let said = stderr(&output);
    assert_eq!(code(&output), Some(6), "{said}");
    assert!(
        said.contains("step 2") && said.contains("--confirm-each"),
        "{said}"
    );
    assert!(upstream.received().is_empty());
    let typed = |answers: &str| {
        let mut command = command(dir.path());
        command.args(["plan", "execute", &file, "--confirm-each"]);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), answers.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    };
    let output = typed("n\ny\n");
    assert_eq!(code(&output), Some(0), "{}", stderr(&output));
    assert_eq!(targets(&upstream), ["POST /wipe"]);
    let output = typed("y\n");
    assert_eq!(code(&output), Some(1), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("Plan execution aborted at step 2"),
        "{}",
        stderr(&output)
    );
    assert_eq!(upstream.received().len(), 2);
    assert_eq!(
        code(&execute(dir.path(), &file, &["--yes", "--from", "2"])),
        Some(0)
    );
    assert_eq!(upstream.last().target, "/wipe");
}

#[test]
fn proxy_checks_and_runs_the_steps_where_there_is_one() {
    let upstream = shop();
    let (signer, public) = key_pair();
    let proxy = Setup::new()
        .manifest("market", &market_manifest(&upstream.url()))
        .credentials(&json!({"market_key": "planted-market"}))
        .jwt(&public)
        .start();
    let scope = "tool:market:quote tool:market:insiders".to_owned();
    let token = bearer(&signer, &Claims { scope, ..claims() });
    let dir = tempfile::tempdir().unwrap();
    let through = |file: &str| {
        let mut command = command(dir.path());
        command.env("ATI_PROXY_URL", format!("http://{}", proxy.edge));
        command.env("ATI_SESSION_TOKEN", token.trim_start_matches("Bearer "));
        run(&mut command, &["plan", "execute", file])
    };
    let good = json!([
        ["market:quote", {"symbol": "AAPL"}],
        ["market:insiders", {"symbol": "{{steps.1.symbol}}"}],
    ]);
    let output = through(&plan(dir.path(), good));
    assert_eq!(code(&output), Some(0), "{}", stderr(&output));
    assert_eq!(
        targets(&upstream),
        ["GET /quote?symbol=AAPL", "GET /insiders?symbol=AAPL"]
    );
    // The proxy's catalogue, its schemas and the token's scopes decide.
    for (bad, expected, why) in [
        (
            json!(["market:order", {"symbol": "A"}]),
            1,
            "unknown tool 'market:order'",
        ),
        (
            json!(["market:quote", {"symbl": "A"}]),
            2,
            "Step 2: 'market:quote'",
        ),
    ] {
        let file = plan(dir.path(), json!([["market:quote", {"symbol": "A"}], bad]));
        let output = through(&file);
        assert_eq!(code(&output), Some(expected), "{}", stderr(&output));
        assert!(stderr(&output).contains(why), "{}", stderr(&output));
    }
    assert_eq!(upstream.received().len(), 2);
}
