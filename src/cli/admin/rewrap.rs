//! `ati admin rewrap`: a new master key for all credentials, while proxies serve.

use std::io::{IsTerminal as _, Write as _};

use serde_json::json;
use tracing::{info, warn};

use crate::cli::credential::{actor, environment, failed, open};
use crate::cli::{Format, output};
use crate::error::{Code, Failure};
use crate::store::credentials::{self, Rewrapped};

/// Rows that are named one by one in a report of failures.
const MOST_NAMED: usize = 20;

#[derive(clap::Args)]
pub struct Args {
    /// Only tell how many credentials are under another master key
    #[arg(long)]
    dry_run: bool,
}

pub fn run(args: &Args, asked: Option<Format>) -> Result<u8, Failure> {
    let env = environment()?;
    let keys = env.master_keys.clone();
    let Some(active) = keys.active() else {
        let message = "there is no master key: ATI_MASTER_KEY isn't set";
        return Err(Failure::new(Code::MissingKey, message));
    };
    let (key_id, variable) = (active.id().to_owned(), active.variable().to_owned());
    let store = open(&env)?;
    let id = key_id.clone();
    let total = store
        .wait(|db| async move { credentials::count_under_others(&db, &id).await })
        .map_err(failed)?;
    let total = u64::try_from(total).unwrap_or(0);
    if args.dry_run {
        info!("{total} credentials are under another master key than {key_id} ({variable})");
        output::done(
            asked,
            || json!({"status": "dry_run", "key_id": key_id, "to_rewrap": total}),
        );
        return Ok(0);
    }
    let mut progress = Progress::new(total);
    let mut sum = Rewrapped::default();
    // What others change meanwhile is looked at again, until a pass finds nothing more to do.
    loop {
        sum.unreadable.clear();
        let (mut from, mut done) = ((String::new(), String::new()), 0);
        loop {
            let (keys, actor, id, start) = (keys.clone(), actor(), key_id.clone(), from.clone());
            let batch = store.wait(|db| async move {
                let rewrap = |place: crate::keyring::stored::Place<'_>, sealed: &_| {
                    keys.rewrap(place, sealed).map_err(|e| e.to_string())
                };
                credentials::rewrap_batch(&db, &actor, &id, &start, rewrap).await
            });
            let batch = batch.map_err(|e| interrupted(failed(e), sum.rewrapped))?;
            done += batch.rewrapped;
            sum.rewrapped += batch.rewrapped;
            sum.changed += batch.changed;
            sum.unreadable.extend(batch.unreadable);
            progress.show(sum.rewrapped);
            match batch.next {
                Some(next) => from = next,
                None => break,
            }
        }
        if done == 0 {
            break;
        }
    }
    progress.end();
    let rewrapped = sum.rewrapped;
    info!("{rewrapped} credentials are now under master key {key_id} ({variable})");
    output::done(asked, || {
        json!({
            "status": if sum.unreadable.is_empty() { "done" } else { "incomplete" },
            "key_id": key_id,
            "rewrapped": rewrapped,
            "unreadable": sum.unreadable.len(),
        })
    });
    for (customer, name, why) in sum.unreadable.iter().take(MOST_NAMED) {
        let customer = customer.as_deref().unwrap_or("(all)");
        warn!(customer, name, "left as it is: {why}");
    }
    match sum.unreadable.len() {
        0 => Ok(0),
        left => {
            let message = format!("{left} credentials can't be read, and were left as they are");
            let hint = "give their master keys as ATI_MASTER_KEY_<ID>, and run this again";
            Err(Failure::new(Code::MissingKey, message).hint(hint))
        }
    }
}

/// Nothing is lost: each batch is one transaction, and the next run goes on with what is left.
fn interrupted(failure: Failure, rewrapped: u64) -> Failure {
    failure.hint(format!(
        "{rewrapped} credentials were rewrapped, and all are readable; run this again for the rest"
    ))
}

/// A line that is written anew, on a terminal.
struct Progress {
    total: u64,
    shown: bool,
}

impl Progress {
    fn new(total: u64) -> Self {
        Progress {
            total,
            shown: std::io::stderr().is_terminal(),
        }
    }

    fn show(&mut self, done: u64) {
        if self.shown {
            let _ = write!(std::io::stderr(), "\r{done} of {} credentials", self.total);
        }
    }

    fn end(&mut self) {
        if self.shown {
            let _ = writeln!(std::io::stderr());
        }
    }
}
