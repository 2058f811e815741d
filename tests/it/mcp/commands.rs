//! MCP servers on the command line.

use serde_json::{Value, json};

use super::{manifest, server, with};
use crate::support::ati::{Setup, ati, stderr, stdout};

/// A good server `s`, one that dies at once, one that isn't there, and one that speaks no JSON-RPC.
fn servers() -> Setup {
    let absent = r#"
        [provider]
        name = "absent"
        handler = "mcp"
        mcp_command = "no-such-program"
    "#;
    with("good", "")
        .manifest("dead", &manifest("dead", "die", ""))
        .manifest("absent", absent)
        .manifest("odd", &manifest("odd", "garbage", ""))
}

#[test]
fn run_on_mcp_failures_has_distinct_exit_codes() {
    let setup = servers();
    let dir = setup.path();
    let good = ati(dir, &["run", "s:echo", "--text", "hi"]);
    assert_eq!(stdout(&good).trim(), "\"hi\"", "{}", stderr(&good));
    for (tool, code, says) in [
        ("s:error", 4, "MCP protocol error (code -32050)"),
        ("s:fail", 1, "the tool says no"),
        ("s:crash", 1, "the server ended"),
        ("s:nothing", 1, "Unknown tool"),
        ("dead:x", 4, "its last words: I can't go on"),
        (
            "absent:x",
            4,
            "Failed to spawn MCP server: [absent] no-such-program",
        ),
        ("odd:x", 4, "no JSON-RPC"),
    ] {
        let output = ati(dir, &["run", tool]);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{tool}: {said}");
        assert!(said.contains(says), "{tool}: {said}");
    }
}

#[test]
fn tool_and_provider_commands_show_mcp_servers_and_their_state() {
    let setup = servers();
    let dir = setup.path();
    let listed = ati(dir, &["--verbose", "tool", "list"]);
    assert!(stdout(&listed).contains("s:echo"));
    assert!(stderr(&listed).contains("dead: "), "{}", stderr(&listed));
    // Scripts read stderr together with the list.
    let listed = ati(dir, &["tool", "list"]);
    assert_eq!(stderr(&listed), "");
    let info: Value = serde_json::from_str(&stdout(&ati(dir, &["provider", "info", "s"]))).unwrap();
    assert_eq!(info["server"]["state"], "ready");
    assert_eq!(info["server"]["protocol"], "2025-06-18");
    let described = stdout(&ati(dir, &["--output", "text", "tool", "info", "s:echo"]));
    assert!(
        described.contains("Transport:   MCP (stdio)"),
        "{described}"
    );
    let list = |args: &[&str]| {
        let list: Value = serde_json::from_str(&stdout(&ati(dir, args))).unwrap();
        let one = |name: &str| {
            let mut rows = list.as_array().unwrap().iter();
            rows.find(|row| row["name"] == name).unwrap().clone()
        };
        (one("s"), one("dead"))
    };
    let (good, dead) = list(&["provider", "list"]);
    assert!(
        good["listed"].as_str().unwrap().ends_with(" s ago"),
        "{good}"
    );
    assert!(
        good["state"].is_null() && dead["listed"].is_null(),
        "{dead}"
    );
    let (good, dead) = list(&["provider", "list", "--live"]);
    assert_eq!(
        (&good["type"], &good["state"]),
        (&json!("mcp/stdio"), &json!("ready"))
    );
    assert_eq!(dead["state"], "down");
    let error = dead["error"].as_str().unwrap();
    assert!(error.contains("I can't go on"), "{dead}");
}

#[test]
fn provider_load_of_an_mcp_server_probes_it_and_lists_its_tools() {
    let dir = tempfile::tempdir().unwrap();
    let server = server();
    let line = "provider load --mcp --name t --transport stdio --args good --command";
    let mut words: Vec<&str> = line.split(' ').collect();
    words.push(server.to_str().unwrap());
    let loaded = ati(dir.path(), &words);
    let loaded: Value = serde_json::from_str(&stdout(&loaded)).unwrap();
    assert_eq!(loaded["probe"], "ok", "{loaded}");
    let tools = loaded["tools"].as_array().unwrap();
    assert!(tools.contains(&json!("t:echo")), "{loaded}");
}
