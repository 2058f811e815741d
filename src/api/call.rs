//! `POST /call`.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Asked, Reply, Services, context};
use crate::auth::Identity;
use crate::call::{self, Args, Output};
use crate::error::{CallError, Refusal};
use crate::snapshot::Snapshot;

#[derive(Deserialize)]
struct Body<'a> {
    tool_name: String,
    #[serde(default, borrow)]
    args: Option<&'a RawValue>,
}

pub(super) async fn answer(
    asked: Asked<'_>,
    identity: &Identity,
    snapshot: &Snapshot,
    services: &Services,
) -> Result<Reply, Refusal> {
    let refused = |error: CallError| Refusal::Call(Box::new(error));
    let invalid = |why: &str| refused(CallError::InvalidRequest(why.to_owned()));
    if !asked.body.trim_ascii_start().starts_with(b"{") {
        return Err(invalid("expected a JSON object"));
    }
    let body: Body<'_> =
        serde_json::from_slice(&asked.body).map_err(|e| invalid(&e.to_string()))?;
    let request = call::Request {
        request_id: asked.request_id,
        name: &body.tool_name,
        args: Args::Text(body.args),
        identity,
        upstream_url: asked.upstream_url,
    };
    let mut abandoned = services.abandon.subscribe();
    tokio::select! {
        output = call::run(request, context(snapshot, services)) => envelope(&output.map_err(refused)?),
        // The process ends. Dropping the call leaves its line in the audit.
        _ = abandoned.wait_for(|end| *end) => Err(Refusal::Overloaded),
    }
}

/// `{"result": …}`; the text of an answer that nobody changed is copied, not read.
fn envelope(output: &Output) -> Result<Reply, Refusal> {
    const OPEN: &[u8] = b"{\"result\":";
    let mut body = Vec::from(OPEN);
    match output {
        Output::Raw(raw) => {
            body.reserve_exact(raw.get().len() + 1);
            body.extend_from_slice(raw.get().as_bytes());
        }
        Output::Json(value) => {
            serde_json::to_writer(&mut body, value).map_err(|_| Refusal::Internal)?;
        }
    }
    body.push(b'}');
    Ok(Reply::from_json(Bytes::from(body)))
}
