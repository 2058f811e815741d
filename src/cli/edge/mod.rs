//! `ati edge`: create, rotate and inspect the sealed keyring of a proxy. No value is ever printed.

mod entry;
mod folder;
mod signal;
mod source;
mod verify;

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde_json::json;
use zeroize::Zeroizing;

use super::{Format, output, problem_failure};
use crate::config::{self, Environment};
use crate::error::{Code, Failure};
use crate::keyring::{Entries, Fallback, KeptKeys, Keyring, Places, fingerprint, load};
use folder::KeyringFolder;
use signal::Signalled;
use source::SecretSource;

#[derive(clap::Subcommand)]
pub enum Command {
    /// Write keyring.enc with the secrets of a source, and the session key that opens it
    BootstrapKeyring(Bootstrap),
    /// Replace keyring.enc with the secrets of a source, and make the running proxy load it
    RotateKeyring(Rotate),
    /// Inspect keyring.enc, and change one credential of it; no value is printed
    #[command(subcommand)]
    Keyring(Keyrings),
}

#[derive(clap::Args)]
pub struct Bootstrap {
    #[command(flatten)]
    source: SecretSource,

    #[command(flatten)]
    place: FolderArgs,
}

#[derive(clap::Args)]
pub struct Rotate {
    #[command(flatten)]
    source: SecretSource,

    #[command(flatten)]
    place: FolderArgs,

    #[command(flatten)]
    signal: signal::SignalTarget,

    /// Wait until the proxy with this admin listener reports the new keyring; put the old keyring
    /// back where it doesn't
    #[arg(long, value_name = "ADMIN_URL", conflicts_with = "no_signal")]
    verify: Option<String>,
}

#[derive(clap::Args)]
pub struct FolderArgs {
    /// ATI folder [default: $ATI_DIR, then ~/.ati]
    #[arg(long, value_name = "DIR", help_heading = "Folder")]
    ati_dir: Option<PathBuf>,
}

#[derive(clap::Subcommand)]
pub enum Keyrings {
    /// List the names of its credentials
    List {
        #[command(flatten)]
        place: FolderArgs,
    },
    /// Set one credential; the value is read from standard input, or asked for on a terminal
    Set(entry::Entry),
    /// Remove one credential
    Remove(entry::Entry),
    /// Show which names a rotation from a source would add (+), remove (-) or change (~)
    Diff {
        /// End with exit code 1 where there are differences
        #[arg(long)]
        exit_code: bool,

        #[command(flatten)]
        source: Box<SecretSource>,

        #[command(flatten)]
        place: FolderArgs,
    },
    /// Print its fingerprint, which the admin listener of the running proxy reports under /keyring
    Fingerprint {
        #[command(flatten)]
        place: FolderArgs,
    },
}

impl FolderArgs {
    fn dir(&self) -> PathBuf {
        self.ati_dir.clone().unwrap_or_else(config::ati_dir)
    }
}

pub fn run(command: Command, asked: Option<Format>) -> Result<u8, Failure> {
    match command {
        Command::BootstrapKeyring(args) => bootstrap(&args, asked),
        Command::RotateKeyring(args) => rotate(&args, asked),
        Command::Keyring(command) => keyring(command, asked),
    }
}

fn bootstrap(args: &Bootstrap, asked: Option<Format>) -> Result<u8, Failure> {
    let entries = args.source.read()?;
    let folder = KeyringFolder::create(args.place.dir())?;
    let size = folder.write(&entries)?;
    let (keyring, session_key) = (folder.keyring(), folder.session_key());
    output::lines_or_value(
        asked,
        || {
            output::line(&format!(
                "wrote {} ({size} bytes) and {} (session key)",
                keyring.display(),
                session_key.display()
            ));
        },
        || {
            json!({
                "status": "written",
                "keyring": keyring,
                "bytes": size,
                "session_key": session_key,
            })
        },
    );
    Ok(0)
}

