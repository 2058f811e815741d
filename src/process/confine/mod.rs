//! The second step of a supervisor, in the child: it takes away from itself what the program must
//! not have, and then becomes the program. All of it stays with the program and its descendants,
//! and none of it can be undone.

mod calls;
mod kernel;
mod paths;

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit, setrlimit, umask};
use rustix::stdio::dup2_stdin;
use rustix::thread::set_no_new_privs;

use super::plan::Failure;
use super::sandbox::{Confinement, Sandbox};
use super::{capabilities, channel};

pub use kernel::{Abilities, abilities};

/// Of a mask for new files.
const PRIVATE: Mode = Mode::RWXG.union(Mode::RWXO);

/// Returns only if it fails.
pub(super) fn become_program(words: &[OsString]) -> io::Result<u8> {
    let control = channel::take()?;
    let (message, stdin) = channel::receive(&control)?;
    let confinement: Confinement = serde_json::from_slice(&message)?;
    let failure = confine_and_execute(words, &confinement, stdin);
    report(&control, &failure)?;
    Ok(0)
}

fn report(mut control: &UnixStream, failure: &Failure) -> io::Result<()> {
    control.write_all(&serde_json::to_vec(failure)?)
}

fn confine_and_execute(
    words: &[OsString],
    confinement: &Confinement,
    stdin: Option<OwnedFd>,
) -> Failure {
    let Some((program, args)) = words.split_first() else {
        return Failure::Other("there is no program".to_owned());
    };
    if let Some(stdin) = stdin
        && let Err(e) = dup2_stdin(&stdin)
    {
        return Failure::Other(e.to_string());
    }
    // Made before the limits: there may be no memory to be had after them.
    let mut command = Command::new(program);
    command.args(args);
    // The program can't close its files to other users by path, so they are closed from the start.
    umask(umask(PRIVATE) | PRIVATE);
    // Those that ati was started with: they may be anything, and are open already.
    super::keep_descriptors_from_programs();
    match confine(Path::new(program), confinement) {
        // The environment is the program's already.
        Ok(()) => Failure::exec(&command.exec()),
        Err(why) => Failure::Sandbox(why),
    }
}

fn confine(program: &Path, confinement: &Confinement) -> Result<(), String> {
    let sandbox = &confinement.sandbox;
    let step = |what: &str, e: io::Error| format!("{what}: {e}");
    // Before the privileges are gone, for folders that only root may enter.
    let rules = paths::rules(program, confinement)?;
    let filters = calls::filters(sandbox.net)?;
    // Root's program would have all of them, and the kernel lets CAP_SYS_ADMIN do anything.
    capabilities::drop_all().map_err(|e| step("capabilities", e))?;
    set_no_new_privs(true).map_err(|e| step("no_new_privs", e.into()))?;
    rules.enforce()?;
    for filter in filters {
        seccompiler::apply_filter(&filter).map_err(|e| format!("seccomp: {e}"))?;
    }
    limit(sandbox).map_err(|e| step("limits", e))
}

fn limit(sandbox: &Sandbox) -> io::Result<()> {
    let set = |resource, most: Option<u64>, hard: Option<u64>| {
        let limit = Rlimit {
            current: most,
            maximum: hard,
        };
        setrlimit(resource, limit).map_err(io::Error::from)
    };
    // A core file would have the credentials of the environment in it.
    set(Resource::Core, Some(0), Some(0))?;
    if let Some(seconds) = sandbox.cpu_seconds {
        // SIGXCPU, which a program can ignore, and then SIGKILL.
        set(Resource::Cpu, Some(seconds), seconds.checked_add(1))?;
    }
    if let Some(bytes) = sandbox.file_bytes {
        set(Resource::Fsize, Some(bytes), Some(bytes))?;
    }
    if let Some(bytes) = sandbox.memory_bytes {
        set(Resource::As, Some(bytes), Some(bytes))?;
    }
    Ok(())
}
