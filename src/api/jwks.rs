use super::Reply;
use crate::error::Refusal;
use crate::snapshot::Snapshot;

pub(super) fn answer(snapshot: &Snapshot) -> Result<Reply, Refusal> {
    let keys = snapshot
        .verifier
        .as_ref()
        .map_or(&[][..], |verifier| verifier.public());
    if keys.is_empty() {
        return Err(Refusal::JwksNotConfigured);
    }
    let keys: Vec<_> = keys
        .iter()
        .map(|named| named.key.to_jwk(&named.kid))
        .collect();
    Reply::json(&serde_json::json!({ "keys": keys }))
}
