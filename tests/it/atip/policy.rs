//! The effects that a document declares, under a policy.

use serde_json::{Value, json};

use super::*;

fn with_gh(conf: &str) -> Proxy {
    let setup = Setup::new();
    let gh = add_printer(setup.path(), "gh");
    add_shim(setup.path(), "gh", &seed_gh());
    let text = manifest("gh", &gh, "");
    setup.manifest("gh", &text).conf(conf).start()
}

#[test]
fn deletion_of_a_repository_is_refused_by_a_restriction_and_by_its_command() {
    for (conf, rule) in [
        (
            "[policy.effectRestrictions]\ndestructive = false",
            "policy.effectRestrictions.destructive",
        ),
        (
            "[policy]\ndeniedCommands = ['gh repo delete']",
            "policy.deniedCommands: gh repo delete",
        ),
        ("[policy]\nallowed_tools = ['gh pr']", "policy.allowedTools"),
    ] {
        let proxy = with_gh(conf);
        let denied = proxy.call(None, "gh:repo_delete", json!({"repository": "o/r"}));
        assert_eq!(denied.status, 403, "{}", denied.text());
        assert_eq!(denied.json()["rule"], rule);
        let listed = proxy.client().get("/tools?effect=destructive").json();
        let listed = listed.as_array().unwrap().iter();
        let names: Vec<&Value> = listed.map(|tool| &tool["name"]).collect();
        assert!(names.contains(&&json!("gh:repo_delete")), "{names:?}");
        call(&proxy, "gh:pr_list", json!({}));
    }
}

#[test]
fn deletion_of_a_repository_runs_once_after_its_confirmation() {
    let proxy = with_gh("[policy]\nrequireConfirmation = ['effects.destructive']");
    let args = json!({"repository": "o/r"});
    let asked = proxy.call(None, "gh:repo_delete", args.clone());
    assert_eq!(asked.status, 409, "{}", asked.text());
    let wanted = &asked.json()["confirmation"];
    assert_eq!(
        wanted["rule"],
        "policy.requireConfirmation: effects.destructive"
    );
    let body = json!({"tool_name": "gh:repo_delete", "args": args, "confirm": wanted["token"]});
    let send = || {
        let body = body.to_string();
        proxy.client().send("POST", "/call", &[], body.as_bytes())
    };
    let done = send();
    assert_eq!(done.status, 200, "{}", done.text());
    assert_eq!(words(&done.json()["result"]), ["repo", "delete", "o/r"]);
    assert_eq!(send().status, 403);
}

#[test]
fn operator_that_adds_an_effect_takes_none_of_the_documents_back() {
    let with = |effects: &str| {
        let setup = Setup::new();
        let gh = add_printer(setup.path(), "gh");
        add_shim(setup.path(), "gh", &seed_gh());
        let more = format!("[[tools]]\nname = 'gh:repo_delete'\neffects = {effects}\n");
        let text = manifest("gh", &gh, &more);
        setup.manifest("gh", &text).start()
    };
    let args = json!({"repository": "o/r"});
    let proxy = with("{ cost = { estimate = 'low' } }");
    let asked = proxy.call(None, "gh:repo_delete", args.clone());
    assert_eq!(asked.status, 409, "{}", asked.text());
    let wanted = &asked.json()["confirmation"];
    assert_eq!(wanted["rule"], "declared.destructive");
    let effects = json!({"network": true, "reversible": false, "destructive": true,
                         "deletes": ["repository"], "cost": {"estimate": "low"}});
    assert_eq!(wanted["effects"], effects);
    let described = proxy.client().get("/tools/gh:repo_delete").json();
    assert_eq!(described["effects"], effects);
    // The rest is still the shim's word.
    assert_eq!(described["effects_source"], "community");
    let proxy = with("{ destructive = false }");
    call(&proxy, "gh:repo_delete", args);
}

#[test]
fn value_of_an_option_is_no_word_of_a_denied_command() {
    let proxy = with_gh("[policy]\ndenied_commands = ['gh pr closed', 'gh pr 7']");
    call(&proxy, "gh:pr_list", json!({"state": "closed"}));
    let denied = proxy.call(None, "gh:pr_merge", json!({"number": 7}));
    assert_eq!(denied.status, 403, "{}", denied.text());
    assert_eq!(denied.json()["rule"], "policy.deniedCommands: gh pr 7");
}
