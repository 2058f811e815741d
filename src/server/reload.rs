//! SIGHUP: a new snapshot, whole, or the old one.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::UNIX_EPOCH;

use arc_swap::ArcSwap;
use tracing::{error, info, warn};

use crate::config::{self, Environment, Flags, Settings};
use crate::error::Problem;
use crate::keyring::SessionKey;
use crate::snapshot::{Built, Snapshot};
use crate::telemetry::metrics::METRICS;

pub struct Reloader {
    flags: Flags,
    env: Environment,
    current: Arc<ArcSwap<Snapshot>>,
    /// The one-shot key outlives its file here. Holding the lock also makes reloads take turns.
    held: Mutex<Option<SessionKey>>,
}

impl Reloader {
    pub fn new(
        flags: Flags,
        env: Environment,
        held: Option<SessionKey>,
        current: Arc<ArcSwap<Snapshot>>,
    ) -> Self {
        Reloader {
            flags,
            env,
            current,
            held: Mutex::new(held),
        }
    }

    /// Off the request path and off the control thread: files are read, keys are derived.
    pub fn spawn(this: &Arc<Self>) {
        let this = this.clone();
        tokio::task::spawn_blocking(move || this.reload());
    }

    fn reload(&self) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        match self.build(held.as_ref()) {
            Ok(built) => {
                *held = built.held;
                for warning in &built.warnings {
                    warn!("{warning}");
                }
                warn_about_restart(&self.current.load().settings, &built.snapshot.settings);
                observe(&built.snapshot, &built.warnings);
                METRICS.reloaded(true);
                let keyring = built.snapshot.keyring.source().as_str();
                let keys = built.snapshot.keyring.len();
                let providers = built.snapshot.catalog.providers().len();
                self.current.store(Arc::new(built.snapshot));
                info!(keyring, keys, providers, "reload done");
            }
            Err(problems) => {
                METRICS.reloaded(false);
                let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
                error!(
                    problems = problems.join("; "),
                    "reload failed, everything stays as it was"
                );
            }
        }
    }

    fn build(&self, held: Option<&SessionKey>) -> Result<Built, Vec<Problem>> {
        let settings = config::resolve(&self.flags, &self.env)?;
        Snapshot::build(settings, held)
    }
}

/// What a snapshot says about itself in the metrics.
pub fn observe(snapshot: &Snapshot, warnings: &[Problem]) {
    let missing = warnings
        .iter()
        .filter_map(|warning| warning.missing_credential.as_deref());
    METRICS.set_missing_credentials(missing);
    let loaded = snapshot
        .keyring_loaded
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    METRICS.keyring_loaded.set(loaded.as_secs_f64());
}

fn warn_about_restart(old: &Settings, new: &Settings) {
    let changed = [
        ("server.bind or server.port", old.edge != new.edge),
        ("admin.listen", old.admin != new.admin),
        ("server.workers", old.workers != new.workers),
        ("egress.ca_file", old.egress.ca_file != new.egress.ca_file),
    ];
    for (key, _) in changed.iter().filter(|(_, changed)| *changed) {
        warn!("{key} has changed; a restart is needed for that");
    }
}
