//! Discovery: lists the tools of MCP servers in the background. The start doesn't wait for it:
//! tools appear as servers answer, and a server that fails is asked again. Of requests, only calls
//! of a server that has never been listed wait for the end of its first attempt.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::api::context;
use crate::api::providers::{Outage, ProviderState, ProviderStates, ProviderStatus};
use crate::backoff::Backoff;
use crate::call;
use crate::catalog::mcp::Listing;
use crate::catalog::{Provider, listing_cache};
use crate::exec::mcp::McpError;
use crate::server::Shared;
use crate::server::lifecycle::reload::{Published, Reloader};
use crate::snapshot::Snapshot;
use crate::telemetry::metrics::METRICS;

/// Servers that are asked at a time.
const MOST_AT_A_TIME: usize = 10;
/// How often it is checked whether a server has announced a change of its tools.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// How often idle MCP sessions are looked for.
const SWEEP_INTERVAL: Duration = Duration::from_secs(10);
/// A listing is renewed after this time at the latest: not every server announces changes, and none
/// can while there is no session with it. Servers of the stateless era say how long their listing
/// is valid, which is honoured between these bounds.
const LONGEST_VALIDITY: Duration = Duration::from_secs(3600);
const SHORTEST_VALIDITY: Duration = Duration::from_secs(60);
/// Back-off after failures.
const RETRY: Backoff = Backoff::new(Duration::from_secs(2), Duration::from_secs(300));

/// Runs for as long as the process serves. Each reload starts it anew with the providers of the new
/// snapshot.
pub async fn run(shared: Arc<Shared>, reloader: Arc<Reloader>) {
    let mut generation = reloader.generation();
    let _end = EndOnDrop(shared.provider_states.clone());
    let mut known = BTreeSet::new();
    loop {
        generation.borrow_and_update();
        shared.provider_states.clear();
        let names = mcp_names(&shared.current.load());
        for gone in known.difference(&names) {
            METRICS.remove_provider(gone);
        }
        known = names;
        sweep(&shared);
        // Dropping it, at the next reload, ends the tasks of this snapshot.
        let _tasks = discover_all(&shared, &reloader);
        loop {
            tokio::select! {
                changed = generation.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    break;
                }
                () = tokio::time::sleep(SWEEP_INTERVAL) => sweep(&shared),
            }
        }
    }
}

/// Ends sessions that are idle, and those of providers that a reload has removed.
fn sweep(shared: &Shared) {
    shared.services.runtime.sessions.sweep();
    let snapshot = shared.current.load();
    let exists = |name: &str| snapshot.catalog.mcp_server(name).is_some();
    shared.services.provider_sessions.sweep(exists);
}

/// Ends the waits of calls when discovery ends, by an abort, too.
struct EndOnDrop(Arc<ProviderStates>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.end();
    }
}

fn mcp_names(snapshot: &Snapshot) -> BTreeSet<String> {
    let providers = snapshot.catalog.providers().iter();
    let servers = providers.filter(|provider| provider.mcp().is_some());
    servers.map(|provider| provider.name.clone()).collect()
}

fn discover_all(shared: &Arc<Shared>, reloader: &Arc<Reloader>) -> JoinSet<()> {
    let snapshot = shared.current.load_full();
    let turns = Arc::new(Semaphore::new(MOST_AT_A_TIME));
    let mut tasks = JoinSet::new();
    let providers = snapshot.catalog.providers().iter();
    for provider in providers.filter(|provider| provider.mcp().is_some()) {
        let discovery = ProviderDiscovery {
            provider: provider.clone(),
            snapshot: snapshot.clone(),
            shared: shared.clone(),
            reloader: reloader.clone(),
            turns: turns.clone(),
        };
        tasks.spawn(discovery.run());
    }
    tasks
}

/// Discovery of one provider's tools, for as long as its snapshot is in use.
struct ProviderDiscovery {
    provider: Arc<Provider>,
    snapshot: Arc<Snapshot>,
    shared: Arc<Shared>,
    reloader: Arc<Reloader>,
    turns: Arc<Semaphore>,
}

