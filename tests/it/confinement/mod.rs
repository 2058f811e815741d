//! Programs that ati runs to their end, and what confines them.

mod endings;
mod leftovers;
mod manifest;
mod others;
mod sandbox;
mod terminal;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::time::{Duration, Instant};

use ati::process::program::{ProgramError, ProgramOutcome, ProgramSpec, Stdin, run};
use ati::process::use_executable;
use ati::spool::{Quota, Spool};
use zeroize::Zeroizing;

/// Supervisors are the real ati, and not this test.
fn use_ati() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| use_executable(PathBuf::from(env!("CARGO_BIN_EXE_ati"))));
}

fn spec(program: &str, args: &[&str]) -> ProgramSpec {
    use_ati();
    let path = std::env::var("PATH").unwrap();
    ProgramSpec {
        program: program.to_owned(),
        args: args.iter().map(OsString::from).collect(),
        env: vec![("PATH".to_owned(), Zeroizing::new(path))],
        cwd: None,
        stdin: Stdin::Null,
        timeout: Duration::from_secs(60),
        grace: Duration::from_secs(5),
        max_stdout: 1 << 20,
        max_stderr: 4096,
        stdout: Spool::new(1 << 20, Quota::new(u64::MAX)),
        sandbox: None,
        sandbox_read: Vec::new(),
        sandbox_write: Vec::new(),
        run_as: None,
        remove: Vec::new(),
        remove_if_alone: Vec::new(),
    }
}

fn shell(script: &str) -> ProgramSpec {
    spec("sh", &["-c", script])
}

fn out(outcome: &ProgramOutcome) -> String {
    String::from_utf8_lossy(outcome.stdout.in_memory().unwrap()).into_owned()
}

fn err(outcome: &ProgramOutcome) -> String {
    String::from_utf8_lossy(&outcome.stderr.to_bytes()).into_owned()
}

async fn failure(spec: ProgramSpec) -> ProgramError {
    run(spec).await.err().unwrap()
}

/// A process that is there and no zombie.
fn lives(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().unwrap_or_default().trim_start();
    !matches!(state.chars().next(), None | Some('Z' | 'X'))
}

async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The words of a file, once it is there and whole.
async fn words_of(file: &Path) -> Vec<String> {
    let read = || std::fs::read_to_string(file).unwrap_or_default();
    eventually("the file is written", || read().ends_with('\n')).await;
    read().split_whitespace().map(str::to_owned).collect()
}
