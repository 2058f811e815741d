//! Programs as tools: `handler = "cli"`, on this machine and through a proxy.

mod commands;
mod credentials;
mod documented;
mod faults;
mod forms;
mod leftovers;
mod surroundings;
mod traffic;

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::support::ati::{Proxy, Setup, command, stderr, stdout};
use crate::support::http::Response;

/// A shell script in `bin/` of this folder, which `search_path` has first.
fn add_script(dir: &Path, name: &str, text: &str) {
    let bin = dir.join("bin");
    std::fs::create_dir_all(&bin).unwrap();
    let path = bin.join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

fn search_path(dir: &Path) -> String {
    let own = std::env::var("PATH").unwrap();
    format!("{}:{own}", dir.join("bin").display())
}

/// A setup whose programs are found in its `bin/`.
fn setup() -> Setup {
    let setup = Setup::new();
    let path = search_path(setup.path());
    setup.env("PATH", path)
}

/// With a provider whose program is this script. `more` are further lines of its manifest.
fn with_script(setup: Setup, name: &str, script: &str, more: &str) -> Setup {
    add_script(setup.path(), name, script);
    with_program(setup, name, name, more)
}

fn with_program(setup: Setup, name: &str, command: &str, more: &str) -> Setup {
    let manifest = format!(
        r#"
            [provider]
            name = '{name}'
            description = 'The program {name}'
            handler = 'cli'
            cli_command = '{command}'
            {more}
        "#
    );
    setup.manifest(name, &manifest)
}

/// A program that writes its words, each with a `|` behind it, and knows no flags.
fn with_words(setup: Setup) -> Setup {
    with_program(setup, "words", "printf", "cli_default_args = ['%s|']")
}

/// `ati` on the machine that has the manifests.
fn here(dir: &Path) -> Command {
    let mut command = command(dir);
    command.env("PATH", search_path(dir));
    command
}

/// `ati` in a sandbox of its own, through the proxy.
fn through(proxy: &Proxy) -> Command {
    let sandbox = proxy.path("sandbox");
    std::fs::create_dir_all(&sandbox).unwrap();
    let mut command = command(&sandbox);
    command.env("ATI_PROXY_URL", format!("http://{}", proxy.edge));
    command
}

/// What a command printed as JSON.
fn printed(command: &mut Command) -> Value {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(stderr(&output), "");
    serde_json::from_str(&stdout(&output)).unwrap()
}

fn failed(command: &mut Command) -> (Output, String) {
    let output = command.output().unwrap();
    let text = stderr(&output);
    assert!(!output.status.success(), "{}", stdout(&output));
    assert_eq!(stdout(&output), "");
    (output, text)
}

/// `POST /call` with this body.
fn call(proxy: &Proxy, body: &Value) -> Response {
    let text = body.to_string();
    proxy.client().send("POST", "/call", &[], text.as_bytes())
}

/// The result of a call with these words.
fn result(proxy: &Proxy, tool: &str, words: &[&str]) -> Value {
    let answer = call(proxy, &json!({"tool_name": tool, "raw_args": words}));
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["result"].clone()
}

/// The error of a call with these words, and its status.
fn error(proxy: &Proxy, tool: &str, words: &[&str]) -> (u16, String) {
    let answer = call(proxy, &json!({"tool_name": tool, "raw_args": words}));
    let text = answer.json()["error"].as_str().unwrap().to_owned();
    (answer.status, text)
}
