//! An upstream as Pingora's connector takes it.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::SocketAddr;
use std::time::Duration;

use pingora_core::connectors::l4::BindTo;
use pingora_core::protocols::l4::ext::TcpKeepalive;
use pingora_core::upstreams::peer::{ALPN, HttpPeer, HttpUpstreamRequestPolicy};

use super::upstream::Upstream;

const H2_STREAMS: usize = 128;

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempt {
    /// Requests, over HTTP/2 where the upstream speaks it.
    Request,
    /// One HTTP/1.1 upgrade, then the bytes of a WebSocket.
    Tunnel,
}

pub fn peer(upstream: &Upstream, address: SocketAddr, attempt: Attempt) -> HttpPeer {
    // The host is also the name that the certificate is checked for, or the IP address. An empty
    // one would switch that check off.
    let mut peer = HttpPeer::new(address, upstream.tls, upstream.host.clone());
    let options = &mut peer.options;
    options.connection_timeout = Some(upstream.timeouts.connect);
    options.total_connection_timeout = Some(upstream.timeouts.connect);
    options.read_timeout = Some(upstream.timeouts.inactivity);
    options.write_timeout = Some(upstream.timeouts.inactivity);
    options.idle_timeout = Some(upstream.timeouts.idle);
    options.http_upstream_request_policy = HttpUpstreamRequestPolicy::deny_upgrades();
    options.max_h2_streams = H2_STREAMS;
    if upstream.tls && attempt == Attempt::Request {
        options.alpn = ALPN::H2H1;
    }
    if attempt == Attempt::Tunnel {
        options.tcp_keepalive = Some(TcpKeepalive {
            idle: Duration::from_secs(60),
            interval: Duration::from_secs(15),
            count: 4,
            user_timeout: Duration::ZERO,
        });
    }
    if let Some(source) = upstream.source {
        let mut bind = BindTo::default();
        bind.addr = Some(SocketAddr::new(source, 0));
        options.bind_to = Some(bind);
        // Pingora's pool doesn't look at the source address. The group key keeps connections from
        // different addresses apart.
        let mut hasher = DefaultHasher::new();
        source.hash(&mut hasher);
        peer.group_key = hasher.finish();
    }
    peer
}
