//! `atip_mcp`: found by ATIP, executed over MCP where the server has the tool.

use super::*;
use crate::mcp::manifest as mcp_manifest;

fn documents() -> Value {
    let mut document = metadata("hybrid");
    document["commands"]["echo"] = json!({
        "description": "Echoes",
        "options": [{"name": "text", "flags": ["--text"], "type": "string", "description": "What"}],
    });
    document
}

#[test]
fn tool_of_the_same_name_is_executed_by_the_server_and_others_directly() {
    let dir = tempfile::tempdir().unwrap();
    let program = add_native(dir.path(), "hybrid", &documents());
    add_manifest(dir.path(), "hybrid", &program, "atip_mcp = 'server'");
    std::fs::write(
        dir.path().join("manifests/server.toml"),
        mcp_manifest("server", "", ""),
    )
    .unwrap();
    let result = ati(dir.path(), &["run", "hybrid:echo", "--text", "hello"]);
    assert!(result.get("words").is_none(), "{result}");
    assert!(result.to_string().contains("hello"), "{result}");
    let result = ati(dir.path(), &["run", "hybrid:say", "--text", "hello"]);
    assert_eq!(words(&result), ["say", "hello"]);
}

#[test]
fn server_that_is_down_leaves_the_program() {
    let dir = tempfile::tempdir().unwrap();
    let program = add_native(dir.path(), "hybrid", &documents());
    add_manifest(dir.path(), "hybrid", &program, "atip_mcp = 'server'");
    let down = mcp_manifest("server", "die", "");
    std::fs::write(dir.path().join("manifests/server.toml"), down).unwrap();
    let result = ati(dir.path(), &["run", "hybrid:echo", "--text", "hello"]);
    assert_eq!(words(&result), ["echo", "--text", "hello"]);
}
