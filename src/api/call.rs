//! `POST /call`.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{Asked, Reply, Services};
use crate::auth::Identity;
use crate::call::{self, Args, Context, Counting, Output};
use crate::error::{CallError, Refusal};
use crate::snapshot::Snapshot;

#[derive(Deserialize)]
struct Body {
    tool_name: String,
    /// Only an object counts; what else a caller sends is meant for tools of other handlers.
    #[serde(default)]
    args: Value,
}

pub(super) async fn answer(
    asked: Asked<'_>,
    identity: &Identity,
    snapshot: &Snapshot,
    services: &Services,
) -> Result<Reply, Refusal> {
    let refused = |error: CallError| Refusal::Call(Box::new(error));
    let body: Body = serde_json::from_slice(&asked.body)
        .map_err(|e| refused(CallError::InvalidRequest(e.to_string())))?;
    let args = match body.args {
        Value::Object(args) => args,
        _ => Map::new(),
    };
    let request = call::Request {
        name: &body.tool_name,
        args: Args::Json(args),
        identity,
    };
    let output = call::run(request, context(snapshot, services))
        .await
        .map_err(refused)?;
    envelope(&output)
}

fn context<'a>(snapshot: &'a Snapshot, services: &'a Services) -> Context<'a> {
    Context {
        catalog: &snapshot.catalog,
        keyring: &snapshot.keyring,
        prepared: &snapshot.prepared,
        clients: &snapshot.clients,
        limits: &snapshot.settings.tools,
        runtime: &services.runtime,
        audit: &services.audit,
        counting: Counting::Here,
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
