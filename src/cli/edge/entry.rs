//! `ati edge keyring set` and `remove`: one credential of the sealed keyring.

use std::path::PathBuf;

use serde_json::json;

use super::super::{Format, output, secret_input};
use super::FolderArgs;
use super::folder::KeyringFolder;
use super::signal::{SignalTarget, Signalled};
use super::source::is_name;
use crate::error::{Code, Failure};

#[derive(clap::Args)]
pub struct Entry {
    /// The credential's name
    name: String,

    #[command(flatten)]
    place: FolderArgs,

    /// The systemd unit to signal, so that it loads the keyring [default: no signal is sent]
    #[arg(long, value_name = "UNIT")]
    service: Option<String>,

    /// A file with the process id of the proxy to signal, where it doesn't run under systemd
    #[arg(long, value_name = "FILE")]
    pid_file: Option<PathBuf>,
}

pub fn set(entry: Entry, asked: Option<Format>) -> Result<(), Failure> {
    let name = entry.name.clone();
    let signal = entry.signal()?;
    // Before the value is asked for: without a keyring it would be typed in vain.
    drop(KeyringFolder::open(entry.place.dir())?);
    let value = secret_input::read(&name)?;
    if value.is_empty() {
        return Err(Failure::invalid(format!("the value of '{name}' is empty")));
    }
    // The lock isn't held while a person types.
    let folder = KeyringFolder::open(entry.place.dir())?;
    let mut entries = folder.entries()?;
    // A secret that was given in the place of a name isn't written, nor printed.
    if !entries.contains_key(&name) && !is_name(&name) {
        return Err(Failure::invalid(
            "the name of a credential has letters, digits and _ - . @ only",
        ));
    }
    let new = entries.insert(name.clone(), value).is_none();
    folder.write(&entries)?;
    let what = if new { "added" } else { "replaced" };
    report(&folder, what, &name, signal, asked)
}

pub fn remove(entry: Entry, asked: Option<Format>) -> Result<(), Failure> {
    let name = entry.name.clone();
    let signal = entry.signal()?;
    let folder = KeyringFolder::open(entry.place.dir())?;
    let mut entries = folder.entries()?;
    if entries.remove(&name).is_none() {
        let message = format!("'{name}' is not in {}", folder.keyring().display());
        return Err(Failure::new(Code::ExecutionFailed, message));
    }
    if entries.is_empty() {
        return Err(Failure::invalid(format!(
            "'{name}' is the last credential: an empty keyring would lock every caller out"
        )));
    }
    folder.write(&entries)?;
    report(&folder, "removed", &name, signal, asked)
}

impl Entry {
    /// A bad --pid-file is reported before anything is changed.
    fn signal(&self) -> Result<Option<SignalTarget>, Failure> {
        let target = SignalTarget::named(self.service.clone(), self.pid_file.clone());
        target.as_ref().map_or(Ok(()), SignalTarget::check)?;
        Ok(target)
    }
}

fn report(
    folder: &KeyringFolder,
    what: &str,
    name: &str,
    signal: Option<SignalTarget>,
    asked: Option<Format>,
) -> Result<(), Failure> {
    let signalled = signal.map(|target| target.hang_up()).transpose()?;
    let keyring = folder.keyring();
    let lines = || {
        output::line(&format!("{what} '{name}' in {}", keyring.display()));
        match &signalled {
            None => output::line("a running proxy loads it on SIGHUP: systemctl reload ati"),
            Some(signalled) => signalled.line().iter().for_each(|line| output::line(line)),
        }
    };
    output::lines_or_value(asked, lines, || {
        let signal = signalled.as_ref().map(Signalled::as_json);
        json!({"status": what, "name": name, "keyring": keyring, "signal": signal})
    });
    Ok(())
}
