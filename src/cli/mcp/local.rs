//! The tools of this machine, for `ati mcp serve` with the keys at hand.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use futures::StreamExt as _;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::stdio::{Client, Server};
use crate::api::mcp::{self, Exchange, Response};
use crate::api::providers::{Outage, ProviderState, ProviderStates, ProviderStatus};
use crate::api::{Discovery, ProviderSessions, RunningCalls, Services, context};
use crate::auth::Identity;
use crate::backoff::Backoff;
use crate::call::{self, Counting};
use crate::catalog::{Provider, listing_cache};
use crate::cli::local::{self, Local};
use crate::cli::runfile::Choice;
use crate::error::Failure;
use crate::exec::{Progress, SharedState};
use crate::mcp::{ClientRequest, Era};
use crate::request_id::RequestId;
use crate::skills::Registry;
use crate::skills::remote::Access;
use crate::snapshot::Snapshot;
use crate::telemetry::audit::Audit;
use crate::telemetry::trail::CallTrail;

/// How often it is looked whether manifests have changed, and whether an MCP server has announced
/// a change.
const LOOK: Duration = Duration::from_secs(1);
/// A server that can't be listed is asked again after a while.
const RETRY: Backoff = Backoff::new(Duration::from_secs(2), Duration::from_secs(300));

pub struct LocalServer {
    current: Arc<ArcSwap<Snapshot>>,
    services: Arc<Services>,
    states: Arc<ProviderStates>,
    identity: Arc<Identity>,
    search: bool,
    /// The client has said so in its handshake.
    knows_skills: AtomicBool,
    /// Whose functions are the tools, in place of this machine's manifests.
    runfile: Option<Choice>,
}

impl LocalServer {
    /// Reads the Runfile again where it would read the manifests.
    pub fn of_runfile(self, choice: Choice) -> Self {
        LocalServer {
            runfile: Some(choice),
            ..self
        }
    }

    pub fn new(local: Local, search: bool) -> Result<Self, Failure> {
        let identity = local.identity.clone();
        let snapshot = with_keys(with_skills(local.into_snapshot()));
        let settings = snapshot.settings.clone();
        let current = Arc::new(ArcSwap::from_pointee(snapshot));
        let states = Arc::<ProviderStates>::default();
        let services = Services {
            runtime: SharedState::new(&settings.ati_dir, &settings.tools, &settings.files),
            audit: Audit::direct(&settings.audit_file),
            abandon: watch::Sender::new(false),
            discovery: Some(Discovery {
                current: current.clone(),
                states: states.clone(),
            }),
            // Other commands count against the same limits.
            counting: Counting::InFile,
            store: None,
            keys: None,
            call_log: None,
            mcp_calls: RunningCalls::default(),
            provider_sessions: ProviderSessions::default(),
            remote_skills: crate::skills::remote::RemoteSkills::default(),
            skill_files: crate::skills::served::Manifests::default(),
        };
        Ok(LocalServer {
            current,
            services: Arc::new(services),
            states,
            identity,
            search,
            knows_skills: AtomicBool::new(false),
            runfile: None,
        })
    }

    pub fn services(&self) -> Arc<Services> {
        self.services.clone()
    }

    /// Changes the snapshot, and tells the client where its tools are others now.
    async fn publish(&self, change: impl Fn(&Snapshot) -> Snapshot, client: &Client) {
        let before = self.current.load_full();
        self.current.rcu(|snapshot| change(snapshot));
        let after = self.current.load_full();
        if !self.search && before.catalog.fingerprint() != after.catalog.fingerprint() {
            client.tools_changed().await;
        }
    }

    /// What tells that the tools may have changed.
    fn stamp(&self, ati_dir: &Path) -> Vec<Stamp> {
        let Some(choice) = &self.runfile else {
            return stamp(ati_dir);
        };
        let found = choice.find().ok();
        let files = found
            .into_iter()
            .flat_map(|found| [Some(found.path), found.global]);
        files.flatten().filter_map(of_file).collect()
    }

    async fn reload(&self, client: &Client) {
        let runfile = self.runfile.clone();
        let read = tokio::task::spawn_blocking(move || match &runfile {
            Some(choice) => local::snapshot_of_runfile(choice),
            None => local::read_again(),
        });
        let read = read.await;
        let fresh = match read {
            Ok(Ok(snapshot)) => with_keys(with_skills(snapshot)),
            Ok(Err(failure)) => {
                let error = failure.one_line();
                return warn!(
                    error,
                    "the manifests can't be used; the tools stay as they were"
                );
            }
            Err(_) => return,
        };
        info!(
            tools = fresh.catalog.public_count(),
            "the manifests were read again"
        );
        self.publish(|_| fresh.clone(), client).await;
    }
}

/// With the skills of this machine.
fn with_skills(snapshot: Snapshot) -> Snapshot {
    let mut warnings = Vec::new();
    let skills = Registry::load(&snapshot.settings.ati_dir, &mut warnings);
    for warning in warnings {
        debug!("{warning}");
    }
    Snapshot {
        skills: Arc::new(skills),
        ..snapshot
    }
}

/// With the keyring, where a tool needs one: its one-shot key must not be used up in vain.
fn with_keys(snapshot: Snapshot) -> Snapshot {
    let mut providers = snapshot.catalog.providers().iter();
    let needs_keys = providers.any(|provider| !provider.key_names().is_empty())
        || Access::needs_keys(&snapshot.settings.skill_registry);
    if !needs_keys {
        return snapshot;
    }
    match snapshot.with_command_keyring() {
        Ok((with_keys, warnings)) => {
            for warning in warnings {
                debug!("{warning}");
            }
            with_keys
        }
        Err(problem) => {
            warn!("{problem}; tools that need a credential will fail");
            snapshot
        }
    }
}

