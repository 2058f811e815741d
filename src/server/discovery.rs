//! What tools MCP servers have. Nobody waits for it: tools appear as servers answer, and a server that doesn't is asked again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tracing::{info, warn};

use super::Shared;
use super::reload::{Published, Reloader};
use crate::api::context;
use crate::backoff::Backoff;
use crate::call;
use crate::catalog::{Provider, listing_cache};
use crate::exec::mcp::McpError;
use crate::snapshot::Snapshot;

/// Servers that are started at a time.
const AT_A_TIME: usize = 10;
/// How often it is looked whether a server has said that its tools have changed.
const TICK: Duration = Duration::from_secs(1);
/// A list is asked for again after this, whatever was heard: not every server says when it changes, and none while nobody is connected. Servers of the
/// stateless era say how long theirs holds, and are believed between these bounds.
const LONGEST_HOLD: Duration = Duration::from_secs(3600);
const SHORTEST_HOLD: Duration = Duration::from_secs(60);
const RETRY: Backoff = Backoff::new(Duration::from_secs(2), Duration::from_secs(300));

/// How a provider is, for operators.
#[derive(Debug, Clone, Serialize)]
pub struct State {
    pub transport: &'static str,
    /// `starting`, `ready` or `down`.
    pub state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<usize>,
    /// Unix seconds; of the list in use, which may be an old one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listed_at: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

#[derive(Default)]
pub struct States(Mutex<BTreeMap<String, State>>);

impl States {
    pub fn all(&self) -> BTreeMap<String, State> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn set(&self, provider: &str, state: State) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(provider.to_owned(), state);
    }

    fn clear(&self) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }
}

/// For as long as the server runs: every provider of every snapshot.
pub async fn run(shared: Arc<Shared>, reloader: Arc<Reloader>) {
    let mut generation = reloader.generation();
    loop {
        generation.borrow_and_update();
        let snapshot = shared.current.load_full();
        let turns = Arc::new(Semaphore::new(AT_A_TIME));
        shared.states.clear();
        // Dropped with the snapshot that they are about.
        let mut providers = JoinSet::new();
        for provider in snapshot
            .catalog
            .providers()
            .iter()
            .filter(|one| one.mcp().is_some())
        {
            providers.spawn(attend(
                provider.clone(),
                snapshot.clone(),
                shared.clone(),
                reloader.clone(),
                turns.clone(),
            ));
        }
        loop {
            tokio::select! {
                changed = generation.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    break;
                }
                () = tokio::time::sleep(10 * TICK) => shared.services.runtime.sessions.sweep(),
            }
        }
    }
}

async fn attend(
    provider: Arc<Provider>,
    snapshot: Arc<Snapshot>,
    shared: Arc<Shared>,
    reloader: Arc<Reloader>,
    turns: Arc<Semaphore>,
) {
    let ati_dir = snapshot.settings.ati_dir.clone();
    let attended = provider.clone();
    let name = attended.name.as_str();
    let known = reloader.listing(name);
    let state = |state: &'static str, error: Option<&McpError>| {
        let listing = reloader.listing(name);
        shared.states.set(
            name,
            State {
                transport: provider.mcp().map_or("", |mcp| mcp.transport_name()),
                state,
                tools: listing.as_ref().map(|listing| listing.tools.len()),
                listed_at: listing.as_ref().map(|listing| listing.at),
                protocol: listing.map(|listing| listing.protocol.clone()),
                error: error.map(ToString::to_string),
            },
        );
    };
    state("starting", None);
    let mut failures = 0;
    let mut told = false;
    let mut first = known.is_none();
    loop {
        let listed = {
            let _turn = turns.acquire().await;
            call::list(&provider, context(&snapshot, &shared.services)).await
        };
        match listed {
            Ok(answer) => {
                (failures, told) = (0, false);
                let listing = Arc::new(answer.listing);
                // Off this thread: a reload may hold it up, and a disk.
                let (reloader, provider, kept) =
                    (reloader.clone(), provider.clone(), listing.clone());
                let ati_dir = ati_dir.clone();
                let published = tokio::task::spawn_blocking(move || {
                    let published = reloader.publish(&provider, &kept);
                    if published != Published::TooLate
                        && let Err(e) = listing_cache::store(&ati_dir, &provider, &kept)
                    {
                        warn!(
                            provider = provider.name,
                            "the list of tools can't be kept: {e}"
                        );
                    }
                    published
                });
                let published = published.await.unwrap_or(Published::TooLate);
                if published == Published::TooLate {
                    return;
                }
                state("ready", None);
                if published == Published::News || std::mem::take(&mut first) {
                    info!(
                        provider = name,
                        tools = listing.tools.len(),
                        protocol = listing.protocol,
                        "tools listed"
                    );
                }
                let holds = answer.valid_for.unwrap_or(LONGEST_HOLD);
                let holds = holds.clamp(SHORTEST_HOLD, LONGEST_HOLD);
                let news = wait_for_news(&attended, answer.session, &snapshot, &shared);
                let _ = tokio::time::timeout(holds, news).await;
            }
            Err(error) => {
                state("down", Some(&error));
                if !std::mem::replace(&mut told, true) {
                    warn!(
                        provider = name,
                        "its tools can't be listed, and are asked for again and again: {error}"
                    );
                }
                failures += 1;
                tokio::time::sleep(RETRY.delay(failures)).await;
            }
        }
    }
}

/// Until the server says that its tools have changed, or another session has taken the place of the one that listed them: not every server says so.
async fn wait_for_news(
    provider: &Arc<Provider>,
    listed_by: u64,
    snapshot: &Snapshot,
    shared: &Shared,
) {
    loop {
        tokio::time::sleep(TICK).await;
        if call::has_changed(provider, listed_by, context(snapshot, &shared.services)) {
            return;
        }
    }
}
