//! The states of MCP providers, as discovery reports them, and calls that wait for a server's first
//! list of tools.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use crate::auth::Identity;
use crate::call;
use crate::catalog::Provider;
use crate::error::CallError;
use crate::snapshot::Snapshot;
use crate::text::clip_chars;

/// Characters of an error that callers are told.
const LONGEST_REASON: usize = 300;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ProviderStatus {
    /// It hasn't answered yet.
    Starting,
    Ready,
    /// Its tools could not be listed the last time.
    Down,
}

/// One provider's state, as the admin listener reports it.
#[derive(Debug, Clone, Serialize)]
pub struct ProviderState {
    pub transport: &'static str,
    #[serde(rename = "state")]
    pub status: ProviderStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<usize>,
    /// Unix seconds; of the listing in use, which may be from before the last failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listed_at: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// For operators: it may name the server's address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Why a server's tools could not be listed, and when it is asked again.
pub struct Outage {
    /// One line, for callers.
    why: String,
    next_attempt: Instant,
}

impl Outage {
    pub fn new(error: &impl ToString, next_attempt: Instant) -> Self {
        Outage {
            why: reason(&error.to_string()),
            next_attempt,
        }
    }
}

/// States by provider. One discovery writes them; calls and the admin listener read.
#[derive(Default)]
pub struct ProviderStates(watch::Sender<States>);

#[derive(Default)]
struct States {
    by_name: BTreeMap<String, Entry>,
    /// Discovery has ended: nothing will change any more.
    ended: bool,
}

struct Entry {
    /// Each reload makes providers anew. A state of an earlier one says nothing about this one.
    provider: Arc<Provider>,
    state: ProviderState,
    outage: Option<Outage>,
}

impl ProviderStates {
    pub fn all(&self) -> BTreeMap<String, ProviderState> {
        let states = self.0.borrow();
        let each = states.by_name.iter();
        each.map(|(name, entry)| (name.clone(), entry.state.clone()))
            .collect()
    }

    pub fn set(&self, provider: &Arc<Provider>, state: ProviderState, outage: Option<Outage>) {
        let entry = Entry {
            provider: provider.clone(),
            state,
            outage,
        };
        self.0.send_modify(|states| {
            states.by_name.insert(provider.name.clone(), entry);
        });
    }

    pub fn clear(&self) {
        self.0.send_modify(|states| states.by_name.clear());
    }

    /// Ends the waits of calls: discovery no longer runs.
    pub fn end(&self) {
        self.0.send_modify(|states| states.ended = true);
    }
}

impl States {
    /// Why a call of this provider can't be served now; None where its server hasn't answered yet.
    fn failure(&self, provider: &Arc<Provider>, now: Instant) -> Option<CallError> {
        if self.ended {
            return Some(down(provider, "ati is stopping".to_owned(), 1));
        }
        let entry = self.by_name.get(&provider.name)?;
        if !Arc::ptr_eq(&entry.provider, provider) {
            return None;
        }
        let outage = entry.outage.as_ref()?;
        let pause = outage.next_attempt.saturating_duration_since(now);
        let seconds = pause.as_millis().div_ceil(1000).max(1);
        Some(down(provider, outage.why.clone(), seconds as u64))
    }
}

fn down(provider: &Provider, why: String, retry_after: u64) -> CallError {
    CallError::ProviderDown {
        provider: provider.name.clone(),
        why,
        retry_after,
    }
}

/// An error in one line of bounded length, without control characters.
fn reason(error: &str) -> String {
    let words = error.split(|c: char| c.is_whitespace() || c.is_control());
    let line: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    let line = line.join(" ");
    let cut = clip_chars(&line, LONGEST_REASON);
    if cut.len() < line.len() {
        format!("{cut}…")
    } else {
        line
    }
}

/// What a call needs to wait for a server that is still starting.
pub struct Discovery {
    pub current: Arc<ArcSwap<Snapshot>>,
    pub states: Arc<ProviderStates>,
}

impl Discovery {
    /// Why the provider of a tool that isn't listed is down, for a caller that may know it.
    pub fn outage(&self, name: &str, identity: &Identity) -> Option<CallError> {
        let snapshot = self.current.load();
        let unlisted = snapshot.catalog.unlisted(name)?;
        call::authorize_unlisted(&unlisted, identity).ok()?;
        let states = self.states.0.borrow();
        states.failure(unlisted.provider, Instant::now())
    }

