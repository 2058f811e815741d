//! Reload on SIGHUP: a new snapshot replaces the old one as a whole, or the old one stays.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, UNIX_EPOCH};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::watch;
use tracing::{error, info, info_span};
use zeroize::Zeroizing;

use super::announce::log_warnings;
use super::notify;
use super::reload_checks::warn_about_restart;
use super::reload_checks::{check_kept_listeners, keep_listeners, lost_protections};
use super::timed;
use crate::catalog::mcp::{Listing, Listings};
use crate::catalog::{Catalog, Provider, listing_cache};
use crate::clock::unix_now;
use crate::config::{self, Environment, Flags};
use crate::credential::Lookup;
use crate::error::Problem;
use crate::keyring::KeptKeys;
use crate::keyring::stored::StoredCredentials;
use crate::snapshot::{BuildFailure, Built, Snapshot};
use crate::telemetry::health;
use crate::telemetry::metrics::METRICS;
use crate::telemetry::otel;

/// How long a reload may take to read and check everything.
const LONGEST_BUILD: Duration = Duration::from_secs(30);
/// Builds that may hang at the same time. Each one is a thread.
const MOST_OVERDUE: usize = 8;

/// What became of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Published {
    Changed,
    Unchanged,
    /// A reload has removed its server, or put another in its place.
    Outdated,
}

/// What became of a reload, as `ati reload` and `ati status` tell it.
#[derive(Debug, Clone, Serialize)]
pub struct ReloadReport {
    /// `ok`, or `failed`: everything stays as it was.
    pub outcome: &'static str,
    /// Unix seconds.
    pub at: u64,
    pub ms: u64,
    #[serde(flatten)]
    pub loaded: Option<Loaded>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
}

impl ReloadReport {
    fn log(&self) {
        let ms = self.ms;
        match &self.loaded {
            Some(loaded) => info!(
                keyring = loaded.keyring,
                keys = loaded.keys,
                providers = loaded.providers,
                tools = loaded.tools,
                routes = loaded.routes,
                skills = loaded.skills,
                ms,
                "reload done"
            ),
            None => error!(
                problems = self.problems.join("; "),
                ms, "reload failed, everything stays as it was"
            ),
        }
    }
}

/// What a snapshot holds.
#[derive(Debug, Clone, Serialize)]
pub struct Loaded {
    pub tools: usize,
    pub providers: usize,
    pub routes: usize,
    pub skills: usize,
    pub keyring: &'static str,
    pub keys: usize,
}

impl Loaded {
    pub fn of(snapshot: &Snapshot) -> Self {
        Loaded {
            tools: snapshot.catalog.public_count(),
            providers: snapshot.catalog.providers().len(),
            routes: snapshot.routes.len(),
            skills: snapshot.skills.len(),
            keyring: snapshot.keyring.source().as_str(),
            keys: snapshot.keyring.len(),
        }
    }
}

/// Makes the snapshots of a running process.
pub struct Reloader {
    flags: Flags,
    env: Environment,
    current: Arc<ArcSwap<Snapshot>>,
    /// Held during a reload, so that one is made at a time.
    turn: Mutex<()>,
    /// Held while a snapshot is swapped in, so that `current` doesn't change meanwhile. Not while
    /// one is built: a build that hangs on a file must hold up nothing else.
    swapping: Mutex<()>,
    /// The one-shot keys of the keyring. Builds add to them.
    kept_keys: KeptKeys,
    /// Builds under way, those that took too long included.
    building: AtomicUsize,
    /// What MCP servers have listed, by provider.
    listings: Mutex<Listings>,
    /// Counts the reloads.
    generation: watch::Sender<u64>,
    last_report: Mutex<Option<ReloadReport>>,
}

impl Reloader {
    pub fn new(
        flags: Flags,
        mut env: Environment,
        kept_keys: KeptKeys,
        current: Arc<ArcSwap<Snapshot>>,
        listings: Listings,
    ) -> Self {
        // They were logged at the start.
        env.warnings.clear();
        Reloader {
            flags,
            env,
            current,
            turn: Mutex::new(()),
            swapping: Mutex::new(()),
            kept_keys,
            building: AtomicUsize::new(0),
            listings: Mutex::new(listings),
            generation: watch::Sender::new(0),
            last_report: Mutex::default(),
        }
    }

    /// Changes with every reload.
    pub fn generation(&self) -> watch::Receiver<u64> {
        self.generation.subscribe()
    }

    /// What became of the last reload. None before the first.
    pub fn last_report(&self) -> Option<ReloadReport> {
        self.last_report.lock().clone()
    }

    pub fn listing(&self, provider: &str) -> Option<Arc<Listing>> {
        self.listings.lock().get(provider).cloned()
    }

