//! Connections to upstreams. Each worker keeps those that can be used again, without locks, and
//! without a task for each.

use std::cell::{Cell, RefCell};
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pingora_core::protocols::{ALPN, Stream};

use crate::egress::idle::{self, Bounds, IdlePool, Quiet};
use crate::egress::{Attempt, ConnectionKey, Speaks, Unresolved, peer};
use crate::error::UpstreamFault;
use crate::gateway::{Ctx, Gateway, cause, fail_to_proxy};

/// As many as Pingora's pool keeps.
const BOUNDS: Bounds = Bounds {
    per_key: 1024,
    total: 1024,
};
/// Addresses that are tried for one request.
const MOST_ATTEMPTS: usize = 8;
/// How often connections that idled for too long are looked for.
const SWEEP: Duration = Duration::from_secs(5);

/// Which connections can stand in for each other.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    address: SocketAddr,
    origin: Arc<ConnectionKey>,
}

struct Idle(Stream);

impl Quiet for Idle {
    fn is_quiet(&mut self) -> bool {
        idle::is_quiet(&mut self.0)
    }
}

thread_local! {
    static POOL: RefCell<IdlePool<Key, Idle>> = RefCell::new(IdlePool::new(BOUNDS));
    static IS_SWEPT: Cell<bool> = const { Cell::new(false) };
}

/// A connection for one request.
pub(super) struct Connected {
    pub stream: Stream,
    /// It has served another request before.
    pub is_reused: bool,
    /// When it was there.
    pub at: Instant,
    key: Key,
}

impl Connected {
    /// Keeps it for another request. It is at the end of an answer whose framing was exact.
    pub fn give_back(self, ctx: &Ctx) {
        let Some(forward) = ctx.forward() else {
            return;
        };
        let now = ctx.dial.answered.unwrap_or_else(Instant::now);
        let until = now + forward.route.upstream.timeouts.idle;
        POOL.with_borrow_mut(|pool| pool.put(&self.key, Idle(self.stream), now, until));
        if !IS_SWEPT.replace(true) {
            tokio::spawn(sweep());
        }
    }
}

/// Runs on the worker's own thread while it has idle connections.
async fn sweep() {
    loop {
        tokio::time::sleep(SWEEP).await;
        let left = POOL.with_borrow_mut(|pool| pool.sweep(Instant::now()));
        if left == 0 {
            IS_SWEPT.set(false);
            return;
        }
    }
}

/// Why there is no connection.
pub(super) enum NoConnection {
    /// The upstream has begun to speak HTTP/2.
    Http2,
    Failed(UpstreamFault, Option<Box<dyn Error + Send + Sync>>),
}

/// A connection to the upstream of the request's route. `may_reuse`: it may have served another
/// request before.
pub(super) async fn connect(
    ctx: &mut Ctx,
    gateway: &Gateway,
    may_reuse: bool,
) -> Result<Connected, NoConnection> {
    // A first try comes right after admission, which waits only to learn who the caller is.
    let now = if may_reuse && ctx.trail.subject.is_none() {
        ctx.started
    } else {
        Instant::now()
    };
    ctx.dial.began.get_or_insert(now);
    ctx.dial.attempt();
    let (Some(forward), Some(snapshot)) = (ctx.forward(), &ctx.snapshot) else {
        return Err(NoConnection::Failed(UpstreamFault::Connect, None));
    };
    let upstream = &forward.route.upstream;
    let addresses = match upstream.addresses(&snapshot.resolver, now).await {
        Ok(addresses) => addresses,
        Err(Unresolved) => {
            return Err(NoConnection::Failed(UpstreamFault::Unresolved, None));
        }
    };
    let key = |address| Key {
        address,
        origin: upstream.key.clone(),
    };
    if may_reuse {
        let kept = POOL.with_borrow_mut(|pool| {
            let keys = addresses.iter().take(MOST_ATTEMPTS).map(|it| key(*it));
            keys.into_iter()
                .find_map(|key| Some((pool.take(&key, now)?, key)))
        });
        if let Some((Idle(stream), key)) = kept {
            return Ok(Connected {
                stream,
                is_reused: true,
                at: now,
                key,
            });
        }
    }
    // Boxed: dialling is rare, and its future large.
    Box::pin(dial(ctx, gateway, &addresses)).await
}

/// Tries one address after another. Together they have connect_timeout, as on the long way.
async fn dial(
    ctx: &mut Ctx,
    gateway: &Gateway,
    addresses: &[SocketAddr],
) -> Result<Connected, NoConnection> {
    let since = Instant::now();
    let mut last = NoConnection::Failed(UpstreamFault::ConnectTimeout, None);
    for (index, address) in addresses.iter().take(MOST_ATTEMPTS).enumerate() {
        if index > 0 {
            ctx.dial.attempt();
        }
        let Some(forward) = ctx.forward() else {
            break;
        };
        let upstream = forward.route.upstream.clone();
        let mut limit = upstream.timeouts.connect.saturating_sub(since.elapsed());
        if let Some(left) = ctx.time_left() {
            limit = limit.min(left);
        }
        if limit.is_zero() {
            return Err(NoConnection::Failed(UpstreamFault::ConnectTimeout, None));
        }
        let mut peer = peer(&upstream, *address, Attempt::Request);
        peer.options.connection_timeout = Some(limit);
        peer.options.total_connection_timeout = Some(limit);
        match gateway.dialer.new_stream(&peer).await {
            Ok(stream) if stream.selected_alpn_proto() == Some(ALPN::H2) => {
                upstream.observe_version(Speaks::Http2);
                return Err(NoConnection::Http2);
            }
            Ok(stream) => {
                return Ok(Connected {
                    stream,
                    is_reused: false,
                    at: Instant::now(),
                    key: Key {
                        address: *address,
                        origin: upstream.key.clone(),
                    },
                });
            }
            Err(e) => {
                let text = cause(&e).map(|text| text.into());
                last = NoConnection::Failed(fail_to_proxy::fault(&e), text);
            }
        }
    }
    Err(last)
}
