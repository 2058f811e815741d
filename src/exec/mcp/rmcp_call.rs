//! Calls of tools through rmcp: of servers behind URLs.

use rmcp::RoleClient;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CancelledNotificationParam, ClientRequest, RequestId,
    RequestMetaObject, ServerResult,
};
use rmcp::service::{Peer, PeerRequestOptions, ServiceError};

use super::handshake::ClientService;
use super::param_headers::ParamHeaders;
use super::session::{CallArguments, SessionLink};
use crate::catalog::McpInvocation;
use crate::exec::Progress;
use crate::request_id::RequestId as OwnId;
use crate::telemetry::otel::{Traceparent, traceparent};

/// Sends one request and waits for its answer. Progress reports are shown meanwhile. The call is
/// cancelled where this future is dropped.
pub async fn send(
    service: &ClientService,
    link: &SessionLink,
    request: ClientRequest,
    show: Option<impl Fn(Progress)>,
) -> Result<ServerResult, ServiceError> {
    let peer = service.peer();
    let mut request = peer
        .send_cancellable_request(request, PeerRequestOptions::no_options())
        .await?;
    let big_result = link.big_results.expect(request.id.clone());
    let mut cancellation = CancelOnDrop {
        peer: peer.clone(),
        id: Some(request.id.clone()),
    };
    let answer = match show {
        None => (&mut request.rx).await,
        Some(show) => {
            let token = request.progress_token.clone();
            let mut reports = link.progress.follow(token);
            loop {
                tokio::select! {
                    biased;
                    progress = reports.next() => show(progress),
                    answer = &mut request.rx => break answer,
                }
            }
        }
    };
    cancellation.id = None;
    let answer = answer.unwrap_or(Err(ServiceError::TransportClosed))?;
    let big = big_result.take().map(ServerResult::CallToolResult);
    Ok(big.unwrap_or(answer))
}

/// Under which ids the server can find the request that made a call.
#[derive(Debug, Clone, Copy)]
pub struct CallIds {
    pub request: OwnId,
    pub traceparent: Option<Traceparent>,
}

/// A call as rmcp sends it.
pub fn request(
    remote: &McpInvocation,
    arguments: &CallArguments,
    state: Option<String>,
    ids: CallIds,
) -> ClientRequest {
    let (shown, big, headers) = match arguments {
        CallArguments::Small(arguments) => {
            let headers = ParamHeaders::of(&remote.headers, arguments);
            (arguments.clone(), None, headers)
        }
        CallArguments::Big(big) => {
            let headers = ParamHeaders::of(&remote.headers, &big.0);
            (big.shown(), Some(big), headers)
        }
    };
    let name = remote.remote_name.clone();
    let mut params = CallToolRequestParams::new(name).with_arguments(shown);
    params.request_state = state;
    if let Some(parent) = ids.traceparent {
        let mut meta = RequestMetaObject::new();
        meta.insert(
            traceparent::HEADER.to_owned(),
            parent.text().as_str().into(),
        );
        params.meta = Some(meta);
    }
    let mut request = CallToolRequest::new(params);
    // Not part of the message: the HTTP transport sends them as headers.
    request.extensions.insert(ids);
    if let Some(big) = big {
        request.extensions.insert(big.clone());
    }
    request.extensions.insert(headers);
    ClientRequest::CallToolRequest(request)
}

/// Tells the server that a call is cancelled, unless its answer has come.
struct CancelOnDrop {
    peer: Peer<RoleClient>,
    id: Option<RequestId>,
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        let (Some(id), Ok(runtime)) = (self.id.take(), tokio::runtime::Handle::try_current())
        else {
            return;
        };
        let peer = self.peer.clone();
        runtime.spawn(async move {
            let reason = Some("the caller has left, or its time is over".to_owned());
            let _ = peer
                .notify_cancelled(CancelledNotificationParam::new(Some(id), reason))
                .await;
        });
    }
}
