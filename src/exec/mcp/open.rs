//! From a target to an open session: from the pool, or a new one.

use std::sync::Arc;

use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use tracing::{Instrument, debug};

use super::handshake::{ClientService, Era, handshake, request_meta};
use super::http::Endpoint;
use super::session::{CONCURRENT_CALLS, Session, SessionLink, SessionTrace};
use super::stdio::StdioTransport;
use super::{HANDSHAKE_LIMIT, McpError, ServerSpec, Target};
use crate::credential::Attachment;
use crate::egress::{Clients, EgressError};
use crate::exec::ExecContext;
use crate::process::{self, Resident, Streams};
use crate::runtime::{ComputePool, Key};

/// The session of this key, opened with this attachment.
pub async fn lease_session(
    target: &Arc<Target>,
    key: Key,
    attachment: &Arc<Attachment>,
    context: ExecContext<'_>,
) -> Result<Arc<Session>, McpError> {
    let sessions = &context.runtime.sessions;
    let full = || McpError::Busy {
        provider: target.provider.to_string(),
    };
    let open = || {
        let (target, attachment) = (target.clone(), attachment.clone());
        let (clients, compute) = (context.clients.clone(), context.runtime.compute.clone());
        move |noted: Era| open_session(target, attachment, clients, compute, noted)
    };
    let session = sessions.get(key, full, open()).await?;
    // A session keeps the credential that it was opened with: a newly minted one needs another.
    if target.is_minted() && !Arc::ptr_eq(&session.attachment, attachment) {
        sessions.replace(key, &session);
        return sessions.get(key, full, open()).await;
    }
    Ok(session)
}

/// Opens a session, and returns the era of its server as the note for the next time.
async fn open_session(
    target: Arc<Target>,
    attachment: Arc<Attachment>,
    clients: Arc<Clients>,
    compute: Arc<ComputePool>,
    noted: Era,
) -> Result<(Session, Era), McpError> {
    let trace = SessionTrace::new(&target.provider, target.server.transport_name());
    let (serial, span) = (trace.serial, trace.span.clone());
    let opened = connect_in_known_era(&target, &attachment, &clients, &compute, noted)
        .instrument(span.clone())
        .await;
    let provider = &target.provider;
    match opened {
        Ok((link, service)) => {
            let session = Session::new(trace, provider.clone(), service, link, attachment);
            let protocol = session.protocol();
            span.record("protocol", &protocol);
            debug!(parent: &span, %provider, session = serial, protocol, "MCP session opened");
            let era = session.era();
            Ok((session, era))
        }
        Err(error) => {
            let error = target.redact(error, &attachment);
            debug!(parent: &span, %provider, session = serial, %error, "MCP session not opened");
            Err(error)
        }
    }
}

/// Connects in the era that is known, and where that fails, in the one that the server is found to
/// speak: it may have been updated.
async fn connect_in_known_era(
    target: &Target,
    attachment: &Arc<Attachment>,
    clients: &Arc<Clients>,
    compute: &Arc<ComputePool>,
    noted: Era,
) -> Result<(SessionLink, ClientService), McpError> {
    let listing = target.last_listing.as_ref();
    let era = match (noted, listing) {
        (Era::Unknown, Some(listing)) => Era::of_protocol(&listing.protocol),
        (noted, _) => noted,
    };
    match connect(target, attachment, clients, compute, era).await {
        Err(error @ (McpError::Protocol { .. } | McpError::Garbage { .. }))
            if era != Era::Unknown =>
        {
            let error = target.redact(error, attachment);
            debug!(provider = %target.provider, ?era, %error, "MCP server speaks another era");
            connect(target, attachment, clients, compute, Era::Unknown).await
        }
        connected => connected,
    }
}

/// Makes the transport and runs the handshake on it.
async fn connect(
    target: &Target,
    attachment: &Arc<Attachment>,
    clients: &Arc<Clients>,
    compute: &Arc<ComputePool>,
    era: Era,
) -> Result<(SessionLink, ClientService), McpError> {
    let provider = &target.provider;
    let mut link = SessionLink::new(compute.clone());
    let service = match &target.server {
        ServerSpec::Program { .. } => {
            let streams = start_program(target, attachment).await?;
            let transport = StdioTransport::new(provider, streams, attachment.clone(), &link);
            let calls = transport.calls();
            let service = handshake(provider, transport, era, &link, HANDSHAKE_LIMIT).await?;
            link.calls = match request_meta(&service) {
                Some(meta) => calls.map(|calls| calls.with_meta(&meta)),
                None => calls,
            };
            service
        }
        ServerSpec::Endpoint(url) => {
            let endpoint = Endpoint::new(
                provider,
                clients.clone(),
                target.source,
                url.clone(),
                attachment.clone(),
                era,
                &link,
            );
            // rmcp gets a name in place of the URL, which may hold a secret.
            let config = StreamableHttpClientTransportConfig::with_uri(format!("mcp:{provider}"))
                // The session bounds calls; lists and the end of the session don't wait for them.
                .max_concurrent_requests(2 * CONCURRENT_CALLS);
            let transport = StreamableHttpClientTransport::with_client(endpoint, config);
            handshake(provider, transport, era, &link, HANDSHAKE_LIMIT).await?
        }
    };
    Ok((link, service))
}

/// Starts the program of a server, with the credential in its environment.
pub async fn start_program(target: &Target, attachment: &Attachment) -> Result<Streams, McpError> {
    let ServerSpec::Program {
        program,
        args,
        env,
        run_as,
        sandbox,
    } = &target.server
    else {
        return Err(EgressError::Setup("this provider has no program".to_owned()).into());
    };
    let mut env = env.clone();
    env.extend(attachment.environment());
    let resident = Resident {
        program: program.clone(),
        args: args.clone(),
        env,
        run_as: run_as.clone(),
        sandbox: sandbox.clone(),
    };
    let started = process::start(resident).await;
    started.map_err(|e| McpError::Spawn {
        provider: target.provider.to_string(),
        what: format!("{program}: {e}"),
    })
}
