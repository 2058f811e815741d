//! Clients of the stateless era: each request stands for itself. A server behind a URL that speaks
//! this era gets each as it is. For others ati keeps a session or a program, which requests of the
//! same caller share; it offers the server nothing, so that the server has nothing to ask for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::StreamExt;
use http::{HeaderMap, HeaderValue, Method};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::events::Ends;
use super::session::{agreed_version, answer_of_http, answer_of_program, send_to, whole_answer};
use super::sessions::SharedUpstream;
use super::upstream::{HttpSession, Upstream, VERSION};
use super::{Exchange, exec_error};
use crate::api::Reply;
use crate::error::{RpcError, RpcRefusal};
use crate::exec::mcp::relay::{
    self, Event, Events, Held, HttpBody, HttpReply, HttpUpstream, Sharing, StdioUpstream,
    UpstreamMessage, with_id,
};
use crate::exec::mcp::{McpError, Target};
use crate::mcp::{ClientRequest, Era, STATELESS};

/// How long a server may take to start.
const START_LIMIT: Duration = Duration::from_secs(30);
/// Some programs never answer `server/discover`.
const PROBE_LIMIT: Duration = Duration::from_secs(8);
/// What a server of the handshake era can be asked for a client of the stateless one.
const BRIDGED: [&str; 8] = [
    "tools/list",
    "tools/call",
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "prompts/list",
    "prompts/get",
    "completion/complete",
];

/// What is known of the server's era.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    Stateless,
    Handshake,
    Nothing,
}

pub async fn request(
    request: &ClientRequest,
    text: &[u8],
    exchange: &Exchange,
) -> Result<Reply, RpcError> {
    let target = exchange.relayed().target();
    let target = target.map_err(|error| exchange.error(error))?;
    let known = known_era(exchange);
    if !target.is_program() && known != Known::Handshake {
        let passing = match exchange.begin(request, false).await {
            Ok(passing) => passing,
            Err(answered) => return answered,
        };
        exchange.trail.attempt();
        let headers = exchange.forwarded();
        let sent = send_to(exchange, &target, Method::POST, headers, Some(text)).await;
        return match sent {
            Ok((server, reply)) => {
                answer_of_http(request, &server, reply, passing, None, None, exchange).await
            }
            Err(error) => exchange.no_answer(request, passing, exec_error(error)),
        };
    }
    // Before a server is started for it.
    let authorized = exchange.relayed().authorize();
    authorized.map_err(|error| exchange.error(error))?;
    let server = shared(exchange, &target, known).await?;
    if server.initialized.is_some() {
        bridge(request, text, exchange, &target, server).await
    } else {
        ask_program(request, text, exchange, server, false).await
    }
}

/// A refusal of a version names those that the server speaks, not ati's.
pub async fn with_versions(mut refused: RpcRefusal, exchange: &Exchange) -> RpcRefusal {
    if let RpcError::Version { requested } = &refused.error
        && refused.era == Era::Stateless
        && exchange.relayed().authorize().is_ok()
        && known_era(exchange) != Known::Handshake
        && let Ok(target) = exchange.relayed().target()
        && !target.is_program()
        && let Some(supported) = supported_versions(exchange, &target).await
    {
        refused.error = RpcError::ServerVersion {
            requested: requested.clone(),
            supported,
        };
    }
    refused
}

async fn supported_versions(exchange: &Exchange, target: &Arc<Target>) -> Option<Vec<String>> {
    #[derive(serde::Deserialize)]
    struct Discovered {
        #[serde(rename = "supportedVersions")]
        versions: Vec<String>,
    }
    let mut headers = HeaderMap::new();
    headers.insert(VERSION, HeaderValue::from_static(STATELESS));
    headers.insert("mcp-method", HeaderValue::from_static("server/discover"));
    let text = discover().to_string();
    let sent = send_to(
        exchange,
        target,
        Method::POST,
        headers,
        Some(text.as_bytes()),
    );
    let (server, reply) = tokio::time::timeout(PROBE_LIMIT, sent).await.ok()?.ok()?;
    let answer = whole_answer(&server, reply, "0").await.ok()?;
    let result = result_of(&answer.text).ok()?;
    let discovered: Discovered = serde_json::from_slice(&result).ok()?;
    Some(discovered.versions)
}

fn known_era(exchange: &Exchange) -> Known {
    // The listing is the manifest's own server's.
    if exchange.upstream_url.is_some() {
        return Known::Nothing;
    }
    let listing = exchange.snapshot.catalog.listing(&exchange.provider.name);
    match listing.map(|listing| listing.protocol.as_str()) {
        None | Some("") => Known::Nothing,
        // Versions are dates.
        Some(version) if version >= STATELESS => Known::Stateless,
        Some(_) => Known::Handshake,
    }
}

