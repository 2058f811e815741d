//! What listens, and how it lives: bind, serve, reload on SIGHUP, hand over on SIGUSR2, drain on SIGTERM.
//!
//! Pingora's own server isn't used: it binds late, sleeps through its grace period and can't say which port it got. Its proxy is
//! driven by our accept loop instead, one proxy per worker thread, so that a connection and its upstream stay on one core.

mod accept;
mod admin;
mod connection;
mod discovery;
mod downstream;
mod drain;
mod handover;
mod http2;
mod limits;
mod listen;
mod notify;
mod proxy_protocol;
mod rates;
mod relaunch;
mod reload;
mod workers;

use std::collections::BTreeMap;
use std::future::Future;
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use arc_swap::ArcSwap;
use tokio::sync::{mpsc, watch};
use tracing::{error, info, warn};

pub use listen::Addresses;

use crate::api::Services;
use crate::catalog::listing_cache;
use crate::config::{self, Environment, Flags, Settings};
use crate::error::{Code, Failure};
use crate::exec;
use crate::exec::SharedState;
use crate::files;
use crate::gateway::Load;
use crate::snapshot::Snapshot;
use crate::telemetry;
use crate::telemetry::audit::Audit;
use crate::telemetry::metrics::METRICS;
use drain::Event;
use handover::{Estate, Inherited, Predecessor};
use listen::{Listeners, UPGRADE};
use relaunch::Relaunch;
use reload::Reloader;

/// A server that has everything it needs, its sockets included, and hasn't begun.
pub struct Server {
    listeners: Listeners,
    /// Where a successor asks, unless that can't be had.
    upgrade: Option<UnixListener>,
    predecessor: Option<Predecessor>,
    addresses: Addresses,
    reloader: Arc<Reloader>,
    current: Arc<ArcSwap<Snapshot>>,
    most_connections: usize,
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
    load: Arc<Load>,
    services: Arc<Services>,
    /// How MCP servers are.
    states: discovery::States,
    /// As many as there are descriptors for, whatever the settings say.
    most_connections: usize,
    /// Connections of callers, through whichever listener.
    open: AtomicUsize,
    /// False from the start of a drain.
    ready: AtomicBool,
    /// Whether nobody is accepted: a successor may be about to.
    pause: watch::Sender<bool>,
    shutdown: watch::Receiver<bool>,
}

impl Server {
    /// Everything that can go wrong goes wrong here: settings, keys, manifests, ports.
    pub fn prepare(flags: Flags, env: Environment, start: Start) -> Result<Self, Failure> {
        let failed = |problems: Vec<_>| Failure::from_problems("can't start", &problems);
        let mut settings = config::resolve(&flags, &env).map_err(failed)?;
        let (predecessor, mut inherited) = match start {
            Start::Fresh => (None, Inherited::default()),
            Start::Upgrade => {
                let (predecessor, inherited) = Predecessor::ask(&settings.upgrade_socket)?;
                // Again: the old one tells us of reloads from now on, and of none before.
                settings = config::resolve(&flags, &env).map_err(failed)?;
                (Some(predecessor), inherited)
            }
        };
        // Before the keyring: a port that is taken must not cost the one-shot key.
        let listeners = Listeners::open(&settings, &mut inherited)?;
        let upgrade = upgrade_socket(&settings, &mut inherited);
        let addresses = listeners.addresses()?;
        let built = Snapshot::build(settings, None).map_err(|failure| failed(failure.problems))?;
        for warning in &built.warnings {
            warn!("{warning}");
        }
        let most_connections = limits::connections();
        let wanted = built.snapshot.settings.limits.connections;
        if wanted > most_connections {
            warn!(
                "limits.connections is {wanted}, but open files allow {most_connections} (ulimit -n)"
            );
        }
        reload::observe(&built.snapshot, &built.warnings);
        let known =
            listing_cache::load_all(&built.snapshot.settings.ati_dir, &built.snapshot.catalog);
        let current = Arc::new(ArcSwap::from_pointee(built.snapshot.with_listings(&known)));
        Ok(Server {
            listeners,
            upgrade,
            predecessor,
            addresses,
            reloader: Arc::new(Reloader::new(
                flags,
                env,
                built.session_key,
                current.clone(),
                known,
            )),
            current,
            most_connections,
        })
    }

