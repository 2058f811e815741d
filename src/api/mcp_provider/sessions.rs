//! Sessions of clients of the handshake era, each with a session of its own at the server, and
//! servers that requests of the stateless era share where the server itself needs a session.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use ring::rand::{SecureRandom, SystemRandom};
use tokio::sync::{OnceCell, watch};

use super::upstream::Upstream;
use crate::auth::Identity;
use crate::call::Relayed;
use crate::derived_key::{Key, KeyBuilder};
use crate::exec::mcp::McpError;

/// How many are open at a time: of all callers, and of one.
const MOST_SESSIONS: usize = 1000;
const MOST_OF_ONE_CALLER: usize = 100;
/// A session that is unused for so long ends. An agent may think for a while between two calls.
const IDLE: Duration = Duration::from_secs(1800);
/// The same where the client's last request or stream broke off: it has probably left.
const IDLE_AFTER_BREAK: Duration = Duration::from_secs(30);
/// A shared server that is unused for so long ends.
const SHARED_IDLE: Duration = Duration::from_secs(300);

/// Who a session belongs to. Another caller doesn't find it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Owner {
    subject: String,
    customer_id: Option<String>,
    job_id: Option<String>,
    sandbox_id: Option<String>,
}

impl Owner {
    pub fn of(identity: &Identity) -> Self {
        Owner {
            subject: identity.subject.clone(),
            customer_id: identity.customer_id.clone(),
            job_id: identity.job_id.clone(),
            sandbox_id: identity.sandbox_id.clone(),
        }
    }
}

/// One client's session.
pub struct ClientSession {
    pub id: String,
    pub provider: String,
    /// Of the target that it was opened with. A reload that changes it ends the session.
    pub key: Key,
    pub upstream: Upstream,
    owner: Owner,
    activity: Mutex<Activity>,
    ended: watch::Sender<bool>,
}

struct Activity {
    /// Requests and streams under way.
    open: usize,
    last: Instant,
    /// The last one broke off.
    broke_off: bool,
}

impl ClientSession {
    /// The session is in use until the guard is dropped.
    pub fn enter(self: &Arc<Self>) -> InUse {
        self.activity.lock().open += 1;
        InUse {
            session: self.clone(),
            is_complete: false,
        }
    }

    /// True once the session is over, and its streams have to end.
    pub fn ended(&self) -> watch::Receiver<bool> {
        self.ended.subscribe()
    }

    fn is_over(&self, now: Instant) -> bool {
        if !self.upstream.is_open() {
            return true;
        }
        let activity = self.activity.lock();
        let limit = if activity.broke_off {
            IDLE_AFTER_BREAK
        } else {
            IDLE
        };
        activity.open == 0 && now.saturating_duration_since(activity.last) >= limit
    }
}

/// One request or stream of a session.
pub struct InUse {
    session: Arc<ClientSession>,
    is_complete: bool,
}

impl InUse {
    /// The client got everything that it was to get.
    pub fn complete(&mut self) {
        self.is_complete = true;
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        let mut activity = self.session.activity.lock();
        activity.open -= 1;
        activity.last = Instant::now();
        activity.broke_off = !self.is_complete;
    }
}

/// A server that requests of one caller share. Dropped with the last of them once it is removed.
pub struct SharedUpstream {
    pub upstream: Upstream,
    /// The result of `initialize`, where the server has one.
    pub initialized: Option<Vec<u8>>,
}

struct SharedSlot {
    cell: Arc<OnceCell<Arc<SharedUpstream>>>,
    provider: String,
    last: Instant,
}

#[derive(Default)]
pub struct ProviderSessions {
    all: Mutex<HashMap<String, Arc<ClientSession>>>,
    /// How many each caller is about to open. Locked after `all`.
    opening: Arc<Mutex<HashMap<Owner, usize>>>,
    shared: Mutex<HashMap<Key, SharedSlot>>,
    draining: watch::Sender<bool>,
}

/// Room for a session that is about to be opened.
pub struct Place {
    owner: Owner,
    opening: Arc<Mutex<HashMap<Owner, usize>>>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut opening = self.opening.lock();
        if let Some(count) = opening.get_mut(&self.owner) {
            *count -= 1;
            if *count == 0 {
                opening.remove(&self.owner);
            }
        }
    }
}

/// Why no session was opened.
#[derive(Debug, PartialEq, Eq)]
pub struct NoRoom;

impl ProviderSessions {
    /// Opens a session under a new id, in the place that was reserved for it.
    pub fn add(
        &self,
        relayed: &Relayed<'_>,
        key: Key,
        upstream: Upstream,
        place: Place,
    ) -> Result<Arc<ClientSession>, NoRoom> {
        let mut random = [0; 24];
        SystemRandom::new().fill(&mut random).map_err(|_| NoRoom)?;
        let session = Arc::new(ClientSession {
            id: hex::encode(random),
            provider: relayed.provider.name.clone(),
            key,
            upstream,
            owner: place.owner.clone(),
            activity: Mutex::new(Activity {
                open: 0,
                last: Instant::now(),
                broke_off: false,
            }),
            ended: watch::Sender::new(false),
        });
        let mut all = self.all.lock();
        all.insert(session.id.clone(), session.clone());
        drop(place);
        Ok(session)
    }