async fn shared(
    exchange: &Exchange,
    target: &Arc<Target>,
    known: Known,
) -> Result<Arc<SharedUpstream>, RpcError> {
    let open = || async {
        let opened = tokio::time::timeout(START_LIMIT, open(exchange, target, known)).await;
        opened.unwrap_or_else(|_| {
            Err(McpError::StartTimeout {
                provider: exchange.provider.name.clone(),
                detail: String::new(),
                seconds: START_LIMIT.as_secs(),
            })
        })
    };
    let sessions = &exchange.services.provider_sessions;
    let shared = sessions.share(&exchange.relayed(), target.key, open).await;
    let shared = shared.map_err(|_| RpcError::Busy("too many MCP servers are open".to_owned()))?;
    shared.map_err(|error| exchange.error(exec_error(error)))
}

async fn open(
    exchange: &Exchange,
    target: &Arc<Target>,
    known: Known,
) -> Result<SharedUpstream, McpError> {
    let context = exchange.relayed().exec_context();
    let attachment = relay::attachment(target, context).await?;
    if !target.is_program() {
        return open_session(HttpUpstream::new(target.clone(), attachment, context)).await;
    }
    let runtime = &exchange.services.runtime;
    let program = StdioUpstream::start(target, attachment, Sharing::Shared, runtime).await?;
    let is_stateless = match known {
        Known::Stateless => true,
        Known::Handshake => false,
        Known::Nothing => {
            let answer = tokio::time::timeout(PROBE_LIMIT, ask(&program, &discover())).await;
            let answer = answer.ok().and_then(Result::ok);
            let message = answer.as_deref().and_then(UpstreamMessage::read);
            message.is_some_and(|message| message.result.is_some())
        }
    };
    let initialized = if is_stateless {
        None
    } else {
        let answer = ask(&program, &initialize()).await?;
        program.notify(INITIALIZED)?;
        Some(result_of(&answer)?)
    };
    Ok(SharedUpstream {
        upstream: Upstream::Program(program),
        initialized,
    })
}

const INITIALIZED: &[u8] = br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

fn initialize() -> Value {
    json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": client_info(),
    }})
}

fn discover() -> Value {
    json!({"jsonrpc": "2.0", "id": 0, "method": "server/discover", "params": {"_meta": {
        "io.modelcontextprotocol/protocolVersion": STATELESS,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": client_info(),
    }}})
}

fn client_info() -> Value {
    json!({"name": "ati", "version": env!("CARGO_PKG_VERSION")})
}

async fn ask(program: &StdioUpstream, message: &Value) -> Result<Vec<u8>, McpError> {
    let text = message.to_string();
    let id: Box<RawValue> = serde_json::value::to_raw_value(&0).unwrap_or_default();
    let mut responses = program.request(&id, None, text.as_bytes())?;
    loop {
        match responses.next().await {
            None => return Err(program.end_reason().await),
            Some(routed) if routed.is_last => return Ok(routed.message.text),
            Some(_) => {}
        }
    }
}

fn result_of(answer: &[u8]) -> Result<Vec<u8>, McpError> {
    let message = UpstreamMessage::read(answer);
    let result = message.as_ref().and_then(|message| message.result);
    if let Some(result) = result {
        return Ok(result.get().as_bytes().to_vec());
    }
    let (code, message) = message.and_then(|one| one.error()).unwrap_or_default();
    Err(McpError::Protocol { code, message })
}

async fn open_session(server: HttpUpstream) -> Result<SharedUpstream, McpError> {
    let body = initialize().to_string().into_bytes();
    let reply = server
        .send(Method::POST, HeaderMap::new(), Some(body))
        .await?;
    let session = reply.session.clone();
    let answer = whole_answer(&server, reply, "0").await?;
    let initialized = result_of(&answer.text)?;
    let session = HttpSession {
        session,
        version: agreed_version(&answer.text),
        opened_by: Arc::new(server),
    };
    let headers = session.headers(HeaderMap::new());
    let told = session
        .opened_by
        .send(Method::POST, headers, Some(INITIALIZED.to_vec()));
    told.await?;
    Ok(SharedUpstream {
        upstream: Upstream::Http(session),
        initialized: Some(initialized),
    })
}

/// A request to a program that requests share.
async fn ask_program(
    request: &ClientRequest,
    text: &[u8],
    exchange: &Exchange,
    server: Arc<SharedUpstream>,
    is_bridged: bool,
) -> Result<Reply, RpcError> {
    let Upstream::Program(program) = &server.upstream else {
        return Err(RpcError::Internal);
    };
    let passing = match exchange.begin(request, is_bridged).await {
        Ok(passing) => passing,
        Err(answered) => return answered,
    };
    exchange.trail.attempt();
    let token = request.progress_token.as_deref();
    let responses = match program.request(&request.id, token, text) {
        Ok(responses) => responses,
        Err(error) => return exchange.no_answer(request, passing, exec_error(error)),
    };
    let ends = Ends::of(&request.method, None, exchange);
    answer_of_program(request, responses, program, passing, None, ends, exchange).await
}

