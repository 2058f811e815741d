//! `ati sandbox`: the variables of a sandbox, and what it can do with them.

use std::path::Path;
use std::process::{Output, Stdio};

use ati::auth::token;
use serde_json::{Value, json};

use super::{orchestrator, proxy};
use crate::support::ati::{command, stderr, stdout};
use crate::support::upstream::Upstream;

const URL: &str = "http://edge.example.com:8090";

fn provision(dir: &Path, args: &[&str]) -> Output {
    let mut command = orchestrator(dir);
    command.args(["sandbox", "provision"]).args(args);
    command.output().unwrap()
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", stderr(output));
    stdout(output)
}

fn claims(token: &str) -> Value {
    Value::Object(token::inspect(token).unwrap())
}

#[test]
fn lists_come_by_comma_or_repeated_and_become_scopes() {
    let dir = tempfile::tempdir().unwrap();
    let args = [
        "--agent",
        "sandbox:42",
        "--tools",
        "a,tool:b",
        "--tools",
        "github:*",
        "--skills",
        "c,d",
        "--extra-scopes",
        "help",
        "--ttl",
        "2h",
        "--rate",
        "tool:a=5/min,tool:github:*=10/hour",
        "--customer",
        "acme",
        "--proxy-url",
        "http://edge.example.com:8090/",
        "--format",
        "json",
    ];
    let answer: Value = serde_json::from_str(&text(&provision(dir.path(), &args))).unwrap();
    assert_eq!(answer.as_object().unwrap().len(), 2, "{answer}");
    assert_eq!(answer["ATI_PROXY_URL"], URL);
    let claims = claims(answer["ATI_SESSION_TOKEN"].as_str().unwrap());
    assert_eq!(claims["sub"], "sandbox:42");
    assert_eq!(claims["aud"], "ati-proxy");
    assert_eq!(
        claims["scope"],
        "tool:a tool:b tool:github:* skill:c skill:d help"
    );
    let valid = claims["exp"].as_u64().unwrap() - claims["iat"].as_u64().unwrap();
    assert_eq!(valid, 7200);
    assert!(claims["jti"].is_string());
    let rate = json!({"tool:a": "5/min", "tool:github:*": "10/hour"});
    assert_eq!(
        claims["ati"],
        json!({"v": 1, "rate": rate, "customer_id": "acme"})
    );
}

#[test]
fn every_format_holds_the_same_variables() {
    let dir = tempfile::tempdir().unwrap();
    let line = |format: &[&str]| {
        let args = ["--agent", "x", "--tools", "a", "--proxy-url", URL];
        text(&provision(dir.path(), &[&args[..], format].concat()))
    };
    // A shell takes the default.
    let script = format!(
        "{}\nprintf '%s|%s' \"$ATI_PROXY_URL\" \"$ATI_SESSION_TOKEN\"",
        line(&[])
    );
    let shell = std::process::Command::new("sh")
        .args(["-c", &script])
        .output()
        .unwrap();
    let said = stdout(&shell);
    let (url, token) = said.split_once('|').unwrap();
    assert_eq!((url, claims(token)["sub"].as_str()), (URL, Some("x")));
    assert!(line(&["--format", "env"]).starts_with("export ATI_PROXY_URL="));
    for format in ["dotenv", "docker"] {
        let file = line(&["--format", format]);
        let lines: Vec<&str> = file.lines().collect();
        assert_eq!(lines[0], format!("ATI_PROXY_URL={URL}"));
        let token = lines[1].strip_prefix("ATI_SESSION_TOKEN=").unwrap();
        assert_eq!(claims(token)["scope"], "tool:a");
        assert_eq!(lines.len(), 2);
    }
    for json in [&["--output", "json"][..], &["-J"]] {
        let answer: Value = serde_json::from_str(&line(json)).unwrap();
        assert_eq!(answer["ATI_PROXY_URL"], URL);
    }
}

#[test]
fn mistakes_are_refused_before_there_is_a_token() {
    let dir = tempfile::tempdir().unwrap();
    let at = ["--proxy-url", URL];
    for (args, why) in [
        (&["--agent", "x", "--tools", "a"][..], "--proxy-url"),
        (&[&at[..], &["--agent", " "]].concat(), "--agent"),
        (
            &[&at[..], &["--agent", "x", "--tools", "a b"]].concat(),
            "white space",
        ),
        (
            &[&at[..], &["--agent", "x", "--tools", "a,,b"]].concat(),
            "empty",
        ),
        (
            &[&at[..], &["--agent", "x", "--tools", "a*b"]].concat(),
            "can match no tool",
        ),
        (
            &[&at[..], &["--agent", "x", "--rate", "tool:a=x"]].concat(),
            "10/hour",
        ),
        (
            &[&at[..], &["--agent", "x", "--ttl", "0"]].concat(),
            "seconds",
        ),
        (&["--agent", "x", "--proxy-url", "edge:1"], "http"),
        (
            &[&at[..], &["--agent", "x", "--format", "yaml"]].concat(),
            "dotenv",
        ),
    ] {
        let output = provision(dir.path(), args);
        assert_eq!(
            output.status.code(),
            Some(2),
            "{args:?}: {}",
            stderr(&output)
        );
        assert_eq!(stdout(&output), "");
        assert!(
            stderr(&output).contains(why),
            "{args:?}: {}",
            stderr(&output)
        );
    }
    // Without a key there is nothing to sign with.
    let output = command(dir.path())
        .args(["sandbox", "provision", "--agent", "x", "--proxy-url", URL])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains("ATI_JWT_SECRET"));
}

