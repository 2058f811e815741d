//! `ati token rotate-file`: an agent works for longer than a token is valid.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::{SECRET, orchestrator, proxy};
use crate::support::ati::{command, stderr, stdout};
use crate::support::eventually;
use crate::support::upstream::Upstream;

/// Keeps the file fresh until the test ends it, or ends itself.
struct Rotator(Child);

impl Rotator {
    fn start(dir: &Path, file: &Path, args: &[&str]) -> Self {
        Self::start_with_input(dir, file, args, "")
    }

    fn start_with_input(dir: &Path, file: &Path, args: &[&str], input: &str) -> Self {
        let mut child = orchestrator(dir)
            .args(["token", "rotate-file"])
            .arg(file)
            .args(["--sub", "agent-7", "--scope", "tool:*"])
            .args(args)
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(input.as_bytes()).unwrap();
        drop(stdin);
        eventually("the first token", || file.exists().then_some(()));
        Rotator(child)
    }

    fn end(&mut self, signal: &str) -> ExitStatus {
        let pid = self.0.id().to_string();
        let sent = Command::new("kill").args([signal, &pid]).status();
        assert!(sent.unwrap().success());
        eventually("the end of the rotation", || self.0.try_wait().unwrap())
    }
}

impl Drop for Rotator {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn agent_that_outlives_many_tokens_has_no_failed_call() {
    let api = Upstream::echo();
    let proxy = proxy(&api);
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("session_token");
    let mut rotator = Rotator::start(proxy.dir.path(), &file, &["--every", "1", "--ttl", "4"]);
    let mut tokens = std::collections::BTreeSet::new();
    let began = Instant::now();
    // Until the first tokens have expired, by their own time.
    while tokens.len() < 7 || began.elapsed() < Duration::from_secs(6) {
        tokens.insert(std::fs::read_to_string(&file).unwrap());
        let output = command(home.path())
            .args(["run", "shop:find", "--q", "x"])
            .env("ATI_PROXY_URL", format!("http://{}", proxy.edge))
            .env("ATI_SESSION_TOKEN_FILE", &file)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        let mode = std::fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    assert_eq!(rotator.end("-TERM").code(), Some(0));
    let left = std::fs::read_dir(home.path()).unwrap();
    let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    assert!(
        left.iter()
            .all(|name| !name.to_string_lossy().contains("tmp")),
        "{left:?}"
    );
}

#[test]
fn lead_token_from_standard_input_serves_every_rotation() {
    let home = tempfile::tempdir().unwrap();
    let issued = orchestrator(home.path())
        .args(["token", "issue", "--sub", "lead", "--scope", "tool:*"])
        .output()
        .unwrap();
    let file = home.path().join("token");
    let args = ["--every", "1", "--ttl", "4", "--lead", "-"];
    let _rotator = Rotator::start_with_input(home.path(), &file, &args, &stdout(&issued));
    let mut tokens = std::collections::BTreeSet::new();
    eventually("two more tokens", || {
        tokens.insert(std::fs::read_to_string(&file).unwrap());
        (tokens.len() == 3).then_some(())
    });
}

#[test]
fn rotation_ends_cleanly_by_signals() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("token");
    for signal in ["-INT", "-TERM", "-HUP"] {
        let _ = std::fs::remove_file(&file);
        let mut rotator = Rotator::start(home.path(), &file, &[]);
        assert_eq!(rotator.end(signal).code(), Some(0), "{signal}");
        assert!(file.exists());
    }
}

#[test]
fn rotation_that_cannot_work_says_so_at_once() {
    let home = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| {
        orchestrator(home.path())
            .args(["token", "rotate-file"])
            .args(args)
            .args(["--sub", "a", "--scope", "tool:*"])
            .output()
            .unwrap()
    };
    let file = home.path().join("token");
    let file = file.to_str().unwrap();
    let output = run(&[file, "--every", "1h", "--ttl", "1h"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("--every must be less"));
    let output = run(&[file, "--ttl", "1"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("--ttl must be at least 2 s"));
    assert_eq!(run(&["/nonexistent/token"]).status.code(), Some(1));
    let keyless = command(home.path())
        .args(["token", "rotate-file", file, "--sub", "a", "--scope", "x"])
        .output()
        .unwrap();
    assert_eq!(keyless.status.code(), Some(3));
    assert!(!Path::new(file).exists());
    assert!(!stderr(&keyless).contains(SECRET));
}
