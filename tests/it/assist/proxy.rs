//! `POST /help`, and `ati assist` through it.

use std::time::Duration;

use serde_json::{Value, json};

use super::llm::{Llm, whole};
use super::{QUOTE, answer, code, llm_manifest, market_manifest, run};
use crate::support::ati::{Proxy, Setup, command, stderr, stdout, tells_nothing, write};
use crate::support::http::Response;
use crate::support::tokens::{bearer, claims, key_pair};
use crate::support::upstream::Upstream;
use ati::auth::token::{Claims, Namespace, Signer};

const VAULT: &str = "[provider]\nname = 'vault'\nbase_url = 'http://127.0.0.1:1'\n\
                     [[tools]]\nname = 'vault:open'\ndescription = 'Opens Gringotts'\n";

fn setup(llm: &str) -> (Setup, Signer) {
    let (signer, public) = key_pair();
    let setup = Setup::new()
        .manifest("market", &market_manifest("http://127.0.0.1:1"))
        .manifest("vault", VAULT)
        .manifest("_llm", &llm_manifest(llm))
        .credentials(&json!({"cerebras_api_key": "planted-c", "market_key": "planted-m"}))
        .jwt(&public);
    (setup, signer)
}

fn token(signer: &Signer, scope: &str) -> String {
    let scope = scope.to_owned();
    bearer(signer, &Claims { scope, ..claims() })
}

fn ask(proxy: &Proxy, token: &str, body: &Value) -> Response {
    let headers = [
        ("authorization", token),
        ("content-type", "application/json"),
    ];
    let body = body.to_string();
    proxy
        .client()
        .send("POST", "/help", &headers, body.as_bytes())
}

/// Status and text of a refusal.
fn refused(response: &Response) -> (u16, String) {
    let body = response.json();
    assert_eq!(body["content"], "", "{body}");
    (response.status, body["error"].as_str().unwrap().to_owned())
}

#[test]
fn question_is_answered_with_what_the_caller_may_use() {
    let llm = Llm::saying(&format!("{QUOTE}\n`ati run vault:open`"));
    let (setup, signer) = setup(&llm.url());
    let proxy = setup
        .file(
            "skills/market-skill/SKILL.md",
            "---\nname: market-skill\n---\nPATIENCE-PAYS",
        )
        .file(
            "skills/market-skill/skill.toml",
            "[skill]\nname = 'market-skill'\nproviders = ['market']\n",
        )
        .file(
            "skills/vault-skill/SKILL.md",
            "---\nname: vault-skill\n---\nDRAGONS",
        )
        .file(
            "skills/vault-skill/skill.toml",
            "[skill]\nname = 'vault-skill'\nproviders = ['vault']\n",
        )
        .start();
    let bearer = token(&signer, "tool:market:*");
    let response = ask(
        &proxy,
        &bearer,
        &json!({"query": "quote of AAPL", "tool": "market"}),
    );
    assert_eq!(response.status, 200);
    let body = response.json();
    let content = body["content"].as_str().unwrap();
    assert!(
        content.contains("ati run market:quote --symbol AAPL"),
        "{content}"
    );
    assert!(!content.contains("vault"), "{content}");
    assert!(
        content.ends_with("(ati left out one command that would not run.)"),
        "{content}"
    );
    let prompt = llm.prompt();
    assert!(prompt.contains("PATIENCE-PAYS"), "{prompt}");
    for hidden in ["Gringotts", "vault", "DRAGONS", "_chat_completion"] {
        assert!(!prompt.contains(hidden), "{hidden}: {prompt}");
    }
    tells_nothing("the prompt", &prompt);
    assert_eq!(
        llm.0.last().header("authorization"),
        Some("Bearer planted-c")
    );
    // The same from a command line without manifests.
    let dir = tempfile::tempdir().unwrap();
    let through = |args: &[&str]| {
        let mut command = command(dir.path());
        command.env("ATI_PROXY_URL", format!("http://{}", proxy.edge));
        command.env("ATI_SESSION_TOKEN", bearer.trim_start_matches("Bearer "));
        run(&mut command, args)
    };
    let output = through(&["assist", "market", "quote and insiders for AAPL"]);
    let json = answer(&output);
    assert_eq!(json["tools_referenced"], json!([]));
    assert!(
        json["content"]
            .as_str()
            .unwrap()
            .contains("ati run market:insiders")
    );
    assert_eq!(
        llm.asked()["messages"][1]["content"],
        "quote and insiders for AAPL"
    );
    assert!(llm.prompt().contains("about \"market\""));
    let output = through(&["--output", "text", "assist", "prices of shares"]);
    assert!(
        stdout(&output).starts_with("Use these:"),
        "{}",
        stderr(&output)
    );
    // A provider that only this machine knows.
    write(&dir.path().join("manifests/vault.toml"), VAULT);
    let output = through(&["assist", "vault", "open it"]);
    assert_eq!(code(&output), Some(3), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("Scope 'vault' is not visible in your current scopes."),
        "{}",
        stderr(&output)
    );
}

