//! `/mcp/{provider}`: an MCP server of the catalogue as it is, under the caller's scopes and with
//! the server's own names.
//!
//! | Client | Server | What happens |
//! |---|---|---|
//! | handshake era | the same | each client session has its own session or program (`session.rs`) |
//! | stateless era | the same, behind a URL | each request is one request (`stateless.rs`) |
//! | stateless era | the same, a program | requests of one caller share a program |
//! | stateless era | handshake era | ati initializes, requests of one caller share that session |
//! | handshake era | stateless era only | refused at `initialize` |

mod envelope;
mod events;
mod passing;
mod session;
mod sessions;
mod stateless;
mod upstream;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Method};
use percent_encoding::percent_decode_str;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::time::Instant;

pub use sessions::ProviderSessions;

use super::mcp::{check_origin, http as framing};
use super::{Reply, Request, Services, context};
use crate::auth::Identity;
use crate::budget::Share;
use crate::call::{RelayRecord, Relayed};
use crate::catalog::Provider;
use crate::clock;
use crate::credential::UsedSecrets;
use crate::error::{CallError, ExecError, Refusal, RpcError, RpcRefusal, Shortage};
use crate::exec::mcp::McpError;
use crate::mcp::{self, ClientRequest, Era, PARAM_PREFIX, Received, with_confirm};
use crate::request_id::RequestId;
use crate::snapshot::Snapshot;
use crate::spool::Spooled;
use crate::telemetry::trail::CallTrail;
use envelope::Envelope;
use passing::Passing;

/// Headers of the protocol that a server is sent as the client sent them.
const FORWARDED: [&str; 4] = [
    "mcp-protocol-version",
    "mcp-method",
    "mcp-name",
    "last-event-id",
];
/// A server that says nothing to a request for so many times `tools.timeout_seconds` has failed.
/// Longer than a call: tools that take long report on themselves, and the client may be asking its
/// user.
const SILENCE: u32 = 10;
/// Bytes of a provider's name in an error.
const LONGEST_NAME: usize = 256;

/// One request of a client.
struct Exchange {
    provider: Arc<Provider>,
    identity: Arc<Identity>,
    snapshot: Arc<Snapshot>,
    services: Arc<Services>,
    trail: Arc<CallTrail>,
    secrets: UsedSecrets,
    request_id: RequestId,
    headers: HeaderMap,
    upstream_url: Option<String>,
    /// Arguments of the request as the audit keeps them.
    args: Box<RawValue>,
}

pub(super) async fn answer(
    request: Request,
    identity: &Arc<Identity>,
    snapshot: &Arc<Snapshot>,
    services: &Arc<Services>,
) -> Result<Reply, Refusal> {
    let headers = &request.parts.headers;
    check_origin(headers, &snapshot.settings.mcp)?;
    let segment = request.path().rsplit('/').next().unwrap_or_default();
    let name = percent_decode_str(segment).decode_utf8_lossy();
    let Some(provider) = snapshot.catalog.mcp_server(&name) else {
        let name = name.chars().take(LONGEST_NAME).collect();
        return Err(Refusal::NoSuchProvider(name));
    };
    let url = headers.get(super::call::UPSTREAM_URL);
    let exchange = Exchange {
        provider: provider.clone(),
        identity: identity.clone(),
        snapshot: snapshot.clone(),
        services: services.clone(),
        trail: request.trail.clone(),
        secrets: UsedSecrets::default(),
        request_id: request.id,
        headers: headers.clone(),
        upstream_url: url.map(|url| String::from_utf8_lossy(url.as_bytes()).into_owned()),
        args: RawValue::NULL.to_owned(),
    };
    match request.parts.method {
        Method::GET => session::listen(exchange).await,
        Method::DELETE => session::delete(&exchange),
        _ => post(request, exchange).await,
    }
}

