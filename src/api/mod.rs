//! The built-in endpoints: what they answer. How it gets onto the wire is gateway's.

mod health;
mod jwks;

use bytes::Bytes;
use http::StatusCode;
use serde::Serialize;

use crate::error::Refusal;
use crate::filters::Admitted;
use crate::route::Builtin;
use crate::snapshot::Snapshot;

#[derive(Debug)]
pub struct Reply {
    pub status: StatusCode,
    pub content_type: &'static str,
    pub body: Bytes,
}

impl Reply {
    pub fn json(value: &impl Serialize) -> Result<Self, Refusal> {
        let body = serde_json::to_vec(value).map_err(|_| Refusal::Internal)?;
        Ok(Reply {
            status: StatusCode::OK,
            content_type: "application/json",
            body: body.into(),
        })
    }
}

/// The pass shows that whoever asks may.
pub fn answer(builtin: Builtin, _pass: &Admitted, snapshot: &Snapshot) -> Result<Reply, Refusal> {
    match builtin {
        Builtin::Health => health::answer(snapshot),
        Builtin::Jwks => jwks::answer(snapshot),
        Builtin::AdminKeys
        | Builtin::AdminKeysIssue
        | Builtin::AdminKeysBulkRevoke
        | Builtin::AdminKey => Err(Refusal::AdminStoreMissing),
        Builtin::Help if !snapshot.catalog.has("_llm") => Err(Refusal::HelpNotConfigured),
        Builtin::Call
        | Builtin::Mcp
        | Builtin::Help
        | Builtin::Tools
        | Builtin::Tool
        | Builtin::Skills
        | Builtin::SkillsResolve
        | Builtin::SkillsBundle
        | Builtin::Skill
        | Builtin::SkillBundle
        | Builtin::RemoteCatalog
        | Builtin::RemoteSkill
        | Builtin::RemoteResources
        | Builtin::RemoteFile
        | Builtin::RemoteReferences
        | Builtin::RemoteReference => Err(Refusal::NotImplemented),
    }
}
