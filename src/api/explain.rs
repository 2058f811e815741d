//! `POST /explain`: what would become of a tool call or of a request, without doing it. A caller
//! learns no more than the call itself would tell it.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::header::{AUTHORIZATION, HOST};
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, Version};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::call_body::{self, CallBody};
use super::{Reply, Request, Services, check_page, context};
use crate::auth::{Identity, session, virtual_keys};
use crate::call::{self, Args, Context};
use crate::clock::unix_now;
use crate::error::{CallError, Explanation, Refusal, StepTaken};
use crate::filters::{self, Rules};
use crate::request_id::RequestId;
use crate::snapshot::Snapshot;
use crate::telemetry::trail::CallTrail;

/// What is asked. One of `tool` and `request` is there.
#[derive(Default, Serialize, Deserialize)]
pub struct Question {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub raw_args: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<AskedRequest>,
    /// Of the caller whose call it would be. None: the one who asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
}

#[derive(Serialize, Deserialize)]
pub struct AskedRequest {
    pub method: String,
    /// A URL, or a path.
    pub url: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
}

pub(super) async fn answer(
    request: Request,
    identity: &Arc<Identity>,
    snapshot: &Snapshot,
    services: &Services,
) -> Result<Reply, Refusal> {
    check_page(&request.parts.headers, snapshot)?;
    let invalid = |why: String| Refusal::Call(Box::new(CallError::InvalidRequest(why)));
    let read = call_body::read(request.body, identity, &context(snapshot, services)).await;
    let body = match read.map_err(|not_taken| Refusal::Call(Box::new(not_taken.error)))? {
        CallBody::Ordinary(body) => body,
        CallBody::WithFile(_) => return Err(invalid("too long to be explained".to_owned())),
    };
    let text = body.in_memory();
    let text = text.ok_or_else(|| invalid("too long to be explained".to_owned()))?;
    let question: Question = serde_json::from_slice(text).map_err(|e| invalid(e.to_string()))?;
    let explanation = match (&question.tool, &question.request) {
        (Some(name), None) => explain_listed(name, &question, identity, snapshot, services).await,
        (None, Some(asked)) => {
            explain_request(asked, question.token.as_deref(), rules(snapshot, services)).await
        }
        _ => return Err(invalid("it names a tool or a request".to_owned())),
    };
    Reply::json(request.id, &explanation)
}

fn rules<'a>(snapshot: &'a Snapshot, services: &'a Services) -> Rules<'a> {
    Rules {
        snapshot,
        keys: services.keys.as_deref(),
    }
}

/// As a call: where the tool's server has listed none yet, its list is awaited.
async fn explain_listed(
    name: &str,
    question: &Question,
    identity: &Arc<Identity>,
    snapshot: &Snapshot,
    services: &Services,
) -> Explanation {
    let unlisted = snapshot.catalog.unlisted(name);
    let (Some(_), Some(discovery)) = (unlisted, &services.discovery) else {
        let context = context(snapshot, services);
        let rules = rules(snapshot, services);
        return explain_call(name, question, identity, rules, context).await;
    };
    let limit = snapshot.settings.tools.timeout;
    match discovery.wait_for_listing(name, identity, limit).await {
        Ok(newer) => {
            let context = context(&newer, services);
            let rules = rules(&newer, services);
            explain_call(name, question, identity, rules, context).await
        }
        Err(error) => Explanation::of_call(Err(&error), vec![StepTaken::new("resolve")]),
    }
}

