//! `handler = "cmp"`: programs that describe themselves by CMP.

mod export;

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::ati::{Proxy, Setup, ati, command, stderr, stdout, write};

/// As the README of CMP prints it.
const MANIFEST: &str = r#"{
  "domain": "email",
  "name": "inboxd",
  "summary": "Gmail management: triage, delete, restore",
  "version": "1.0.0"
}"#;
const CAPABILITY: &str = r#"{
  "intents": [
    {
      "patterns": ["check email", "unread count"],
      "command": "inbox summary --json"
    },
    {
      "patterns": ["delete emails"],
      "command": "inbox delete --ids {ids}",
      "params": {
        "ids": { "type": "array<string>", "required": true }
      },
      "confirm": true,
      "destructive": true
    }
  ]
}"#;
/// Tells its words, each on its own, and what it sees of its environment.
const INBOX: &str = "#!/usr/bin/env python3\n\
    import json, os, sys\n\
    print(json.dumps({'words': sys.argv[1:], 'agent': os.environ.get('CMP_AGENT'), \
    'key': os.environ.get('MAIL_KEY')}))\n\
    print('inbox was here', file=sys.stderr)\n";

fn add_program(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// The seed's tool, with a program in its `bin/`.
fn add_inboxd(tools: &Path, capability: &str) {
    let folder = tools.join("inboxd");
    for (file, text) in [("manifest.json", MANIFEST), ("capability.json", capability)] {
        std::fs::create_dir_all(folder.join("cmp")).unwrap();
        write(&folder.join("cmp").join(file), text);
    }
    add_program(&folder.join("bin/inbox"), INBOX);
}

fn with_inboxd(capability: &str, more: &str) -> Setup {
    let setup = Setup::new();
    let tools = setup.path().join("tools");
    add_inboxd(&tools, capability);
    let manifest = format!(
        "[provider]\nname = 'inboxd'\nhandler = 'cmp'\ncmp_path = '{}/inboxd'\n{more}",
        tools.display()
    );
    setup.manifest("inboxd", &manifest)
}

fn rpc(proxy: &Proxy, method: &str, params: Value) -> Value {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let headers = [("content-type", "application/json")];
    let answer = proxy
        .client()
        .send("POST", "/mcp", &headers, body.to_string().as_bytes());
    answer.json()["result"].clone()
}

fn printed(dir: &Path, args: &[&str]) -> Value {
    let output = ati(dir, args);
    assert!(output.status.success(), "{args:?}: {}", stderr(&output));
    serde_json::from_str(&stdout(&output)).unwrap()
}

#[test]
fn seeds_inboxd_works_over_call_mcp_and_run() {
    let proxy = with_inboxd(CAPABILITY, "").start();
    let tools = rpc(&proxy, "tools/list", json!({}));
    let tools = tools["tools"].as_array().unwrap();
    let named = |name: &str| tools.iter().find(|tool| tool["name"] == name).unwrap();
    assert_eq!(
        named("inboxd:check_email")["annotations"]["destructiveHint"],
        false
    );
    let delete = named("inboxd:delete_emails");
    assert_eq!(delete["annotations"]["destructiveHint"], true);
    assert_eq!(delete["annotations"]["idempotentHint"], true);
    assert_eq!(
        delete["inputSchema"],
        json!({
            "type": "object",
            "properties": {"ids": {"type": "array", "items": {"type": "string"}}},
            "required": ["ids"],
        })
    );
    let expected = json!({"words": ["summary", "--json"], "agent": "1", "key": null});
    let answer = proxy.call(None, "inboxd:check_email", json!({})).json();
    assert_eq!(
        answer,
        json!({"result": expected, "stderr": "inbox was here"})
    );
    let args = json!({"name": "inboxd:delete_emails", "arguments": {"ids": ["1", "2 3"]}});
    let asked = rpc(&proxy, "tools/call", args.clone());
    let token = &asked["structuredContent"]["confirmation"]["token"];
    let mut confirmed = args;
    confirmed["_meta"] = json!({"ati/confirm": token});
    let result = rpc(&proxy, "tools/call", confirmed);
    let words = json!(["delete", "--ids", "1", "2 3"]);
    assert_eq!(result["structuredContent"]["words"], words);
    assert_eq!(result["content"][1]["text"], "stderr:\ninbox was here");
    let here = printed(
        &proxy.path(""),
        &["run", "--yes", "inboxd:delete_emails", "--ids", "7"],
    );
    assert_eq!(here["words"], json!(["delete", "--ids", "7"]));
    let missing = proxy.call(None, "inboxd:delete_emails", json!({}));
    assert_eq!(missing.status, 422, "{}", missing.text());
    let described = proxy.client().get("/tools/inboxd:delete_emails").json();
    assert_eq!(
        (&described["category"], &described["handler"]),
        (&json!("email"), &json!("cmp"))
    );
    assert_eq!(described["effects"]["confirm"], true);
}

#[test]
fn hostile_values_arrive_as_they_are_or_are_refused() {
    let capability = r#"{"intents": [
        {"patterns": ["find"], "command": "inbox find {q} --all", "params": {"q": {"required": true}}},
        {"patterns": ["look"], "command": "inbox --q={q}", "params": {"q": {"required": true}}}
    ]}"#;
    let proxy = with_inboxd(capability, "").start();
    for value in [
        "$(id)",
        "\"; id; \"",
        "`id`",
        "a\nb",
        "a b  c",
        "*",
        "{q}",
        "$HOME",
        "é\u{1f600}",
    ] {
        let answer = proxy.call(None, "inboxd:find", json!({"q": value})).json();
        assert_eq!(
            answer["result"]["words"],
            json!(["find", value, "--all"]),
            "{value:?}"
        );
    }
    let refused = proxy.call(None, "inboxd:find", json!({"q": "--flag"}));
    assert_eq!(refused.status, 422);
    assert!(
        refused.text().contains("would be an option"),
        "{}",
        refused.text()
    );
    let allowed = proxy
        .call(None, "inboxd:look", json!({"q": "--flag"}))
        .json();
    assert_eq!(allowed["result"]["words"], json!(["--q=--flag"]));
    for (value, told) in [("a\0b".to_owned(), "NUL"), ("x".repeat(1 << 20), "128 KiB")] {
        let refused = proxy.call(None, "inboxd:look", json!({"q": value}));
        assert_eq!(refused.status, 422);
        assert!(refused.text().contains(told), "{}", refused.text());
    }
}

