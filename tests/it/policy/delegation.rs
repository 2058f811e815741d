//! Policies that tokens carry.

use serde_json::{Value, json};

use super::*;
use crate::support::ati::{command, stderr, stdout};
use crate::support::tokens::key_pair;

#[test]
fn token_narrows_the_policy_and_cannot_widen_it() {
    let api = upstream();
    let (signer, public) = key_pair();
    let conf = "[policy]\ndenied_commands = ['gh:costly']\n";
    let proxy = setup(&api, conf).jwt(&public).start();
    let answer = |delegation: Value, tool: &str| {
        let token = delegated(&signer, "sub", &delegation);
        let answer = proxy.call(Some(&token), tool, json!({"repo": "o/r"}));
        let body = answer.json();
        let rule = match answer.status {
            409 => body["confirmation"]["rule"].clone(),
            _ => body["rule"].clone(),
        };
        (answer.status, rule.as_str().unwrap_or_default().to_owned())
    };
    let rule = |status: u16, text: &str| (status, text.to_owned());
    for (delegation, tool, expected) in [
        (json!({}), "gh:repo_view", rule(200, "")),
        (json!(null), "gh:repo_view", rule(200, "")),
        (
            json!({"allowedTools": ["gh", "git"]}),
            "gh:repo_view",
            rule(200, ""),
        ),
        (
            json!({"allowedTools": ["git"]}),
            "gh:repo_view",
            rule(403, "delegation.allowedTools"),
        ),
        (
            json!({"deniedCommands": ["gh repo delete"]}),
            "gh:repo_delete",
            rule(403, "delegation.deniedCommands: gh repo delete"),
        ),
        (
            json!({"effectRestrictions": {"destructive": false}}),
            "gh:repo_delete",
            rule(403, "delegation.effectRestrictions.destructive"),
        ),
        (
            json!({"requireConfirmation": {"effects.network": true}}),
            "gh:repo_view",
            rule(409, "delegation.requireConfirmation: effects.network"),
        ),
        (
            json!({"autoApprove": ["effects.destructive"]}),
            "gh:repo_delete",
            rule(409, "declared.destructive"),
        ),
        (
            json!({"allowedTools": ["*"]}),
            "gh:costly",
            rule(403, "policy.deniedCommands: gh:costly"),
        ),
    ] {
        assert_eq!(
            answer(delegation.clone(), tool),
            expected,
            "{delegation} {tool}"
        );
    }
}

#[test]
fn token_with_a_policy_that_this_edge_cannot_read_is_refused() {
    let api = upstream();
    let (signer, public) = key_pair();
    let proxy = setup(&api, "").jwt(&public).start();
    for delegation in [
        json!([]),
        json!("gh"),
        json!({"allowedTool": ["gh"]}),
        json!({"effectRestrictions": {"sideways": false}}),
        json!({"requireConfirmation": ["effects.mood"]}),
    ] {
        let token = delegated(&signer, "a", &delegation);
        let answer = proxy.call(Some(&token), "gh:repo_view", json!({}));
        assert_eq!(answer.status, 401, "{delegation}");
        let challenge = answer.header("www-authenticate").unwrap();
        assert!(challenge.contains("token_delegation: "), "{challenge}");
    }
    assert_eq!(api.received().len(), 0);
}

#[test]
fn lead_agent_narrows_what_a_subagent_gets() {
    let dir = tempfile::tempdir().unwrap();
    let key = dir.path().join("key.pem");
    let run = |words: &[&str]| command(dir.path()).args(words).output().unwrap();
    let pem = stdout(&run(&["token", "keygen"]));
    let end = "-----END PRIVATE KEY-----\n";
    let private = &pem[..pem.find(end).unwrap() + end.len()];
    std::fs::write(&key, private).unwrap();
    let key = key.to_str().unwrap();
    let issue = |more: &[&str]| {
        let start = ["token", "issue", "--key", key, "--sub", "s"];
        run(&[&start[..], more].concat())
    };
    let claims = |token: &str| -> Value {
        serde_json::from_str(&stdout(&run(&["token", "inspect", token]))).unwrap()
    };
    let lead = issue(&[
        "--scope",
        "tool:gh:*",
        "--ttl",
        "600",
        "--allow-tool",
        "gh",
        "--deny-command",
        "gh repo delete",
        "--restrict",
        "destructive=false",
        "--confirm",
        "effects.network",
    ]);
    assert!(lead.status.success(), "{}", stderr(&lead));
    let lead = stdout(&lead).trim().to_owned();
    assert_eq!(
        claims(&lead)["ati"]["delegation"],
        json!({
            "requireConfirmation": ["effects.network"],
            "allowedTools": ["gh"],
            "deniedCommands": ["gh repo delete"],
            "effectRestrictions": {"destructive": false},
        })
    );
    let sub = issue(&[
        "--scope",
        "tool:gh:pr_list",
        "--ttl",
        "9000",
        "--lead",
        &lead,
        "--allow-tool",
        "gh:pr_*",
        "--restrict",
        "cost=low",
    ]);
    assert!(sub.status.success(), "{}", stderr(&sub));
    let (sub, lead_claims) = (claims(stdout(&sub).trim()), claims(&lead));
    assert_eq!(
        sub["ati"]["delegation"],
        json!({
            "requireConfirmation": ["effects.network"],
            "allowedTools": ["gh:pr_*"],
            "deniedCommands": ["gh repo delete"],
            "effectRestrictions": {"destructive": false, "cost": "low"},
        })
    );
    assert_eq!(sub["exp"], lead_claims["exp"]);
    for (more, why) in [
        (&["--scope", "tool:*"][..], "'tool:*' is not within"),
        (
            &["--scope", "tool:gh:x", "--allow-tool", "npm"],
            "'npm' is not within",
        ),
        (
            &["--scope", "tool:gh:x", "--customer-id", "c"],
            "--customer-id",
        ),
    ] {
        let refused = issue(&[more, &["--lead", &lead]].concat());
        assert_eq!(refused.status.code(), Some(3), "{more:?}");
        assert!(stderr(&refused).contains(why), "{}", stderr(&refused));
    }
    // Of two restrictions on one effect the narrower one is kept.
    for costs in [["cost=low", "cost=high"], ["cost=high", "cost=low"]] {
        let [one, two] = costs;
        let twice = issue(&["--scope", "*", "--restrict", one, "--restrict", two]);
        assert!(twice.status.success(), "{}", stderr(&twice));
        let kept = claims(stdout(&twice).trim());
        let kept = &kept["ati"]["delegation"]["effectRestrictions"];
        assert_eq!(kept, &json!({"cost": "low"}));
    }
    let bad = issue(&["--scope", "*", "--restrict", "destructive=true"]);
    assert_eq!(bad.status.code(), Some(2), "{}", stderr(&bad));
    let forged = issue(&["--scope", "tool:gh:x", "--lead", "a.b.c"]);
    assert_eq!(forged.status.code(), Some(3), "{}", stderr(&forged));
}
