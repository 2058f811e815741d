//! The configurations of docs/mcp-server.md, each started as its program would.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::names;
use super::serve::Served;
use crate::support::ati::{BINARY, Setup};
use crate::support::tokens::{SIGNING, bearer, claims, key_pair};
use crate::support::upstream::Upstream;

fn page() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/mcp-server.md");
    std::fs::read_to_string(path).unwrap()
}

/// The code block behind this heading.
fn block(heading: &str) -> String {
    let page = page();
    let (_, rest) = page
        .split_once(&format!("### {heading}\n"))
        .unwrap_or_else(|| panic!("no {heading}"));
    let (_, rest) = rest.split_once("```").unwrap();
    let (_, rest) = rest.split_once('\n').unwrap();
    rest.split("```").next().unwrap().to_owned()
}

/// What a program starts: a command, its arguments and its environment.
fn entry(heading: &str) -> Value {
    let text = block(heading);
    match heading {
        "Codex" => {
            let table: toml::Table = text.parse().unwrap();
            serde_json::to_value(&table["mcp_servers"]["ati"]).unwrap()
        }
        "VS Code" => serde_json::from_str::<Value>(&text).unwrap()["servers"]["ati"].clone(),
        _ => serde_json::from_str::<Value>(&text).unwrap()["mcpServers"]["ati"].clone(),
    }
}

#[test]
fn configuration_of_each_program_starts_a_server_that_lists_the_tools() {
    let upstream = Upstream::echo();
    let (signer, public) = key_pair();
    let proxy = Setup::new()
        .jwt(&public)
        .credentials(&json!({"sandbox_signing_shared_secret": SIGNING}))
        .tools("web", &upstream.url(), "", "[[tools]]\nname = 'web:look'\n")
        .arg("--sig-verify-mode")
        .arg("enforce")
        .start();
    let token = bearer(&signer, &claims()).replace("Bearer ", "");
    let home = tempfile::tempdir().unwrap();
    for program in ["Claude Desktop", "Cursor", "VS Code", "Codex"] {
        let entry = entry(program);
        assert_eq!(entry["command"], "ati", "{program}");
        let args: Vec<&str> = entry["args"]
            .as_array()
            .unwrap()
            .iter()
            .map(|arg| arg.as_str().unwrap())
            .collect();
        let mut command = Command::new(BINARY);
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", home.path())
            .args(&args);
        for (name, value) in entry["env"].as_object().unwrap() {
            let value = match name.as_str() {
                "ATI_PROXY_URL" => format!("http://{}", proxy.edge),
                "ATI_SESSION_TOKEN" => token.clone(),
                "ATI_SANDBOX_SECRET" => SIGNING.to_owned(),
                other => panic!("{program}: {other}={value}"),
            };
            command.env(name, value);
        }
        let mut served = Served::start(&mut command);
        let begun = served.ask("initialize", json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": program, "version": "1"}}));
        assert_eq!(
            begun["result"]["protocolVersion"], "2025-06-18",
            "{program}: {begun}"
        );
        served.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        let tools: &[&str] = match args.contains(&"--search") {
            true => &["find_tools", "describe_tool", "call_tool"],
            false => &["web:look"],
        };
        assert_eq!(
            names(&served.ask("tools/list", json!({}))),
            tools,
            "{program}"
        );
        assert_eq!(served.end(), Some(0), "{program}");
    }
}
