//! Asks ATIP tools whether they are logged in, with the `checkCommand` of their metadata.

use std::collections::HashSet;
use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use super::Findings;
use crate::call::text_variables;
use crate::catalog::atip::AtipInvocation;
use crate::catalog::{Invocation, Provider};
use crate::cli::runtime;
use crate::credential::Lookup;
use crate::error::Failure;
use crate::process::program::{self, ProgramSpec, Status, Stdin};
use crate::process::{self, binary};
use crate::snapshot::Snapshot;
use crate::spool::{Quota, Spool};

const CHECK: &str = "logins";
/// Many tools ask a server.
const TIME: Duration = Duration::from_secs(10);
/// Bytes of output that are read.
const MOST: usize = 64 << 10;

pub fn check(snapshot: &Snapshot, found: &mut Findings) -> Result<(), Failure> {
    let mut seen = HashSet::new();
    for tool in snapshot.catalog.tools() {
        if let Invocation::Atip(command) = &tool.invocation
            && seen.insert(&tool.provider.name)
        {
            one(snapshot, &tool.provider, command, found)?;
        }
    }
    Ok(())
}

fn one(
    snapshot: &Snapshot,
    provider: &Arc<Provider>,
    command: &AtipInvocation,
    found: &mut Findings,
) -> Result<(), Failure> {
    let about = &command.about;
    let Some(auth) = &about.authentication else {
        return Ok(());
    };
    let Some(check) = &auth.check_command else {
        return Ok(());
    };
    let name = &provider.name;
    let how = match auth.setup_commands.first() {
        Some(setup) => format!("log in with '{setup}', or set atip_env in "),
        None => "set atip_env in ".to_owned(),
    };
    let fix = format!("{how}{}", provider.file.display());
    // Metadata must not run anything but the tool that it describes.
    let mut words = check.split_whitespace();
    let program = words.next().unwrap_or_default();
    let own = command.cli.command.rsplit('/').next().unwrap_or_default();
    let plain = |word: &str| !word.contains(['"', '\'', '`', '$', '|', ';', '&', '<', '>', '\\']);
    if program != own || !check.split_whitespace().all(plain) {
        let message = format!(
            "'{name}': its check command '{check}' is not run: it isn't '{own}' with plain words"
        );
        found.warn(CHECK, message, "run it by hand");
        return Ok(());
    }
    if let Some(hash) = &command.hash {
        let program = process::find_program(&command.cli.command, &command.cli.plain_env());
        let now = program.and_then(|program| binary::sha256(&program)).ok();
        if now.as_ref() != Some(&hash.0) {
            let message = format!("'{name}': its SHA-256 is not the one of its metadata");
            let fix = "install the version that the shim is for, or a shim for this version";
            found.fail(CHECK, message, fix);
            return Ok(());
        }
    }
    let args: Vec<OsString> = words.map(OsString::from).collect();
    let lookup = Lookup::tool(&snapshot.keyring, None);
    let env = match text_variables(&command.cli, &lookup) {
        Ok(env) => env,
        Err(why) => {
            found.fail(CHECK, format!("'{name}': {why}"), &fix);
            return Ok(());
        }
    };
    let mut whole = process::program_environment();
    whole.extend(env);
    let spec = ProgramSpec {
        program: command.cli.command.clone(),
        args,
        env: whole,
        cwd: command.cli.folder.clone(),
        stdin: Stdin::Null,
        timeout: TIME,
        grace: Duration::ZERO,
        max_stdout: MOST as u64,
        max_stderr: MOST,
        stdout: Spool::new(MOST, Quota::new(0)),
        sandbox: provider.sandbox.clone(),
        sandbox_read: Vec::new(),
        sandbox_write: Vec::new(),
        run_as: None,
        remove: Vec::new(),
        remove_if_alone: Vec::new(),
    };
    // What it prints may hold credentials, so only its end is told.
    match runtime()?.block_on(program::run(spec)) {
        Ok(ended) if ended.status == Status::Code(0) => {
            found.ok(
                CHECK,
                format!("'{name}': '{check}' says that it is logged in"),
            );
        }
        Ok(ended) => {
            let how = match ended.status {
                Status::Code(code) => format!("ended with code {code}"),
                Status::Signal(signal) => format!("was ended by signal {signal}"),
            };
            found.fail(CHECK, format!("'{name}': '{check}' {how}"), &fix);
        }
        Err(error) => found.fail(CHECK, format!("'{name}': '{check}': {error}"), &fix),
    }
    Ok(())
}