#[test]
fn program_gets_credentials_by_cmp_env_and_its_own_bin_comes_first() {
    let setup = with_inboxd(CAPABILITY, "[provider.cmp_env]\nMAIL_KEY = '${mail}'");
    let setup = setup.credentials(&json!({"mail": "planted-mail-key"}));
    let other = setup.path().join("other");
    add_program(&other.join("inbox"), "#!/bin/sh\necho the wrong one\n");
    let path = format!("{}:{}", other.display(), std::env::var("PATH").unwrap());
    let proxy = setup.env("PATH", path).start();
    let answer = proxy.call(None, "inboxd:check_email", json!({})).json();
    assert_eq!(answer["result"]["key"], "[REDACTED]");
}

#[test]
fn adapter_runs_what_it_wraps() {
    let setup = Setup::new();
    let tools = setup.path().join("tools");
    let cmp = tools.join("echo-adapter/.cmp");
    std::fs::create_dir_all(&cmp).unwrap();
    let manifest = r#"{"domain": "text", "name": "echo-adapter", "summary": "Says it", "version": "1",
        "adapter": true, "wraps": "echo"}"#;
    let capability = r#"{"intents": [
        {"patterns": ["re:^say (it|that)$"], "command": "echo said {n}",
         "params": {"n": {"type": "integer", "default": 3}}},
        {"patterns": ["say twice"], "command": "-n twice"},
        {"patterns": ["say twice"], "command": "echo again"}
    ]}"#;
    write(&cmp.join("manifest.json"), manifest);
    write(&cmp.join("capability.json"), capability);
    let manifest = format!(
        "[provider]\nname = 'say'\nhandler = 'cmp'\ncmp_path = '{}'",
        tools.display()
    );
    let setup = setup.manifest("say", &manifest);
    let run = |args: &[&str]| printed(setup.path(), args);
    assert_eq!(run(&["run", "say:echo_said"]), json!("said 3"));
    assert_eq!(
        run(&["run", "say:echo_said", "--n", "12"]),
        json!("said 12")
    );
    assert_eq!(run(&["run", "say:say_twice"]), json!("twice"));
    assert_eq!(run(&["run", "say:say_twice_2"]), json!("again"));
    let found = run(&["tool", "search", "SAY", "that"]);
    assert_eq!(found[0]["name"], "say:echo_said", "{found}");
}

