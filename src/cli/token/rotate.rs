//! `ati token rotate-file`: keeps a token in a file fresh. Its readers, like `ati run`, read the
//! file at each use, so that an agent can work for longer than a token is valid.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;
use tracing::{info, warn};

use super::{Issue, mint, parse_ttl, warn_of_doubtful};
use crate::cli::interrupt::{Ended, interruptible};
use crate::cli::{Format, file_failure, output, runtime};
use crate::clock::unix_now;
use crate::error::{Code, Failure};
use crate::files;

/// The clock is looked at this often: a timer stands still while a machine sleeps.
const LONGEST_SLEEP: u64 = 15;
/// When a failed rotation is tried again.
const RETRY: u64 = 5;

#[derive(clap::Args)]
pub struct RotateFile {
    /// The file; callers name it with ATI_SESSION_TOKEN_FILE, or it is /run/ati/session_token
    path: PathBuf,

    /// How often there is a new token: seconds, or a number with s, m, h or d [default: half of
    /// --ttl]
    #[arg(long, value_name = "TIME", value_parser = parse_ttl)]
    every: Option<u64>,

    #[command(flatten)]
    issue: Issue,
}

/// Runs until a signal ends it, which is no failure.
pub fn run(mut args: RotateFile, asked: Option<Format>) -> Result<u8, Failure> {
    let every = interval(args.every, args.issue.ttl)?;
    warn_of_doubtful(&args.issue.scope);
    args.issue.delegation.read_lead()?;
    match runtime()?.block_on(interruptible(keep_fresh(&args, every, asked)))? {
        Ended::Done(never) => match never {},
        Ended::Interrupted(_) => {
            info!(
                "stopped; the token in {} stays until it expires",
                args.path.display()
            );
            Ok(0)
        }
    }
}

/// Seconds between two tokens, of which each is valid for `ttl` seconds.
fn interval(every: Option<u64>, ttl: u64) -> Result<u64, Failure> {
    match every {
        Some(every) if every >= ttl => Err(Failure::invalid(format!(
            "--every must be less than --ttl ({ttl} s): the file would hold an expired token"
        ))),
        Some(every) => Ok(every),
        None if ttl < 2 => Err(Failure::invalid(
            "--ttl must be at least 2 s: a new token is written before the old one expires",
        )),
        None => Ok(ttl / 2),
    }
}

async fn keep_fresh(
    args: &RotateFile,
    every: u64,
    asked: Option<Format>,
) -> Result<Infallible, Failure> {
    write(&args.path, &args.issue)?;
    let path = args.path.display();
    info!(
        "{path}: a new token every {every} s, each valid for {} s",
        args.issue.ttl
    );
    output::done(
        asked,
        || json!({"path": args.path, "every": every, "ttl": args.issue.ttl}),
    );
    let mut due = unix_now().saturating_add(every);
    loop {
        let wait = due.saturating_sub(unix_now()).min(LONGEST_SLEEP);
        tokio::time::sleep(Duration::from_secs(wait)).await;
        let now = unix_now();
        // A clock that was set back must not stretch the time.
        due = due.min(now.saturating_add(every));
        if now < due {
            continue;
        }
        due = now.saturating_add(match write(&args.path, &args.issue) {
            Ok(()) => every,
            Err(failure) => {
                let error = failure.one_line();
                warn!("{path}: no new token, tried again in a moment: {error}");
                RETRY.min(every)
            }
        });
    }
}

/// The keys are read each time: they may have been rotated, too.
fn write(path: &Path, issue: &Issue) -> Result<(), Failure> {
    let (token, _) = mint(issue)?;
    files::write_atomic(path, format!("{token}\n").as_bytes(), 0o600)
        .map_err(|e| file_failure(Code::ExecutionFailed, path, e))
}
