//! `[provider.cli_sandbox]` in manifests: mistakes, what `ati doctor` says, and MCP servers.

use std::path::{Path, PathBuf};

use ati::process::abilities;
use serde_json::{Value, json};

use crate::support::ati::{BINARY, Setup, ati, command, stderr, stdout};

fn server() -> PathBuf {
    let folder = Path::new(BINARY).parent().unwrap();
    folder.join("examples/mcp_server")
}

/// An MCP server that runs shell scripts, in this sandbox.
fn manifest(table: &str) -> String {
    format!(
        "[provider]\nname = 's'\nhandler = 'mcp'\nmcp_command = '{}'\nmcp_args = ['shell']\n{table}",
        server().display()
    )
}

fn checked(table: &str) -> (bool, String) {
    let setup = Setup::new().manifest("s", &manifest(table));
    let output = ati(setup.path(), &["check"]);
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let lists = ["problems", "warnings"].map(|list| report[list].as_array().unwrap().clone());
    let line = |it: &Value| {
        format!(
            "{}: {}\n",
            it["key"].as_str().unwrap_or(""),
            it["message"].as_str().unwrap()
        )
    };
    let said = lists.concat().iter().map(line).collect();
    (output.status.success(), said)
}

#[test]
fn mistake_in_a_sandbox_is_a_load_error() {
    if let Some(lack) = abilities().lack() {
        let (loads, said) = checked("[provider.cli_sandbox]\nnet = false");
        assert!(!loads && said.contains(&lack), "{said}");
        return;
    }
    let (loads, said) = checked(
        "[provider.cli_sandbox]\nread = ['/usr/share']\nwrite = []\nnet = false\ncpu_seconds = 5\n\
         memory_bytes = 1000000000\nprocesses = 10\nfile_bytes = 1000000",
    );
    assert!(loads, "{said}");
    for (line, expected) in [
        (
            "reed = ['/srv']",
            "cli_sandbox.reed: unknown key; did you mean 'read'?",
        ),
        (
            "read = ['srv']",
            "cli_sandbox.read: expected absolute paths",
        ),
        (
            "read = ['~/srv']",
            "cli_sandbox.read: expected absolute paths",
        ),
        (
            "write = ['/usr/../srv']",
            "cli_sandbox.write: expected absolute paths",
        ),
        ("read = '/srv'", "cli_sandbox.read: invalid type"),
        ("net = 'no'", "cli_sandbox.net: invalid type"),
        (
            "processes = 0",
            "cli_sandbox.processes: expected more than 0",
        ),
        (
            "memory_bytes = -1",
            "cli_sandbox.memory_bytes: invalid value",
        ),
        (
            "read = ['/bin/sh']",
            "it leads through a link; write '/usr/bin/",
        ),
        ("write = ['/']", "ati's own settings and keys are below it"),
        ("read = ['/run/ati']", "/run/ati"),
    ] {
        // A path that isn't there is a warning: it may come later.
        let (loads, said) = checked(&format!("[provider.cli_sandbox]\n{line}"));
        let missing = said.contains("calls will fail");
        assert!(
            loads == missing && said.contains(expected),
            "{line}: {said}"
        );
    }
    let (loads, said) = checked("[provider]\ncli_sandbox = true");
    assert!(!loads, "{said}");
    let (loads, said) = checked("[provider.cli_sandbox]\nread = ['/nonexistent/folder']");
    assert!(
        loads && said.contains("'/nonexistent/folder': No such file"),
        "{said}"
    );
}

#[test]
fn sandbox_of_the_ati_folder_is_a_load_error() {
    let setup = Setup::new();
    let dir = setup.path().canonicalize().unwrap();
    let table = format!(
        "[provider.cli_sandbox]\nread = ['{}/manifests']",
        dir.display()
    );
    let setup = setup.manifest("s", &manifest(&table));
    let output = ati(setup.path(), &["check"]);
    let said = stdout(&output) + &stderr(&output);
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("which no program may read"), "{said}");
}

#[test]
fn sandbox_of_a_provider_without_programs_is_a_warning() {
    let manifest =
        "[provider]\nname = 'h'\nbase_url = 'http://h'\n[provider.cli_sandbox]\nnet = false";
    let setup = Setup::new().manifest("h", manifest);
    let output = ati(setup.path(), &["check"]);
    let said = stdout(&output) + &stderr(&output);
    assert!(output.status.success(), "{said}");
    assert!(
        said.contains("ati starts no program for this provider"),
        "{said}"
    );
}

#[test]
fn doctor_says_what_the_kernel_can_confine() {
    let setup = Setup::new();
    let output = command(setup.path())
        .args(["doctor", "--json", "--offline"])
        .output()
        .unwrap();
    let found: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let finding = found.as_array().unwrap().iter();
    let finding = finding.clone().find(|it| it["check"] == "confinement");
    let finding = finding.unwrap();
    eprintln!("{finding}");
    let message = finding["message"].as_str().unwrap();
    match abilities().lack() {
        None => assert!(message.starts_with("Landlock ") && finding["status"] == "ok"),
        Some(lack) => assert!(message == lack && finding["status"] == "warn"),
    }
}

#[test]
fn mcp_server_in_a_sandbox_is_confined() {
    if abilities().lack().is_some() {
        // That is a load error, as the first test shows.
        return;
    }
    let shared = tempfile::tempdir().unwrap();
    let own = shared.path().canonicalize().unwrap();
    let examples = server().parent().unwrap().canonicalize().unwrap();
    let table = |net: bool| {
        format!(
            "[provider.cli_sandbox]\nread = ['{}']\nwrite = ['{}']\nnet = {net}",
            examples.display(),
            own.display()
        )
    };
    let free = manifest("").replace("'s'", "'free'");
    let proxy = Setup::new()
        .manifest("s", &manifest(&table(false)))
        .manifest("free", &free)
        .start();
    let script = format!(
        "cat '{0}' >/dev/null 2>&1; echo $?; echo x > '{1}'; echo $?; \
         kill -0 $(sed 's/.*) . //; s/ .*//' /proc/$PPID/stat) 2>/dev/null; echo $?; \
         (exec 3<>/dev/tcp/127.0.0.1/{2}) 2>/dev/null; grep Seccomp: /proc/self/status",
        proxy.path("manifests/s.toml").display(),
        own.join("file").display(),
        proxy.edge.port(),
    );
    let seen = |tool: &str| {
        let answer = proxy.call(None, tool, json!({"text": script}));
        assert_eq!(answer.status, 200, "{tool}: {}", answer.text());
        answer.json()["result"].as_str().unwrap().to_owned()
    };
    assert_eq!(seen("s:run"), "1\n0\n1\nSeccomp:\t2\n");
    assert_eq!(seen("free:run"), "0\n0\n0\nSeccomp:\t0\n");
    assert_eq!(std::fs::read_to_string(own.join("file")).unwrap(), "x\n");
}