impl Server for LocalServer {
    async fn answer(&self, request: &ClientRequest, _: &[u8], client: &Client) -> Option<Vec<u8>> {
        let exchange = Exchange {
            snapshot: self.current.load_full(),
            services: self.services.clone(),
            identity: self.identity.clone(),
            request_id: RequestId::generate(),
            trail: Arc::new(CallTrail::default()),
            upstream_url: None,
            search: self.search,
            tells_changes: true,
            knows_skills: match request.era {
                Era::Handshake if request.method == "initialize" => {
                    self.knows_skills
                        .store(request.knows_skills, Ordering::Release);
                    request.knows_skills
                }
                Era::Handshake => self.knows_skills.load(Ordering::Acquire),
                Era::Stateless => request.knows_skills,
            },
        };
        let show = |progress: &Progress| {
            if let Some(token) = &request.progress_token {
                client.try_send(mcp::progress_notification(token, progress).into_bytes());
            }
        };
        let answered = mcp::respond(request, &exchange, Some(&show)).await;
        let text = match mcp::response(request, answered) {
            Response::Whole(text) => Ok(text),
            Response::Stream { mut text, .. } => {
                let mut whole = Vec::new();
                loop {
                    match text.next().await {
                        Some(Ok(piece)) => whole.extend_from_slice(&piece),
                        Some(Err(e)) => break Err(e),
                        None => break Ok(whole),
                    }
                }
            }
        };
        Some(text.unwrap_or_else(|e| {
            warn!(error = %e, "a result can't be read back from disk");
            request.refuse(crate::error::RpcError::Internal).body()
        }))
    }

    async fn watch(self: Arc<Self>, client: Client) {
        let mut hangup = signal(SignalKind::hangup()).ok();
        let ati_dir = self.current.load().settings.ati_dir.clone();
        loop {
            let mut seen = self.stamp(&ati_dir);
            // Dropping it, at the next reload, ends the tasks of this snapshot.
            let _tasks = discover_all(&self, &client);
            loop {
                let hung_up = async {
                    match &mut hangup {
                        Some(hangup) => hangup.recv().await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    _ = hung_up => break,
                    () = tokio::time::sleep(LOOK) => {
                        self.services.runtime.sessions.sweep();
                        let now = self.stamp(&ati_dir);
                        if std::mem::replace(&mut seen, now) != seen {
                            break;
                        }
                    }
                }
            }
            self.reload(&client).await;
        }
    }

    fn tells_changes(&self) -> bool {
        !self.search
    }
}

/// A file, its length, and when it was changed.
type Stamp = (PathBuf, u64, Option<SystemTime>);

fn of_file(path: PathBuf) -> Option<Stamp> {
    let metadata = std::fs::metadata(&path).ok()?;
    Some((path, metadata.len(), metadata.modified().ok()))
}

/// What tells that manifests, OpenAPI documents or skills have changed.
fn stamp(ati_dir: &Path) -> Vec<Stamp> {
    let folders = ["manifests", "specs", "skills"].iter();
    let files = folders.filter_map(|folder| std::fs::read_dir(ati_dir.join(folder)).ok());
    let mut all: Vec<_> = files
        .flatten()
        .flatten()
        .filter_map(|file| of_file(file.path()))
        .collect();
    all.sort();
    all
}

fn discover_all(server: &Arc<LocalServer>, client: &Client) -> JoinSet<()> {
    let snapshot = server.current.load_full();
    server.states.clear();
    let mut tasks = JoinSet::new();
    let servers = snapshot.catalog.providers().iter();
    for provider in servers.filter(|one| one.mcp().is_some() && !one.internal) {
        let (server, client) = (server.clone(), client.clone());
        tasks.spawn(discover(server, provider.clone(), snapshot.clone(), client));
    }
    tasks
}

/// Lists the tools of one MCP server, now and whenever they have changed.
async fn discover(
    server: Arc<LocalServer>,
    provider: Arc<Provider>,
    snapshot: Arc<Snapshot>,
    client: Client,
) {
    let name = provider.name.as_str();
    let mut failures = 0;
    let state = |status, error| ProviderState {
        transport: provider.mcp().map_or("", |mcp| mcp.transport_name()),
        status,
        tools: None,
        listed_at: None,
        protocol: None,
        error,
    };
    let context = context(&snapshot, &server.services);
    loop {
        match call::list(&provider, context).await {
            Ok(told) => {
                failures = 0;
                let ati_dir = &snapshot.settings.ati_dir;
                if let Err(e) = listing_cache::store(ati_dir, &provider, &told.listing) {
                    debug!(provider = name, error = %e, "the listing can't be cached");
                }
                let add = |current: &Snapshot| {
                    local::add_listing(current, &provider, told.listing.clone())
                };
                server.publish(add, &client).await;
                let ready = state(ProviderStatus::Ready, None);
                server.states.set(&provider, ready, None);
                while !call::has_changed(&provider, told.session, context) {
                    tokio::time::sleep(LOOK).await;
                }
            }
            Err(error) => {
                failures += 1;
                let next = Instant::now() + RETRY.delay(failures);
                let down = state(ProviderStatus::Down, Some(error.for_operators()));
                let outage = Outage::new(&error, next);
                server.states.set(&provider, down, Some(outage));
                if failures == 1 {
                    let error = error.for_operators();
                    warn!(
                        provider = name,
                        error, "its tools can't be listed, trying again"
                    );
                }
                tokio::time::sleep_until(next).await;
            }
        }
    }
}