#[test]
fn refusals_have_their_statuses_and_texts() {
    let llm = Llm::saying("ok");
    let (with_llm, signer) = setup(&llm.url());
    let proxy = with_llm.start();
    let all = token(&signer, "*");
    let question = json!({"query": "q"});
    assert_eq!(
        ask(&proxy, &all, &question).json(),
        json!({"content": "ok"})
    );
    let response = ask(&proxy, &all, &json!({"query": "q", "tool": "nope"}));
    let expected = "Scope 'nope' is not visible in your current scopes.";
    assert_eq!(refused(&response), (403, expected.to_owned()));
    // The extractor's own statuses.
    let send = |headers: &[(&str, &str)], body: &[u8]| {
        let headers = [&[("authorization", all.as_str())], headers].concat();
        proxy.client().send("POST", "/help", &headers, body).status
    };
    let json_type = [("content-type", "application/json")];
    assert_eq!(send(&[], b"{}"), 415);
    assert_eq!(send(&json_type, b"{"), 400);
    assert_eq!(send(&json_type, b"{\"q\": 1}"), 422);
    assert_eq!(
        proxy
            .client()
            .send("POST", "/help", &json_type, b"{}")
            .status,
        401
    );
    drop(proxy);

    let (no_key, signer) = setup(&llm.url());
    let proxy = no_key
        .credentials(&json!({"market_key": "planted-m"}))
        .start();
    let response = ask(&proxy, &token(&signer, "*"), &question);
    assert_eq!(
        refused(&response),
        (503, "LLM API key not found in keyring".to_owned())
    );
    // The command line then answers from the proxy's search.
    let dir = tempfile::tempdir().unwrap();
    let mut through = command(dir.path());
    let all = token(&signer, "tool:market:*");
    through.env("ATI_PROXY_URL", format!("http://{}", proxy.edge));
    through.env("ATI_SESSION_TOKEN", all.trim_start_matches("Bearer "));
    let output = run(&mut through, &["assist", "price of a share"]);
    assert_eq!(answer(&output)["tools_referenced"][0], "market:quote");
    let said = stderr(&output);
    assert!(
        said.contains("LLM API key not found") && said.contains("ati assist --local"),
        "{said}"
    );
    // Keys on this machine would change nothing.
    assert!(
        !said.contains("CEREBRAS_API_KEY") && !said.contains("ANTHROPIC_API_KEY"),
        "{said}"
    );
}

#[test]
fn help_scope_is_wanted_only_where_the_conf_says_so() {
    let llm = Llm::saying("ok");
    let (setup, signer) = setup(&llm.url());
    let proxy = setup.conf("[assist]\nrequire_scope = true\n").start();
    let question = json!({"query": "q"});
    let response = ask(&proxy, &token(&signer, "tool:market:*"), &question);
    let expected = "Access denied: 'help' is not in your scopes";
    assert_eq!(refused(&response), (403, expected.to_owned()));
    for scope in ["tool:market:* help", "*"] {
        assert_eq!(ask(&proxy, &token(&signer, scope), &question).status, 200);
    }
}

#[test]
fn failing_language_models_have_their_statuses() {
    let question = json!({"query": "q"});
    let fails = |llm: Llm| {
        let (setup, signer) = setup(&llm.url());
        let proxy = setup.conf("[assist]\ntimeout_seconds = 1\n").start();
        let response = ask(&proxy, &token(&signer, "*"), &question);
        let retry = response.header("retry-after").map(str::to_owned);
        let (status, error) = refused(&response);
        (status, error, retry)
    };
    let (status, error, _) = fails(Llm::raw("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nno!"));
    assert_eq!(status, 500);
    assert!(
        error.starts_with("Failed to parse LLM response: "),
        "{error}"
    );
    let (status, error, retry) = fails(Llm(Upstream::answering(|_, stream| {
        whole(stream, "429 Slow Down", "retry-after: 9\r\n", "later")
    })));
    assert_eq!(
        (status, error.as_str()),
        (502, "LLM API error (429): later")
    );
    assert_eq!(retry.as_deref(), Some("9"));
    let (status, error, _) = fails(Llm(Upstream::answering(|_, _| {
        std::thread::sleep(Duration::from_secs(60));
        false
    })));
    assert_eq!(status, 502);
    assert_eq!(error, "LLM request failed: timed out, nothing came for 1 s");
    let (status, error, _) = fails(Llm::raw("HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{"));
    assert_eq!(status, 502);
    assert!(error.starts_with("LLM request failed: "), "{error}");
    let llm = Llm::raw("HTTP/1.1 200 OK\r\ncontent-length: 14\r\n\r\n{\"choices\":[]}");
    let (setup, signer) = setup(&llm.url());
    let proxy = setup.start();
    let response = ask(&proxy, &token(&signer, "*"), &question);
    assert_eq!(response.json(), json!({"content": "No response from LLM"}));
}

