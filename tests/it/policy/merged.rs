//! Effects that several say: who declares one more of them takes none of the others back.

use serde_json::{Value, json};

use super::*;
use crate::support::ati::{command, stderr, stdout};

/// Each tool has one effect that is declared, and others that its method says.
const PARTLY: &str = r#"
[[tools]]
name = "part:wipe"
method = "DELETE"
effects = { cost = { estimate = "low" } }

[[tools]]
name = "part:soft_wipe"
method = "DELETE"
effects = { destructive = false, cost = { estimate = "low" } }

[[tools]]
name = "part:plain"
method = "DELETE"
effects = {}
"#;

fn partly(conf: &str) -> Proxy {
    let api = upstream();
    let spec = json!({
        "openapi": "3.0.0", "info": {"title": "t", "version": "1"},
        "paths": {"/x": {"delete": {"operationId": "drop", "responses": {}}}},
    });
    let openapi = format!(
        "[provider]\nname = 'api'\nhandler = 'openapi'\nbase_url = '{}'\nopenapi_spec = 'api.json'\n\
         [provider.openapi_overrides.drop]\neffects = {{ cost = {{ estimate = 'low' }} }}\n\
         [[tools]]\nname = 'drop'\neffects = {{ creates = ['a'] }}\n",
        api.url()
    );
    let setup = Setup::new()
        .tools("part", &api.url(), "", PARTLY)
        .file("specs/api.json", spec.to_string())
        .manifest("api", &openapi);
    match conf {
        "" => setup.start(),
        conf => setup.conf(conf).start(),
    }
}

/// The status, and the rule that decided.
fn decided(proxy: &Proxy, tool: &str) -> (u16, String) {
    let answer = proxy.call(None, tool, json!({}));
    let body = answer.json();
    let rule = match answer.status {
        409 => &body["confirmation"]["rule"],
        _ => &body["rule"],
    };
    (answer.status, rule.as_str().unwrap_or_default().to_owned())
}

#[test]
fn inferred_effects_of_a_tool_with_declared_ones_count_and_stay_inferred() {
    let confirm = |rule: &str| (409, rule.to_owned());
    let deny = |rule: &str| (403, rule.to_owned());
    let allow = (200, String::new());
    let none = partly("");
    for tool in ["part:wipe", "part:soft_wipe", "part:plain", "api:drop"] {
        assert_eq!(decided(&none, tool), allow, "{tool}");
    }
    let careful = partly("[policy]\npreset = 'careful'\n");
    for tool in ["part:wipe", "part:plain", "api:drop"] {
        let rule = "policy.preset.careful.destructive";
        assert_eq!(decided(&careful, tool), confirm(rule), "{tool}");
    }
    assert_eq!(decided(&careful, "part:soft_wipe"), allow);
    let offline = partly("[policy]\neffect_restrictions = { network = false }\n");
    let asking = partly("[policy]\nrequire_confirmation = ['effects.network']\n");
    for tool in ["part:wipe", "part:soft_wipe", "api:drop"] {
        let rule = "policy.effectRestrictions.network";
        assert_eq!(decided(&offline, tool), deny(rule), "{tool}");
        let rule = "policy.requireConfirmation: effects.network";
        assert_eq!(decided(&asking, tool), confirm(rule), "{tool}");
    }
    // Nothing is declared by an empty table.
    let trusted = partly("[policy]\neffect_restrictions = { trust = 'medium' }\n");
    assert_eq!(decided(&trusted, "part:wipe"), allow);
    let rule = "policy.effectRestrictions.trust";
    assert_eq!(decided(&trusted, "part:plain"), deny(rule));
}

#[test]
fn merged_effects_are_shown_with_those_that_are_inferred() {
    let proxy = partly("");
    let inferred = json!(["network", "idempotent", "destructive"]);
    let wipe = json!({"network": true, "idempotent": true, "destructive": true,
                      "cost": {"estimate": "low"}});
    let described = proxy.client().get("/tools/part:wipe").json();
    let url = format!("http://{}", proxy.edge);
    let run = |remote: bool, words: &[&str]| {
        let mut command = command(&proxy.path(""));
        if remote {
            command.env("ATI_PROXY_URL", &url);
        }
        let output = command.args(words).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        stdout(&output)
    };
    let info = |remote| -> Value {
        let text = run(remote, &["-J", "tool", "info", "part:wipe"]);
        serde_json::from_str(&text).unwrap()
    };
    for shown in [described, info(true), info(false)] {
        assert_eq!(shown["effects"], wipe, "{shown}");
        assert_eq!(shown["effects_source"], "org");
        assert_eq!(shown["effects_inferred"], inferred);
    }
    for remote in [true, false] {
        let text = run(remote, &["--output", "text", "tool", "info", "part:wipe"]);
        let who = "(declared by: org; inferred: network, idempotent, destructive)";
        assert!(text.contains(who), "{text}");
        let words = ["tool", "list", "--effect", "destructive", "-J"];
        let listed: Value = serde_json::from_str(&run(remote, &words)).unwrap();
        let listed = listed.as_array().unwrap().iter();
        let names: Vec<&str> = listed.filter_map(|tool| tool["name"].as_str()).collect();
        assert!(names.contains(&"part:wipe") && names.contains(&"api:drop"));
        assert!(!names.contains(&"part:soft_wipe"), "{names:?}");
    }
    let listed = proxy.client().get("/tools?provider=part").json();
    assert_eq!(listed[0]["effects"], json!({"cost": {"estimate": "low"}}));
    assert_eq!(listed[0]["effects_source"], "org");
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).to_string();
    let headers = [("content-type", "application/json")];
    let list = proxy
        .client()
        .send("POST", "/mcp", &headers, body.as_bytes());
    let list = list.json();
    let tools = list["result"]["tools"].as_array().unwrap();
    let hints = |name: &str| {
        let tool = tools.iter().find(|tool| tool["name"] == name).unwrap();
        tool["annotations"].clone()
    };
    assert_eq!(
        hints("part:wipe"),
        json!({"readOnlyHint": false, "destructiveHint": true, "idempotentHint": true,
               "openWorldHint": true})
    );
    assert_eq!(hints("part:soft_wipe")["destructiveHint"], false);
}
