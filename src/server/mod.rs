//! What listens, and how it lives: bind, serve, reload on SIGHUP, drain on SIGTERM.
//!
//! Pingora's own server isn't used: it binds late, sleeps through its grace period and can't say which port it got. Its proxy is
//! driven by our accept loop instead, one proxy per worker thread, so that a connection and its upstream stay on one core.

mod accept;
mod admin;
mod connection;
mod downstream;
mod drain;
mod limits;
mod listen;
mod rates;
mod reload;
mod workers;

use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use tokio::sync::watch;
use tracing::{info, warn};

pub use listen::Addresses;

use crate::api::Services;
use crate::config::{self, Environment, Flags};
use crate::error::{Code, Failure};
use crate::files;
use crate::gateway::Load;
use crate::runtime::Runtime;
use crate::snapshot::Snapshot;
use crate::telemetry;
use crate::telemetry::audit::Audit;
use crate::telemetry::metrics::METRICS;
use drain::Event;
use listen::Listeners;
use reload::Reloader;

/// A server that has everything it needs, its sockets included, and hasn't begun.
pub struct Server {
    listeners: Listeners,
    addresses: Addresses,
    reloader: Arc<Reloader>,
    current: Arc<ArcSwap<Snapshot>>,
    most_connections: usize,
}

/// What the parts of a running server share.
struct Shared {
    current: Arc<ArcSwap<Snapshot>>,
    load: Arc<Load>,
    services: Arc<Services>,
    /// As many as there are descriptors for, whatever the settings say.
    most_connections: usize,
    /// False from the start of a drain.
    ready: AtomicBool,
    shutdown: watch::Receiver<bool>,
}

impl Server {
    /// Everything that can go wrong goes wrong here: settings, keys, manifests, ports.
    pub fn prepare(flags: Flags, env: Environment) -> Result<Self, Failure> {
        let failed = |problems: Vec<_>| Failure::from_problems("can't start", &problems);
        let settings = config::resolve(&flags, &env).map_err(failed)?;
        // Before the keyring: a port that is taken must not cost the one-shot key.
        // A process that takes over from a running one gets its sockets instead of binding anew: here.
        let listeners = Listeners::bind(&settings)?;
        let addresses = listeners.addresses()?;
        let built = Snapshot::build(settings, None).map_err(|unbuilt| failed(unbuilt.problems))?;
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
        let current = Arc::new(ArcSwap::from_pointee(built.snapshot));
        Ok(Server {
            listeners,
            addresses,
            reloader: Arc::new(Reloader::new(flags, env, built.held, current.clone())),
            current,
            most_connections,
        })
    }

    pub fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// Serve until SIGTERM, SIGINT or `stop`, then drain.
    pub fn run(self, stop: impl Future<Output = ()>) -> Result<(), Failure> {
        let (shutdown_sender, shutdown) = watch::channel(false);
        let settings = self.current.load().settings.clone();
        let services = Arc::new(Services {
            runtime: Runtime::new(&settings.ati_dir),
            audit: Audit::background(&settings.audit_file),
            abandon: watch::Sender::new(false),
        });
        services.runtime.rates.load();
        let keeper = rates::Keeper::start(services.clone());
        let shared = Arc::new(Shared {
            current: self.current.clone(),
            load: Arc::default(),
            services: services.clone(),
            most_connections: self.most_connections,
            ready: AtomicBool::new(true),
            shutdown,
        });
        let control = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| Failure::new(Code::ExecutionFailed, format!("no runtime: {e}")))?;
        let workers = workers::start(&shared)?;

        control.block_on(async {
            let mut signals = drain::Signals::install()?;
            let edge = accept::edge(self.listeners.edge, workers.clone(), shared.clone())?;
            if let Some(admin) = self.listeners.admin {
                accept::admin(admin, shared.clone())?;
            }
            announce(&shared.current.load(), &self.addresses);
            if let Some(path) = &settings.ready_file {
                write_ready_file(path, &self.addresses)?;
            }

            tokio::pin!(stop);
            loop {
                tokio::select! {
                    event = signals.next() => match event {
                        Event::Reload => Reloader::spawn(&self.reloader),
                        Event::Stop(name) => {
                            info!(signal = name, "draining");
                            break;
                        }
                    },
                    () = &mut stop => break,
                }
            }

            shared.ready.store(false, Ordering::Release);
            // First, so that answers from now on say that they are the last on their connection.
            let _ = shutdown_sender.send(true);
            let _ = edge.await;
            drain::settle().await;
            workers.close_idle().await;
            drain::wait(&shared.load, settings.drain, &mut signals).await;
            drain::abandon(&services.abandon).await;
            services.audit.flush();
            keeper.stop();
            telemetry::flush();
            Ok(())
        })
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

fn write_ready_file(path: &Path, addresses: &Addresses) -> Result<(), Failure> {
    let text = serde_json::json!({
        "pid": std::process::id(),
        "edge": addresses.edge.to_string(),
        "admin": addresses.admin.map(|addr| addr.to_string()),
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
