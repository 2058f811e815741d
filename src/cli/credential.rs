//! `ati credential`: the credentials in the database.

use std::path::{Path, PathBuf};

use serde_json::json;
use tracing::info;
use zeroize::Zeroizing;

use super::{Format, file_failure, output, secret_input};
use crate::config::Environment;
use crate::error::{Code, Failure, Problem};
use crate::keyring::customer::{fault_of_name, parse_id};
use crate::keyring::stored::Place;
use crate::store::credentials::{self, ListedCredential};
use crate::store::{Store, StoreError, Tables};

/// Bytes of a value. A service account's key has a few thousand.
const LONGEST: usize = 64 << 10;

#[derive(clap::Subcommand)]
pub enum Command {
    /// Store a credential, encrypted with ATI_MASTER_KEY. Running proxies use it within a second
    Set {
        /// The name that manifests use for it
        name: String,

        #[command(flatten)]
        whose: Whose,

        /// Read the value from this file. Without it, it is read from standard input, or asked for
        /// on a terminal: never from the command line
        #[arg(long, value_name = "PATH")]
        file: Option<PathBuf>,
    },
    /// List names, customers and master keys. Values are never shown
    List {
        #[command(flatten)]
        whose: Whose,
    },
    /// Remove a credential. Running proxies stop using it within a second
    Remove {
        /// The credential's name
        name: String,

        #[command(flatten)]
        whose: Whose,
    },
}

#[derive(clap::Args)]
pub struct Whose {
    /// The customer: the customer_id of its tokens and keys. Without it, the credential is for all
    /// customers that have none of their own
    #[arg(long, value_name = "ID", value_parser = parse_id)]
    customer: Option<String>,
}

pub fn run(command: Command, asked: Option<Format>) -> Result<u8, Failure> {
    match command {
        Command::Set { name, whose, file } => set(&name, &whose, file.as_deref(), asked)?,
        Command::List { whose } => list(&whose, asked)?,
        Command::Remove { name, whose } => remove(&name, &whose, asked)?,
    }
    Ok(0)
}

fn set(
    name: &str,
    whose: &Whose,
    file: Option<&Path>,
    asked: Option<Format>,
) -> Result<(), Failure> {
    let place = whose.place(name);
    check_name(name)?;
    let env = environment()?;
    if env.master_keys.active().is_none() {
        let message = "there is no master key to encrypt it with: ATI_MASTER_KEY isn't set";
        let hint = "make one with `openssl rand -base64 32`, keep it, and give it to every proxy";
        return Err(Failure::new(Code::MissingKey, message).hint(hint));
    }
    // Before the value is asked for.
    let store = open(&env)?;
    let value = match file {
        Some(path) => read_file(path)?,
        None => secret_input::read(name)?,
    };
    if value.is_empty() {
        return Err(Failure::invalid(format!("the value of '{name}' is empty")));
    }
    if value.len() > LONGEST {
        let message = format!("the value of '{name}' is longer than 64 KiB");
        return Err(Failure::invalid(message));
    }
    let sealed = env.master_keys.seal(place, value.as_bytes());
    let sealed = sealed.map_err(|e| Failure::invalid("it can't be encrypted").because(e))?;
    drop(value);
    let (customer, name) = (whose.customer.clone(), name.to_owned());
    let (actor, key_id) = (actor(), sealed.key_id.clone());
    let named = name.clone();
    let replaced = store
        .wait(|db| async move {
            let customer = customer.as_deref();
            let name = &named;
            credentials::set(&db, &actor, Place { customer, name }, &sealed).await
        })
        .map_err(failed)?;
    let status = if replaced { "replaced" } else { "saved" };
    info!("{status} {}", whose.describe(&name));
    output::done(
        asked,
        || json!({"status": status, "name": name, "customer": whose.customer, "key_id": key_id}),
    );
    Ok(())
}

fn remove(name: &str, whose: &Whose, asked: Option<Format>) -> Result<(), Failure> {
    check_name(name)?;
    let store = open(&environment()?)?;
    let (customer, named, actor) = (whose.customer.clone(), name.to_owned(), actor());
    let removed = store
        .wait(|db| async move {
            let customer = customer.as_deref();
            let name = &named;
            credentials::remove(&db, &actor, Place { customer, name }).await
        })
        .map_err(failed)?;
    if !removed {
        let message = format!("there is no {}", whose.describe(name));
        return Err(Failure::new(Code::ExecutionFailed, message));
    }
    info!("removed {}", whose.describe(name));
    output::done(
        asked,
        || json!({"status": "removed", "name": name, "customer": whose.customer}),
    );
    Ok(())
}

