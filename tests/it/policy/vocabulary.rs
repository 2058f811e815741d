//! What is said about tools, and where it is shown.

use serde_json::{Value, json};

use super::{setup, upstream};
use crate::support::ati::{Setup, command, stderr, stdout};

fn names(tools: &Value) -> Vec<&str> {
    let tools = tools.as_array().unwrap().iter();
    tools.map(|tool| tool["name"].as_str().unwrap()).collect()
}

#[test]
fn effects_are_shown_with_who_says_them_and_lists_can_be_filtered() {
    let api = upstream();
    let proxy = setup(&api, "").start();
    let described = |name: &str| proxy.client().get(&format!("/tools/{name}")).json();
    let delete = described("gh:repo_delete");
    assert_eq!(delete["effects"]["destructive"], true);
    assert_eq!(delete["effects_source"], "org");
    let remove = described("gh:issue_remove");
    assert_eq!(remove["effects"]["destructive"], true);
    assert_eq!(remove["effects_source"], "inferred");
    let found = |query: &str| proxy.client().get(&format!("/tools?{query}")).json();
    let destructive = found("effect=destructive&provider=gh");
    assert_eq!(names(&destructive), ["gh:repo_delete", "gh:issue_remove"]);
    assert_eq!(names(&found("effect=effects.cost%3Dmedium")), ["gh:costly"]);
    let unknown = proxy.client().get("/tools?effect=nonsense");
    assert_eq!(unknown.status, 422, "{}", unknown.text());
    let url = format!("http://{}", proxy.edge);
    for remote in [true, false] {
        let run = |words: &[&str]| {
            let mut command = command(&proxy.path(""));
            if remote {
                command.env("ATI_PROXY_URL", &url);
            }
            let output = command.arg("-J").args(words).output().unwrap();
            assert!(output.status.success(), "{}", stderr(&output));
            serde_json::from_str::<Value>(&stdout(&output)).unwrap()
        };
        let listed = run(&[
            "tool",
            "list",
            "--provider",
            "gh",
            "--effect",
            "destructive",
        ]);
        assert_eq!(names(&listed), ["gh:repo_delete", "gh:issue_remove"]);
        let searched = run(&["tool", "search", "--effect", "destructive", "repo"]);
        assert!(names(&searched).contains(&"gh:repo_delete"), "{searched}");
        assert!(!names(&searched).contains(&"gh:repo_view"), "{searched}");
        assert_eq!(
            run(&["tool", "info", "gh:issue_remove"])["effects_source"],
            "inferred"
        );
    }
}

#[test]
fn operator_declares_effects_of_tools_that_a_document_describes() {
    let api = upstream();
    let spec = json!({
        "openapi": "3.0.0", "info": {"title": "t", "version": "1"},
        "paths": {"/x": {"post": {"operationId": "drop", "responses": {}},
                         "get": {"operationId": "look", "responses": {}}}},
    });
    let manifest = format!(
        "[provider]\nname = 'api'\nhandler = 'openapi'\nbase_url = '{}'\nopenapi_spec = 'api.json'\n\
         [provider.openapi_overrides.drop]\neffects = {{ destructive = true }}\n\
         [[tools]]\nname = 'look'\neffects = {{ confirm = true }}\n",
        api.url()
    );
    let proxy = Setup::new()
        .file("specs/api.json", spec.to_string())
        .manifest("api", &manifest)
        .start();
    for (tool, rule) in [
        ("api:drop", "declared.destructive"),
        ("api:look", "declared.confirm"),
    ] {
        let answer = proxy.call(None, tool, json!({}));
        assert_eq!(answer.json()["confirmation"]["rule"], rule, "{tool}");
    }
    assert_eq!(api.received().len(), 0);
}