async fn post(request: Request, mut exchange: Exchange) -> Result<Reply, Refusal> {
    if !framing::is_json(&exchange.headers) {
        return Err(Refusal::NotJson);
    }
    let (snapshot, services) = (&exchange.snapshot, &exchange.services.clone());
    let id = request.id;
    let body = framing::read(request.body, &exchange.headers, snapshot, services, id).await?;
    // As long as the body itself, which is dropped.
    let mut memory = services.runtime.memory.share();
    let (received, text) = match exchange.receive(body, &mut memory).await {
        Ok((received, envelope)) => {
            exchange.args = envelope.args;
            (received, envelope.text)
        }
        Err(refused) => return Err(refusal(stateless::with_versions(refused, &exchange).await)),
    };
    let mut abandoned = services.abandon.subscribe();
    let answering = async {
        let text = text.as_slice();
        match received {
            Received::Request(request) => {
                exchange.trail.asked(&request.method);
                // The token is between the caller and ati.
                let own = request.confirm.as_ref();
                let own = own.and_then(|_| with_confirm(text, None));
                let text = own.as_deref().unwrap_or(text);
                let answered = match request.era {
                    Era::Handshake if request.method == "initialize" => {
                        session::initialize(&request, text, &exchange).await
                    }
                    Era::Handshake => session::request(&request, text, &exchange).await,
                    Era::Stateless => stateless::request(&request, text, &exchange).await,
                };
                answered.map_err(|error| refusal(request.refuse(error)))
            }
            Received::Cancelled { id } => session::notify(text, Some(&id), &exchange).await,
            Received::Nothing | Received::Answer { .. } => {
                session::notify(text, None, &exchange).await
            }
        }
    };
    tokio::select! {
        answered = answering => answered,
        // The process ends. The request is dropped, and its audit line says so.
        _ = abandoned.wait_for(|end| *end) => Err(Refusal::Overloaded),
    }
}

fn refusal(refused: RpcRefusal) -> Refusal {
    Refusal::Rpc(Box::new(refused))
}

impl Exchange {
    fn relayed(&self) -> Relayed<'_> {
        Relayed {
            provider: &self.provider,
            identity: &self.identity,
            upstream_url: self.upstream_url.as_deref(),
            request_id: self.request_id,
            trail: &self.trail,
            secrets: &self.secrets,
            context: context(&self.snapshot, &self.services),
        }
    }

    /// What the client sent, and what the server is sent of it, with memory for that.
    async fn receive(
        &self,
        body: Spooled,
        memory: &mut Share,
    ) -> Result<(Received, Envelope), RpcRefusal> {
        let era = mcp::era_of_headers(&self.headers);
        let busy = |what: String| RpcRefusal {
            error: RpcError::Busy(what),
            era,
            id: None,
        };
        let taken = memory.grow(body.len());
        taken.map_err(|_| busy(CallError::Busy(Shortage::Memory).to_string()))?;
        let is_small = body.len() <= crate::call::SMALL_TEXT as u64;
        let headers = self.headers.clone();
        let read = move || {
            let text = body.in_memory().unwrap_or_default();
            let received = Received::read(text, Some(&headers))?;
            let envelope = Envelope::check(text, &received)?;
            Ok((received, envelope))
        };
        if is_small {
            return read();
        }
        let context = context(&self.snapshot, &self.services);
        let done = context.work(&self.identity).run(read).await;
        done.map_err(|error| busy(error.to_string()))?
    }

    /// How long the server may say nothing to a request.
    fn longest_silence(&self) -> Duration {
        self.relayed().context.limits.timeout * SILENCE
    }

    /// When the caller's token expires.
    fn expiry(&self) -> Option<Instant> {
        let left = self.identity.expires?.saturating_sub(clock::unix_now());
        Instant::now().checked_add(Duration::from_secs(left))
    }

    /// What the server answers, unless it says nothing for too long.
    async fn unless_silent<T>(
        &self,
        answer: impl Future<Output = Result<T, McpError>>,
    ) -> Result<T, McpError> {
        let silence = self.longest_silence();
        let answered = tokio::time::timeout(silence, answer).await;
        answered.unwrap_or_else(|_| {
            Err(McpError::Timeout {
                provider: self.provider.name.clone(),
                seconds: silence.as_secs(),
            })
        })
    }

    /// The headers that the server is sent.
    fn forwarded(&self) -> HeaderMap {
        let is_forwarded = |name: &str| FORWARDED.contains(&name) || name.starts_with(PARAM_PREFIX);
        let headers = self.headers.iter();
        headers
            .filter(|(name, _)| is_forwarded(name.as_str()))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    }

    /// Scope, limit and record of a request. `Err(Ok(_))` is an answer of ati's own.
    async fn begin(
        &self,
        request: &ClientRequest,
        is_bridged: bool,
    ) -> Result<Passing, Result<Reply, RpcError>> {
        let relayed = self.relayed();
        let denied = |error| Err(RpcError::Call(Box::new(error)));
        let record = if request.method == "tools/call" {
            let name = request.name.as_deref().unwrap_or_default();
            let tool = relayed.tool(name);
            self.trail.resolved(&tool.name);
            let known = tool.tool.cloned();
            let record = RelayRecord::new(tool.name.clone(), known, self.args.clone(), &relayed);
            let (args, confirm) = (request.arguments.as_deref(), request.confirm.as_deref());
            if let Err(error) = relayed.admit(&tool, args, confirm).await {
                record.write(Some(Err(&error)), &self.services.audit, &self.trail);
                return Err(match error {
                    // The model reads it.
                    CallError::RateLimited { .. }
                    | CallError::ConfirmationRequired(_)
                    | CallError::ConfirmationRefused { .. } => Ok(self.failed(request, &error)),
                    error => denied(error),
                });
            }
            Some(record)
        } else if request.method.trim().eq_ignore_ascii_case("tools/call") {
            // A server that reads it as a call would make one that was never checked.
            return Err(Err(RpcError::UnknownMethod(request.method.clone())));
        } else {
            let authorized = relayed.authorize();
            let is_recorded = is_recorded(&request.method);
            let record = is_recorded.then(|| {
                let name = format!("{}:{}", self.provider.name, request.method);
                RelayRecord::new(name, None, self.args.clone(), &relayed)
            });
            if let Err(error) = authorized {
                if let Some(record) = record {
                    record.write(Some(Err(&error)), &self.services.audit, &self.trail);
                }
                return Err(denied(error));
            }
            record
        };
        Ok(self.passing(
            request.id.get(),
            &request.method,
            request.era,
            record,
            is_bridged,
        ))
    }

    fn passing(
        &self,
        id: &str,
        method: &str,
        era: Era,
        record: Option<RelayRecord>,
        is_bridged: bool,
    ) -> Passing {
        Passing {
            id: id.into(),
            method: method.to_owned(),
            era,
            provider: self.provider.clone(),
            identity: self.identity.clone(),
            snapshot: self.snapshot.clone(),
            services: self.services.clone(),
            trail: self.trail.clone(),
            record,
            is_bridged,
        }
    }

    /// A call that failed, as a result.
    fn failed(&self, request: &ClientRequest, error: &CallError) -> Reply {
        let text = failure_text(request.id.get(), &request.method, request.era, error);
        self.trail.failed(crate::telemetry::trail::CallFailure {
            label: error.outcome(),
            upstream: error.upstream_failure(),
        });
        Reply::from_json(text.into())
    }

    /// Ends a request that the server didn't answer.
    fn no_answer(
        &self,
        request: &ClientRequest,
        mut passing: Passing,
        error: CallError,
    ) -> Result<Reply, RpcError> {
        passing.end(Some(&error));
        if request.method == "tools/call" && !is_protocol_error(&error) {
            return Ok(self.failed(request, &error));
        }
        Err(self.error(error))
    }

    fn error(&self, error: CallError) -> RpcError {
        if is_protocol_error(&error) {
            RpcError::Call(Box::new(error))
        } else {
            RpcError::Upstream(Box::new(error))
        }
    }
}

