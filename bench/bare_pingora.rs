//! The floor: a Pingora proxy that does nothing but forward, built with our profile. `bare_pingora LISTEN UPSTREAM`.

use std::net::SocketAddr;

use async_trait::async_trait;
use pingora_core::server::Server;
use pingora_core::server::configuration::ServerConf;
use pingora_core::upstreams::peer::HttpPeer;
use pingora_error::Result;
use pingora_proxy::{ProxyHttp, Session, http_proxy_service};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

struct Forward(HttpPeer);

#[async_trait]
impl ProxyHttp for Forward {
    type CTX = ();

    fn new_ctx(&self) {}

    async fn upstream_peer(&self, _: &mut Session, (): &mut ()) -> Result<Box<HttpPeer>> {
        Ok(Box::new(self.0.clone()))
    }
}

fn main() {
    let mut args = std::env::args().skip(1);
    let (Some(listen), Some(upstream)) = (args.next(), args.next()) else {
        std::process::exit(2);
    };
    let upstream: SocketAddr = upstream.parse().expect("an address and port");
    let conf = ServerConf {
        threads: 1,
        work_stealing: false,
        ..ServerConf::default()
    };
    let mut server = Server::new_with_opt_and_conf(None, conf);
    server.bootstrap();
    let peer = HttpPeer::new(upstream, false, String::new());
    let mut service = http_proxy_service(&server.configuration, Forward(peer));
    service.add_tcp(&listen);
    server.add_service(service);
    server.run_forever();
}