#[test]
fn scan_makes_tools_of_every_folder_that_cmp_names() {
    let setup = Setup::new();
    let home = setup.path();
    add_inboxd(&home.join(".cmp/tools"), CAPABILITY);
    let other = home.join("more/notes/cmp");
    std::fs::create_dir_all(&other).unwrap();
    let about = r#"{"domain": "text", "name": "notes", "summary": "Notes", "version": "1"}"#;
    write(&other.join("manifest.json"), about);
    let capability = r#"{"intents": [{"patterns": ["new note"], "command": "echo note"}]}"#;
    write(&other.join("capability.json"), capability);
    let scan = || {
        let mut scan = command(home);
        scan.env("CMP_TOOL_PATH", home.join("more"));
        let output = scan.args(["provider", "scan", "--cmp"]).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        serde_json::from_str::<Value>(&stdout(&output)).unwrap()
    };
    let first = scan();
    let states = |rows: &Value| {
        let rows = rows.as_array().unwrap().iter();
        rows.map(|row| format!("{} {}", row["name"], row["manifest"]))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        states(&first),
        ["\"notes\" \"written\"", "\"inboxd\" \"written\""]
    );
    assert_eq!(
        states(&scan()),
        ["\"notes\" \"unchanged\"", "\"inboxd\" \"unchanged\""]
    );
    assert_eq!(printed(home, &["run", "notes:new_note"]), json!("note"));
    let info = printed(home, &["tool", "info", "inboxd:check_email"]);
    assert_eq!(info["category"], "email");
}

#[test]
fn manifest_without_a_path_has_the_tools_of_all_folders() {
    let setup = Setup::new().manifest("cmp", "[provider]\nname = 'cmp'\nhandler = 'cmp'");
    add_inboxd(&setup.path().join(".cmp/tools"), CAPABILITY);
    let answer = printed(setup.path(), &["run", "cmp:check_email"]);
    assert_eq!(answer["agent"], "1");
}

#[test]
fn validator_names_file_and_line_of_every_problem() {
    let setup = Setup::new();
    let capability = "{\n \"intents\": [\n  {\"patterns\": [\"re:(\"],\n   \"command\": \"a 'b\"},\n  \
        {\"patterns\": [\"x\"], \"command\": \"absent-program | {y}\",\n   \
        \"params\": {\"z\": {\"type\": \"colour\"}}}\n ]\n}";
    add_inboxd(setup.path(), capability);
    let folder = setup.path().join("inboxd");
    for path in [
        folder.clone(),
        folder.join("cmp"),
        folder.join("cmp/capability.json"),
    ] {
        let output = ati(
            setup.path(),
            &["provider", "validate", &path.to_string_lossy()],
        );
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
        assert_eq!(report[0]["kind"], "cmp");
        let texts = report[0].to_string();
        for expected in [
            "capability.json: intents[0].command: a quotation mark ' has no end (line 4)",
            "intents[1].params.z.type: unknown type 'colour'",
            "intents[0].patterns[0]: no regular expression: unclosed group (line 3)",
            "no shell reads it: the program gets '|' as a word",
            "{y} is no parameter",
        ] {
            assert!(texts.contains(expected), "{expected}: {texts}");
        }
    }
    add_inboxd(&setup.path().join("good"), CAPABILITY);
    let good = setup.path().join("good");
    let output = ati(
        setup.path(),
        &["provider", "validate", "--strict", &good.to_string_lossy()],
    );
    assert!(output.status.success(), "{}", stdout(&output));
}

