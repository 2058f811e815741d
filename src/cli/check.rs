//! `ati check`: a dry run of loading everything.

use serde_json::json;

use super::{Format, mcp_servers, output, permissions, programs, stored};
use crate::config::{self, Environment, Flags, Settings};
use crate::error::{Code, Failure, Problem, Weight};
use crate::snapshot::Snapshot;

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    flags: Flags,

    /// Fail on warnings too, but for signature modes log and warn, which are steps of a roll-out
    #[arg(long)]
    strict: bool,
}

pub fn run(args: &Args, format: Format) -> Result<u8, Failure> {
    let (problems, warnings, summary) = load(&args.flags);
    let tolerated = |warning: &Problem| !args.strict || warning.weight == Weight::Tolerated;
    let ok = problems.is_empty() && warnings.iter().all(tolerated);
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
    let (problems, settings) = match config::resolve(flags, &env) {
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
    let ati_dir = settings.ati_dir.clone();
    let by_default = !problems.is_empty();
    let (problems, mut warnings, summary) = build(settings, problems);
    // What default settings leave open isn't what the settings would.
    warnings.retain(|warning| !by_default || warning.advice.is_none());
    // The keyring's own files were looked at when they were loaded.
    let known: Vec<_> = warnings.iter().filter_map(|it| it.file.clone()).collect();
    let faults = permissions::faults(&ati_dir).into_iter();
    warnings.extend(
        faults
            .filter(|fault| !known.contains(&fault.path))
            .map(|fault| {
                let message = format!("{} ({})", fault.message, fault.fix);
                Problem::new(message).file(&fault.path)
            }),
    );
    (problems, warnings, summary)
}

fn build(
    settings: Settings,
    mut problems: Vec<Problem>,
) -> (Vec<Problem>, Vec<Problem>, serde_json::Value) {
    let stored = stored::load(&settings).unwrap_or_else(|problem| {
        problems.push(problem);
        None
    });
    let stored = stored.unwrap_or_default();
    match Snapshot::build(settings, &crate::keyring::KeptKeys::default(), &stored) {
        Ok(mut built) if problems.is_empty() => {
            let snapshot = &built.snapshot;
            let unreadable = stored::faults(&stored);
            let unreadable = unreadable.map(|fault| Problem::new(fault).key("ATI_MASTER_KEY"));
            let mut faults = mcp_servers::faults(snapshot);
            faults.extend(programs::faults(snapshot));
            built
                .warnings
                .extend(faults.iter().map(|fault| fault.problem()).chain(unreadable));
            let summary = json!({
                "ati_dir": snapshot.settings.ati_dir,
                "keyring": snapshot.keyring.source().as_str(),
                "keys": snapshot.keyring.len(),
                "auth": snapshot.auth(),
                "providers": snapshot.catalog.providers().len(),
                "tools": snapshot.catalog.public_count(),
                "skills": snapshot.skills.len(),
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
    json!({
        "file": problem.file,
        "line": problem.line,
        "key": problem.key,
        "message": problem.message,
    })
}
