//! `GET /health`.

use serde::Serialize;

use super::{Reply, Request, Services};
use crate::error::Refusal;
use crate::snapshot::Snapshot;

/// Clients of existing deployments read these names.
#[derive(Serialize)]
struct Health {
    status: &'static str,
    version: &'static str,
    tools: usize,
    providers: usize,
    skills: usize,
    auth: &'static str,
    db: &'static str,
}

pub(super) fn answer(
    request: &Request,
    snapshot: &Snapshot,
    services: &Services,
) -> Result<Reply, Refusal> {
    let health = Health {
        status: "ok",
        version: env!("CARGO_PKG_VERSION"),
        tools: snapshot.catalog.public_count(),
        providers: snapshot.catalog.providers().len(),
        skills: snapshot.skills.len(),
        auth: snapshot.auth(),
        // Since the start, as documented: not whether the database answers now.
        db: match services.store {
            Some(_) => "connected",
            None => "disabled",
        },
    };
    Reply::json(request.id, &health)
}