    pub fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// Serve until SIGTERM, SIGINT, `stop` or a successor, then drain.
    pub fn run(self, stop: impl Future<Output = ()>) -> Result<(), Failure> {
        let relaunch = Relaunch::remember();
        let (shutdown_sender, shutdown) = watch::channel(false);
        let settings = self.current.load().settings.clone();
        let services = Arc::new(Services {
            runtime: SharedState::new(&settings.ati_dir),
            audit: Audit::background(&settings.audit_file),
            abandon: watch::Sender::new(false),
        });
        let shared = Arc::new(Shared {
            current: self.current.clone(),
            load: Arc::default(),
            services: services.clone(),
            states: discovery::States::default(),
            most_connections: self.most_connections,
            open: AtomicUsize::new(0),
            ready: AtomicBool::new(true),
            pause: watch::Sender::new(false),
            shutdown,
        });
        let control = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| Failure::new(Code::ExecutionFailed, format!("no runtime: {e}")))?;
        let workers = workers::start(&shared)?;
        let estate = Estate::new(self.shares(&settings)?);

        control.block_on(async {
            let edges = self.listeners.edges.into_iter();
            let edges: Vec<_> = edges.map(accept::watch).collect::<Result<_, _>>()?;
            let admin = self.listeners.admin;
            let admin = admin.map(accept::watch_admin).transpose()?;
            let is_upgrade = self.predecessor.is_some();
            let signals = drain::Early::install()?;
            // From here on nothing can fail, so the old process may let go. SIGTERM still ends us at once.
            let last_words = match self.predecessor {
                Some(predecessor) => predecessor.take_over()?,
                None => None,
            };
            let mut signals = signals.complete()?;
            // Not before: what isn't ours can't be given away.
            let (sender, mut successors) = mpsc::unbounded_channel();
            if let Some(socket) = self.upgrade
                && let Err(e) = handover::offer(socket, estate.clone(), sender)
            {
                warn!("this process can't be upgraded while it runs: {e}");
            }
            // What the old one counted, it has written by now.
            services.runtime.rates.load();
            let mut keeper = Some(rates::Keeper::start(services.clone()));
            let begin = |edge| accept::edge(edge, workers.clone(), shared.clone());
            let mut edges: Vec<_> = edges.into_iter().map(begin).collect();
            let admin = admin.map(|admin| accept::admin(admin, shared.clone()));
            announce(&shared.current.load(), &self.addresses);
            if let Some(path) = &settings.ready_file {
                match write_ready_file(path, &self.addresses) {
                    Err(e) if is_upgrade => error!("{e}"),
                    written => written?,
                }
            }
            let watchdog = tokio::spawn({
                let (workers, reloader) = (workers.clone(), self.reloader.clone());
                async move {
                    let reloads = match last_words {
                        Some(old) => old.told().await,
                        None => None,
                    };
                    notify::ready("serving");
                    let reload = async {
                        let Some(mut reloads) = reloads else { return };
                        while reloads.next().await {
                            Reloader::spawn(&reloader);
                        }
                    };
                    tokio::join!(reload, notify::watchdog(workers));
                }
            });
            let discovery = tokio::spawn(discovery::run(shared.clone(), self.reloader.clone()));

            let mut heir = None;
            tokio::pin!(stop);
            loop {
                tokio::select! {
                    event = signals.next() => match event {
                        Event::Reload => {
                            estate.reload();
                            Reloader::spawn(&self.reloader);
                        }
                        Event::Upgrade => relaunch.spawn(),
                        Event::Stop(name) => {
                            info!(signal = name, "draining");
                            break;
                        }
                    },
                    Some(mut successor) = successors.recv() => {
                        if !successor.is_there() {
                            successor.refuse("it left");
                            warn!("the new process is gone, and everything goes on");
                            continue;
                        }
                        // What was counted; the successor reads it, and from then on it is the one who writes.
                        shared.pause.send_replace(true);
                        let mut paused = Vec::new();
                        for edge in edges.drain(..) {
                            paused.extend(edge.await);
                        }
                        if let Some(keeper) = keeper.take() {
                            keeper.stop();
                        }
                        if successor.yours() {
                            relaunch.handed_over(successor.pid);
                            info!(pid = successor.pid, "a new process has taken over, draining");
                            // Not before: systemd would not believe us that it isn't so after all.
                            notify::main_pid(successor.pid);
                            successor.told();
                            if estate.has_reloaded() {
                                successor.reload();
                            }
                            heir = Some(successor);
                            break;
                        }
                        error!(pid = successor.pid, "the new process did not take over, and everything goes on");
                        shared.pause.send_replace(false);
                        keeper = Some(rates::Keeper::start(services.clone()));
                        edges = paused.into_iter().map(begin).collect();
                    }
                    () = &mut stop => break,
                }
            }

            watchdog.abort();
            discovery.abort();
            successors.close();
            while let Ok(late) = successors.try_recv() {
                late.refuse("it is stopping");
            }
            estate.close();
            shared.ready.store(false, Ordering::Release);
            // First, so that answers from now on say that they are the last on their connection.
            let _ = shutdown_sender.send(true);
            if heir.is_some() {
                if let Some(admin) = admin {
                    admin.abort();
                    let _ = admin.await;
                }
            } else {
                notify::stopping();
            }
            for edge in edges {
                let _ = edge.await;
            }
            drain::settle(&shared.open).await;
            workers.close_idle().await;
            drain::wait(&shared, settings.drain, &mut signals, heir.as_ref()).await;
            drain::abandon(&services.abandon).await;
            exec::mcp::close_all(&services.runtime).await;
            services.audit.flush();
            if let Some(keeper) = keeper {
                keeper.stop();
            }
            telemetry::flush();
            Ok(())
        })
    }

    /// The listeners as a successor knows them.
    fn shares(&self, settings: &Settings) -> Result<Vec<handover::Share>, Failure> {
        let failed = |e: std::io::Error| Failure::new(Code::ExecutionFailed, e.to_string());
        let mut shares = self.listeners.shares(settings).map_err(failed)?;
        if let Some(upgrade) = &self.upgrade {
            let socket = upgrade.as_fd().try_clone_to_owned().map_err(failed)?;
            let address = format!("unix:{}", settings.upgrade_socket.display());
            shares.push((UPGRADE.to_owned(), address, socket));
        }
        Ok(shares)
    }
}

