//! `handler = "atip"`: commands as tools.

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::*;

#[test]
fn shim_of_the_rfc_gives_every_leaf_command_with_its_schema() {
    let dir = tempfile::tempdir().unwrap();
    let gh = add_printer(dir.path(), "gh");
    add_shim(dir.path(), "gh", &seed_gh());
    add_manifest(dir.path(), "gh", &gh, "");
    let listed = ati(dir.path(), &["tool", "list", "--provider", "gh"]);
    let listed = listed.as_array().unwrap().iter();
    let names: Vec<&str> = listed.map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "gh:pr_list",
            "gh:pr_create",
            "gh:pr_merge",
            "gh:repo_clone",
            "gh:repo_delete"
        ]
    );
    let list = ati(dir.path(), &["tool", "info", "gh:pr_list"]);
    assert_eq!(
        list["input_schema"]["properties"]["state"],
        json!({"type": "string", "enum": ["open", "closed", "merged", "all"], "default": "open"})
    );
    assert_eq!(
        list["effects"],
        json!({"network": true, "idempotent": true})
    );
    // A shim is another's word about the tool.
    assert_eq!(list["effects_source"], "community");
    assert_eq!(list["patterns"][0]["name"], "review-pr");
    let delete = ati(dir.path(), &["tool", "info", "gh:repo_delete"]);
    assert_eq!(delete["input_schema"]["required"], json!(["repository"]));
    assert_eq!(delete["effects"]["destructive"], true);
    let result = ati(dir.path(), &["run", "gh:pr_list", "--state", "closed"]);
    assert_eq!(words(&result), ["pr", "list", "--state", "closed"]);
    let result = ati(dir.path(), &["run", "gh:pr_merge", "--number", "42"]);
    assert_eq!(words(&result), ["pr", "merge", "42"]);
}

#[test]
fn native_tool_is_called_over_call_and_mcp_with_its_credential() {
    let proxy = with_native("nat", "[provider.atip_env]\nTOOL_TOKEN = '${tool_token}'")
        .credentials(&json!({"tool_token": "planted-token"}))
        .start();
    let args = json!({"text": "hello", "tag": "a", "loud": true});
    let result = call(&proxy, "nat:say", args.clone());
    assert_eq!(words(&result), ["say", "hello", "--tag", "a", "--loud"]);
    assert_eq!(result["has_token"], true);
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "nat:say", "arguments": args}});
    let headers = [("content-type", "application/json")];
    let body = message.to_string();
    let answer = proxy
        .client()
        .send("POST", "/mcp", &headers, body.as_bytes());
    let text = answer.json()["result"]["content"][0]["text"].clone();
    let over_mcp: Value = serde_json::from_str(text.as_str().unwrap()).unwrap();
    assert_eq!(over_mcp, result);
    let one = proxy.client().get("/tools/nat:say").json();
    assert_eq!(one["effects"]["idempotent"], true);
    assert_eq!(one["effects_source"], "native");
    assert_eq!(one["examples"], json!(["nat say hello"]));
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).to_string();
    let listed = proxy
        .client()
        .send("POST", "/mcp", &headers, list.as_bytes());
    let tools = listed.json()["result"]["tools"].clone();
    let say = tools
        .as_array()
        .unwrap()
        .iter()
        .find(|it| it["name"] == "nat:say")
        .unwrap();
    assert_eq!(
        say["annotations"],
        json!({"readOnlyHint": true, "destructiveHint": false, "idempotentHint": true,
               "openWorldHint": false})
    );
}

#[test]
fn command_that_needs_a_terminal_is_refused() {
    let proxy = with_native("nat", "").start();
    let answer = proxy.call(None, "nat:secret", json!({}));
    assert_eq!(answer.status, 502, "{}", answer.text());
    let error = answer.json()["error"].as_str().unwrap().to_owned();
    assert!(
        error.contains("'nat:secret' is not run: it needs a terminal"),
        "{error}"
    );
}

#[test]
fn time_of_the_metadata_bounds_the_call() {
    let dir = tempfile::tempdir().unwrap();
    let slow = add_program(dir.path(), "slow", "#!/bin/sh\nsleep 60\n");
    let metadata = json!({
        "atip": "0.1", "name": "slow", "version": "1", "description": "d",
        "effects": {"duration": {"timeout": "60s"}},
        "commands": {"": {"description": "Sleeps", "effects": {"duration": {"timeout": "1s"}}}},
    });
    add_shim(dir.path(), "slow", &metadata);
    add_manifest(dir.path(), "slow", &slow, "");
    // The root command has the provider's name.
    let output = command(dir.path()).args(["run", "slow"]).output().unwrap();
    assert!(
        stderr(&output).contains("CLI timed out after 1s"),
        "{}",
        stderr(&output)
    );
    assert_eq!(output.status.code(), Some(4));
}

#[test]
fn shim_for_another_version_of_the_program_never_runs_it() {
    let dir = tempfile::tempdir().unwrap();
    let gh = add_printer(dir.path(), "gh");
    let hash = hex::encode(Sha256::digest(std::fs::read(&gh).unwrap()));
    let mut shim = seed_gh();
    shim["binary"] = json!({"hash": format!("sha256:{hash}"), "name": "gh"});
    add_shim(dir.path(), "gh", &shim);
    add_manifest(dir.path(), "gh", &gh, "");
    let result = ati(dir.path(), &["run", "gh:pr_list"]);
    assert_eq!(words(&result), ["pr", "list"]);
    let touched = dir.path().join("touched");
    let other = format!("#!/bin/sh\ntouch {}\n", touched.display());
    add_program(dir.path(), "gh", &other);
    let output = command(dir.path())
        .args(["run", "gh:pr_list"])
        .output()
        .unwrap();
    let text = stderr(&output);
    assert!(
        text.contains("is not run: its SHA-256 is not the one"),
        "{text}"
    );
    let scan = ati(
        dir.path(),
        &["provider", "scan", "--probe", "--path", &bin(dir.path())],
    );
    assert_eq!(scan["tools"], json!([]));
    assert!(
        scan["refused"][0]["why"]
            .as_str()
            .unwrap()
            .contains("SHA-256"),
        "{scan}"
    );
    assert!(!touched.exists());
}

