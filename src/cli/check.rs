//! `ati check`: a dry run of loading everything.

use serde_json::json;

use super::{Format, mcp_servers, output};
use crate::config::{self, Environment, Flags};
use crate::error::{Code, Failure, Problem};
use crate::snapshot::Snapshot;

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    flags: Flags,

    /// Fail on warnings too
    #[arg(long)]
    strict: bool,
}

pub fn run(args: &Args, format: Format) -> Result<u8, Failure> {
    let (problems, warnings, summary) = load(&args.flags);
    let ok = problems.is_empty() && (warnings.is_empty() || !args.strict);
    match format {
        Format::Json => output::pretty(&json!({
            "ok": ok,
            "problems": problems.iter().map(as_json).collect::<Vec<_>>(),
            "warnings": warnings.iter().map(as_json).collect::<Vec<_>>(),
            "loaded": summary,
        })),
        Format::Text | Format::Table => {
            for problem in &problems {
                output::line(&format!("problem: {problem}"));
            }
            for warning in &warnings {
                output::line(&format!("warning: {warning}"));
            }
            output::line(if ok { "ok" } else { "not ok" });
        }
    }
    Ok(if ok {
        0
    } else {
        Code::InvalidValue.exit_code()
    })
}

/// Problems, warnings and a summary of what the server would load. The one-shot key is left for the
/// server.
fn load(flags: &Flags) -> (Vec<Problem>, Vec<Problem>, serde_json::Value) {
    let env = Environment::read();
    let (mut problems, settings) = match config::resolve(flags, &env) {
        Ok(settings) => (Vec::new(), Some(settings)),
        // With default settings the rest can still be loaded, and its problems reported too.
        Err(problems) => {
            let bare = Flags {
                ati_dir: flags.ati_dir.clone(),
                env_keys: flags.env_keys,
                ..Flags::default()
            };
            (problems, config::resolve(&bare, &env).ok())
        }
    };
    let Some(mut settings) = settings else {
        return (problems, Vec::new(), serde_json::Value::Null);
    };
    settings.keyring.places.consume = false;
    match Snapshot::build(settings, None) {
        Ok(mut built) if problems.is_empty() => {
            let snapshot = &built.snapshot;
            let faults = mcp_servers::faults(snapshot);
            built
                .warnings
                .extend(faults.iter().map(|fault| fault.problem()));
            let summary = json!({
                "ati_dir": snapshot.settings.ati_dir,
                "keyring": snapshot.keyring.source().as_str(),
                "keys": snapshot.keyring.len(),
                "auth": snapshot.auth(),
                "providers": snapshot.catalog.providers().len(),
                "tools": snapshot.catalog.public_count(),
                "routes": snapshot.routes.len(),
                "signature_mode": snapshot.settings.signature.mode.as_str(),
            });
            (problems, built.warnings, summary)
        }
        Ok(built) => (problems, built.warnings, serde_json::Value::Null),
        Err(failure) => {
            problems.extend(failure.problems);
            (problems, failure.warnings, serde_json::Value::Null)
        }
    }
}

fn as_json(problem: &Problem) -> serde_json::Value {
    json!({ "file": problem.file, "key": problem.key, "message": problem.message })
}
