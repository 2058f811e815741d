//! `POST /call`: one tool call.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::reply::not_json;
use super::{Reply, Request, Services, context};
use crate::auth::Identity;
use crate::call::{self, Args, Output};
use crate::error::{CallError, Refusal};
use crate::snapshot::Snapshot;

/// Another server than the manifest's, if the caller has one for this call.
const UPSTREAM_URL: &str = "x-ati-upstream-url";

#[derive(Deserialize)]
struct CallBody<'a> {
    tool_name: String,
    #[serde(default, borrow)]
    args: Option<&'a RawValue>,
}

pub(super) async fn answer(
    request: Request,
    identity: &Identity,
    snapshot: &Snapshot,
    services: &Services,
) -> Result<Reply, Refusal> {
    let refused = |error: CallError| Refusal::Call(Box::new(error));
    let invalid = |why: &str| refused(CallError::InvalidRequest(why.to_owned()));
    let Request { id, parts, body } = request;
    let limits = &snapshot.settings.tools;
    let text = body.read_all(limits.max_call_bytes, limits.timeout).await;
    let text = text.map_err(|e| {
        let cause = std::error::Error::source(&e).map(tracing::field::display);
        tracing::debug!(request_id = %id, error = %e, cause, "the body of a call can't be read");
        refused(CallError::UnreadableBody(e.to_string()))
    })?;
    if !text.trim_ascii_start().starts_with(b"{") {
        return Err(invalid("expected a JSON object"));
    }
    let body: CallBody<'_> = serde_json::from_slice(&text).map_err(|e| invalid(&e.to_string()))?;
    let upstream_url = parts.headers.get(UPSTREAM_URL);
    let upstream_url = upstream_url.map(|url| String::from_utf8_lossy(url.as_bytes()));
    let call = call::Request {
        request_id: id,
        name: &body.tool_name,
        args: Args::Text(body.args),
        identity,
        upstream_url: upstream_url.as_deref(),
    };
    let mut abandoned = services.abandon.subscribe();
    let output = tokio::select! {
        output = call::run(call, context(snapshot, services)) => output.map_err(refused)?,
        // The process ends. The call is dropped, and its audit line says so.
        _ = abandoned.wait_for(|end| *end) => return Err(Refusal::Overloaded),
    };
    envelope(&output).map_err(|e| not_json(id, &e))
}

/// `{"result": …}`. An unchanged answer of an upstream is copied as text, without parsing it.
fn envelope(output: &Output) -> Result<Reply, serde_json::Error> {
    const OPEN: &[u8] = b"{\"result\":";
    let mut body = Vec::from(OPEN);
    match output {
        Output::Raw(raw) => {
            body.reserve_exact(raw.get().len() + 1);
            body.extend_from_slice(raw.get().as_bytes());
        }
        Output::Json(value) => serde_json::to_writer(&mut body, value)?,
    }
    body.push(b'}');
    Ok(Reply::from_json(Bytes::from(body)))
}
