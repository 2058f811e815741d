//! Composition: the parts of a server process, and the order in which they start.

use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use tokio::sync::{mpsc, watch};
use tracing::{error, warn};

use super::announce;
use super::handover::{
    self, HandoverListeners, NamedSocket, Predecessor, Trust, UPGRADE, UpgradeSocket,
};
use super::relaunch::Relaunch;
use super::reload::Reloader;
use super::run::{Process, Serving};
use super::signals::StartingSignals;
use super::supervision::supervise;
use crate::api::providers::ProviderStates;
use crate::api::{Discovery, ProviderSessions, RunningCalls, Services};
use crate::auth::virtual_keys::VirtualKeys;
use crate::call::Counting;
use crate::config::{OtlpVariables, Settings};
use crate::error::{Code, Failure};
use crate::exec::SharedState;
use crate::process;
use crate::server::background::{discovery, otlp};
use crate::server::control::Control;
use crate::server::listen::accept::{self, CallerListener};
use crate::server::listen::bind::{Addresses, Listeners};
use crate::server::listen::workers::{self, Workers};
use crate::server::{Server, Shared};
use crate::store::call_log::CallLog;
use crate::telemetry::audit::Audit;
use crate::telemetry::metrics::METRICS;

/// A server process that has its parts, and doesn't accept yet.
pub struct Composed {
    settings: Arc<Settings>,
    shared: Arc<Shared>,
    shutdown: watch::Sender<bool>,
    workers: Workers,
    reloader: Arc<Reloader>,
    relaunch: Relaunch,
    listeners: Listeners,
    addresses: Addresses,
    handover_listeners: Arc<HandoverListeners>,
    upgrade_socket: Option<UnixListener>,
    predecessor: Option<Predecessor>,
    otlp: Option<OtlpVariables>,
}

impl Composed {
    pub fn new(server: Server, relaunch: Relaunch) -> Result<Self, Failure> {
        let settings = server.current.load().settings.clone();
        let (shutdown, shutdown_receiver) = watch::channel(false);
        let provider_states = Arc::<ProviderStates>::default();
        let mut runtime = SharedState::new(&settings.ati_dir, &settings.tools, &settings.files);
        if let Some(store) = &server.store {
            runtime.share(store);
        }
        let shared = Arc::new(Shared {
            current: server.current.clone(),
            reloader: server.reloader.clone(),
            load: Arc::default(),
            services: Arc::new(Services {
                runtime,
                audit: Audit::background(&settings.audit_file, settings.audit.chain),
                abandon: watch::Sender::new(false),
                discovery: Some(Discovery {
                    current: server.current.clone(),
                    states: provider_states.clone(),
                }),
                counting: Counting::InMemory,
                keys: server
                    .store
                    .clone()
                    .map(|store| Arc::new(VirtualKeys::start(store, settings.store.stale))),
                store: server.store.clone(),
                call_log: call_log(&server, &settings),
                mcp_calls: RunningCalls::default(),
                provider_sessions: ProviderSessions::default(),
                remote_skills: crate::skills::remote::RemoteSkills::default(),
                skill_files: crate::skills::served::Manifests::default(),
            }),
            provider_states,
            most_connections: server.most_connections,
            open_connections: AtomicUsize::new(0),
            ready: AtomicBool::new(true),
            pause_accepting: watch::Sender::new(false),
            shutdown: shutdown_receiver,
        });
        let services = Arc::downgrade(&shared.services);
        METRICS.add_source(move |metrics| {
            let Some(services) = services.upgrade() else {
                return false;
            };
            let runtime = &services.runtime;
            metrics.set_call_bytes(runtime.memory.used(), runtime.spools.used());
            metrics.set_file_bytes(runtime.file_spools.used());
            let (waiting, running) = runtime.compute.load();
            metrics.set_compute_jobs(waiting, running);
            true
        });
        let workers = workers::start(&shared)?;
        let runtimes = workers.iter().map(|worker| worker.runtime.clone());
        let sessions = &shared.services.runtime.sessions;
        sessions.live_on(runtimes.collect());
        let handover_listeners = HandoverListeners::new(named_sockets(&server, &settings)?);
        Ok(Composed {
            settings,
            shared,
            shutdown,
            workers,
            reloader: server.reloader,
            relaunch,
            listeners: server.listeners,
            addresses: server.addresses,
            handover_listeners,
            upgrade_socket: server.upgrade_socket,
            predecessor: server.predecessor,
            otlp: server.otlp,
        })
    }

