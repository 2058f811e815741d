//! Questions on a machine with manifests: who is asked, and with which prompt.

use serde_json::json;

use super::llm::Llm;
use super::{QUOTE, answer, assist, code, folder, manifest, run};
use crate::support::ati::{command, stderr, stdout, tells_nothing, write};
use crate::support::tokens::{bearer, claims, shared};
use ati::auth::token::Claims;

#[test]
fn question_about_a_provider_is_answered_with_commands_that_run() {
    let llm = Llm::saying(QUOTE);
    let dir = folder(&llm.url());
    let output = assist(dir.path(), &["market", "quote", "and insiders for AAPL"]);
    let answer = answer(&output);
    let content = answer["content"].as_str().unwrap();
    assert!(
        content.contains("ati run market:quote --symbol AAPL"),
        "{content}"
    );
    assert_eq!(
        answer["tools_referenced"],
        json!(["market:quote", "market:insiders"])
    );
    let asked = llm.asked();
    assert_eq!(asked["model"], "zai-glm-4.7");
    assert_eq!(asked["max_completion_tokens"], 1536);
    assert_eq!(asked["temperature"], 0.3);
    assert_eq!(asked.get("stream"), None);
    assert_eq!(
        asked["messages"][1]["content"],
        "quote and insiders for AAPL"
    );
    let sent = llm.0.last();
    assert_eq!(sent.target, "/v1/chat/completions");
    assert_eq!(
        sent.header("authorization"),
        Some("Bearer planted-cerebras")
    );
    // Only the tools of the provider, and no credential but the model's own.
    let prompt = llm.prompt();
    assert!(
        prompt.contains("market:order") && prompt.contains("Ticker"),
        "{prompt}"
    );
    assert!(
        !prompt.contains("Gringotts") && !prompt.contains("_chat_completion"),
        "{prompt}"
    );
    tells_nothing("the prompt", &prompt);
    tells_nothing("the answer", &(stdout(&output) + &stderr(&output)));
}

#[test]
fn text_has_a_quick_reference() {
    let llm = Llm::saying("Use `market:quote`.");
    let dir = folder(&llm.url());
    for args in [
        &["--output", "text", "assist", "a price?"][..],
        &["assist", "a price?", "--output", "text"],
    ] {
        let output = run(&mut command(dir.path()), args);
        assert_eq!(code(&output), Some(0), "{}", stderr(&output));
        let text = stdout(&output);
        assert!(
            text.starts_with("Use `market:quote`.\n\nQuick Reference\n"),
            "{text}"
        );
        assert!(
            text.contains("ati run market:quote --symbol <string>"),
            "{text}"
        );
        assert!(
            text.contains("--symbol <string>") && text.contains("required; Ticker"),
            "{text}"
        );
    }
}

#[test]
fn tool_outside_of_the_scope_is_not_in_the_prompt() {
    let llm = Llm::saying("Run `ati run vault:open` now.\nOr `ati run market:quote --symbol A`.");
    let dir = folder(&llm.url());
    let secret = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
    let scope = "tool:market:quote".to_owned();
    let token = bearer(&shared(secret), &Claims { scope, ..claims() });
    let mut scoped = command(dir.path());
    scoped.env("ATI_JWT_SECRET", secret);
    scoped.env("ATI_SESSION_TOKEN", token.trim_start_matches("Bearer "));
    let output = run(&mut scoped, &["assist", "open the vault and buy shares"]);
    let content = answer(&output)["content"].as_str().unwrap().to_owned();
    assert!(!content.contains("vault:open"), "{content}");
    assert!(
        content.contains("ati run market:quote --symbol A"),
        "{content}"
    );
    assert!(
        stderr(&output).contains("unknown tool 'vault:open'"),
        "{}",
        stderr(&output)
    );
    let prompt = llm.prompt();
    for hidden in ["vault", "Gringotts", "market:order", "market:insiders"] {
        assert!(
            !prompt.contains(&format!("\"{hidden}")),
            "{hidden}: {prompt}"
        );
        assert!(!prompt.contains("Gringotts"));
    }
    // To name it makes it no more visible.
    let mut scoped = command(dir.path());
    scoped.env("ATI_JWT_SECRET", secret);
    scoped.env("ATI_SESSION_TOKEN", token.trim_start_matches("Bearer "));
    let output = run(&mut scoped, &["assist", "vault", "how do I open it?"]);
    assert_eq!(code(&output), Some(3));
    assert!(
        stderr(&output).contains("'vault' is not visible in your current scopes."),
        "{}",
        stderr(&output)
    );
}

