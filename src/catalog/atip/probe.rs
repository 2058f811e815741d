//! `tool --agent`: asks a program what it can do. It gets no credentials, no input and 2 s; where
//! the kernel can confine it, it can write nothing and open no connection.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use super::metadata::LARGEST;
use crate::process::program::{self, ProgramSpec, Status, Stdin};
use crate::process::{self, Sandbox};
use crate::spool::{Quota, Spool};

/// For the whole answer.
pub const TIME: Duration = Duration::from_secs(2);
/// Processor time, so that a program that spins doesn't take it from the others.
const CPU_SECONDS: u64 = 2;
/// Processes at a time: a script starts some.
const PROCESSES: u64 = 32;
/// What is kept of its diagnostic messages.
const MOST_STDERR: usize = 4 << 10;

/// The metadata as the program printed it. None where it has none, by the rule of the RFC: it ends
/// well, and prints JSON with `atip`.
pub async fn ask(program: &Path) -> Option<String> {
    let spec = ProgramSpec {
        program: program.to_str()?.to_owned(),
        args: vec![OsString::from("--agent")],
        env: process::program_environment(),
        cwd: Some(PathBuf::from("/")),
        stdin: Stdin::Null,
        timeout: TIME,
        grace: Duration::ZERO,
        max_stdout: LARGEST,
        max_stderr: MOST_STDERR,
        stdout: Spool::new(LARGEST as usize, Quota::new(0)),
        sandbox: sandbox(),
        sandbox_read: Vec::new(),
        sandbox_write: Vec::new(),
        run_as: None,
        remove: Vec::new(),
        remove_if_alone: Vec::new(),
    };
    let ended = program::run(spec).await.ok()?;
    if ended.status != Status::Code(0) {
        return None;
    }
    let text = String::from_utf8(ended.stdout.in_memory()?.to_vec()).ok()?;
    let document: Value = serde_json::from_str(&text).ok()?;
    document.get("atip").is_some().then_some(text)
}

/// As [`ask`], where there is no runtime, or one that must not be blocked.
pub fn ask_and_wait(program: &Path) -> Option<String> {
    let asking = || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.ok()?.block_on(ask(program))
    };
    std::thread::scope(|scope| scope.spawn(asking).join().ok().flatten())
}

/// Everything may be read that ati's user may read, but for ati's own files. None where the kernel
/// can't confine.
fn sandbox() -> Option<Sandbox> {
    let sandbox = Sandbox {
        read: vec![PathBuf::from("/")],
        net: false,
        cpu_seconds: Some(CPU_SECONDS),
        processes: Some(PROCESSES),
        ..Sandbox::default()
    };
    process::abilities().lack().is_none().then_some(sandbox)
}