#[test]
fn program_that_is_replaced_while_the_proxy_runs_is_not_run() {
    let setup = Setup::new();
    let gh = add_printer(setup.path(), "gh");
    let hash = hex::encode(Sha256::digest(std::fs::read(&gh).unwrap()));
    let mut shim = seed_gh();
    shim["binary"] = json!({"hash": format!("sha256:{hash}")});
    let folder = agent_tools(setup.path()).join("shims/sha256");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join(format!("{hash}.json")), shim.to_string()).unwrap();
    let text = manifest("gh", &gh, "");
    let proxy = setup.manifest("gh", &text).start();
    assert_eq!(
        words(&call(&proxy, "gh:pr_list", json!({}))),
        ["pr", "list"]
    );
    add_program(
        proxy.path("").as_path(),
        "gh",
        "#!/bin/sh\necho '{\"words\": []}'\n",
    );
    let answer = proxy.call(None, "gh:pr_list", json!({}));
    assert_eq!(answer.status, 502, "{}", answer.text());
    assert!(
        answer.text().contains("is not run: its SHA-256"),
        "{}",
        answer.text()
    );
}

#[test]
fn patterns_of_the_folder_are_layered_over_those_of_the_tool() {
    let dir = tempfile::tempdir().unwrap();
    let gh = add_printer(dir.path(), "gh");
    add_shim(dir.path(), "gh", &seed_gh());
    add_manifest(dir.path(), "gh", &gh, "");
    let folder = agent_tools(dir.path()).join("patterns");
    std::fs::create_dir_all(&folder).unwrap();
    let patterns = json!({"patterns": [
        {"name": "review-pr", "description": "Ours", "steps": [{"command": "gh pr view {number}"}]},
        {"name": "ship", "steps": [{"command": "git push"}, {"command": "gh pr create --fill"}]},
        {"name": "unrelated", "steps": [{"command": "kubectl get pods"}]},
    ]});
    std::fs::write(folder.join("org-deploy.json"), patterns.to_string()).unwrap();
    let info = ati(dir.path(), &["tool", "info", "gh:pr_list"]);
    let names = info["patterns"].as_array().unwrap().iter();
    let names: Vec<_> = names
        .map(|pattern| (&pattern["name"], &pattern["description"]))
        .collect();
    assert_eq!(
        names,
        [
            (&json!("review-pr"), &json!("Ours")),
            (&json!("ship"), &Value::Null)
        ]
    );
    let words = ["--output", "text", "tool", "info", "gh:pr_list"];
    let text = stdout(&command(dir.path()).args(words).output().unwrap());
    assert!(
        text.contains("ship\n    git push\n    gh pr create --fill"),
        "{text}"
    );
}

#[test]
fn doctor_asks_the_tool_whether_it_is_logged_in() {
    let mut document = metadata("nat");
    document["authentication"] = json!({
        "required": true,
        "methods": [{"type": "token", "envVar": "TOOL_TOKEN"},
                    {"type": "oauth", "setupCommand": "nat login"}],
        "checkCommand": "nat status",
    });
    let dir = tempfile::tempdir().unwrap();
    let program = add_native(dir.path(), "nat", &document);
    add_manifest(dir.path(), "nat", &program, "");
    let logins = || {
        let output = command(dir.path()).args(["doctor"]).output().unwrap();
        let text = stdout(&output);
        let lines: Vec<&str> = text
            .lines()
            .skip_while(|line| !line.contains("logins"))
            .collect();
        lines[..lines.len().min(2)].join("\n")
    };
    let refused = logins();
    assert!(
        refused.contains("FAIL logins: 'nat': 'nat status' ended with code 4"),
        "{refused}"
    );
    assert!(refused.contains("log in with 'nat login'"), "{refused}");
    add_manifest(
        dir.path(),
        "nat",
        &program,
        "[provider.atip_env]\nTOOL_TOKEN = '${t}'",
    );
    std::fs::write(dir.path().join("credentials"), r#"{"t": "planted-token"}"#).unwrap();
    let accepted = logins();
    assert!(accepted.contains("ok   logins: 'nat'"), "{accepted}");
    // A check that is another program isn't run.
    document["authentication"]["checkCommand"] = json!("touch /tmp/atip-must-not-exist");
    add_native(dir.path(), "nat", &document);
    assert!(logins().contains("is not run"), "{}", logins());
}

#[test]
fn provider_without_metadata_says_why_it_has_no_tools() {
    let dir = tempfile::tempdir().unwrap();
    let program = add_printer(dir.path(), "mute");
    add_manifest(dir.path(), "mute", &program, "");
    let output = command(dir.path()).arg("check").output().unwrap();
    let text = format!("{}{}", stdout(&output), stderr(&output));
    assert!(text.contains("there is no metadata for 'mute'"), "{text}");
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o757);
    std::fs::set_permissions(&program, open).unwrap();
    let output = command(dir.path()).arg("check").output().unwrap();
    let text = format!("{}{}", stdout(&output), stderr(&output));
    assert!(
        text.contains("every user may write it, so it isn't used"),
        "{text}"
    );
}

fn bin(dir: &Path) -> String {
    dir.join("bin").display().to_string()
}
