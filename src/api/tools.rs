//! `GET /tools` and `GET /tools/{name}`: the tools that the caller's scopes allow.

use http::Method;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use url::form_urlencoded;

use super::{Reply, Request, Services};
use crate::auth::Identity;
use crate::catalog::mcp::Mcp;
use crate::catalog::{Tool, search};
use crate::error::{CallError, Refusal};
use crate::policy::Test;
use crate::snapshot::Snapshot;

pub(super) fn list(
    request: &Request,
    identity: &Identity,
    snapshot: &Snapshot,
) -> Result<Reply, Refusal> {
    let (mut provider, mut query, mut effects) = (None, None, Vec::new());
    for (name, value) in form_urlencoded::parse(request.query().as_bytes()) {
        match name.as_ref() {
            "provider" => provider = Some(value),
            "search" => query = Some(value),
            "effect" => effects.push(Test::read_item(&value).map_err(|why| {
                Refusal::Call(Box::new(CallError::InvalidRequest(format!(
                    "effect: {why}"
                ))))
            })?),
            _ => {}
        }
    }
    let wanted = |tool: &Tool| {
        let provider = provider.as_ref();
        provider.is_none_or(|name| *name == tool.provider.name) && tool.has_effects(&effects)
    };
    let (catalog, scopes) = (&snapshot.catalog, &identity.scopes);
    let items: Vec<Value> = match query.filter(|query| !query.trim().is_empty()) {
        None => {
            let visible = catalog.visible(scopes).filter(|tool| wanted(tool));
            visible.map(|tool| item(tool, snapshot)).collect()
        }
        Some(query) => {
            let found = catalog.search(&query, scopes, wanted, search::MOST);
            found.into_iter().map(|tool| item(tool, snapshot)).collect()
        }
    };
    Reply::json(request.id, &items)
}

pub(super) fn one(
    request: &Request,
    identity: &Identity,
    snapshot: &Snapshot,
    services: &Services,
) -> Result<Reply, Refusal> {
    let segment = request.path().rsplit('/').next().unwrap_or_default();
    let name = percent_decode_str(segment).decode_utf8_lossy();
    let tool = snapshot
        .catalog
        .find(&name)
        .filter(|tool| tool.is_allowed(&identity.scopes) && !snapshot.catalog.is_withheld(tool))
        .ok_or_else(|| {
            // Its provider may be down: an agent would conclude that there is no such tool.
            let discovery = services.discovery.as_ref();
            match discovery.and_then(|discovery| discovery.outage(&name, identity)) {
                Some(outage) => Refusal::Call(Box::new(outage)),
                None => Refusal::NoSuchTool(name.chars().take(256).collect()),
            }
        })?;
    // Without the base URL: where an upstream is isn't the caller's business.
    let mut described = json!({
        "name": tool.name,
        "description": tool.description,
        "provider": tool.provider.name,
        "method": method(tool.invocation.listed_method()),
        "endpoint": tool.invocation.listed_endpoint(),
        "tags": tool.tags,
        "hint": tool.hint,
        "skills": snapshot.skills.names_for(tool),
        "input_schema": tool.input_schema(),
        "scope": tool.scope,
        "category": tool.category(),
        "handler": tool.provider.handler_name(),
        "transport": tool.provider.mcp().map(Mcp::transport_name),
        "provider_description": tool.provider.description,
        "examples": tool.examples,
    });
    if let Some(known) = tool.shown_effects() {
        described["effects"] = json!(known.effects);
        described["effects_source"] = json!(known.source);
        if !known.inferred.is_empty() {
            described["effects_inferred"] = json!(known.inferred_names());
        }
    }
    if !tool.patterns().is_empty() {
        described["patterns"] = json!(tool.patterns());
    }
    Reply::json(request.id, &described)
}

fn item(tool: &Tool, snapshot: &Snapshot) -> Value {
    let mut item = json!({
        "name": tool.name,
        "description": tool.description,
        "provider": tool.provider.name,
        "method": method(tool.invocation.listed_method()),
        "tags": tool.tags,
        "skills": snapshot.skills.names_for(tool),
        "input_schema": tool.input_schema(),
        "scope": tool.scope,
        "category": tool.category(),
        "handler": tool.provider.handler_name(),
    });
    if let Some(known) = &tool.effects {
        item["effects"] = json!(known.effects);
        item["effects_source"] = json!(known.source);
    }
    item
}

/// `Get` instead of `GET`: existing clients expect this form.
fn method(method: &Method) -> String {
    let (first, rest) = method.as_str().split_at(1);
    first.to_owned() + &rest.to_ascii_lowercase()
}
