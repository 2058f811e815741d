//! Skills: on the command line, behind `/skills`, and who sees which.

mod api;
mod bad_skills;
mod git;
mod paths;
mod providers;
mod scopes;
mod twins;
mod workflow;

use std::path::Path;
use std::process::Output;

use serde_json::Value;

use crate::support::ati::{Proxy, ati, command, stderr, stdout};
use crate::support::http::Response;

/// A file, and the folders above it.
fn write(path: &Path, content: impl AsRef<[u8]>) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, content).unwrap();
}

/// A skill below `root`, with front-matter, and with these lines of a `[skill]` table, if any.
fn skill(root: &Path, name: &str, body: &str, bindings: &str) {
    let document = format!("---\nname: {name}\ndescription: About {name}\n---\n\n{body}\n");
    write(&root.join(name).join("SKILL.md"), document);
    if !bindings.is_empty() {
        write(
            &root.join(name).join("skill.toml"),
            format!("[skill]\n{bindings}\n"),
        );
    }
}

/// The text that a command prints. It succeeds, and says nothing else.
fn text(dir: &Path, args: &[&str]) -> String {
    quiet(ati(dir, &[&["--output", "text"], args].concat()))
}

fn json(dir: &Path, args: &[&str]) -> Value {
    serde_json::from_str(&quiet(ati(dir, &[&["-J"], args].concat()))).unwrap()
}

fn quiet(output: Output) -> String {
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(stderr(&output), "");
    stdout(&output)
}

/// A command that asks this proxy.
fn through(proxy: &Proxy, token: &str, args: &[&str]) -> Output {
    let home = tempfile::tempdir().unwrap();
    command(home.path())
        .env("ATI_PROXY_URL", format!("http://{}", proxy.edge))
        .env("ATI_SESSION_TOKEN", token.trim_start_matches("Bearer "))
        .args(args)
        .output()
        .unwrap()
}

/// Why a command failed, in one line, and its exit code.
fn failure(output: &Output) -> (String, Option<i32>) {
    assert_eq!(stdout(output), "", "{}", stderr(output));
    let text = stderr(output);
    let line = text
        .lines()
        .find(|line| line.contains("ati command failed"));
    let line = line.unwrap_or_else(|| panic!("{text}"));
    let (_, message) = line.split_once("ati command failed: ").unwrap();
    (message.to_owned(), output.status.code())
}

fn get(proxy: &Proxy, token: &str, path: &str) -> Response {
    proxy
        .client()
        .send("GET", path, &[("authorization", token)], b"")
}

fn post(proxy: &Proxy, token: &str, path: &str, body: &Value) -> Response {
    let headers = [
        ("authorization", token),
        ("content-type", "application/json"),
    ];
    let body = body.to_string();
    proxy.client().send("POST", path, &headers, body.as_bytes())
}

fn names(rows: &Value) -> Vec<&str> {
    let rows = rows.as_array().unwrap().iter();
    rows.map(|row| row["name"].as_str().unwrap()).collect()
}

/// What is in the folder of skills, hidden names included.
fn installed(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir.join("skills")).into_iter().flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}
