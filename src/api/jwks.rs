//! `GET /.well-known/jwks.json`: the public keys that tokens are verified with.

use super::{Reply, Request};
use crate::error::Refusal;
use crate::snapshot::Snapshot;

pub(super) fn answer(request: &Request, snapshot: &Snapshot) -> Result<Reply, Refusal> {
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
    Reply::json(request.id, &serde_json::json!({ "keys": keys }))
}
