//! Reload on SIGHUP: a new snapshot replaces the old one as a whole, or the old one stays.

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::watch;
use tracing::{error, info, info_span};
use zeroize::Zeroizing;

use super::announce::log_warnings;
use super::notify;
use super::reload_checks::warn_about_restart;
use super::reload_checks::{check_kept_listeners, keep_listeners, lost_protections};
use crate::catalog::mcp::{Listing, Listings};
use crate::catalog::{Catalog, Provider, listing_cache};
use crate::config::{self, Environment, Flags};
use crate::error::Problem;
use crate::keyring::SessionKey;
use crate::snapshot::{BuildFailure, Built, Snapshot};
use crate::telemetry::health;
use crate::telemetry::metrics::METRICS;

/// What became of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Published {
    Changed,
    Unchanged,
    /// A reload has removed its server, or put another in its place.
    Outdated,
}

/// Makes the snapshots of a running process.
pub struct Reloader {
    flags: Flags,
    env: Environment,
    current: Arc<ArcSwap<Snapshot>>,
    /// Held while a snapshot is built and swapped in, so that one is built at a time and `current`
    /// doesn't change meanwhile.
    build_lock: Mutex<BuildState>,
    /// What MCP servers have listed, by provider.
    listings: Mutex<Listings>,
    /// Counts the reloads.
    generation: watch::Sender<u64>,
}

/// What one build hands on to the next.
struct BuildState {
    /// The one-shot key of the keyring. Its file is gone once it has been read.
    session_key: Option<SessionKey>,
}

impl Reloader {
    pub fn new(
        flags: Flags,
        mut env: Environment,
        session_key: Option<SessionKey>,
        current: Arc<ArcSwap<Snapshot>>,
        listings: Listings,
    ) -> Self {
        // They were logged at the start.
        env.warnings.clear();
        Reloader {
            flags,
            env,
            current,
            build_lock: Mutex::new(BuildState { session_key }),
            listings: Mutex::new(listings),
            generation: watch::Sender::new(0),
        }
    }

    /// Changes with every reload.
    pub fn generation(&self) -> watch::Receiver<u64> {
        self.generation.subscribe()
    }

    pub fn listing(&self, provider: &str) -> Option<Arc<Listing>> {
        self.listings.lock().get(provider).cloned()
    }

    /// Swaps in a snapshot with this listing, unless a reload has meanwhile removed or replaced the
    /// provider. Blocks while a reload builds.
    pub fn publish(&self, provider: &Provider, listing: &Arc<Listing>) -> Published {
        let _building = self.build_lock.lock();
        let current = self.current.load_full();
        let server = provider.mcp().map(listing_cache::server_id);
        if mcp_server(&current.catalog, &provider.name) != server {
            return Published::Outdated;
        }
        let mut listings = self.listings.lock();
        let old = listings.insert(provider.name.clone(), listing.clone());
        if old.is_some_and(|old| old.tools == listing.tools) {
            return Published::Unchanged;
        }
        self.current
            .store(Arc::new(current.with_listings(&listings)));
        Published::Changed
    }

    /// Reloads on a thread of its own: files are read, which may block. The end of the process
    /// doesn't wait for it.
    pub fn spawn(this: &Arc<Self>) {
        let this = this.clone();
        let spawned = std::thread::Builder::new()
            .name("reload".into())
            .spawn(move || this.reload());
        if let Err(e) = spawned {
            METRICS.reloaded(false);
            error!(error = %e, "reload failed, everything stays as it was");
        }
    }

