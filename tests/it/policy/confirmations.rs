//! Calls that run only once they are confirmed.

use std::sync::Barrier;
use std::thread;

use serde_json::json;

use super::*;
use crate::support::ati::write;
use crate::support::eventually;
use crate::support::tokens::{bearer, key_pair};

const REPO: &str = "o/r";

#[test]
fn destructive_call_runs_once_and_only_as_it_was_confirmed() {
    let api = upstream();
    let (signer, public) = key_pair();
    let proxy = setup(&api, "").jwt(&public).start();
    let (own, other) = (
        delegated(&signer, "a", &json!({})),
        delegated(&signer, "b", &json!({})),
    );
    let args = json!({"repo": REPO, "force": true});
    let asked = proxy.call(Some(&own), "gh:repo_delete", args.clone());
    let body = asked.json();
    assert_eq!(asked.status, 409, "{body}");
    assert_eq!(body["result"], json!(null));
    assert!(
        error(&asked).starts_with("Confirmation required: "),
        "{body}"
    );
    let wanted = body["confirmation"].as_object().unwrap();
    let keys: Vec<&str> = wanted.keys().map(String::as_str).collect();
    assert_eq!(keys, ["token", "expires_at", "tool", "effects", "rule"]);
    assert_eq!(wanted["tool"], "gh:repo_delete");
    assert_eq!(wanted["effects"]["destructive"], true);
    assert_eq!(wanted["rule"], "declared.destructive");
    let token = confirmation(&asked);
    let refused = |token: &str, by: &str, tool: &str, args: Value, why: &str| {
        let answer = confirmed(&proxy, Some(by), tool, args, token);
        assert_eq!(answer.status, 403, "{}", answer.text());
        let text = error(&answer);
        assert!(
            text.starts_with("Confirmation refused: ") && text.ends_with(why),
            "{text}"
        );
    };
    let changed = json!({"repo": "o/other", "force": true});
    let differ = "the arguments differ from those that the token was given for";
    refused(&token, &own, "gh:repo_delete", changed, differ);
    refused(
        &token,
        &own,
        "gh:repo_delete",
        json!({"repo": REPO}),
        differ,
    );
    refused(
        &token,
        &other,
        "gh:repo_delete",
        args.clone(),
        "given to another caller",
    );
    refused(&token, &own, "gh:asks", json!({}), "is for another tool");
    let unknown = "is not known, or was used already";
    refused(
        "ati-confirm_guess",
        &own,
        "gh:repo_delete",
        args.clone(),
        unknown,
    );
    assert_eq!(api.received().len(), 0);
    // The order of members isn't a change, and neither is another spelling of the tool.
    let reordered = json!({"force": true, "repo": REPO});
    let done = confirmed(&proxy, Some(&own), "gh_repo_delete", reordered, &token);
    assert_eq!(done.status, 200, "{}", done.text());
    assert_eq!(done.json(), json!({"result": {"done": true}}));
    refused(&token, &own, "gh:repo_delete", args, unknown);
    assert_eq!(api.received().len(), 1);
    let audit = proxy.wait_for_audit(8);
    let outcomes = audit.iter().filter(|line| line["status"] == "ok").count();
    assert_eq!(outcomes, 1);
    let text = json!(audit).to_string();
    assert!(
        !text.contains(&token) && text.contains("Confirmation required"),
        "{text}"
    );
}

#[test]
fn token_that_expired_is_refused() {
    let api = upstream();
    let proxy = setup(&api, "[policy]\nconfirmation_seconds = 1").start();
    let token = confirmation(&proxy.call(None, "gh:asks", json!({})));
    let file = std::fs::read_dir(proxy.path("confirmations")).unwrap();
    let ends: Vec<u64> = file
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .map(|name| name.split('-').next().unwrap().parse().unwrap())
        .collect();
    let last = *ends.iter().max().unwrap();
    eventually("the clock", || {
        (ati::clock::unix_now() >= last).then_some(())
    });
    let late = confirmed(&proxy, None, "gh:asks", json!({}), &token);
    assert_eq!(late.status, 403, "{}", late.text());
    assert!(
        error(&late).ends_with("the token has expired"),
        "{}",
        late.text()
    );
    assert_eq!(api.received().len(), 0);
}