impl ProviderDiscovery {
    async fn run(self) {
        let name = self.provider.name.as_str();
        // The first listing is logged, unless an earlier process knew it, and each one after a
        // failure.
        let mut log_next = self.reloader.listing(name).is_none();
        let mut failures = 0;
        self.set_state(ProviderStatus::Starting, None);
        loop {
            let listed = {
                let _turn = self.turns.acquire().await;
                let context = context(&self.snapshot, &self.shared.services);
                call::list(&self.provider, context).await
            };
            match listed {
                Ok(answer) => {
                    failures = 0;
                    let listing = Arc::new(answer.listing);
                    let published = self.publish(listing.clone()).await;
                    if published == Published::Outdated {
                        return;
                    }
                    self.set_state(ProviderStatus::Ready, None);
                    METRICS.set_provider_up(name, true);
                    if published == Published::Changed || log_next {
                        let (tools, protocol) = (listing.tools.len(), &listing.protocol);
                        info!(provider = name, tools, protocol, "tools listed");
                    }
                    log_next = false;
                    let validity = answer.valid_for.unwrap_or(LONGEST_VALIDITY);
                    let validity = validity.clamp(SHORTEST_VALIDITY, LONGEST_VALIDITY);
                    let changed = self.wait_for_change(answer.session);
                    let _ = tokio::time::timeout(validity, changed).await;
                }
                Err(error) => {
                    failures += 1;
                    let next_attempt = Instant::now() + RETRY.delay(failures);
                    self.set_state(ProviderStatus::Down, Some((&error, next_attempt)));
                    METRICS.set_provider_up(name, false);
                    if failures == 1 {
                        let (provider, error) = (name, error.for_operators());
                        warn!(provider, error, "its tools can't be listed, trying again");
                    }
                    log_next = true;
                    tokio::time::sleep_until(next_attempt).await;
                }
            }
        }
    }

    fn set_state(&self, status: ProviderStatus, failed: Option<(&McpError, Instant)>) {
        let name = self.provider.name.as_str();
        let listing = self.reloader.listing(name);
        let state = ProviderState {
            transport: self.provider.mcp().map_or("", |mcp| mcp.transport_name()),
            status,
            tools: listing.as_ref().map(|listing| listing.tools.len()),
            listed_at: listing.as_ref().map(|listing| listing.at),
            protocol: listing.map(|listing| listing.protocol.clone()),
            error: failed.map(|(error, _)| error.for_operators()),
        };
        let outage = failed.map(|(error, next_attempt)| Outage::new(error, next_attempt));
        self.shared
            .provider_states
            .set(&self.provider, state, outage);
    }

    /// Makes the listing part of the snapshot and of the cache on disk. On a blocking thread: a
    /// reload that builds a snapshot delays it, and so may the disk.
    async fn publish(&self, listing: Arc<Listing>) -> Published {
        let (reloader, provider) = (self.reloader.clone(), self.provider.clone());
        let ati_dir = self.snapshot.settings.ati_dir.clone();
        let published = tokio::task::spawn_blocking(move || {
            let published = reloader.publish(&provider, &listing);
            if published != Published::Outdated
                && let Err(e) = listing_cache::store(&ati_dir, &provider, &listing)
            {
                let provider = provider.name.as_str();
                warn!(provider, error = %e, "the list of tools was not written to the cache");
            }
            published
        });
        published.await.unwrap_or(Published::Outdated)
    }

    /// Returns once the server has announced a change of its tools, once another session has
    /// replaced the one that listed them (its server may be another version), or once a call could
    /// open no session: then it is found out whether the server is down.
    async fn wait_for_change(&self, listed_by: u64) {
        loop {
            tokio::time::sleep(CHECK_INTERVAL).await;
            let context = context(&self.snapshot, &self.shared.services);
            if call::has_changed(&self.provider, listed_by, context) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pause_doubles_with_each_failure_up_to_its_limit() {
        let seconds = |failures| RETRY.delay(failures).as_secs();
        assert_eq!([seconds(1), seconds(2), seconds(3)], [2, 4, 8]);
        assert_eq!([seconds(8), seconds(9), seconds(u32::MAX)], [256, 300, 300]);
    }
}
