//! `ati run` with calls that have to be confirmed, on this machine and through a proxy.

use std::path::Path;
use std::process::Output;

use serde_json::{Value, json};

use super::*;
use crate::support::ati::{command, stderr, stdout};

fn run(dir: &Path, url: Option<&str>, words: &[&str]) -> Output {
    let mut command = command(dir);
    if let Some(url) = url {
        command.env("ATI_PROXY_URL", url);
    }
    command.arg("-J").arg("run").args(words).output().unwrap()
}

/// The error that scripts read.
fn failure(output: &Output) -> Value {
    let text = stderr(output);
    let last = text
        .lines()
        .rev()
        .find(|line| line.starts_with("{\"error\""));
    let last = last.unwrap_or_else(|| panic!("{text}"));
    serde_json::from_str::<Value>(last).unwrap()["error"].take()
}

#[test]
fn confirmed_call_runs_with_its_token_or_with_yes_and_ends_with_6_otherwise() {
    let api = upstream();
    let proxy = setup(&api, "").start();
    let url = format!("http://{}", proxy.edge);
    for url in [None, Some(url.as_str())] {
        let before = api.received().len();
        let run = |words: &[&str]| run(&proxy.path(""), url, words);
        let asked = run(&["gh:repo_delete", "--repo", "o/r"]);
        assert_eq!(asked.status.code(), Some(6), "{}", stderr(&asked));
        let error = failure(&asked);
        assert_eq!(error["code"], "confirm.required");
        assert_eq!(error["confirmation"]["rule"], "declared.destructive");
        assert_eq!(api.received().len(), before);
        let token = error["confirmation"]["token"].as_str().unwrap();
        let changed = run(&["--confirm", token, "gh:repo_delete", "--repo", "o/other"]);
        assert_eq!(changed.status.code(), Some(6));
        assert_eq!(failure(&changed)["code"], "confirm.refused");
        let done = run(&["--confirm", token, "gh:repo_delete", "--repo", "o/r"]);
        assert!(done.status.success(), "{}", stderr(&done));
        let result: Value = serde_json::from_str(&stdout(&done)).unwrap();
        assert_eq!(result, json!({"done": true}));
        let again = run(&["--confirm", token, "gh:repo_delete", "--repo", "o/r"]);
        assert_eq!(again.status.code(), Some(6), "{}", stderr(&again));
        let yes = run(&["--yes", "gh:repo_delete", "--repo", "o/r"]);
        assert!(yes.status.success(), "{}", stderr(&yes));
        assert_eq!(api.received().len(), before + 2);
        // After the name it is an argument of the tool.
        let argument = run(&["gh:repo_delete", "--repo", "o/r", "--yes"]);
        assert_eq!(argument.status.code(), Some(6));
        let both = run(&["--yes", "--confirm", token, "gh:repo_delete"]);
        assert_eq!(both.status.code(), Some(2));
    }
}

#[test]
fn arguments_of_standard_input_are_read_once() {
    let api = upstream();
    let proxy = setup(&api, "").start();
    let mut command = command(&proxy.path(""));
    let file = proxy.path("args.json");
    std::fs::write(&file, r#"{"repo": "o/r"}"#).unwrap();
    let input = std::fs::File::open(&file).unwrap();
    let output = command
        .args(["run", "--yes", "gh:repo_delete", "-"])
        .stdin(input)
        .output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let body = String::from_utf8(api.last().body).unwrap();
    assert!(body.contains("o/r"), "{body}");
}

#[test]
fn denied_call_names_its_rule_for_scripts() {
    let api = upstream();
    let conf = "[policy]\neffect_restrictions = { destructive = false }\n";
    let (signer, public) = crate::support::tokens::key_pair();
    let proxy = setup(&api, conf).jwt(&public).start();
    let rules = json!({"effectRestrictions": {"destructive": false}});
    let token = delegated(&signer, "d", &rules);
    let url = format!("http://{}", proxy.edge);
    for (url, rule) in [
        (Some(url), "policy.effectRestrictions.destructive"),
        (None, "delegation.effectRestrictions.destructive"),
    ] {
        let mut command = command(&proxy.path(""));
        command.envs(url.map(|url| ("ATI_PROXY_URL", url)));
        command.env("ATI_JWT_PUBLIC_KEY", proxy.path("public.pem"));
        command.env("ATI_SESSION_TOKEN", token.strip_prefix("Bearer ").unwrap());
        let words = ["-J", "run", "gh:repo_delete", "--repo", "o/r"];
        let denied = command.args(words).output().unwrap();
        assert_eq!(denied.status.code(), Some(3), "{}", stderr(&denied));
        assert_eq!(failure(&denied)["rule"], rule);
    }
    assert_eq!(api.received().len(), 0);
}
