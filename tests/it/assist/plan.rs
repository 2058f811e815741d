//! `ati assist --plan` and `--save`: plans are made here, and checked before they are shown.

use serde_json::{Value, json};

use super::llm::{Llm, whole};
use super::{assist, code, folder, llm_manifest, market_manifest, run};
use crate::support::ati::{Setup, command, stderr, stdout};
use crate::support::tokens::{bearer, claims, key_pair};
use crate::support::upstream::Upstream;
use ati::auth::token::Claims;

fn steps(tool: &str) -> String {
    json!({"steps": [
        {"tool": "market:quote", "args": {"symbol": "AAPL"}, "description": "The price"},
        {"tool": tool, "args": {"symbol": "{{steps.1.symbol}}"}},
    ]})
    .to_string()
}

#[test]
fn plan_is_printed_and_saved() {
    let llm = Llm::saying(&format!("```json\n{}\n```", steps("market:insiders")));
    let dir = folder(&llm.url());
    let path = dir.path().join("out/workflow.json");
    let file = path.to_str().unwrap();
    // The proxy isn't asked for a plan, and one that is away doesn't hinder.
    let mut saving = command(dir.path());
    saving.env("ATI_PROXY_URL", "http://127.0.0.1:1");
    let output = run(
        &mut saving,
        &["assist", "--save", file, "market", "quote of AAPL"],
    );
    assert_eq!(code(&output), Some(0), "{}", stderr(&output));
    let plan: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(plan["query"], "quote of AAPL");
    assert!(plan["created_at"].as_str().unwrap().contains('T'));
    assert_eq!(plan["steps"][0]["args"], json!({"symbol": "AAPL"}));
    assert_eq!(plan["steps"][1]["description"], "");
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains("\n  \"query\""), "{text}");
    assert!(llm.prompt().contains("{\"steps\""));
    let printed = assist(dir.path(), &["--plan", "market", "quote of AAPL"]);
    let printed: Value = serde_json::from_str(&stdout(&printed)).unwrap();
    assert_eq!(printed["steps"], plan["steps"]);
    let lines = stdout(&assist(
        dir.path(),
        &["--plan", "quote", "--output", "text"],
    ));
    assert!(
        lines.starts_with("1. ati run market:quote --symbol AAPL\n"),
        "{lines}"
    );
}

#[test]
fn proxy_s_tools_are_planned_with_and_its_language_model_is_not_asked() {
    let unasked = Llm::saying("not me");
    let (signer, public) = key_pair();
    let proxy = Setup::new()
        .manifest("market", &market_manifest("http://127.0.0.1:1"))
        .manifest("_llm", &llm_manifest(&unasked.url()))
        .credentials(&json!({"cerebras_api_key": "planted-c", "market_key": "planted-m"}))
        .jwt(&public)
        .start();
    let scope = "tool:market:quote tool:market:insiders".to_owned();
    let token = bearer(&signer, &Claims { scope, ..claims() });
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("plan.json");
    let planned = |llm: &Llm| {
        let mut command = command(dir.path());
        command.env("ATI_PROXY_URL", format!("http://{}", proxy.edge));
        command.env("ATI_SESSION_TOKEN", token.trim_start_matches("Bearer "));
        command.env("OLLAMA_HOST", llm.url());
        let save = ["assist", "--save", file.to_str().unwrap()];
        run(
            &mut command,
            &[&save[..], &["market", "quote of AAPL"]].concat(),
        )
    };
    // A tool that the proxy has, and the token's scopes don't.
    let order = Llm::saying(&steps("market:order"));
    let output = planned(&order);
    assert_eq!(code(&output), Some(1), "{}", stderr(&output));
    let said = stderr(&output);
    assert!(
        said.contains("Step 2: unknown tool 'market:order'"),
        "{said}"
    );
    assert!(!file.exists());
    let prompt = order.prompt();
    assert!(prompt.contains("\"name\":\"market:insiders\""), "{prompt}");
    assert!(prompt.contains("about \"market\"") && !prompt.contains("market:order"));
    let output = planned(&Llm::saying(&steps("market:insiders")));
    assert_eq!(code(&output), Some(0), "{}", stderr(&output));
    let plan: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(plan["query"], "quote of AAPL");
    assert_eq!(plan["steps"][1]["tool"], "market:insiders");
    assert!(unasked.0.received().is_empty());
}

