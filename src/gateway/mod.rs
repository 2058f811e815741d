//! Pingora's hooks, one file each, in the order in which Pingora calls them. `filters` and `api`
//! make the decisions; the hooks carry them out.

mod body;
mod call_row;
mod chunks;
mod ctx;
mod early_request_filter;
mod fail_to_connect;
mod fail_to_proxy;
mod header_watch;
mod load;
mod logging;
mod proxy_upstream_filter;
mod request_body_filter;
mod request_filter;
mod respond;
mod response_filter;
mod scrub;
pub mod short;
mod stream;
mod strip;
mod tunnel;
mod upstream_peer;
mod upstream_request_filter;
mod upstream_response_body_filter;
mod upstream_response_filter;

use std::any::Any;
use std::error::Error as StdError;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use bytes::Bytes;
use http::HeaderMap;
use pingora_core::connectors::{ConnectorOptions, TransportConnector};
use pingora_core::modules::http::HttpModules;
use pingora_core::protocols::l4::socket::SocketAddr;
use pingora_core::server::configuration::ServerConf;
use pingora_core::upstreams::peer::HttpPeer;
use pingora_error::{Error, ErrorType, Result};
use pingora_http::{RequestHeader, ResponseHeader};
use pingora_proxy::{FailToProxy, ProxyHttp, Session};

pub use ctx::Ctx;
pub use header_watch::{HeaderWatch, Phase};
pub use load::Load;
pub use logging::record_unparsed;
pub use respond::plain_refusal;

use crate::api::Services;
use crate::config::Peer;
use crate::error::Refusal;
use crate::snapshot::Snapshot;

/// The other end of a connection, as the list of trusted proxies knows it.
pub fn peer(address: Option<&SocketAddr>) -> Peer {
    match address {
        Some(SocketAddr::Inet(address)) => Peer::Inet(address.ip()),
        Some(SocketAddr::Unix(_)) => Peer::Unix,
        None => Peer::Unknown,
    }
}

/// What a connection gives its next session of Pingora's.
pub struct ConnectionContext {
    pub watch: Arc<HeaderWatch>,
    /// A request that the short way began.
    pub begun: Option<Box<Ctx>>,
}

pub struct Gateway {
    current: Arc<ArcSwap<Snapshot>>,
    load: Arc<Load>,
    services: Arc<Services>,
    /// Dials the upstreams of tunnels, whose connections are no longer HTTP.
    dialer: TransportConnector,
}

impl Gateway {
    pub fn new(
        current: Arc<ArcSwap<Snapshot>>,
        load: Arc<Load>,
        services: Arc<Services>,
        conf: &ServerConf,
    ) -> Self {
        Gateway {
            current,
            load,
            services,
            dialer: TransportConnector::new(Some(ConnectorOptions::from_server_conf(conf))),
        }
    }
}

const REFUSED: ErrorType = ErrorType::Custom("refused");

/// Keep the refusal and end the request with an error, so that Pingora calls `fail_to_proxy`, which
/// writes it.
fn refuse<T>(ctx: &mut Ctx, refusal: Refusal) -> Result<T> {
    ctx.refusal = Some(refusal);
    Err(Error::new(REFUSED))
}

/// The cause is for the access line, and not for the caller.
fn refuse_because<T>(
    ctx: &mut Ctx,
    refusal: Refusal,
    cause: Box<dyn StdError + Send + Sync>,
) -> Result<T> {
    ctx.refusal = Some(refusal);
    Err(Error::because(REFUSED, "", cause))
}

/// The innermost cause, in the words of the operating system or of a library. None of Pingora's own
/// texts: they can hold parts of a URL, and so a key.
fn cause(e: &Error) -> Option<String> {
    let root = e.root_cause();
    match root.downcast_ref::<Error>() {
        None => Some(root.to_string()),
        Some(last) if std::ptr::eq(last, e) => None,
        // Pingora doesn't look into an error of its own that was boxed as another one's cause.
        Some(inner) => cause(inner),
    }
}

#[async_trait]
impl ProxyHttp for Gateway {
    /// Boxed, because every future that Pingora makes for the request holds it by value.
    type CTX = Box<Ctx>;

    /// Pins one snapshot: a reload doesn't change the rules in the middle of a request.
    fn new_ctx(&self) -> Box<Ctx> {
        Box::new(Ctx::new(self.current.load_full(), &self.load))
    }