fn rotate(args: &Rotate, asked: Option<Format>) -> Result<u8, Failure> {
    let shows_lines = matches!(asked, None | Some(Format::Text));
    let line = |text: &str| {
        if shows_lines {
            output::line(text);
        }
    };
    // Checked before the secrets are fetched: without a bootstrap there is nothing to rotate, and
    // no folder is created.
    args.signal.check()?;
    let folder = KeyringFolder::open(args.place.dir())?;
    let entries = args.source.read()?;
    let admin = args
        .verify
        .as_deref()
        .map(verify::AdminListener::new)
        .transpose()?;
    let before = admin
        .as_ref()
        .map(verify::AdminListener::state)
        .transpose()?;
    let old = folder.sealed()?;
    let size = folder.write(&entries)?;
    line(&format!(
        "rotated {} ({size} bytes)",
        folder.keyring().display()
    ));
    let signalled = args.signal.hang_up();
    if let Ok(Some(text)) = signalled.as_ref().map(Signalled::line) {
        line(&text);
    }
    let expected = folder.fingerprint(&entries)?;
    let done = |signalled: &Signalled, verified: bool| {
        if !shows_lines {
            output::done(asked, || {
                json!({
                    "status": "rotated",
                    "keyring": folder.keyring(),
                    "bytes": size,
                    "fingerprint": expected,
                    "signal": signalled.as_json(),
                    "verified": verified,
                })
            });
        }
        Ok(0)
    };
    let (Some(admin), Some(before)) = (admin, before) else {
        return done(&signalled?, false);
    };
    let outcome = signalled.and_then(|signalled| {
        admin.wait_for(&expected, &before)?;
        Ok(signalled)
    });
    let why = match outcome {
        Ok(signalled) => {
            line(&format!("verified: the proxy runs with keyring {expected}"));
            return done(&signalled, true);
        }
        Err(why) => why,
    };
    if let Err(failure) = folder.restore(&old) {
        let message = format!(
            "{}; and the old keyring could not be put back",
            why.one_line()
        );
        return Err(Failure::new(why.code, message).because(failure));
    }
    // The proxy may have loaded the new keyring late: signal it again, to load the old one.
    let _ = args.signal.hang_up();
    Err(Failure::new(why.code, "rolled back to the old keyring").because(why))
}

fn keyring(command: Keyrings, asked: Option<Format>) -> Result<u8, Failure> {
    match command {
        Keyrings::Set(entry) => entry::set(entry, asked)?,
        Keyrings::Remove(entry) => entry::remove(entry, asked)?,
        Keyrings::List { place } => {
            let keyring = current(&place)?;
            output::lines_or_value(
                asked,
                || keyring.names().for_each(output::line),
                || keyring.names().collect(),
            );
        }
        Keyrings::Fingerprint { place } => {
            let keyring = current(&place)?;
            let print = keyring.fingerprint().ok_or_else(|| {
                Failure::new(
                    Code::MissingKey,
                    "the keyring is not sealed, and has no fingerprint",
                )
            })?;
            output::lines_or_value(
                asked,
                || output::line(print),
                || json!({ "fingerprint": print }),
            );
        }
        Keyrings::Diff {
            exit_code,
            source,
            place,
        } => {
            let keyring = current(&place)?;
            let entries = source.read()?;
            let names: BTreeSet<&str> = keyring
                .names()
                .chain(entries.keys().map(String::as_str))
                .collect();
            let mut changes = Vec::new();
            for name in names {
                let (old, new) = (keyring.get(name), entries.get(name));
                changes.push(match (old, new) {
                    (None, Some(_)) => ('+', "added", name),
                    (Some(_), None) => ('-', "removed", name),
                    (Some(old), Some(new)) if old.expose() != new.as_bytes() => {
                        ('~', "changed", name)
                    }
                    _ => continue,
                });
            }
            let each = changes.iter();
            output::lines_or_value(
                asked,
                || {
                    each.clone()
                        .for_each(|(mark, _, name)| output::line(&format!("{mark} {name}")));
                },
                || {
                    let entry = |(_, change, name): &_| json!({"name": name, "change": change});
                    each.clone().map(entry).collect()
                },
            );
            return Ok(u8::from(exit_code && !changes.is_empty()));
        }
    }
    Ok(0)
}

fn current(place: &FolderArgs) -> Result<Keyring, Failure> {
    let places = Places {
        dir: place.dir(),
        one_shot: Environment::read().key_file,
        consume: false,
    };
    load(&places, &KeptKeys::default(), Fallback::Refuse)
        .map(|loaded| loaded.keyring)
        .map_err(|problem| problem_failure(Code::MissingKey, &problem))
}

/// The JSON that is sealed, with its keys sorted, as other programs that read keyrings expect it.
fn as_json(entries: &Entries) -> Zeroizing<Vec<u8>> {
    Zeroizing::new(serde_json::to_vec_pretty(&source::as_strings(entries)).unwrap_or_default())
}