#[test]
fn of_a_hundred_confirmations_with_one_token_one_runs() {
    let api = upstream();
    let proxy = setup(&api, "").start();
    let args = json!({"repo": REPO});
    let token = confirmation(&proxy.call(None, "gh:repo_delete", args.clone()));
    let start = Barrier::new(100);
    let statuses: Vec<u16> = thread::scope(|scope| {
        let each = (0..100).map(|_| {
            scope.spawn(|| {
                start.wait();
                confirmed(&proxy, None, "gh:repo_delete", args.clone(), &token).status
            })
        });
        let each: Vec<_> = each.collect();
        each.into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 1);
    assert_eq!(statuses.iter().filter(|status| **status == 403).count(), 99);
    assert_eq!(api.received().len(), 1);
}

#[test]
fn token_outlives_a_reload_and_a_hand_over() {
    let api = upstream();
    let mut proxy = setup(&api, "").start();
    let args = json!({"repo": REPO});
    let first = confirmation(&proxy.call(None, "gh:repo_delete", args.clone()));
    let second = confirmation(&proxy.call(None, "gh:repo_delete", args.clone()));
    proxy.reload();
    let done = confirmed(&proxy, None, "gh:repo_delete", args.clone(), &first);
    assert_eq!(done.status, 200, "{}", done.text());
    let mut former = proxy.upgrade();
    let done = confirmed(&proxy, None, "gh:repo_delete", args.clone(), &second);
    assert_eq!(done.status, 200, "{}", done.text());
    let again = confirmed(&proxy, None, "gh:repo_delete", args, &second);
    assert_eq!(again.status, 403);
    assert_eq!(api.received().len(), 2);
    former.wait();
}

#[test]
fn policy_decides_what_has_to_be_confirmed_and_a_reload_changes_it() {
    let api = upstream();
    let conf = "[policy]\nrequire_confirmation = ['effects.network']\n";
    let proxy = setup(&api, conf).start();
    let rule = |tool: &str| {
        let answer = proxy.call(None, tool, json!({"repo": REPO}));
        (answer.status, answer.json()["confirmation"]["rule"].clone())
    };
    let network = json!("policy.requireConfirmation: effects.network");
    assert_eq!(rule("gh:repo_view"), (409, network));
    write(
        &proxy.path("ati.toml"),
        "[policy]\nauto_approve = ['effects.destructive']\n",
    );
    proxy.reload();
    assert_eq!(rule("gh:repo_view").0, 200);
    assert_eq!(rule("gh:repo_delete").0, 200);
    assert_eq!(rule("gh:asks"), (409, json!("declared.confirm")));
    write(&proxy.path("ati.toml"), "[policy]\npreset = 'careful'\n");
    proxy.reload();
    assert_eq!(
        rule("gh:issue_remove"),
        (409, json!("policy.preset.careful.destructive"))
    );
    write(
        &proxy.path("ati.toml"),
        "[policy]\neffectRestrictions = { destructive = false }\n",
    );
    proxy.reload();
    let denied = proxy.call(None, "gh:repo_delete", json!({"repo": REPO}));
    assert_eq!(denied.status, 403);
    assert_eq!(
        denied.json()["rule"],
        "policy.effectRestrictions.destructive"
    );
    assert!(
        error(&denied).contains("effectRestrictions.destructive"),
        "{}",
        denied.text()
    );
}

#[test]
fn policy_that_cannot_be_read_does_not_start() {
    for (conf, what) in [
        ("[policy]\npreset = 'wild'", "policy.preset"),
        ("[policy]\nallowed_tools = 'gh'", "policy.allowed_tools"),
        (
            "[policy]\neffect_restrictions = { destructiv = false }",
            "destructiv",
        ),
        ("[policy]\nrequire_confirmations = []", "unknown key"),
        (
            "[policy]\nconfirmation_seconds = 0",
            "policy.confirmation_seconds",
        ),
        (
            "[policy]\nconfirmationSeconds = 604801",
            "policy.confirmation_seconds",
        ),
    ] {
        let output = Setup::new().conf(conf).output();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && text.contains(what),
            "{conf}: {text}"
        );
    }
}

#[test]
fn call_that_wants_a_confirmation_counts_against_no_limit() {
    let api = upstream();
    let (signer, public) = key_pair();
    let proxy = setup(&api, "").jwt(&public).start();
    let claims = Claims {
        ati: Some(ati::auth::token::Namespace {
            v: 1,
            rate: [("tool:gh:asks".to_owned(), "1/hour".to_owned())].into(),
            customer_id: None,
            delegation: None,
        }),
        ..claims()
    };
    let token = bearer(&signer, &claims);
    let mut last = String::new();
    for _ in 0..3 {
        last = confirmation(&proxy.call(Some(&token), "gh:asks", json!({})));
    }
    let done = confirmed(&proxy, Some(&token), "gh:asks", json!({}), &last);
    assert_eq!(done.status, 200, "{}", done.text());
    let next = confirmation(&proxy.call(Some(&token), "gh:asks", json!({})));
    let limited = confirmed(&proxy, Some(&token), "gh:asks", json!({}), &next);
    assert_eq!(limited.status, 429);
}