    /// Swaps in a snapshot with this listing, unless a reload has meanwhile removed or replaced the
    /// provider.
    pub fn publish(&self, provider: &Provider, listing: &Arc<Listing>) -> Published {
        let _swapping = self.swapping.lock();
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

    /// Swaps in a snapshot with these credentials of the database.
    pub fn publish_stored(&self, stored: StoredCredentials) -> Arc<StoredCredentials> {
        let _swapping = self.swapping.lock();
        let old = self.current.load_full();
        let stored = Arc::new(stored.keeping_readable(old.keyring.stored()));
        let new = Arc::new(old.with_stored(stored.clone()));
        forget_changed_credentials(&old, &new);
        self.current.store(new);
        stored
    }

    /// Reloads on a thread of its own: files are read, which may block. The end of the process
    /// doesn't wait for it.
    pub fn spawn(this: &Arc<Self>) {
        let this = this.clone();
        let spawned = std::thread::Builder::new()
            .name("reload".into())
            .spawn(move || {
                this.reload();
            });
        if let Err(e) = spawned {
            METRICS.reloaded(false);
            error!(error = %e, "reload failed, everything stays as it was");
        }
    }

    /// Blocks while files are read, and while another reload runs.
    pub fn reload(self: &Arc<Self>) -> ReloadReport {
        let _turn = self.turn.lock();
        let started = Instant::now();
        notify::reloading();
        let _span = info_span!("reload", generation = *self.generation.borrow() + 1).entered();
        let old = self.current.load_full();
        let (loaded, problems) = match self.build_in_time(&old) {
            Ok(built) => (Some(Loaded::of(&self.swap(built))), Vec::new()),
            Err(problems) => (None, problems.iter().map(ToString::to_string).collect()),
        };
        let report = ReloadReport {
            outcome: if loaded.is_some() { "ok" } else { "failed" },
            at: unix_now(),
            loaded,
            ms: started.elapsed().as_millis() as u64,
            problems,
        };
        // Before it is counted: who sees the count may ask for the report.
        *self.last_report.lock() = Some(report.clone());
        METRICS.reloaded(report.loaded.is_some());
        otel::work("reload", started.elapsed(), report.loaded.is_some());
        report.log();
        notify::ready(match report.loaded {
            Some(_) => "serving",
            None => "serving; the last reload failed, see the log",
        });
        report
    }

    /// Builds on a thread of its own, which is given up after [`LONGEST_BUILD`]: a file system that
    /// hangs must not hold up later reloads.
    fn build_in_time(self: &Arc<Self>, old: &Arc<Snapshot>) -> Result<NewParts, Vec<Problem>> {
        // One reload is made at a time: what is still being built here is overdue.
        let overdue = self.building.load(Ordering::Relaxed);
        if overdue >= MOST_OVERDUE {
            let message = format!("{overdue} earlier reloads still wait for a file");
            return Err(vec![Problem::new(message)]);
        }
        let (building, old) = (Building::begin(self), old.clone());
        let build = move || building.0.build(&old);
        match timed::run(LONGEST_BUILD, build, drop) {
            Ok(built) => built.map_err(|failure| failure.problems),
            Err(e) => Err(vec![Problem::new("no new snapshot").because(&e)]),
        }
    }

    /// Builds a snapshot from the files as they are now, and refuses it where it would do less than
    /// the old one to keep callers out.
    fn build(&self, old: &Snapshot) -> Result<NewParts, BuildFailure> {
        let mut settings = config::resolve(&self.flags, &self.env).map_err(BuildFailure::from)?;
        warn_about_restart(&old.settings, &settings);
        settings.listeners = keep_listeners(&old.settings.listeners, &settings.listeners);
        check_kept_listeners(&settings).map_err(BuildFailure::from)?;
        let built = Snapshot::build(settings, &self.kept_keys, old.keyring.stored())?;
        let problems = lost_protections(old, &built.snapshot);
        if !problems.is_empty() {
            return Err(BuildFailure::from(problems));
        }
        let Snapshot {
            settings, catalog, ..
        } = &built.snapshot;
        Ok(NewParts {
            cached: listing_cache::load_all(&settings.ati_dir, catalog),
            built,
        })
    }

    /// Replaces the old snapshot, and keeps of it what is still valid. Reads no file: what waits
    /// for the locks must not wait for a disk.
    fn swap(&self, new: NewParts) -> Arc<Snapshot> {
        let NewParts { mut built, cached } = new;
        let _swapping = self.swapping.lock();
        let old = &*self.current.load_full();
        log_warnings(&built.warnings);
        built.snapshot.adopt(old);
        // The database may have changed while files were read.
        let stored = old.keyring.stored();
        if !Arc::ptr_eq(stored, built.snapshot.keyring.stored()) {
            built.snapshot = built.snapshot.with_stored(stored.clone());
        }
        forget_changed_credentials(old, &built.snapshot);
        let listings = self.valid_listings(cached, old, &built.snapshot);
        let snapshot = Arc::new(built.snapshot.with_listings(&listings));
        *self.listings.lock() = listings;
        self.current.store(snapshot.clone());
        self.generation.send_modify(|generation| *generation += 1);
        record_metrics(&snapshot, &built.warnings);
        snapshot
    }

    /// The listings of servers that are the same as before; those of new servers from the cache on
    /// disk.
    fn valid_listings(&self, cached: Listings, old: &Snapshot, new: &Snapshot) -> Listings {
        let mut listings = cached;
        for (name, listing) in self.listings.lock().iter() {
            let server = mcp_server(&new.catalog, name);
            if server.is_some() && server == mcp_server(&old.catalog, name) {
                listings.insert(name.clone(), listing.clone());
            }
        }
        listings
    }
}

/// What a reload has read, and has yet to swap in.
struct NewParts {
    built: Built,
    /// The listings on disk.
    cached: Listings,
}

/// A build under way, counted until it ends, however it ends.
struct Building(Arc<Reloader>);

impl Building {
    fn begin(reloader: &Arc<Reloader>) -> Self {
        reloader.building.fetch_add(1, Ordering::Relaxed);
        Building(reloader.clone())
    }
}

impl Drop for Building {
    fn drop(&mut self) {
        self.0.building.fetch_sub(1, Ordering::Relaxed);
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
        let lookup = Lookup::tool(&snapshot.keyring, None);
        let secret = lookup.get(name).ok().flatten()?;
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
