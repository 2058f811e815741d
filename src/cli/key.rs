//! `ati key`: the plaintext `credentials` file.

use std::io::Read;

use serde_json::json;
use tracing::info;
use zeroize::Zeroizing;

use super::{Format, file_failure, output};
use crate::config;
use crate::error::{Code, Failure};
use crate::keyring::Credentials;

#[derive(clap::Subcommand)]
pub enum Command {
    /// Store a credential
    Set {
        /// The name that manifests use for it
        name: String,
        /// The secret; - reads it from standard input, which keeps it out of the shell's history
        value: String,
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
    let mut credentials = Credentials::open(dir).map_err(failed)?;
    match command {
        Command::Set { name, value } => {
            let value = Zeroizing::new(value);
            let value = if *value == "-" { from_stdin()? } else { value };
            if name.is_empty() {
                return Err(Failure::invalid("a key needs a name"));
            }
            if value.is_empty() {
                return Err(Failure::invalid(format!("the value of '{name}' is empty")));
            }
            credentials.set(&name, &value).map_err(failed)?;
            info!("saved key {name}");
            output::done(asked, || json!({"status": "saved", "name": name}));
        }
        Command::List => list(&credentials, asked),
        Command::Remove { name } => {
            if credentials.remove(&name).map_err(failed)? {
                info!("removed key {name}");
                output::done(asked, || json!({"status": "removed", "name": name}));
            } else {
                output::line(&format!("Key '{name}' not found."));
            }
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

/// The text of standard input, without the newline that `echo` and editors add.
fn from_stdin() -> Result<Zeroizing<String>, Failure> {
    let mut text = Zeroizing::new(String::new());
    std::io::stdin()
        .read_to_string(&mut text)
        .map_err(|e| Failure::invalid("standard input").because(e))?;
    Ok(Zeroizing::new(
        text.trim_end_matches(['\r', '\n']).to_owned(),
    ))
}