    /// Waits, for `limit` at most, where this name may be a tool of an MCP server that has listed
    /// none yet. Returns the snapshot to look the name up in: one with the server's list, or one in
    /// which no list is awaited.
    ///
    /// The scope is checked first: a caller without it learns nothing about the provider.
    pub async fn wait_for_listing(
        &self,
        name: &str,
        identity: &Identity,
        limit: Duration,
    ) -> Result<Arc<Snapshot>, CallError> {
        let deadline = Instant::now() + limit;
        let mut changes = self.states.0.subscribe();
        loop {
            // Before the snapshot is looked at: a change from here on ends the wait below.
            changes.mark_unchanged();
            let snapshot = self.current.load_full();
            let Some(unlisted) = snapshot.catalog.unlisted(name) else {
                return Ok(snapshot);
            };
            call::authorize_unlisted(&unlisted, identity)?;
            let failure = changes.borrow().failure(unlisted.provider, Instant::now());
            if let Some(failure) = failure {
                return Err(failure);
            }
            if timeout_at(deadline, changes.changed()).await.is_err() {
                let seconds = limit.as_secs();
                let why = format!("it has not listed its tools within {seconds} s");
                return Err(down(unlisted.provider, why, 1));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::Scopes;
    use crate::catalog::Catalog;
    use crate::catalog::mcp::{Listing, Listings};

    const MANIFEST: &str = "[provider]\nname = 's'\nhandler = 'mcp'\nmcp_command = 'x'";

    fn snapshot(text: &str) -> Snapshot {
        Snapshot {
            catalog: Arc::new(Catalog::from_text(text)),
            ..(*Snapshot::empty()).clone()
        }
    }

    fn discovery() -> Discovery {
        Discovery {
            current: Arc::new(ArcSwap::from_pointee(snapshot(MANIFEST))),
            states: Arc::default(),
        }
    }

    fn state(status: ProviderStatus) -> ProviderState {
        ProviderState {
            transport: "stdio",
            status,
            tools: None,
            listed_at: None,
            protocol: None,
            error: None,
        }
    }

    impl Discovery {
        fn provider(&self) -> Arc<Provider> {
            self.current.load().catalog.providers()[0].clone()
        }

        fn fail(&self, provider: &Arc<Provider>, why: &str, seconds: u64) {
            let next = Instant::now() + Duration::from_secs(seconds);
            let outage = Outage::new(&why, next);
            let state = state(ProviderStatus::Down);
            self.states.set(provider, state, Some(outage));
        }

        async fn wait(&self, scope: &str, limit: Duration) -> Result<Arc<Snapshot>, CallError> {
            let identity = Identity {
                scopes: Scopes::parse(scope),
                ..Identity::unrestricted()
            };
            self.wait_for_listing("s:echo", &identity, limit).await
        }
    }

    const LONG: Duration = Duration::from_secs(60);

    fn text(waited: Result<Arc<Snapshot>, CallError>) -> (String, Option<u64>) {
        let error = waited.map(drop).unwrap_err();
        (error.to_string(), error.retry_after())
    }

    #[test]
    fn provider_state_is_reported_in_lower_case() {
        let text = serde_json::to_string(&state(ProviderStatus::Starting)).unwrap();
        assert_eq!(text, r#"{"transport":"stdio","state":"starting"}"#);
    }

    #[test]
    fn reason_is_one_line_of_bounded_length() {
        assert_eq!(reason("a\n  b\t\u{1b}[0m\r\n"), "a b [0m");
        let long = reason(&"ü".repeat(1000));
        assert_eq!(long.chars().count(), LONGEST_REASON + 1);
    }

    #[tokio::test]
    async fn call_waits_for_the_first_list_and_gets_the_snapshot_that_has_it() {
        let discovery = discovery();
        let provider = discovery.provider();
        let list = async {
            let starting = state(ProviderStatus::Starting);
            discovery.states.set(&provider, starting, None);
            tokio::task::yield_now().await;
            let listing = Listing {
                at: 0,
                protocol: String::new(),
                tools: Vec::new(),
            };
            let listings = Listings::from([("s".to_owned(), Arc::new(listing))]);
            let listed = discovery.current.load().with_listings(&listings);
            discovery.current.store(Arc::new(listed));
            let ready = state(ProviderStatus::Ready);
            discovery.states.set(&provider, ready, None);
        };
        let (waited, ()) = tokio::join!(discovery.wait("*", LONG), list);
        assert!(waited.unwrap().catalog.listing("s").is_some());
    }

    #[tokio::test]
    async fn call_of_a_provider_that_is_down_fails_at_once() {
        let discovery = discovery();
        let provider = discovery.provider();
        discovery.fail(&provider, "it\nended", 8);
        let (error, retry_after) = text(discovery.wait("*", LONG).await);
        assert_eq!(error, "provider 's' is down: it ended");
        assert!(matches!(retry_after, Some(1..=8)), "{retry_after:?}");
        // The time of the next attempt, rounded up; past it, the attempt is under way.
        let states = discovery.states.0.borrow();
        let next = states.by_name["s"].outage.as_ref().unwrap().next_attempt;
        let after = |early: u64| {
            let now = next.checked_sub(Duration::from_millis(early)).unwrap();
            states.failure(&provider, now).unwrap().retry_after()
        };
        assert_eq!(
            [after(8000), after(7001), after(400)],
            [Some(8), Some(8), Some(1)]
        );
        let late = states.failure(&provider, next + LONG).unwrap();
        assert_eq!(late.retry_after(), Some(1));
    }

    #[tokio::test]
    async fn state_from_before_a_reload_is_not_told() {
        let discovery = discovery();
        discovery.fail(&discovery.provider(), "as it was", 8);
        discovery.current.store(Arc::new(snapshot(MANIFEST)));
        let fail = async { discovery.fail(&discovery.provider(), "as it is", 2) };
        let (waited, ()) = tokio::join!(discovery.wait("*", LONG), fail);
        assert_eq!(text(waited).0, "provider 's' is down: as it is");
    }

    #[tokio::test]
    async fn caller_without_the_scope_learns_nothing_and_waits_for_nothing() {
        let discovery = discovery();
        let denied = (
            "Access denied: 's:echo' is not in your scopes".to_owned(),
            None,
        );
        assert_eq!(text(discovery.wait("tool:t:*", LONG).await), denied);
        discovery.fail(&discovery.provider(), "a reason", 8);
        assert_eq!(text(discovery.wait("", LONG).await), denied);
    }

    #[tokio::test]
    async fn wait_ends_with_the_calls_time_and_with_the_process() {
        let discovery = discovery();
        let (error, retry_after) = text(discovery.wait("*", Duration::from_millis(1)).await);
        let late = "provider 's' is down: it has not listed its tools within 0 s";
        assert_eq!((error.as_str(), retry_after), (late, Some(1)));
        let end = async { discovery.states.end() };
        let (waited, ()) = tokio::join!(discovery.wait("*", LONG), end);
        assert_eq!(text(waited).0, "provider 's' is down: ati is stopping");
    }
}