#[test]
fn failures_of_the_proxy_s_language_model_end_a_command_as_here() {
    let fails = |llm: Llm| {
        let (setup, signer) = setup(&llm.url());
        let proxy = setup.conf("[assist]\ntimeout_seconds = 1\n").start();
        let dir = tempfile::tempdir().unwrap();
        let mut through = command(dir.path());
        let all = token(&signer, "*");
        through.env("ATI_PROXY_URL", format!("http://{}", proxy.edge));
        through.env("ATI_SESSION_TOKEN", all.trim_start_matches("Bearer "));
        let output = run(&mut through, &["-J", "assist", "price of a share"]);
        (code(&output), stderr(&output))
    };
    let (code, said) = fails(Llm(Upstream::answering(|_, stream| {
        whole(stream, "429 Slow Down", "retry-after: 17\r\n", "later")
    })));
    assert_eq!(code, Some(5), "{said}");
    assert!(said.contains("rate.exceeded"), "{said}");
    assert!(said.contains("its server wants 17 s of patience"), "{said}");
    let (code, said) = fails(Llm::raw("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nno!"));
    assert_eq!(code, Some(4), "{said}");
    assert!(said.contains("provider.upstream_error"), "{said}");
    let (code, said) = fails(Llm(Upstream::answering(|_, _| {
        std::thread::sleep(Duration::from_secs(60));
        false
    })));
    assert_eq!(code, Some(4), "{said}");
    assert!(said.contains("provider.timeout"), "{said}");
    assert!(said.contains("[assist] timeout_seconds"), "{said}");
}

#[test]
fn question_is_an_object() {
    let llm = Llm::saying("ok");
    let (setup, signer) = setup(&llm.url());
    let proxy = setup.start();
    let all = token(&signer, "*");
    for list in [json!(["quote", null]), json!([])] {
        let response = ask(&proxy, &all, &list);
        assert_eq!(response.status, 422);
        assert!(response.text().contains("a list, expected an object"));
    }
    assert!(llm.0.received().is_empty());
}

#[test]
fn questions_are_audited_as_calls_are() {
    let llm = Llm(Upstream::answering(|received, stream| {
        let is_bad = String::from_utf8_lossy(&received.body).contains("fail here");
        let body = json!({"choices": [{"message": {"content": "ok"}}]}).to_string();
        let status = if is_bad { "500 Oops" } else { "200 OK" };
        whole(stream, status, "", &body)
    }));
    let (setup, signer) = setup(&llm.url());
    let proxy = setup.start();
    let all = token(&signer, "*");
    let long = "ü".repeat(300);
    ask(&proxy, &all, &json!({"query": long, "tool": "market"}));
    // One that never gets to the model leaves no line.
    ask(&proxy, &all, &json!({"query": "q", "tool": "nope"}));
    let failing = ask(&proxy, &all, &json!({"query": "fail here"}));
    assert_eq!(failing.status, 502);
    let lines = proxy.wait_for_audit(2);
    assert_eq!(lines.len(), 2);
    let first = &lines[0];
    assert_eq!(
        (&first["tool"], &first["status"]),
        (&json!("help"), &json!("ok"))
    );
    assert_eq!(first["agent_sub"], claims().sub);
    assert_eq!(first["args"]["tool"], "market");
    let kept = format!("{}...[truncated]", "ü".repeat(200));
    assert_eq!(first["args"]["query"], kept);
    assert!(first["duration_ms"].is_u64() && first["request_id"].is_string());
    assert_eq!(lines[1]["status"], "error");
    let error = lines[1]["error"].as_str().unwrap();
    assert!(error.starts_with("LLM API error (500): "), "{error}");
}

#[test]
fn questions_are_limited_by_a_rate_that_matches_help() {
    let llm = Llm::saying("ok");
    let (setup, signer) = setup(&llm.url());
    let proxy = setup.start();
    let limited = |sub: &str, pattern: &str| {
        let claims = Claims {
            sub: sub.to_owned(),
            scope: "*".to_owned(),
            ati: Some(Namespace {
                v: 1,
                rate: [(pattern.to_owned(), "1/hour".to_owned())].into(),
                customer_id: None,
                delegation: None,
            }),
            ..claims()
        };
        bearer(&signer, &claims)
    };
    let question = json!({"query": "q"});
    for (sub, pattern) in [("one", "help"), ("two", "*")] {
        let token = limited(sub, pattern);
        // What isn't asked isn't counted.
        let refused_before = ask(&proxy, &token, &json!({"query": "q", "tool": "nope"}));
        assert_eq!(refused_before.status, 403);
        assert_eq!(ask(&proxy, &token, &question).status, 200);
        let response = ask(&proxy, &token, &question);
        let expected = format!("Rate limit exceeded for '{pattern}': 1/hour (limit: 1/hour)");
        assert_eq!(refused(&response), (429, expected));
        assert!(response.header("retry-after").is_some());
    }
    let token = limited("three", "tool:*");
    for _ in 0..2 {
        assert_eq!(ask(&proxy, &token, &question).status, 200);
    }
    assert_eq!(llm.0.received().len(), 4);
    let last = proxy.wait_for_audit(6);
    let refused = last.iter().filter(|line| line["status"] == "error");
    assert_eq!(refused.count(), 2);
}