    /// Takes the listeners over from the predecessor, if there is one, and starts to accept. Must
    /// run in the control runtime; blocks it while the predecessor stops accepting.
    pub fn start(self) -> Result<(Process, Serving), Failure> {
        let callers = self.listeners.for_callers.into_iter();
        let callers = callers.map(CallerListener::register);
        let callers: Vec<CallerListener> = callers.collect::<Result<_, _>>()?;
        let admin = self.listeners.admin.map(accept::register_admin);
        let admin = admin.transpose()?;
        let signals = StartingSignals::install()?;
        // What can be expected to fail is done, so the predecessor may stop accepting.
        let is_upgrade = self.predecessor.is_some();
        let former = self.predecessor.as_ref().map(Predecessor::pid);
        let trust = Trust::new(
            self.relaunch.invitation().clone(),
            self.relaunch.program(),
            former,
        );
        let predecessor = match self.predecessor {
            Some(predecessor) => predecessor.take_over()?,
            None => None,
        };
        // Only now: until here, SIGTERM ends this process at once.
        let signals = signals.complete()?;
        // Only now: before the take-over, the listeners weren't this process's to hand over.
        let (ready, successors) = mpsc::unbounded_channel();
        let control = Control::new(self.shared.clone(), self.addresses.clone());
        let upgrade = UpgradeSocket::new(self.handover_listeners.clone(), ready, control, trust);
        let mut claim = None;
        match self.upgrade_socket {
            Some(socket) => {
                if let Err(e) = handover::serve(socket, upgrade) {
                    warn!(error = %e, "this process can't be upgraded while it runs");
                }
            }
            None => {
                let path = self.settings.upgrade_socket.clone();
                claim = Some(tokio::spawn(handover::claim_later(path, upgrade)));
            }
        }
        // Only now: the predecessor has written its counters before it sent `yours`.
        self.shared.services.runtime.rates.load();
        if let Some(variables) = &self.otlp {
            otlp::start(variables, &self.shared.current);
        }
        let serving = Serving::start(callers, &self.workers, &self.shared);
        let admin = admin.map(|admin| accept::accept_admin(admin, self.shared.clone()));
        let has_store = self.shared.services.store.is_some();
        announce::log_start(&self.shared.current.load(), &self.addresses, has_store);
        if let Some(path) = &self.settings.ready_file {
            match announce::write_ready_file(path, &self.addresses) {
                // The predecessor is gone: going on without the file is better than ending.
                Err(e) if is_upgrade => {
                    let causes = e.chain().join(": ");
                    error!(error = %e, causes, "the ready file was not written");
                }
                written => written?,
            }
        }
        let supervision = supervise(predecessor, self.workers.clone(), self.reloader.clone());
        let discovery = discovery::run(self.shared.clone(), self.reloader.clone());
        let process = Process {
            drain_limit: self.settings.drain,
            shared: self.shared,
            shutdown: self.shutdown,
            workers: self.workers,
            reloader: self.reloader,
            relaunch: self.relaunch,
            handover_listeners: self.handover_listeners,
            successors,
            signals,
            admin,
            supervision: tokio::spawn(supervision),
            discovery: tokio::spawn(discovery),
            reaping: tokio::spawn(process::reap_adopted()),
            claim,
        };
        Ok((process, serving))
    }
}

/// The call log, where there is a database and the settings don't switch it off.
fn call_log(server: &Server, settings: &Settings) -> Option<CallLog> {
    let store = server.store.as_ref().filter(|_| settings.store.call_log)?;
    Some(CallLog::start(store, settings.store.retention))
}

/// Duplicates of all listening sockets, the upgrade socket included, for a successor.
fn named_sockets(server: &Server, settings: &Settings) -> Result<Vec<NamedSocket>, Failure> {
    let duplicate = || -> std::io::Result<Vec<NamedSocket>> {
        let mut sockets = server.listeners.named_sockets(settings)?;
        if let Some(upgrade) = &server.upgrade_socket {
            sockets.push(NamedSocket {
                name: UPGRADE.to_owned(),
                address: format!("unix:{}", settings.upgrade_socket.display()),
                socket: upgrade.as_fd().try_clone_to_owned()?,
            });
        }
        Ok(sockets)
    };
    duplicate().map_err(|e| {
        Failure::new(Code::ExecutionFailed, "can't duplicate a listening socket").because(e)
    })
}