    fn reload(&self) {
        notify::reloading();
        let mut state = self.build_lock.lock();
        let _span = info_span!("reload", generation = *self.generation.borrow() + 1).entered();
        let old = self.current.load_full();
        let status = match self.build(&old, state.session_key.as_ref()) {
            Ok(built) => {
                self.swap(&old, built, &mut state);
                METRICS.reloaded(true);
                "serving"
            }
            Err(failure) => {
                // Without the key, whose file is gone, every later reload would fail too.
                if failure.session_key.is_some() {
                    state.session_key = failure.session_key;
                }
                METRICS.reloaded(false);
                let problems: Vec<String> =
                    failure.problems.iter().map(ToString::to_string).collect();
                let problems = problems.join("; ");
                error!(problems, "reload failed, everything stays as it was");
                "serving; the last reload failed, see the log"
            }
        };
        notify::ready(status);
    }

    /// Builds a snapshot from the files as they are now, and refuses it where it would do less than
    /// the old one to keep callers out.
    fn build(
        &self,
        old: &Snapshot,
        session_key: Option<&SessionKey>,
    ) -> Result<Built, BuildFailure> {
        let mut settings = config::resolve(&self.flags, &self.env).map_err(BuildFailure::from)?;
        warn_about_restart(&old.settings, &settings);
        settings.listeners = keep_listeners(&old.settings.listeners, &settings.listeners);
        check_kept_listeners(&settings).map_err(BuildFailure::from)?;
        let built = Snapshot::build(settings, session_key)?;
        let problems = lost_protections(old, &built.snapshot);
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

    /// Replaces the old snapshot, and keeps of it what is still valid.
    fn swap(&self, old: &Snapshot, mut built: Built, state: &mut BuildState) {
        state.session_key = built.session_key.take();
        log_warnings(&built.warnings);
        built.snapshot.adopt(old);
        forget_changed_credentials(old, &built.snapshot);
        let listings = self.valid_listings(old, &built.snapshot);
        let snapshot = Arc::new(built.snapshot.with_listings(&listings));
        *self.listings.lock() = listings;
        self.current.store(snapshot.clone());
        self.generation.send_modify(|generation| *generation += 1);
        record_metrics(&snapshot, &built.warnings);
        info!(
            keyring = snapshot.keyring.source().as_str(),
            keys = snapshot.keyring.len(),
            providers = snapshot.catalog.providers().len(),
            tools = snapshot.catalog.public_count(),
            "reload done"
        );
    }

    /// The listings of servers that are the same as before; those of new servers from the cache on
    /// disk.
    fn valid_listings(&self, old: &Snapshot, new: &Snapshot) -> Listings {
        let mut listings = listing_cache::load_all(&new.settings.ati_dir, &new.catalog);
        for (name, listing) in self.listings.lock().iter() {
            let server = mcp_server(&new.catalog, name);
            if server.is_some() && server == mcp_server(&old.catalog, name) {
                listings.insert(name.clone(), listing.clone());
            }
        }
        listings
    }
}

/// What identifies the MCP server of a provider.
fn mcp_server(catalog: &Catalog, provider: &str) -> Option<String> {
    let mut providers = catalog.providers().iter();
    let provider = providers.find(|one| one.name == provider)?;
    provider.mcp().map(listing_cache::server_id)
}

/// Upstreams' verdicts are about a credential's value: a credential with a new value starts afresh.
fn forget_changed_credentials(old: &Snapshot, new: &Snapshot) {
    let value = |snapshot: &Snapshot, name: &str| {
        let secret = snapshot.keyring.get(name)?;
        Some(Zeroizing::new(secret.expose().to_vec()))
    };
    health::forget(|name| {
        let now = value(new, name);
        now.is_some() && now == value(old, name)
    });
}

/// The metrics that describe a snapshot.
pub fn record_metrics(snapshot: &Snapshot, warnings: &[Problem]) {
    let missing = warnings
        .iter()
        .filter_map(|warning| warning.missing_credential.as_deref());
    METRICS.set_missing_credentials(missing);
    let loaded = snapshot
        .keyring_loaded
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    METRICS.keyring_loaded(loaded.as_secs_f64());
    for (listener, certificate) in snapshot.certificates.iter() {
        METRICS.certificate_expires(listener, certificate.expires);
    }
}