#[test]
fn tool_that_cannot_be_read_is_a_warning_and_the_others_work() {
    let setup = with_inboxd(CAPABILITY, "");
    let broken = setup.path().join("tools/broken/cmp");
    std::fs::create_dir_all(&broken).unwrap();
    write(&broken.join("manifest.json"), "{\n\"domain\": ");
    let text = format!(
        "[provider]\nname = 'all'\nhandler = 'cmp'\ncmp_path = '{}'",
        setup.path().join("tools").display()
    );
    let setup = setup.manifest("all", &text);
    let output = ati(setup.path(), &["check"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let said = stdout(&output) + &stderr(&output);
    let told = [
        "broken/cmp/manifest.json",
        "\"line\": 2",
        "EOF while parsing",
    ];
    assert!(told.iter().all(|text| said.contains(text)), "{said}");
    assert_eq!(
        printed(setup.path(), &["run", "all:check_email"])["agent"],
        "1"
    );
}

#[test]
fn operator_that_adds_an_effect_takes_none_of_the_authors_back() {
    let more = "[[tools]]\nname = 'delete_emails'\neffects = { network = true }\n";
    let proxy = with_inboxd(CAPABILITY, more).start();
    let ids = json!({"ids": ["1"]});
    let asked = proxy.call(None, "inboxd:delete_emails", ids.clone());
    assert_eq!(asked.status, 409, "{}", asked.text());
    let wanted = &asked.json()["confirmation"];
    assert_eq!(wanted["rule"], "declared.destructive");
    assert_eq!(wanted["effects"]["network"], true);
    let more = "[[tools]]\nname = 'delete_emails'\n\
                effects = { destructive = false }\n";
    let proxy = with_inboxd(CAPABILITY, more).start();
    let done = proxy.call(None, "inboxd:delete_emails", ids);
    assert_eq!(done.status, 200, "{}", done.text());
}

#[test]
fn denied_command_is_seen_behind_an_intent() {
    let capability = r#"{"intents": [
        {"patterns": ["remove mail"], "command": "inbox mail delete {id}",
         "params": {"id": {"type": "string", "required": true}}},
        {"patterns": ["do it"], "command": "inbox mail --quiet {verb}",
         "params": {"verb": {"type": "string", "required": true}}}
    ]}"#;
    let call = |conf: &str, tool: &str, args: Value| {
        let proxy = with_inboxd(capability, "").conf(conf).start();
        let answer = proxy.call(None, tool, args);
        let rule = answer.json()["rule"].clone();
        (answer.status, rule.as_str().unwrap_or_default().to_owned())
    };
    let (remove, other) = (
        json!({"id": "1"}),
        "[policy]\ndenied_commands = ['inbox mail send']",
    );
    for pattern in ["inbox", "inbox mail", "inbox mail delete"] {
        let conf = format!("[policy]\ndenied_commands = ['{pattern}']");
        let rule = format!("policy.deniedCommands: {pattern}");
        let denied = call(&conf, "inboxd:remove_mail", remove.clone());
        assert_eq!(denied, (403, rule));
        let conf = format!("[policy]\nallowed_tools = ['{pattern}']");
        let allowed = call(&conf, "inboxd:remove_mail", remove.clone());
        assert_eq!(allowed.0, 200, "{pattern}");
    }
    assert_eq!(call(other, "inboxd:remove_mail", remove).0, 200);
    // A value may be a word of the command.
    let conf = "[policy]\ndenied_commands = ['inbox mail delete']";
    assert_eq!(call(conf, "inboxd:do_it", json!({"verb": "delete"})).0, 403);
    assert_eq!(call(conf, "inboxd:do_it", json!({"verb": "list"})).0, 200);
}
