//! SIGHUP: a new snapshot, whole, or the old one.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::UNIX_EPOCH;

use arc_swap::ArcSwap;
use tokio::sync::watch;
use tracing::{error, info, warn};
use zeroize::Zeroizing;

use super::notify;
use crate::catalog::mcp::{Listing, Listings};
use crate::catalog::{Catalog, Provider, listing_cache};
use crate::config::{self, Environment, Flags, Listener, Settings, Tls};
use crate::error::Problem;
use crate::keyring::{SessionKey, Source};
use crate::snapshot::{BuildFailure, Built, Snapshot};
use crate::telemetry::health;
use crate::telemetry::metrics::METRICS;

/// What became of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Published {
    News,
    NoNews,
    /// It is about a server that isn't there any more.
    TooLate,
}

pub struct Reloader {
    flags: Flags,
    env: Environment,
    current: Arc<ArcSwap<Snapshot>>,
    /// The one-shot key outlives its file here. Holding the lock also makes whoever builds a snapshot take turns.
    held: Mutex<Option<SessionKey>>,
    /// What servers said that they have.
    listings: Mutex<Listings>,
    /// Counts the reloads.
    generation: watch::Sender<u64>,
}

impl Reloader {
    pub fn new(
        flags: Flags,
        mut env: Environment,
        held: Option<SessionKey>,
        current: Arc<ArcSwap<Snapshot>>,
        listings: Listings,
    ) -> Self {
        env.warnings.clear(); // said once, at start
        Reloader {
            flags,
            env,
            current,
            held: Mutex::new(held),
            listings: Mutex::new(listings),
            generation: watch::Sender::new(0),
        }
    }

    /// Changes with every reload.
    pub fn generation(&self) -> watch::Receiver<u64> {
        self.generation.subscribe()
    }

    pub fn listing(&self, provider: &str) -> Option<Arc<Listing>> {
        self.listings().get(provider).cloned()
    }

    /// What a server has now becomes part of the snapshot, unless a reload has meanwhile put another in its place. Blocks while a reload builds.
    pub fn publish(&self, provider: &Provider, listing: &Arc<Listing>) -> Published {
        let _turn = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let current = self.current.load();
        let mut providers = current.catalog.providers().iter();
        let now = providers.find(|one| one.name == provider.name);
        let server = |one: &Provider| one.mcp().map(listing_cache::server_id);
        if now.and_then(|one| server(one)) != server(provider) {
            return Published::TooLate;
        }
        let mut listings = self.listings();
        let old = listings.insert(provider.name.clone(), listing.clone());
        if old.is_some_and(|old| old.tools == listing.tools) {
            return Published::NoNews;
        }
        self.current
            .store(Arc::new(current.with_listings(&listings)));
        Published::News
    }

    fn listings(&self) -> MutexGuard<'_, Listings> {
        self.listings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those that are still about the same servers; what is known of new ones is on disk.
    fn still_listed(&self, new: &Snapshot) -> Listings {
        let old = self.current.load();
        let server = |catalog: &Catalog, name: &str| {
            let provider = catalog.providers().iter().find(|one| one.name == name);
            provider
                .and_then(|one| one.mcp())
                .map(listing_cache::server_id)
        };
        let mut listings = listing_cache::load_all(&new.settings.ati_dir, &new.catalog);
        for (name, listing) in self.listings().iter() {
            let same = server(&old.catalog, name) == server(&new.catalog, name);
            if same && server(&new.catalog, name).is_some() {
                listings.insert(name.clone(), listing.clone());
            }
        }
        listings
    }

    /// On a thread of its own: files are read, which may block, and nothing waits for it, not even the end.
    pub fn spawn(this: &Arc<Self>) {
        let this = this.clone();
        let spawned = std::thread::Builder::new()
            .name("reload".into())
            .spawn(move || this.reload());
        if let Err(e) = spawned {
            METRICS.reloaded(false);
            error!(problems = %e, "reload failed, everything stays as it was");
        }
    }

    fn reload(&self) {
        notify::reloading();
        let done = self.swap();
        notify::ready(if done {
            "serving"
        } else {
            "serving; the last reload failed, see the log"
        });
    }

    /// Whether there is a new one now.
    fn swap(&self) -> bool {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        match self.build(held.as_ref()) {
            Ok(mut built) => {
                *held = built.session_key;
                for warning in &built.warnings {
                    warn!("{warning}");
                }
                observe(&built.snapshot, &built.warnings);
                METRICS.reloaded(true);
                let keyring = built.snapshot.keyring.source().as_str();
                let keys = built.snapshot.keyring.len();
                let providers = built.snapshot.catalog.providers().len();
                built.snapshot.adopt(&self.current.load());
                let old = self.current.load_full();
                let value = |snapshot: &Snapshot, name: &str| {
                    snapshot
                        .keyring
                        .get(name)
                        .map(|secret| secret.expose().to_vec())
                };
                health::forget(|name| {
                    let (was, is) = (value(&old, name), value(&built.snapshot, name));
                    is.is_some() && was.map(Zeroizing::new) == is.map(Zeroizing::new)
                });
                let listings = self.still_listed(&built.snapshot);
                let snapshot = built.snapshot.with_listings(&listings);
                let tools = snapshot.catalog.public_count();
                *self.listings() = listings;
                self.current.store(Arc::new(snapshot));
                self.generation.send_modify(|generation| *generation += 1);
                info!(keyring, keys, providers, tools, "reload done");
                true
            }
            Err(failure) => {
                // Its file is gone: losing the key too would make every later reload fail.
                if failure.session_key.is_some() {
                    *held = failure.session_key;
                }
                METRICS.reloaded(false);
                let problems: Vec<String> =
                    failure.problems.iter().map(ToString::to_string).collect();
                error!(
                    problems = problems.join("; "),
                    "reload failed, everything stays as it was"
                );
                false
            }
        }
    }