#[test]
fn back_ends_are_asked_in_their_order() {
    let (cerebras, anthropic, ollama) = (
        Llm::saying("from C"),
        Llm::saying("from A"),
        Llm::saying("from O"),
    );
    let dir = folder(&cerebras.url());
    let ask = |keys: &[(&str, &str)], args: &[&str]| {
        let mut command = command(dir.path());
        command.env("OLLAMA_HOST", ollama.url().trim_start_matches("http://"));
        command.env("ANTHROPIC_BASE_URL", anthropic.url());
        command.envs(keys.iter().copied());
        let output = run(&mut command, &[&["assist"], args, &["a price?"]].concat());
        answer(&output)["content"].as_str().unwrap().to_owned()
    };
    let (key, other) = (
        ("ANTHROPIC_API_KEY", "planted-a"),
        ("CEREBRAS_API_KEY", "planted-env"),
    );
    assert_eq!(ask(&[key], &[]), "from C");
    assert_eq!(ask(&[key, other], &[]), "from C");
    let sent = cerebras.0.last();
    assert_eq!(sent.header("authorization"), Some("Bearer planted-env"));
    assert_eq!(ask(&[key, other], &["--local"]), "from O");
    assert_eq!(
        ask(&[other, ("ATI_ASSIST_PROVIDER", "local")], &[]),
        "from O"
    );
    assert_eq!(ollama.0.last().target, "/v1/chat/completions");
    assert_eq!(ollama.asked()["model"], "smollm3:3b");
    // Without a key of the first, the second; without that, the local one.
    write(&dir.path().join("credentials"), "{}");
    assert_eq!(ask(&[key], &[]), "from A");
    let sent = anthropic.0.last();
    assert_eq!(sent.target, "/v1/messages");
    assert_eq!(sent.header("x-api-key"), Some("planted-a"));
    assert_eq!(sent.header("anthropic-version"), Some("2023-06-01"));
    assert_eq!(anthropic.asked()["model"], "claude-haiku-4-5-20251001");
    assert_eq!(ask(&[key, ("ATI_ASSIST_MODEL", "m2")], &[]), "from A");
    assert_eq!(anthropic.asked()["model"], "m2");
    assert_eq!(ask(&[("ATI_OLLAMA_MODEL", "m3")], &[]), "from O");
    assert_eq!(ollama.asked()["model"], "m3");
}

#[test]
fn back_end_that_is_not_known_is_a_mistake() {
    let llm = Llm::saying(QUOTE);
    let dir = folder(&llm.url());
    let mut asking = command(dir.path());
    asking.env("ATI_ASSIST_PROVIDER", "foo");
    let output = run(&mut asking, &["assist", "share price"]);
    let said = stderr(&output);
    assert_eq!(code(&output), Some(2), "{said}");
    assert!(
        said.contains("ATI_ASSIST_PROVIDER is 'foo'; it can be 'local'"),
        "{said}"
    );
    assert!(llm.0.received().is_empty());
}

#[test]
fn search_that_finds_nothing_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let mut asking = command(dir.path());
    asking.env("OLLAMA_HOST", "http://127.0.0.1:1");
    let answer = answer(&run(&mut asking, &["assist", "stock price"]));
    let content = answer["content"].as_str().unwrap();
    assert!(
        content.starts_with("Nothing matches; these are all tools:\n\n1. file_manager:"),
        "{content}"
    );
}

