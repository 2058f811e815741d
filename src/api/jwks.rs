use super::Reply;
use crate::error::Refusal;
use crate::snapshot::Snapshot;

pub(super) fn answer(snapshot: &Snapshot) -> Result<Reply, Refusal> {
    let key = snapshot
        .verifier
        .as_ref()
        .and_then(|verifier| verifier.public())
        .ok_or(Refusal::JwksNotConfigured)?;
    Reply::json(&serde_json::json!({"keys": [key.to_jwk()]}))
}