    /// Room for one more, before a server is started for it.
    pub fn reserve(&self, identity: &Identity) -> Result<Place, NoRoom> {
        let owner = Owner::of(identity);
        let mut all = self.all.lock();
        let mut opening = self.opening.lock();
        make_room(&mut all, &opening, &owner)?;
        *opening.entry(owner.clone()).or_default() += 1;
        Ok(Place {
            owner,
            opening: self.opening.clone(),
        })
    }

    /// The session of this id, if it is this caller's and this provider's.
    pub fn find(&self, id: &str, relayed: &Relayed<'_>) -> Option<Arc<ClientSession>> {
        let session = self.all.lock().get(id).cloned()?;
        let is_own = session.owner == Owner::of(relayed.identity)
            && session.provider == relayed.provider.name;
        (is_own && session.upstream.is_open()).then_some(session)
    }

    pub fn remove(&self, session: &ClientSession) {
        if let Some(removed) = self.all.lock().remove(&session.id) {
            end(&removed);
        }
    }

    /// The server that requests of this caller share, opened by the first of them.
    pub async fn share<F: Future<Output = Result<SharedUpstream, McpError>>>(
        &self,
        relayed: &Relayed<'_>,
        key: Key,
        open: impl FnOnce() -> F,
    ) -> Result<Result<Arc<SharedUpstream>, McpError>, NoRoom> {
        let key = KeyBuilder::new("shared mcp server")
            .with(key)
            .with(Owner::of(relayed.identity))
            .finish();
        let cell = {
            let mut shared = self.shared.lock();
            let is_open = |slot: &SharedSlot| {
                let server = slot.cell.get();
                server.is_none_or(|server| server.upstream.is_open())
            };
            shared.retain(|_, slot| is_open(slot));
            if !shared.contains_key(&key) && shared.len() >= MOST_SESSIONS {
                let unused = |slot: &SharedSlot| {
                    let users = slot.cell.get().map_or(2, Arc::strong_count);
                    users <= 1
                };
                let oldest = shared.iter().filter(|(_, slot)| unused(slot));
                let oldest = oldest
                    .min_by_key(|(_, slot)| slot.last)
                    .map(|(key, _)| *key);
                shared.remove(&oldest.ok_or(NoRoom)?);
            }
            let slot = shared.entry(key).or_insert_with(|| SharedSlot {
                cell: Arc::default(),
                provider: relayed.provider.name.clone(),
                last: Instant::now(),
            });
            slot.last = Instant::now();
            slot.cell.clone()
        };
        let opened = cell
            .get_or_try_init(|| async { open().await.map(Arc::new) })
            .await;
        Ok(opened.cloned())
    }

    /// Forgets a shared server that no longer knows its session.
    pub fn forget(&self, server: &Arc<SharedUpstream>) {
        let is_it = |slot: &SharedSlot| {
            let cell = slot.cell.get();
            cell.is_some_and(|one| Arc::ptr_eq(one, server))
        };
        self.shared.lock().retain(|_, slot| !is_it(slot));
    }

    /// Ends what is idle, what its server has ended, and what `exists` no longer names.
    pub fn sweep(&self, exists: impl Fn(&str) -> bool) {
        let now = Instant::now();
        let mut over = Vec::new();
        self.all.lock().retain(|_, session| {
            let stays = !session.is_over(now) && exists(&session.provider);
            if !stays {
                over.push(session.clone());
            }
            stays
        });
        over.iter().for_each(|session| end(session));
        self.shared.lock().retain(|_, slot| {
            let is_used = slot
                .cell
                .get()
                .is_some_and(|one| Arc::strong_count(one) > 1);
            let is_fresh = now.saturating_duration_since(slot.last) < SHARED_IDLE;
            let is_open = slot.cell.get().is_none_or(|one| one.upstream.is_open());
            exists(&slot.provider) && is_open && (is_used || is_fresh)
        });
    }

    /// Ends streams that would outlast the requests of a process that is about to end. Their
    /// clients ask its successor, which doesn't know their sessions, and initialize again.
    pub fn drain(&self) {
        self.draining.send_replace(true);
    }

    pub fn draining(&self) -> watch::Receiver<bool> {
        self.draining.subscribe()
    }

    pub fn clear(&self) {
        self.sweep(|_| false);
    }

    /// Client sessions, and shared servers.
    pub fn count(&self) -> (usize, usize) {
        (self.all.lock().len(), self.shared.lock().len())
    }
}

/// Tells streams of the session that it is over, and the server, where it has one of its own.
fn end(session: &ClientSession) {
    session.ended.send_replace(true);
    if let Upstream::Http(http) = &session.upstream {
        http.end();
    }
}

/// Ends the session that has been idle for longest where there are too many.
fn make_room(
    all: &mut HashMap<String, Arc<ClientSession>>,
    opening: &HashMap<Owner, usize>,
    owner: &Owner,
) -> Result<(), NoRoom> {
    let own = all.values().filter(|one| one.owner == *owner).count();
    let own = own + opening.get(owner).copied().unwrap_or_default();
    let is_own_limit = own >= MOST_OF_ONE_CALLER;
    let count = all.len() + opening.values().sum::<usize>();
    if !is_own_limit && count < MOST_SESSIONS {
        return Ok(());
    }
    let idle = all
        .values()
        .filter(|one| !is_own_limit || one.owner == *owner)
        .filter(|one| one.activity.lock().open == 0)
        .min_by_key(|one| one.activity.lock().last);
    let id = idle.ok_or(NoRoom)?.id.clone();
    if let Some(ended) = all.remove(&id) {
        end(&ended);
    }
    Ok(())
}
