//! `ati key`: the plaintext `credentials` file.

use std::path::PathBuf;

use serde_json::json;
use tracing::{info, warn};
use zeroize::Zeroizing;

use super::{Format, file_failure, output, secret_input};
use crate::config::{self, Environment};
use crate::error::{Code, Failure};
use crate::keyring::{Credentials, Fallback, KeptKeys, Places, Source, load};

#[derive(clap::Subcommand)]
pub enum Command {
    /// Store a credential
    Set {
        /// The name that manifests use for it
        name: String,
        /// The secret. Without it, or with -, it is read from standard input, or asked for on a
        /// terminal: that keeps it out of the shell's history
        value: Option<String>,

        /// Store it even where keyring.enc is used instead of this file
        #[arg(long)]
        force: bool,
    },
    /// List the names of stored credentials, with masked values
    List,
    /// Remove a credential
    Remove {
        /// The credential's name
        name: String,
    },
}

pub fn run(command: Command, asked: Option<Format>) -> Result<u8, Failure> {
    let dir = config::ati_dir();
    let path = dir.join("credentials");
    let failed = |e: std::io::Error| file_failure(Code::InvalidValue, &path, e);
    let open = || Credentials::open(dir.clone()).map_err(failed);
    match command {
        Command::Set { name, value, force } => {
            if name.is_empty() {
                return Err(Failure::invalid("a key needs a name"));
            }
            if !force {
                check_use(dir.clone(), &name)?;
            }
            let value = match value.map(Zeroizing::new) {
                Some(value) if *value != "-" => value,
                _ => secret_input::read(&name)?,
            };
            if value.is_empty() {
                return Err(Failure::invalid(format!("the value of '{name}' is empty")));
            }
            open()?.set(&name, &value).map_err(failed)?;
            info!("saved key {name}");
            output::done(asked, || json!({"status": "saved", "name": name}));
        }
        Command::List => list(&open()?, asked),
        Command::Remove { name } => {
            if !open()?.remove(&name).map_err(failed)? {
                let message = format!("Key '{name}' not found.");
                return Err(Failure::new(Code::ExecutionFailed, message));
            }
            info!("removed key {name}");
            output::done(asked, || json!({"status": "removed", "name": name}));
        }
    }
    Ok(0)
}

fn list(credentials: &Credentials, asked: Option<Format>) {
    let lines = || {
        let mut any = false;
        for (name, mask) in credentials.masked() {
            output::line(&format!("{name:<30} {mask}"));
            any = true;
        }
        if !any {
            output::line("No keys stored. Run `ati key set <name> <value>` to add one.");
        }
    };
    let entry = |(name, mask): (&str, String)| json!({"name": name, "masked": mask});
    output::lines_or_value(asked, lines, || credentials.masked().map(entry).collect());
}

/// Refuses to store a secret in plain text that would never be used: where `keyring.enc` opens, the
/// credentials file isn't read.
fn check_use(dir: PathBuf, name: &str) -> Result<(), Failure> {
    let places = Places {
        dir,
        one_shot: Environment::read().key_file,
        consume: false,
    };
    let sealed = places.sealed();
    if !sealed.exists() {
        return Ok(());
    }
    let instead = match load(&places, &KeptKeys::default(), Fallback::Refuse) {
        Ok(loaded) if loaded.keyring.source() == Source::Persistent => {
            format!("ati edge keyring set {name}")
        }
        Ok(_) => "seal a new keyring where the one-shot key comes from".to_owned(),
        Err(_) => {
            warn!(
                "{} can't be opened here: 'ati run' uses the stored key, a proxy doesn't",
                sealed.display()
            );
            return Ok(());
        }
    };
    let message = format!(
        "{} is used instead of the credentials file, where '{name}' would have no effect",
        sealed.display()
    );
    let hint = format!("{instead}; or --force, to store it all the same");
    Err(Failure::invalid(message).hint(hint))
}