    /// Without modules, bodies pass unchanged.
    fn init_downstream_modules(&self, _modules: &mut HttpModules) {}

    fn on_connection_reuse(
        &self,
        _session: &mut Session,
        ctx: &mut Box<Ctx>,
        context: Box<dyn Any + Send + Sync>,
    ) {
        if let Ok(context) = context.downcast::<ConnectionContext>() {
            let ConnectionContext { watch, begun } = *context;
            if let Some(begun) = begun {
                *ctx = begun;
            }
            ctx.header_watch = Some(watch);
        }
    }

    async fn early_request_filter(&self, session: &mut Session, ctx: &mut Box<Ctx>) -> Result<()> {
        early_request_filter::run(session, ctx)
    }

    async fn request_filter(&self, session: &mut Session, ctx: &mut Box<Ctx>) -> Result<bool> {
        request_filter::run(session, ctx, self.services.keys.as_deref()).await
    }

    async fn proxy_upstream_filter(
        &self,
        session: &mut Session,
        ctx: &mut Box<Ctx>,
    ) -> Result<bool> {
        proxy_upstream_filter::run(session, ctx, &self.dialer, &self.services).await
    }

    async fn upstream_peer(
        &self,
        session: &mut Session,
        ctx: &mut Box<Ctx>,
    ) -> Result<Box<HttpPeer>> {
        upstream_peer::run(session, ctx).await
    }

    fn fail_to_connect(
        &self,
        _: &mut Session,
        _: &HttpPeer,
        ctx: &mut Box<Ctx>,
        e: Box<Error>,
    ) -> Box<Error> {
        fail_to_connect::run(e, ctx)
    }

    async fn upstream_request_filter(
        &self,
        _: &mut Session,
        request: &mut RequestHeader,
        ctx: &mut Box<Ctx>,
    ) -> Result<()> {
        upstream_request_filter::run(request, ctx)
    }

    async fn request_body_filter(
        &self,
        _: &mut Session,
        body: &mut Option<Bytes>,
        _end: bool,
        ctx: &mut Box<Ctx>,
    ) -> Result<()> {
        request_body_filter::run(body.as_ref(), ctx)
    }

    async fn upstream_response_filter(
        &self,
        session: &mut Session,
        response: &mut ResponseHeader,
        ctx: &mut Box<Ctx>,
    ) -> Result<()> {
        upstream_response_filter::run(session, response, ctx)
    }

    async fn response_filter(
        &self,
        session: &mut Session,
        response: &mut ResponseHeader,
        _: &mut Box<Ctx>,
    ) -> Result<()> {
        response_filter::run(session, response);
        Ok(())
    }

    fn upstream_response_body_filter(
        &self,
        _: &mut Session,
        body: &mut Option<Bytes>,
        end: bool,
        ctx: &mut Box<Ctx>,
    ) -> Result<Option<Duration>> {
        upstream_response_body_filter::run(body, end, ctx)?;
        Ok(None)
    }

    fn upstream_response_trailer_filter(
        &self,
        _: &mut Session,
        trailers: &mut HeaderMap,
        ctx: &mut Box<Ctx>,
    ) -> Result<()> {
        if let Some(forward) = ctx.forward() {
            scrub::trailers(trailers, forward.attachment());
        }
        Ok(())
    }

    /// The last bytes of a scrubbed body, which Pingora writes in place of the trailers.
    async fn response_trailer_filter(
        &self,
        _: &mut Session,
        _: &mut HeaderMap,
        ctx: &mut Box<Ctx>,
    ) -> Result<Option<Bytes>> {
        Ok(scrub::rest(ctx))
    }

    async fn fail_to_proxy(
        &self,
        session: &mut Session,
        e: &Error,
        ctx: &mut Box<Ctx>,
    ) -> FailToProxy {
        fail_to_proxy::run(session, e, ctx).await
    }

    async fn logging(&self, session: &mut Session, e: Option<&Error>, ctx: &mut Box<Ctx>) {
        logging::run(session, e, ctx, &self.services);
    }

    /// Pingora's own error lines hold the URL, and so perhaps a key. The access line replaces them.
    fn suppress_error_log(&self, _: &Session, _: &Box<Ctx>, _: &Error) -> bool {
        true
    }

    fn request_summary(&self, session: &Session, _: &Box<Ctx>) -> String {
        session.req_header().method.to_string()
    }
}