fn list(whose: &Whose, asked: Option<Format>) -> Result<(), Failure> {
    let env = environment()?;
    let store = open(&env)?;
    let customer = whose.customer.clone();
    let rows = store
        .wait(|db| async move { credentials::list(&db, customer.as_deref()).await })
        .map_err(failed)?;
    let readable = |row: &ListedCredential| env.master_keys.find(&row.key_id).is_some();
    let lines = || {
        if rows.is_empty() {
            output::line(
                "No credentials stored. `ati credential set <name> --customer <id>` adds one.",
            );
            return;
        }
        output::line(&format!(
            "{:<24} {:<28} {:<18} UPDATED",
            "CUSTOMER", "NAME", "MASTER KEY"
        ));
        for row in &rows {
            let customer = row.customer.as_deref().unwrap_or("(all)");
            let updated = row.updated.rfc3339();
            // Only where there are keys to compare with: a list needs none.
            let unknown = !env.master_keys.all().is_empty() && !readable(row);
            let note = if unknown {
                " (not among ATI_MASTER_KEY*)"
            } else {
                ""
            };
            let (name, key_id) = (&row.name, &row.key_id);
            output::line(&format!(
                "{customer:<24} {name:<28} {key_id:<18} {updated}{note}"
            ));
        }
    };
    let entry = |row: &ListedCredential| {
        json!({
            "customer": row.customer,
            "name": row.name,
            "key_id": row.key_id,
            "readable": readable(row),
            "created_at": row.created.rfc3339(),
            "updated_at": row.updated.rfc3339(),
        })
    };
    output::lines_or_value(asked, lines, || rows.iter().map(entry).collect());
    Ok(())
}

impl Whose {
    fn place<'a>(&'a self, name: &'a str) -> Place<'a> {
        Place {
            customer: self.customer.as_deref(),
            name,
        }
    }

    fn describe(&self, name: &str) -> String {
        match &self.customer {
            Some(customer) => format!("credential '{name}' of customer '{customer}'"),
            None => format!("credential '{name}' of all customers"),
        }
    }
}

fn check_name(name: &str) -> Result<(), Failure> {
    match fault_of_name(name) {
        Some(fault) => Err(Failure::invalid(format!(
            "a credential's name that {fault}"
        ))),
        None => Ok(()),
    }
}

/// The text of a file, without the newline that editors add.
fn read_file(path: &Path) -> Result<Zeroizing<String>, Failure> {
    let text = crate::files::read_text(path);
    let text = Zeroizing::new(text.map_err(|e| file_failure(Code::InvalidValue, path, e))?);
    Ok(Zeroizing::new(
        text.trim_end_matches(['\r', '\n']).to_owned(),
    ))
}

/// The variables, where those that this command needs are in order.
pub(super) fn environment() -> Result<Environment, Failure> {
    let env = Environment::read();
    let ours = |key: &str| key.starts_with("ATI_MASTER_KEY") || key == "ATI_DB_URL";
    let ours = |problem: &&Problem| problem.key.as_deref().is_some_and(ours);
    let problems: Vec<Problem> = env.problems.iter().filter(ours).cloned().collect();
    match problems.is_empty() {
        true => Ok(env),
        false => Err(Failure::from_problems("can't use the database", &problems)),
    }
}

/// The store of `ATI_DB_URL`.
pub(super) fn open(env: &Environment) -> Result<Store, Failure> {
    let Some(database) = &env.database_url else {
        let message = "there is no database: ATI_DB_URL isn't set";
        return Err(Failure::invalid(message).hint("set it to what the proxy has"));
    };
    Store::open_for_command(database, Tables::Check).map_err(failed)
}

pub(super) fn failed(error: StoreError) -> Failure {
    Failure::new(Code::ExecutionFailed, "the database").because(error)
}

/// Who changes it, for the audit log: the user of this machine.
pub(super) fn actor() -> String {
    let user = std::env::var("SUDO_USER").or_else(|_| std::env::var("USER"));
    let user = user.unwrap_or_else(|_| format!("uid {}", rustix::process::getuid().as_raw()));
    format!("cli:{user}")
}