/// A request to a server of the handshake era.
async fn bridge(
    request: &ClientRequest,
    text: &[u8],
    exchange: &Exchange,
    target: &Arc<Target>,
    server: Arc<SharedUpstream>,
) -> Result<Reply, RpcError> {
    if request.method == "server/discover" {
        return Ok(discovered(request, &server));
    }
    if !BRIDGED.contains(&request.method.as_str()) {
        let method: String = request.method.chars().take(100).collect();
        return Err(RpcError::UnknownMethod(method));
    }
    let mut server = server;
    if let Upstream::Program(_) = &server.upstream {
        return ask_program(request, text, exchange, server, true).await;
    }
    let passing = match exchange.begin(request, true).await {
        Ok(passing) => passing,
        Err(answered) => return answered,
    };
    exchange.trail.attempt();
    let mut may_reopen = true;
    loop {
        let sent = ask_session(request, text, exchange, target, &server).await;
        let (asked, reply) = match sent {
            Ok(sent) => sent,
            Err(error) => return exchange.no_answer(request, passing, exec_error(error)),
        };
        if reply.status == 404 && may_reopen {
            // The server no longer knows the session, so it hasn't seen the request.
            may_reopen = false;
            exchange.services.provider_sessions.forget(&server);
            server = shared(exchange, target, Known::Handshake).await?;
            continue;
        }
        return answer_of_http(request, &asked, reply, passing, None, None, exchange).await;
    }
}

/// Sends the request under an id of ati's own: two clients may have chosen the same one.
async fn ask_session(
    request: &ClientRequest,
    text: &[u8],
    exchange: &Exchange,
    target: &Arc<Target>,
    server: &SharedUpstream,
) -> Result<(HttpUpstream, HttpReply), McpError> {
    static SERIAL: AtomicU64 = AtomicU64::new(1);
    let Upstream::Http(session) = &server.upstream else {
        let what = "the server is a program".to_owned();
        return Err(McpError::Ended {
            provider: exchange.provider.name.clone(),
            what,
        });
    };
    let own = SERIAL.fetch_add(1, Ordering::Relaxed).to_string();
    let text = with_id(text, &own).unwrap_or_default();
    let headers = session.headers(HeaderMap::new());
    let sent = send_to(exchange, target, Method::POST, headers, Some(&text)).await;
    let (asked, mut reply) = sent?;
    let id: Box<str> = request.id.get().into();
    let back = move |mut held: Held| {
        let message = UpstreamMessage::read(&held.text);
        if message.is_some_and(|one| one.answers(&own))
            && let Some(text) = with_id(&held.text, &id)
        {
            held.text = text;
        }
        held
    };
    reply.body = match reply.body {
        HttpBody::Message(text) => HttpBody::Message(back(text)),
        HttpBody::Events(events) => HttpBody::Events(renamed(events, back)),
        other => other,
    };
    Ok((asked, reply))
}

/// Without requests of the server's, which no client can answer.
fn renamed(events: Events, back: impl Fn(Held) -> Held + Send + 'static) -> Events {
    let events = events.filter_map(move |event| {
        let event = event.map(|event| {
            let data = event.data.filter(|held| {
                let message = UpstreamMessage::read(&held.text);
                !message.is_some_and(|one| one.method.is_some() && one.id.is_some())
            });
            Event {
                data: data.map(&back),
                // A stream of the stateless era can't be resumed.
                id: None,
                retry: None,
            }
        });
        let is_empty = matches!(&event, Ok(event) if event.data.is_none());
        std::future::ready((!is_empty).then_some(event))
    });
    events.boxed()
}

/// What the server said to `initialize`, as the answer to `server/discover`. Without what needs a
/// session.
fn discovered(request: &ClientRequest, server: &SharedUpstream) -> Reply {
    let initialized = server.initialized.as_deref().unwrap_or(b"{}");
    let initialized: Value = serde_json::from_slice(initialized).unwrap_or_default();
    let mut capabilities = json!({});
    for name in ["tools", "resources", "prompts", "completions"] {
        if initialized["capabilities"].get(name).is_some() {
            capabilities[name] = json!({});
        }
    }
    let mut result = json!({
        "resultType": "complete",
        "supportedVersions": [STATELESS],
        "capabilities": capabilities,
        "ttlMs": 0,
        "cacheScope": "private",
    });
    if let Some(instructions) = initialized.get("instructions") {
        result["instructions"] = instructions.clone();
    }
    if let Some(info) = initialized.get("serverInfo") {
        result["_meta"] = json!({"io.modelcontextprotocol/serverInfo": info});
    }
    let text = crate::mcp::success(&request.id, result.to_string().as_bytes());
    Reply::from_json(text.into())
}