#[test]
fn without_a_language_model_the_search_answers() {
    let dir = folder("http://127.0.0.1:1");
    write(&dir.path().join("credentials"), "{}");
    for args in [&["share", "price"][..], &["--local", "share price"]] {
        let mut command = command(dir.path());
        command.env("OLLAMA_HOST", "http://127.0.0.1:1");
        let output = run(&mut command, &[&["assist"], args].concat());
        let answer = answer(&output);
        assert_eq!(answer["tools_referenced"][0], "market:quote");
        let content = answer["content"].as_str().unwrap();
        assert!(
            content.contains("ati run market:quote --symbol <string>"),
            "{content}"
        );
        let said = stderr(&output);
        for hint in [
            "No language model answered (LLM request failed: 127.0.0.1: ",
            "Ollama",
            "OLLAMA_HOST",
            "CEREBRAS_API_KEY",
        ] {
            assert!(said.contains(hint), "{hint}: {said}");
        }
    }
    // A plan can't be searched for.
    let mut command = command(dir.path());
    command.env("OLLAMA_HOST", "http://127.0.0.1:1");
    let output = run(&mut command, &["assist", "--plan", "share price"]);
    assert_eq!(code(&output), Some(4));
    assert!(
        stderr(&output).contains("OLLAMA_HOST"),
        "{}",
        stderr(&output)
    );
    assert_eq!(stdout(&output), "");
}

#[test]
fn many_tools_are_filtered_and_few_are_all_there() {
    let llm = Llm::saying("ok");
    let dir = folder(&llm.url());
    let tools = |count: usize| -> String {
        let each = (0..count).map(|n| {
            format!("[[tools]]\nname = 'many:t{n:03}'\ndescription = 'Number {n:03} of zebras'\n")
        });
        "[provider]\nname = 'many'\nbase_url = 'http://127.0.0.1:1'\n".to_owned()
            + &each.collect::<String>()
    };
    let listed = || {
        let prompt = llm.prompt();
        let tools = prompt.lines().filter(|line| line.starts_with("{\"name\":"));
        tools.map(str::to_owned).collect::<Vec<_>>()
    };
    // market has 3, vault 1, the file tools 2.
    manifest(dir.path(), "many", &tools(44));
    answer(&assist(dir.path(), &["anything at all"]));
    assert_eq!(listed().len(), 50);
    manifest(dir.path(), "many", &tools(300));
    answer(&assist(dir.path(), &["the price of a share"]));
    let some = listed();
    assert!(
        some.len() <= 50 && some[0].contains("market:quote"),
        "{some:?}"
    );
    answer(&assist(dir.path(), &["many", "zebras number 250"]));
    let some = listed();
    assert_eq!(some.len(), 50);
    assert!(some.iter().all(|line| line.contains("\"many:")));
}

#[test]
fn skills_and_the_help_of_programs_are_in_the_prompt_within_their_budgets() {
    let llm = Llm::saying("ok");
    let dir = folder(&llm.url());
    for n in 0..8 {
        let body = format!("BEGIN-OF-{n} {}", "x".repeat(9000));
        let text = format!("---\nname: market-{n}\nmetadata:\n  providers: market\n---\n{body}");
        write(
            &dir.path().join(format!("skills/market-{n}/SKILL.md")),
            text,
        );
        let toml = format!("[skill]\nname = 'market-{n}'\nproviders = ['market']\n");
        write(
            &dir.path().join(format!("skills/market-{n}/skill.toml")),
            toml,
        );
    }
    let program = dir.path().join("prog.sh");
    write(
        &program,
        "#!/bin/sh\necho \"usage: prog FROGS $SECRET_OF_PROG\"\n",
    );
    std::fs::set_permissions(
        &program,
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    let text = format!(
        "[provider]\nname = 'prog'\nhandler = 'cli'\ncli_command = '{}'\n\
         [provider.cli_env]\nSECRET_OF_PROG = '${{market_key}}'\n",
        program.display()
    );
    manifest(dir.path(), "prog", &text);
    answer(&assist(dir.path(), &["a price?"]));
    let prompt = llm.prompt();
    assert!(prompt.contains("usage: prog FROGS"), "{prompt}");
    tells_nothing("the prompt", &prompt);
    assert_eq!(
        prompt.matches("BEGIN-OF-").count(),
        4,
        "16000 characters, 4000 each"
    );
    assert_eq!(prompt.matches(&"x".repeat(3900)).count(), 4);
    assert!(!prompt.contains(&"x".repeat(4000)));
}