/// What would become of this call.
pub async fn explain_call(
    name: &str,
    question: &Question,
    asking: &Arc<Identity>,
    rules: Rules<'_>,
    context: Context<'_>,
) -> Explanation {
    let identity = match &question.token {
        None => Ok(asking.clone()),
        Some(token) => identify(Some(token), rules).await,
    };
    let identity = match identity {
        Ok(identity) => identity,
        Err(refusal) => {
            return Explanation::of_request(Err(&refusal), vec![StepTaken::new("token")]);
        }
    };
    let call = call::Request {
        name,
        args: Args::Text {
            args: question.args.as_deref(),
            words: question.raw_args.clone(),
        },
        identity: &identity,
        upstream_url: None,
        request_id: RequestId::generate(),
        trail: &CallTrail::default(),
        confirm: None,
        native: false,
    };
    let mut explained = call::explain(call, context).await;
    if let Some(token) = &question.token {
        let is_unread = rules.snapshot.verifier.is_none() && !virtual_keys::is_one(token);
        let detail = match is_unread {
            true => "no token keys are configured: it isn't looked at".to_owned(),
            false => format!("of '{}'", identity.subject),
        };
        explained.steps.insert(0, StepTaken::with("token", detail));
    }
    explained
}

/// Who a request with this token is from, or with none.
pub async fn identify(token: Option<&str>, rules: Rules<'_>) -> Result<Arc<Identity>, Refusal> {
    let mut headers = HeaderMap::new();
    if let Some(token) = token {
        headers.insert(AUTHORIZATION, authorization(token)?);
    }
    filters::identify(&headers, rules, unix_now()).await
}

/// A token, or a virtual key.
fn authorization(token: &str) -> Result<HeaderValue, Refusal> {
    let mut value = HeaderValue::from_str(&session::authorization(token))
        .map_err(|_| Refusal::Malformed("the token can't be sent in a header"))?;
    value.set_sensitive(true);
    Ok(value)
}

/// What would become of this request.
pub async fn explain_request(
    asked: &AskedRequest,
    token: Option<&str>,
    rules: Rules<'_>,
) -> Explanation {
    let parts = match parts(asked, token) {
        Ok(parts) => parts,
        Err(refusal) => {
            return Explanation::of_request(Err(&refusal), vec![StepTaken::new("framing")]);
        }
    };
    let mut trail = filters::Trail {
        steps: Some(Vec::new()),
        ..filters::Trail::default()
    };
    let admitted = filters::admit(&parts, || None, rules, unix_now(), &mut trail).await;
    let steps = trail.steps.take().unwrap_or_default();
    match admitted {
        Ok(_) => Explanation::of_request(Ok(()), steps),
        Err(refusal) => Explanation::of_request(Err(&refusal), steps),
    }
}

/// The request as it would come in: the path stays as it is written.
fn parts(asked: &AskedRequest, token: Option<&str>) -> Result<Parts, Refusal> {
    let malformed = |what| move || Refusal::Malformed(what);
    let target = filters::target::absolute(asked.url.as_bytes())?;
    let (authority, path) = match &target {
        Some(target) => (Some(&target.authority[..]), &target.path_and_query[..]),
        None => (None, asked.url.as_bytes()),
    };
    if let Some(authority) = authority {
        Authority::try_from(authority).map_err(|_| Refusal::UnknownTarget)?;
    }
    let method = Method::from_bytes(asked.method.as_bytes());
    let uri = Uri::try_from(path).map_err(|_| Refusal::UnknownTarget)?;
    let (mut parts, ()) = http::Request::new(()).into_parts();
    parts.method = method.map_err(|_| malformed("no such method")())?;
    // Pingora answers it, before ati sees it.
    if parts.method == Method::CONNECT {
        return Err(Refusal::MethodNotAllowed { allow: "" });
    }
    parts.uri = uri;
    parts.version = Version::HTTP_11;
    for (name, value) in &asked.headers {
        let name = HeaderName::from_bytes(name.as_bytes());
        let name = name.map_err(|_| malformed("a header that can't be sent")())?;
        let value = HeaderValue::from_str(value);
        let value = value.map_err(|_| malformed("a header that can't be sent")())?;
        parts.headers.insert(name, value);
    }
    if let Some(token) = token {
        parts.headers.insert(AUTHORIZATION, authorization(token)?);
    }
    if !parts.headers.contains_key(HOST) {
        let host = HeaderValue::from_bytes(authority.unwrap_or(b"localhost"));
        let host = host.map_err(|_| malformed("a header that can't be sent")())?;
        parts.headers.insert(HOST, host);
    }
    Ok(parts)
}