#[test]
fn token_that_no_proxy_would_take_is_not_issued() {
    let dir = tempfile::tempdir().unwrap();
    let tools: Vec<String> = (0..3000).map(|n| format!("tool:t{n}")).collect();
    let (names, scope) = (tools.join(","), tools.join(" "));
    let args = ["--agent", "x", "--proxy-url", URL, "--tools", &names];
    let issued = orchestrator(dir.path())
        .args(["token", "issue", "--sub", "x", "--scope", &scope])
        .output()
        .unwrap();
    for output in [provision(dir.path(), &args), issued] {
        assert_eq!(output.status.code(), Some(2));
        assert_eq!(stdout(&output), "");
        let said = stderr(&output);
        assert!(said.contains("proxies take 16384"), "{said}");
        assert!(said.contains("name providers"), "{said}");
    }
}

#[test]
fn named_token_file_that_is_not_there_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let api = Upstream::echo();
    let proxy = proxy(&api);
    let edge = format!("http://{}", proxy.edge);
    for line in [&["sandbox", "env"][..], &["run", "shop:find", "--q", "x"]] {
        let output = command(dir.path())
            .args(line)
            .env("ATI_PROXY_URL", &edge)
            .env("ATI_SESSION_TOKEN_FILE", "/nonexistent/token")
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(3), "{line:?}");
        let said = stderr(&output);
        assert!(said.contains("/nonexistent/token"), "{said}");
        assert!(said.contains("isn't there"), "{said}");
    }
}

#[test]
fn env_repeats_the_variables_of_a_token_that_exists() {
    let dir = tempfile::tempdir().unwrap();
    let issue = ["token", "issue", "--sub", "x", "--scope", "tool:a"];
    let token = text(&orchestrator(dir.path()).args(issue).output().unwrap());
    let token = token.trim();
    let expected = format!("ATI_PROXY_URL={URL}\nATI_SESSION_TOKEN={token}\n");
    let env = ["sandbox", "env", "--format", "docker"];
    let by_variable = command(dir.path())
        .args(env)
        .env("ATI_SESSION_TOKEN", token)
        .env("ATI_PROXY_URL", URL)
        .output()
        .unwrap();
    assert_eq!(text(&by_variable), expected);
    let mut by_stdin = command(dir.path())
        .args(env)
        .args(["--proxy-url", URL, "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = by_stdin.stdin.take().unwrap();
    std::io::Write::write_all(&mut stdin, format!("{token}\n").as_bytes()).unwrap();
    drop(stdin);
    assert_eq!(text(&by_stdin.wait_with_output().unwrap()), expected);
    let none = command(dir.path())
        .args(env)
        .args(["--proxy-url", URL])
        .output()
        .unwrap();
    assert_eq!(none.status.code(), Some(3));
    assert!(stderr(&none).contains("ATI_SESSION_TOKEN"));
    let bad = command(dir.path())
        .args(env)
        .args(["--proxy-url", URL, "nonsense"])
        .output()
        .unwrap();
    assert_eq!(bad.status.code(), Some(2));
}

#[test]
fn signing_secret_is_printed_only_where_it_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let run = |more: &[&str], secret: &str| {
        orchestrator(dir.path())
            .args(["sandbox", "provision", "--agent", "x", "--tools", "a"])
            .args(["--proxy-url", URL, "--format", "json"])
            .args(more)
            .env("ATI_SANDBOX_SECRET", secret)
            .output()
            .unwrap()
    };
    assert!(!text(&run(&[], "it's planted")).contains("planted"));
    let answer = text(&run(&["--with-sandbox-secret"], "it's planted"));
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer["ATI_SANDBOX_SECRET"], "it's planted");
    assert_eq!(run(&["--with-sandbox-secret"], "").status.code(), Some(3));
}

#[test]
fn provisioned_sandbox_calls_its_tools_and_no_others() {
    let api = Upstream::echo();
    let proxy = proxy(&api);
    let sandbox = tempfile::tempdir().unwrap();
    let url = format!("http://{}", proxy.edge);
    let args = [
        "--agent",
        "s",
        "--tools",
        "shop:find",
        "--proxy-url",
        &url,
        "-J",
    ];
    let variables: Value =
        serde_json::from_str(&text(&provision(proxy.dir.path(), &args))).unwrap();
    let run = |tool: &str| {
        let variables = variables.as_object().unwrap();
        let variables = variables
            .iter()
            .map(|(name, value)| (name, value.as_str().unwrap()));
        let mut ati = command(sandbox.path());
        ati.args(["run", tool, "--q", "hat"]).envs(variables);
        ati.output().unwrap()
    };
    assert!(text(&run("shop:find")).contains("hat"));
    let refused = run("shop:buy");
    assert_eq!(refused.status.code(), Some(3));
    assert!(stderr(&refused).contains("is not in your scopes"));
}