/// Without it everything works but an upgrade, so that is no reason not to start.
fn upgrade_socket(settings: &Settings, inherited: &mut Inherited) -> Option<UnixListener> {
    let path = &settings.upgrade_socket;
    if let Some(socket) = inherited.take(UPGRADE, &format!("unix:{}", path.display())) {
        return Some(socket.into());
    }
    match handover::listen(path) {
        Ok(socket) => Some(socket),
        Err(e) => {
            warn!("this process can't be upgraded while it runs: {e}");
            None
        }
    }
}

fn announce(snapshot: &Snapshot, addresses: &Addresses) {
    let settings = &snapshot.settings;
    let handlers = |name: &str| {
        let providers = snapshot.catalog.providers().iter();
        providers.filter(|p| p.handler_name() == name).count()
    };
    info!(
        version = env!("CARGO_PKG_VERSION"),
        addr = %addresses.edge,
        admin = addresses.admin.map(|addr| addr.to_string()),
        others = (!addresses.others.is_empty()).then(|| others(addresses)),
        auth = if snapshot.verifier.is_some() { "JWT" } else { "DISABLED (no JWT keys configured)" },
        ati_dir = %settings.ati_dir.display(),
        tools = snapshot.catalog.public_count(),
        providers = snapshot.catalog.providers().len(),
        mcp = handlers("mcp"),
        openapi = handlers("openapi"),
        skills = 0,
        keyring = snapshot.keyring.source().as_str(),
        db = "disabled",
        passthrough = snapshot.routes.len(),
        sig_verify_mode = settings.signature.mode.as_str(),
        sig_verify_secret = snapshot.signing.is_some(),
        workers = settings.workers,
        pid = std::process::id(),
        "ATI proxy server starting"
    );
}

fn others(addresses: &Addresses) -> String {
    let each = addresses.others.iter();
    let each: Vec<String> = each.map(|(name, at)| format!("{name}={at}")).collect();
    each.join(" ")
}

fn write_ready_file(path: &Path, addresses: &Addresses) -> Result<(), Failure> {
    let text = serde_json::json!({
        "pid": std::process::id(),
        "edge": addresses.edge.to_string(),
        "admin": addresses.admin.map(|addr| addr.to_string()),
        "listeners": addresses.others.iter().cloned().collect::<BTreeMap<_, _>>(),
    })
    .to_string();
    files::write_atomic(path, text.as_bytes(), 0o644).map_err(|e| {
        Failure::invalid(format!(
            "--ready-file {}: can't be written: {e}",
            path.display()
        ))
    })
}

/// The text of `/metrics`.
fn metrics() -> String {
    METRICS.render()
}
