//! The environment, the folder and the input of a program.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::process::Stdio;

use rustix::io::{FdFlags, fcntl_setfd};
use serde_json::json;

use super::{here, printed, result, setup, through, with_program, with_script};
use crate::support::ati::stdout;

const ENV: &str = r#"
    [provider.cli_env]
    PLAIN = 'a b'
    GREETING = 'hello ${name}, ${name}!'
    GIT = 'HEAD@{1}'
"#;

fn variables(text: &str) -> BTreeMap<String, String> {
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    pairs
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

#[test]
fn program_gets_chosen_variables_and_no_others() {
    let setup = with_program(setup(), "env", "/usr/bin/env", ENV);
    let setup = setup.credentials(&json!({"name": "the-whole-world"}));
    let dir = setup.path().to_owned();
    let given = [
        ("LANG", "C.UTF-8"),
        ("USER", "me"),
        ("TERM", "dumb"),
        ("TMPDIR", "/tmp"),
        ("SECRET_OF_ATI", "x"),
    ];
    let proxy = given
        .iter()
        .fold(setup, |setup, (name, value)| setup.env(name, *value))
        .start();
    let local = printed(here(&dir).envs(given).args(["run", "env"]));
    for told in [local, result(&proxy, "env", &[])] {
        let found = variables(told.as_str().unwrap());
        let names: Vec<&str> = found.keys().map(String::as_str).collect();
        assert_eq!(
            names,
            [
                "GIT", "GREETING", "HOME", "LANG", "PATH", "PLAIN", "TERM", "TMPDIR", "USER"
            ]
        );
        assert_eq!(found["PLAIN"], "a b");
        // The value of a credential is taken out of the output.
        assert_eq!(found["GREETING"], "hello [REDACTED], [REDACTED]!");
        assert_eq!(found["GIT"], "HEAD@{1}");
        assert_eq!(
            (found["USER"].as_str(), found["TERM"].as_str()),
            ("me", "dumb")
        );
    }
}

#[test]
fn program_of_a_proxy_gets_no_descriptors_that_the_proxy_was_started_with() {
    let setup = setup();
    let file = std::fs::File::open("/etc/passwd").unwrap();
    fcntl_setfd(&file, FdFlags::empty()).unwrap();
    let script = format!("readlink /proc/self/fd/{} || echo none", file.as_raw_fd());
    let setup = with_script(setup, "descriptors", &script, "");
    let dir = setup.path().to_owned();
    let proxy = setup.start();
    assert_ne!(result(&proxy, "descriptors", &[]), "/etc/passwd");
    // Here they are the caller's, which may name one to the program.
    let told = printed(here(&dir).args(["run", "descriptors"]));
    assert_eq!(told, "/etc/passwd");
}

/// The proxy has small pages, for its own sake.
#[test]
fn huge_pages_are_off_in_the_proxy_and_on_in_its_programs() {
    let own = std::fs::read_to_string("/proc/self/status").unwrap();
    if !own.contains("THP_enabled:\t1") {
        return eprintln!("no huge pages in these tests");
    }
    let proxy = with_program(setup(), "cat", "cat", "").start();
    let program = result(&proxy, "cat", &["/proc/self/status"]);
    assert!(program.as_str().unwrap().contains("THP_enabled:\t1"));
    let server = std::fs::read_to_string(format!("/proc/{}/status", proxy.pid())).unwrap();
    assert!(server.contains("THP_enabled:\t0"), "{server}");
}

#[test]
fn folder_of_a_call_is_empty_and_gone_after_it() {
    let script = "pwd; ls -A; touch left; mkdir -p deep/er; touch deep/er/file; chmod 500 deep/er";
    let setup = with_script(setup(), "folder", script, "");
    let dir = setup.path().to_owned();
    let proxy = setup.start();
    let mut folders = Vec::new();
    for _ in 0..2 {
        let told = result(&proxy, "folder", &[]);
        let folder = told.as_str().unwrap().to_owned();
        assert!(
            folder.starts_with('/') && !folder.contains('\n'),
            "{folder}"
        );
        assert!(!Path::new(&folder).exists(), "{folder}");
        folders.push(folder);
    }
    assert_ne!(folders[0], folders[1]);
    // Here it is the caller's own.
    let own = dir.join("own");
    std::fs::create_dir(&own).unwrap();
    let told = printed(here(&dir).current_dir(&own).args(["run", "folder"]));
    assert_eq!(told, own.canonicalize().unwrap().to_str().unwrap());
    assert!(own.join("left").exists());
}

#[test]
fn folder_that_the_manifest_names_is_used_and_kept() {
    let setup = setup();
    let folder = setup.path().join("given");
    std::fs::create_dir(&folder).unwrap();
    let more = format!("cli_cwd = '{}'", folder.display());
    let setup = with_script(setup, "folder", "pwd; touch left", &more);
    let dir = setup.path().to_owned();
    let proxy = setup.start();
    let expected = folder.canonicalize().unwrap();
    let expected = expected.to_str().unwrap();
    assert_eq!(result(&proxy, "folder", &[]), expected);
    assert_eq!(printed(here(&dir).args(["run", "folder"])), expected);
    assert!(folder.join("left").exists());
}

#[test]
fn input_is_the_callers_own_here_and_none_through_a_proxy() {
    let setup = with_program(setup(), "cat", "cat", "");
    let dir = setup.path().to_owned();
    let proxy = setup.start();
    for (mut command, expected) in [(here(&dir), "\"typed\"\n"), (through(&proxy), "\"\"\n")] {
        let mut child = command
            .args(["run", "cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // A command that reads nothing may have ended by now.
        let _ = child.stdin.take().unwrap().write_all(b"typed\n");
        let output = child.wait_with_output().unwrap();
        assert_eq!(stdout(&output), expected);
    }
}

#[test]
fn minted_credential_is_a_variable_of_the_program() {
    let generator = r#"
        [provider.auth_generator]
        type = 'command'
        command = 'echo'
        args = ['{"t": "planted-minted", "n": {"user": "planted-user"}}']
        output_format = 'json'
        [provider.auth_generator.inject]
        "t" = { type = 'query' }
        "n.user" = { type = 'env', name = 'MINTED_USER' }
    "#;
    let script = r#"echo "${#ATI_AUTH_TOKEN} ${#MINTED_USER} $ATI_AUTH_TOKEN"; echo $MINTED_USER >&2; exit $1"#;
    let setup = with_script(setup(), "minted", script, generator);
    let dir = setup.path().to_owned();
    let proxy = setup.start();
    assert_eq!(result(&proxy, "minted", &["0"]), "14 12 [REDACTED]");
    let local = printed(here(&dir).args(["run", "minted", "0"]));
    assert_eq!(local, "14 12 [REDACTED]");
    let (_, error) = super::error(&proxy, "minted", &["1"]);
    assert_eq!(error, "CLI error: CLI exited with code 1: [REDACTED]");
}