fn exec_error(error: McpError) -> CallError {
    CallError::Exec(ExecError::from(error))
}

fn is_protocol_error(error: &CallError) -> bool {
    matches!(
        error,
        CallError::UpstreamUrl(_) | CallError::UpstreamDenied(_) | CallError::OutOfScope(_)
    )
}

/// The answer to a request that failed: of a tool call a result, so that the model reads it.
fn failure_text(id: &str, method: &str, era: Era, error: &CallError) -> Vec<u8> {
    if method == "tools/call" {
        let text = match error.confirmation() {
            Some(_) => error.envelope(),
            None => format!("Error: {error}"),
        };
        let mut result = json!({"content": [{"type": "text", "text": text}], "isError": true});
        if let Some(wanted) = error.confirmation() {
            result["_meta"] = json!({"ati/confirmation": wanted});
        }
        if era == Era::Stateless {
            result["resultType"] = "complete".into();
        }
        return format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}").into_bytes();
    }
    let error = RpcError::Upstream(Box::new(error.clone()));
    mcp::failure(Some(id), era, &error)
}

/// Requests that read or change something are recorded; those that only describe aren't.
fn is_recorded(method: &str) -> bool {
    let describes = [
        "initialize",
        "server/discover",
        "ping",
        "logging/setLevel",
        "subscriptions/listen",
    ];
    !method.ends_with("/list") && !describes.contains(&method)
}