#[test]
fn answer_that_is_no_plan_is_shown_and_nothing_is_saved() {
    let llm = Llm::saying("I would rather talk.");
    let dir = folder(&llm.url());
    let path = dir.path().join("plan.json");
    let output = assist(dir.path(), &["--save", path.to_str().unwrap(), "quote"]);
    assert_eq!(code(&output), Some(4));
    let said = stderr(&output);
    assert!(
        said.contains("Failed to parse plan from LLM response"),
        "{said}"
    );
    assert!(said.contains("I would rather talk."), "{said}");
    assert!(!path.exists() && stdout(&output).is_empty());
}

#[test]
fn plan_that_would_not_run_is_not_saved() {
    for (tool, why) in [
        ("market:bogus", "Step 2: unknown tool 'market:bogus'"),
        ("vault:open:x", "Step 2: unknown tool 'vault:open:x'"),
    ] {
        let llm = Llm::saying(&steps(tool));
        let dir = folder(&llm.url());
        let path = dir.path().join("plan.json");
        let output = assist(dir.path(), &["--save", path.to_str().unwrap(), "quote"]);
        assert_eq!(code(&output), Some(1), "{}", stderr(&output));
        assert!(stderr(&output).contains(why), "{}", stderr(&output));
        assert!(!path.exists() && stdout(&output).is_empty());
    }
    let wrong = json!({"steps": [{"tool": "market:quote", "args": {"symbl": "A"}}]}).to_string();
    let llm = Llm::saying(&wrong);
    let dir = folder(&llm.url());
    let output = assist(dir.path(), &["--plan", "quote"]);
    assert_eq!(code(&output), Some(2), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("Step 1: 'market:quote'"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn proxy_that_can_not_say_what_it_has_does_not_hinder_a_plan() {
    for status in ["404 Not Found", "500 Oops", "401 Unauthorized", "200 OK"] {
        let proxy = Upstream::answering(move |_, stream| whole(stream, status, "", "{}"));
        let llm = Llm::saying(&steps("market:insiders"));
        let dir = folder(&llm.url());
        let mut planning = command(dir.path());
        planning.env("ATI_PROXY_URL", proxy.url());
        let output = run(&mut planning, &["assist", "--plan", "market", "quote"]);
        let said = stderr(&output);
        assert_eq!(code(&output), Some(0), "{status}: {said}");
        assert!(said.contains("The proxy's tools can't be read"), "{said}");
        let plan: Value = serde_json::from_str(&stdout(&output)).unwrap();
        assert_eq!(plan["steps"][1]["tool"], "market:insiders");
        assert!(proxy.received().iter().all(|one| one.method == "GET"));
        // This machine's own tools decide then.
        let llm = Llm::saying(&steps("market:bogus"));
        let dir = folder(&llm.url());
        let mut planning = command(dir.path());
        planning.env("ATI_PROXY_URL", proxy.url());
        let output = run(&mut planning, &["assist", "--plan", "quote"]);
        assert_eq!(code(&output), Some(1), "{}", stderr(&output));
    }
}

#[test]
fn plan_of_this_machine_s_tools_is_checked_by_the_proxy() {
    let proxy = Setup::new()
        .manifest("market", &market_manifest("http://127.0.0.1:1"))
        .credentials(&json!({"market_key": "planted-m"}))
        .start();
    let planned = |tool: &str| {
        let args = json!({"symbol": "A"});
        let answer = json!({"steps": [{"tool": tool, "args": args}]}).to_string();
        let llm = Llm::saying(&answer);
        let dir = folder(&llm.url());
        let mut planning = command(dir.path());
        planning.env("ATI_PROXY_URL", format!("http://{}", proxy.edge));
        let output = run(&mut planning, &["assist", "--plan", "a price"]);
        assert!(llm.prompt().contains("vault:open"));
        output
    };
    assert_eq!(code(&planned("market:quote")), Some(0));
    // Only this machine has it.
    let output = planned("vault:open");
    let said = stderr(&output);
    assert_eq!(code(&output), Some(1), "{said}");
    assert!(said.contains("Step 1: unknown tool 'vault:open'"), "{said}");
    // Names that no path can have.
    let output = planned("../health");
    let said = stderr(&output);
    assert!(said.contains("Step 1: unknown tool '../health'"), "{said}");
}