    fn build(&self, held: Option<&SessionKey>) -> Result<Built, BuildFailure> {
        let mut settings = config::resolve(&self.flags, &self.env).map_err(BuildFailure::from)?;
        let running = &self.current.load().settings;
        warn_about_restart(running, &settings);
        settings.listeners = reconcile(&running.listeners, settings.listeners);
        unreachable(&settings).map_err(BuildFailure::from)?;
        let built = Snapshot::build(settings, held)?;
        let problems = lost(&self.current.load(), &built.snapshot);
        if problems.is_empty() {
            Ok(built)
        } else {
            Err(BuildFailure {
                problems,
                warnings: Vec::new(),
                session_key: built.session_key,
            })
        }
    }
}

/// What listens is what was opened at the start. A listener takes new certificates from the settings where they still mean the same one.
fn reconcile(running: &[Listener], wanted: Vec<Listener>) -> Vec<Listener> {
    let same = |one: &Listener, other: &Listener| {
        one.name == other.name
            && one.address == other.address
            && one.tls.is_some() == other.tls.is_some()
    };
    let of = |at: &Listener| wanted.iter().find(|other| same(at, other));
    let tls = |at: &Listener| of(at).map_or_else(|| at.tls.clone(), |new| new.tls.clone());
    let kept = running.iter().map(|at| Listener {
        tls: tls(at),
        ..at.clone()
    });
    kept.collect()
}

/// The settings agree with themselves, but perhaps not with what was kept: a listener that goes on expecting PROXY headers needs somebody
/// who may send them.
fn unreachable(settings: &Settings) -> Result<(), Vec<Problem>> {
    let found = config::check_listeners(&settings.listeners, &settings.trusted_proxies);
    let say = |what: &String| Problem::new(format!("{what}; a restart is needed for that"));
    let problems: Vec<Problem> = found.iter().map(say).collect();
    if problems.is_empty() {
        Ok(())
    } else {
        Err(problems)
    }
}

/// A file that is missing for a moment must not open a door: what guards it goes only with a restart.
fn lost(old: &Snapshot, new: &Snapshot) -> Vec<Problem> {
    let mut problems = Vec::new();
    if old.verifier.is_some() && new.verifier.is_none() {
        problems.push(Problem::new(
            "the JWT keys are gone, and every caller would be let in; a restart is needed for that",
        ));
    }
    let guarded = |settings: &Settings, name: &str| {
        let of = settings.listeners.iter().find(|at| at.name == name);
        of.and_then(|at| at.tls.as_ref())
            .is_some_and(Tls::wants_certificates)
    };
    for name in new.certificates.keys() {
        if guarded(&old.settings, name) && !guarded(&new.settings, name) {
            problems.push(Problem::new(format!(
                "listener '{name}' would let callers in without a certificate; a restart is needed for that"
            )));
        }
    }
    for provider in new.catalog.lost_since(&old.catalog) {
        problems.push(Problem::new(format!(
            "the document of '{provider}' can't be read, and its tools would be lost"
        )));
    }
    let sealed = |source| matches!(source, Source::Sealed | Source::Persistent);
    let (was, is) = (old.keyring.source(), new.keyring.source());
    let emptied = was != Source::Empty && is == Source::Empty;
    if emptied || (sealed(was) && !sealed(is)) {
        problems.push(Problem::new(format!(
            "the keyring was {}, and now it is {}; a restart is needed for that",
            was.as_str(),
            is.as_str()
        )));
    }
    problems
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
    for (listener, certificate) in snapshot.certificates.iter() {
        METRICS.certificate_expires(listener, certificate.expires);
    }
}

fn warn_about_restart(old: &Settings, new: &Settings) {
    let where_and_how = |settings: &Settings| -> Vec<Listener> {
        // Which certificates these are is no matter.
        let of = |at: &Listener| Listener {
            tls: at.tls.as_ref().map(|_| Tls::default()),
            ..at.clone()
        };
        settings.listeners.iter().map(of).collect()
    };
    let changed = [
        (
            "server.bind, server.port or a listener",
            where_and_how(old) != where_and_how(new),
        ),
        (
            "server.upgrade_socket",
            old.upgrade_socket != new.upgrade_socket,
        ),
        ("admin.listen", old.admin != new.admin),
        ("server.workers", old.workers != new.workers),
        ("egress.ca_file", old.egress.ca_file != new.egress.ca_file),
    ];
    for (key, _) in changed.iter().filter(|(_, changed)| *changed) {
        warn!("{key} has changed; a restart is needed for that");
    }
}
