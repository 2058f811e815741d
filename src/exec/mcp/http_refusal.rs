//! What the refusal of an HTTP server means to a session.

use rmcp::model::{ErrorCode, ErrorData, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_client::StreamableHttpPostResponse;

use super::McpError;
use super::http::{ClientFailure, PostedRequest, TransportError};
use super::message::{ServerMessage, classify};

/// Error codes that only servers of the stateless era use.
const STATELESS_CODES: [i32; 3] = [-32020, -32021, -32022];

/// Whether a refusal is about the session, in the words of the SDKs. Any other 400 is about the
/// call, which must not be repeated because of it.
pub fn mentions_session(refusal: &McpError) -> bool {
    let McpError::Status { body, .. } = refusal else {
        return false;
    };
    let body = body.to_lowercase();
    let words = [
        "session id",
        "session-id",
        "session not found",
        "server not initialized",
    ];
    words.iter().any(|words| body.contains(words))
}

/// A refusal may carry a JSON-RPC error, which is the answer to the request; a refused probe tells
/// that the server belongs to the older era.
pub fn answer_of_refusal(
    status: u16,
    refusal: McpError,
    request: Option<PostedRequest>,
) -> Result<StreamableHttpPostResponse, TransportError> {
    let body = match &refusal {
        McpError::Status { body, .. } => body.as_bytes(),
        _ => b"",
    };
    let error = match classify(body) {
        ServerMessage::Message(message) => match *message {
            ServerJsonRpcMessage::Error(error) => Some(error.error),
            _ => None,
        },
        _ => None,
    };
    let Some(request) = request else {
        return Err(TransportError::Client(ClientFailure(refusal)));
    };
    let is_stateless = |error: &ErrorData| STATELESS_CODES.contains(&error.code.0);
    let answer = match error {
        _ if matches!(status, 401 | 403 | 429) => None,
        Some(error) if !request.is_probe || is_stateless(&error) => Some(error),
        _ if request.is_probe && (400..500).contains(&status) => Some(no_discover()),
        other => other,
    };
    match answer {
        Some(error) => Ok(request.answer(error)),
        None => Err(TransportError::Client(ClientFailure(refusal))),
    }
}

/// How a server of the older era answers `server/discover`.
pub fn no_discover() -> ErrorData {
    ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "no server/discover", None)
}
