//! The functions of one Runfile as the tools of this machine, in place of its manifests.

use super::{Local, identify, settings};
use crate::cli::runfile::Choice;
use crate::config::Environment;
use crate::error::Failure;
use crate::snapshot::Snapshot;

impl Local {
    pub fn of_runfile(choice: &Choice) -> Result<Self, Failure> {
        let env = Environment::read();
        if !env.problems.is_empty() {
            return Err(Failure::from_problems("the environment", &env.problems));
        }
        let snapshot = snapshot_of_runfile(choice)?;
        let identity = identify(snapshot.verifier.as_deref())?;
        Ok(Local::of(snapshot, identity))
    }
}

/// The snapshot as the Runfile is now. What is wrong with single functions is logged.
pub fn snapshot_of_runfile(choice: &Choice) -> Result<Snapshot, Failure> {
    let manifest = choice.manifest()?;
    let settings = settings(&Environment::read());
    let built = Snapshot::build_of_manifest(settings, manifest)
        .map_err(|failure| Failure::from_problems("the Runfile", &failure.problems))?;
    for warning in built.warnings {
        tracing::warn!("{warning}");
    }
    Ok(built.snapshot)
}
