//! ATIP: tools that describe themselves. ati as an agent, which finds and runs them, and as a tool.

mod agent;
mod handler;
mod hostile;
mod hybrid;
mod policy;
mod scan;
mod validate;

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::support::ati::{Proxy, Setup, command, stderr, stdout};

/// A program in `bin/` of this folder.
fn add_program(dir: &Path, name: &str, text: &str) -> PathBuf {
    let bin = dir.join("bin");
    std::fs::create_dir_all(&bin).unwrap();
    let path = bin.join(name);
    std::fs::write(&path, text).unwrap();
    for one in [&path, &bin] {
        std::fs::set_permissions(one, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    path
}

/// A native ATIP tool, in Python: it prints these metadata, and otherwise its words and one
/// variable. Each run with `--agent` leaves a letter in the file `asked`, where it may write.
fn add_native(dir: &Path, name: &str, metadata: &Value) -> PathBuf {
    let script = format!(
        r#"#!/usr/bin/env python3
import json, os, sys
if sys.argv[1:] == ["--agent"]:
    print({metadata:?})
    sys.exit(0)
if sys.argv[1:] == ["status"]:
    sys.exit(0 if os.environ.get("TOOL_TOKEN") == "planted-token" else 4)
print(json.dumps({{"words": sys.argv[1:], "has_token": "TOOL_TOKEN" in os.environ}}))
"#,
        metadata = metadata.to_string()
    );
    add_program(dir, name, &script)
}

/// A program that prints its words as JSON, and knows no `--agent`.
fn add_printer(dir: &Path, name: &str) -> PathBuf {
    let script = "#!/usr/bin/env python3\nimport json, sys\n\
                  if '--agent' in sys.argv: sys.exit(1)\n\
                  print(json.dumps({'words': sys.argv[1:]}))\n";
    add_program(dir, name, script)
}

fn metadata(name: &str) -> Value {
    json!({
        "atip": "0.6", "name": name, "version": "1.2", "description": "A tool of the tests",
        "commands": {
            "say": {
                "description": "Says it",
                "arguments": [{"name": "text", "type": "string", "description": "What"}],
                "options": [
                    {"name": "tag", "flags": ["-t", "--tag"], "type": "string", "description": "T"},
                    {"name": "short", "flags": ["-s"], "type": "string", "description": "S"},
                    {"name": "loud", "flags": ["--loud"], "type": "boolean", "description": "L"},
                ],
                "effects": {"network": false, "idempotent": true, "destructive": false,
                            "filesystem": {"write": false, "delete": false}},
                "examples": [format!("{name} say hello")],
            },
            "secret": {
                "description": "Asks for a password",
                "effects": {"interactive": {"stdin": "password", "tty": true}},
            },
        },
    })
}

/// The complete example of the RFC, as it is printed there.
fn seed_gh() -> Value {
    serde_json::from_str(include_str!("gh.json")).unwrap()
}

fn agent_tools(dir: &Path) -> PathBuf {
    dir.join(".local/share/agent-tools")
}

fn add_shim(dir: &Path, name: &str, metadata: &Value) -> PathBuf {
    let file = agent_tools(dir).join("shims").join(format!("{name}.json"));
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, metadata.to_string()).unwrap();
    file
}

fn manifest(name: &str, program: &Path, more: &str) -> String {
    let program = program.display();
    format!("[provider]\nname = '{name}'\nhandler = 'atip'\natip_command = '{program}'\n{more}\n")
}

/// The same lines, written to a folder that a command uses.
fn add_manifest(dir: &Path, name: &str, program: &Path, more: &str) {
    let file = dir.join("manifests").join(format!("{name}.toml"));
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(file, manifest(name, program, more)).unwrap();
}

fn printed(command: &mut Command) -> Value {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    serde_json::from_str(&stdout(&output)).unwrap()
}

fn ati(dir: &Path, words: &[&str]) -> Value {
    printed(command(dir).arg("-J").args(words))
}

fn words(result: &Value) -> Vec<&str> {
    let words = result["words"]
        .as_array()
        .unwrap_or_else(|| panic!("{result}"));
    words.iter().filter_map(Value::as_str).collect()
}

/// The result of `POST /call`.
fn call(proxy: &Proxy, tool: &str, args: Value) -> Value {
    let answer = proxy.call(None, tool, args);
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["result"].clone()
}

fn with_native(name: &str, more: &str) -> Setup {
    let setup = Setup::new();
    let program = add_native(setup.path(), name, &metadata(name));
    setup.manifest(name, &manifest(name, &program, more))
}
