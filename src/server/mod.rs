//! The server process. `prepare` acquires what it needs, `run` lives its life.
//!
//! | Room | What is in it |
//! |---|---|
//! | `listen` | sockets, accept loops, connections, worker threads |
//! | `lifecycle` | start, reload on SIGHUP, hand-over on SIGUSR2, drain on SIGTERM, systemd |
//! | `background` | discovery of MCP tools, saving of rate-limit counters, following the database |
//! | `admin` | the admin listener's answers |
//! | `control` | what `ati status` and `ati reload` ask of a running process |
//!
//! Pingora's own server isn't used: it binds late, sleeps through its grace period and can't tell
//! which port it got. Its proxy is driven by ati's accept loops instead, one proxy per worker
//! thread, so that a connection and its upstream connections stay on one core.

mod admin;
mod background;
mod control;
mod lifecycle;
mod listen;

use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use arc_swap::ArcSwap;
use tokio::sync::watch;
use tracing::warn;

pub use control::{ask_reload, ask_status};
pub use lifecycle::handover::{NamedSocket, wire};
pub use listen::bind::Addresses;

use crate::api::Services;
use crate::api::providers::ProviderStates;
use crate::catalog::listing_cache;
use crate::config::{self, Environment, Flags, OtlpVariables, Settings};
use crate::error::{Code, Failure};
use crate::gateway::Load;
use crate::keyring::KeptKeys;
use crate::snapshot::Snapshot;
use crate::store::{Store, Tables};
use background::credentials;
use lifecycle::announce::log_warnings;
use lifecycle::handover::{self, InheritedListeners, Predecessor, UPGRADE};
use lifecycle::relaunch;
use lifecycle::reload::{self, Reloader};
use listen::bind::Listeners;
use listen::limits;

/// A server that has everything it needs, its sockets included, and hasn't begun.
pub struct Server {
    listeners: Listeners,
    /// Where a successor asks for the listeners. None: this process can't be upgraded.
    upgrade_socket: Option<UnixListener>,
    predecessor: Option<Predecessor>,
    addresses: Addresses,
    reloader: Arc<Reloader>,
    current: Arc<ArcSwap<Snapshot>>,
    store: Option<Arc<Store>>,
    most_connections: usize,
    /// None where no spans and metrics are exported.
    otlp: Option<OtlpVariables>,
}

/// Where the listeners come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    Fresh,
    /// From the process that runs now, which ends once this one serves.
    Upgrade,
}

/// What the parts of a running server share.
struct Shared {
    current: Arc<ArcSwap<Snapshot>>,
    reloader: Arc<Reloader>,
    load: Arc<Load>,
    services: Arc<Services>,
    /// The MCP servers, for operators.
    provider_states: Arc<ProviderStates>,
    /// As many as the limit on open files allows, whatever the settings say.
    most_connections: usize,
    /// Connections of callers, over all listeners.
    open_connections: AtomicUsize,
    /// False from the start of a drain.
    ready: AtomicBool,
    /// True while a successor may be about to accept.
    pause_accepting: watch::Sender<bool>,
    /// True from the start of a drain.
    shutdown: watch::Receiver<bool>,
}

impl Server {
    /// Everything that can go wrong goes wrong here: settings, keys, manifests, ports.
    pub fn prepare(flags: Flags, env: Environment, start: Start) -> Result<Self, Failure> {
        let failed = |problems: Vec<_>| Failure::from_problems("can't start", &problems);
        let mut settings = config::resolve(&flags, &env).map_err(failed)?;
        let (predecessor, mut inherited) = match start {
            Start::Fresh => (None, InheritedListeners::default()),
            Start::Upgrade => {
                let invitation = relaunch::received_invitation();
                let invitation = invitation.as_ref().map(|text| text.as_str());
                let (predecessor, inherited) =
                    Predecessor::request_listeners(&settings.upgrade_socket, invitation)?;
                // Read again: the predecessor forwards reloads from now on, and none before.
                settings = config::resolve(&flags, &env).map_err(failed)?;
                (Some(predecessor), inherited)
            }
        };
        // Before the keyring: a port that is taken must not cost the one-shot key.
        let listeners = Listeners::open(&settings, &mut inherited)?;
        let upgrade_socket = upgrade_socket(&settings, &mut inherited);
        let addresses = listeners.addresses()?;
        // Before the keyring, too, for the same reason.
        let store = open_store(&settings)?;
        let credentials = match &store {
            Some(store) => Some(load_credentials(store, &settings)?),
            None => None,
        };
        let stored = credentials.as_ref().map(|it| it.stored.clone());
        let keys = settings.master_keys.clone();
        let kept = KeptKeys::default();
        let built = Snapshot::build(settings, &kept, &stored.unwrap_or_default())
            .map_err(|failure| failed(failure.problems))?;
        log_warnings(&built.warnings);
        let most_connections = limits::raise_connection_limit();
        let wanted = built.snapshot.settings.limits.connections;
        if wanted > most_connections {
            warn!(
                "limits.connections is {wanted}, but open files allow {most_connections} (ulimit -n)"
            );
        }
        reload::record_metrics(&built.snapshot, &built.warnings);
        let listings =
            listing_cache::load_all(&built.snapshot.settings.ati_dir, &built.snapshot.catalog);
        let snapshot = built.snapshot.with_listings(&listings);
        let current = Arc::new(ArcSwap::from_pointee(snapshot));
        let otlp = env.otlp.clone();
        let reloader = Arc::new(Reloader::new(flags, env, kept, current.clone(), listings));
        if let (Some(store), Some(loaded)) = (&store, &credentials) {
            credentials::follow(store, loaded, keys, reloader.clone());
        }
        Ok(Server {
            listeners,
            upgrade_socket,
            predecessor,
            addresses,
            reloader,
            current,
            store,
            most_connections,
            otlp,
        })
    }

    pub fn addresses(&self) -> &Addresses {
        &self.addresses
    }
}

/// The store that is configured. One that can't be used stops the start: keys that were issued
/// would be refused.
fn open_store(settings: &Settings) -> Result<Option<Arc<Store>>, Failure> {
    let Some(database) = &settings.database_url else {
        return Ok(None);
    };
    let tables = match settings.migrate {
        true => Tables::Migrate,
        false => Tables::Check,
    };
    Store::open(database, tables)
        .map(|store| Some(Arc::new(store)))
        .map_err(|e| {
            Failure::new(Code::ExecutionFailed, "can't start without the store").because(e)
        })
}

/// Customers' credentials. Without them, a customer's calls would be made with those of all.
fn load_credentials(store: &Store, settings: &Settings) -> Result<credentials::Loaded, Failure> {
    credentials::load(store, &settings.master_keys).map_err(|e| {
        let message = "can't start without the credentials of the store";
        Failure::new(Code::ExecutionFailed, message).because(e)
    })
}

/// The upgrade socket, inherited or bound. Without it everything but an upgrade works, so a failure
/// is only logged, and the socket is tried again later.
fn upgrade_socket(settings: &Settings, inherited: &mut InheritedListeners) -> Option<UnixListener> {
    let path = &settings.upgrade_socket;
    if let Some(socket) = inherited.take(UPGRADE, &format!("unix:{}", path.display())) {
        return Some(socket.into());
    }
    match handover::bind_upgrade_socket(path) {
        Ok(socket) => Some(socket),
        Err(e) => {
            let causes = e.chain().join(": ");
            warn!(
                error = %e,
                causes, "this process can't be upgraded until the upgrade socket is free"
            );
            None
        }
    }
}
