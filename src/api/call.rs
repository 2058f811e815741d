//! `POST /call`: one tool call.

use std::io::BufReader;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::Stream;
use futures::stream::{self, StreamExt as _};
use http::header::CONTENT_LENGTH;
use http::{HeaderName, HeaderValue};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::call_body::{self, CallBody as ReadBody, NotTaken};
use super::{Reply, Request, Services, check_page, context, pace};
use crate::auth::Identity;
use crate::call::{self, Args, Finished, Output, Work};
use crate::catalog::{ResultFormat, result_format};
use crate::error::{CallError, Refusal};
use crate::exec::Watcher;
use crate::json::CheckedText;
use crate::snapshot::Snapshot;
use crate::spool::Spooled;

/// Another server than the manifest's, if the caller has one for this call.
pub(super) const UPSTREAM_URL: &str = "x-ati-upstream-url";

#[derive(Deserialize)]
struct CallBody {
    tool_name: String,
    #[serde(default)]
    args: Option<Box<RawValue>>,
    /// The words of a command line, as they were typed.
    raw_args: Option<Vec<String>>,
    /// The token of a confirmation.
    #[serde(default)]
    confirm: Option<String>,
}

/// The beginning of every good answer; a brace ends it.
const OPEN: &[u8] = b"{\"result\":";
/// Characters of a warning, which is sent in a header.
const LONGEST_WARNING: usize = 500;
/// White space before the object of a spooled body.
const LONGEST_INDENT: usize = 4096;

/// Of a body that isn't small, what has to be known first.
#[derive(Deserialize)]
struct ToolName {
    tool_name: String,
    #[serde(default)]
    confirm: Option<String>,
}

pub(super) async fn answer(
    request: Request,
    identity: &Identity,
    snapshot: &Snapshot,
    services: &Services,
) -> Result<Reply, Refusal> {
    let Request {
        id,
        parts,
        body,
        trail,
    } = request;
    check_page(&parts.headers, snapshot)?;
    let limits = &snapshot.settings.tools;
    let upstream_url = parts.headers.get(UPSTREAM_URL);
    let upstream_url = upstream_url.map(|url| String::from_utf8_lossy(url.as_bytes()));
    let context = context(snapshot, services);
    let read = call_body::read(body, identity, &context).await;
    let body = match read {
        Ok(body) => body,
        Err(NotTaken { error, tool }) => {
            tracing::debug!(request_id = %id, error = %error, "the body of a call isn't taken");
            let Some(name) = tool else {
                return Err(refused(error));
            };
            // Every outcome of a call whose tool is known is audited.
            let no_args = Args::Text {
                args: None,
                words: Vec::new(),
            };
            let call = call::Request {
                request_id: id,
                name: &name,
                args: no_args,
                identity,
                upstream_url: upstream_url.as_deref(),
                trail: &trail,
                confirm: None,
                native: false,
            };
            let refusal = call::refuse(call, error, Duration::ZERO, context);
            return refusal.map_or_else(|e| Err(refused(e)), |_| Err(Refusal::Internal));
        }
    };
    let work = context.work(identity);
    let (body, file) = match body {
        ReadBody::Ordinary(body) => (body, None),
        ReadBody::WithFile(call) => (Spooled::from(call.text), call.file),
    };
    let parsed;
    let (name, args, confirm) = match body.in_memory() {
        Some(bytes) if bytes.len() <= call::SMALL_TEXT => {
            parsed = parse(bytes)?;
            let args = Args::Text {
                args: parsed.args.as_deref(),
                words: parsed.raw_args.unwrap_or_default(),
            };
            (parsed.tool_name, args, parsed.confirm)
        }
        _ => {
            let ToolName { tool_name, confirm } = tool_name(&body, &work).await?;
            (tool_name, Args::Spooled(body), confirm)
        }
    };
    let args = match file {
        Some(file) => Args::WithFile(Box::new(args), file),
        None => args,
    };
    let call = call::Request {
        request_id: id,
        name: &name,
        args,
        identity,
        upstream_url: upstream_url.as_deref(),
        trail: &trail,
        confirm: confirm.as_deref(),
        native: false,
    };
    let mut abandoned = services.abandon.subscribe();
    let finished = tokio::select! {
        finished = run(call, snapshot, services, None) => finished.map_err(refused)?,
        // The process ends. The call is dropped, and its audit line says so.
        _ = abandoned.wait_for(|end| *end) => return Err(Refusal::Overloaded),
    };
    let told = headers(&finished);
    let close = close(finished.stderr.as_deref());
    let mut reply = envelope(finished.output, close, limits.timeout);
    reply.headers.extend(told);
    Ok(reply)
}

/// What the command line needs to know and the result doesn't say.
fn headers(finished: &Finished) -> Vec<(HeaderName, HeaderValue)> {
    let mut headers = Vec::new();
    if finished.format != ResultFormat::default() {
        let name = HeaderName::from_static(result_format::HEADER);
        headers.push((name, HeaderValue::from_static(finished.format.name())));
    }
    if let Output::WithFiles(_) = finished.output {
        let name = HeaderName::from_static(call::CAPTURED_HEADER);
        headers.push((name, HeaderValue::from_static("base64")));
    }
    if finished.is_program {
        let name = HeaderName::from_static(call::HANDLER_HEADER);
        headers.push((name, HeaderValue::from_static("cli")));
    }
    if !finished.warnings.is_empty() {
        let plain = |c: char| {
            if c == ' ' || c.is_ascii_graphic() {
                c
            } else {
                '?'
            }
        };
        // Names of arguments are the caller's: they may hold anything.
        let text = finished.warnings.join(", ");
        let text: String = text.chars().take(LONGEST_WARNING).map(plain).collect();
        if let Ok(text) = HeaderValue::from_str(&text) {
            headers.push((HeaderName::from_static(call::WARNING_HEADER), text));
        }
    }
    headers
}

/// Runs the call. Where its tool may be one of an MCP server that has listed none yet, the call
/// waits for the list, within its time.
pub(super) async fn run(
    call: call::Request<'_>,
    snapshot: &Snapshot,
    services: &Services,
    watcher: Option<Watcher<'_>>,
) -> Result<Finished, CallError> {
    let awaited = match &services.discovery {
        Some(discovery) if snapshot.catalog.unlisted(call.name).is_some() => discovery,
        _ => {
            let context = call::Context {
                watcher,
                ..context(snapshot, services)
            };
            return call::run(call, context).await;
        }
    };
    let started = Instant::now();
    let limit = snapshot.settings.tools.timeout;
    let waited = awaited.wait_for_listing(call.name, call.identity, limit);
    match waited.await {
        Ok(newer) => {
            let mut limits = newer.settings.tools.clone();
            limits.timeout = limit.saturating_sub(started.elapsed());
            let context = call::Context {
                limits: &limits,
                watcher,
                ..context(&newer, services)
            };
            call::run(call, context).await
        }
        Err(error) => {
            let (waited, context) = (started.elapsed(), context(snapshot, services));
            call::refuse(call, error, waited, context)
        }
    }
}

fn refused(error: CallError) -> Refusal {
    Refusal::Call(Box::new(error))
}

fn invalid(why: &dyn std::fmt::Display) -> Refusal {
    refused(CallError::InvalidRequest(why.to_string()))
}

fn parse(text: &[u8]) -> Result<CallBody, Refusal> {
    if !text.trim_ascii_start().starts_with(b"{") {
        return Err(invalid(&"expected a JSON object"));
    }
    serde_json::from_slice(text).map_err(|e| invalid(&e))
}

/// The name in a body that isn't small. Reads past the arguments.
async fn tool_name(body: &Spooled, work: &Work<'_>) -> Result<ToolName, Refusal> {
    let head = body.head(LONGEST_INDENT).await.map_err(|e| invalid(&e))?;
    if !head.trim_ascii_start().starts_with(b"{") {
        return Err(invalid(&"expected a JSON object"));
    }
    let body = body.clone();
    let parse = move || -> Result<ToolName, String> {
        match body.in_memory() {
            Some(bytes) => {
                let text = std::str::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned())?;
                serde_json::from_str(text).map_err(|e| e.to_string())
            }
            None => {
                let reader = BufReader::new(CheckedText::new(body.blocking_reader()));
                serde_json::from_reader(reader).map_err(|e| e.to_string())
            }
        }
    };
    let parsed = work.run(parse).await.map_err(refused)?;
    parsed.map_err(|e| invalid(&e))
}

/// What ends an answer: `stderr` next to the result, where a program wrote something there.
fn close(stderr: Option<&str>) -> Bytes {
    match stderr.filter(|text| !text.is_empty()) {
        None => Bytes::from_static(b"}"),
        Some(text) => format!(",\"stderr\":{}}}", serde_json::Value::from(text)).into(),
    }
}

/// `{"result": …}`. An unchanged answer of an upstream is copied as text, without parsing it.
fn envelope(output: Output, close: Bytes, timeout: Duration) -> Reply {
    match output {
        Output::Raw(raw) if raw.get().len() > call::SMALL_TEXT => in_pieces(raw, close),
        Output::Raw(raw) => {
            let mut body = Vec::from(OPEN);
            body.reserve_exact(raw.get().len() + close.len());
            body.extend_from_slice(raw.get().as_bytes());
            body.extend_from_slice(&close);
            Reply::from_json(Bytes::from(body))
        }
        Output::Spooled(json) => {
            let (length, size) = (json.known_length(), json.body_length());
            streamed(json.into_stream(), length, size, close, timeout)
        }
        Output::WithFiles(json) => {
            let length = json.len();
            streamed(json.into_stream(), Some(length), length, close, timeout)
        }
    }
}

/// An answer that is too big to be copied on a worker.
fn in_pieces(raw: Box<RawValue>, close: Bytes) -> Reply {
    let text: Box<str> = raw.into();
    let mut rest = Bytes::from(text.into_string());
    let length = OPEN.len() + rest.len() + close.len();
    let mut pieces = vec![Bytes::from_static(OPEN)];
    while !rest.is_empty() {
        pieces.push(rest.split_to(rest.len().min(call::SMALL_TEXT)));
    }
    pieces.push(close);
    let content_type = HeaderValue::from_static("application/json");
    let body = stream::iter(pieces.into_iter().map(Ok)).boxed();
    let mut reply = Reply::stream(content_type, body);
    reply
        .headers
        .push((CONTENT_LENGTH, HeaderValue::from(length)));
    reply
}

/// An answer that is read from disk while it is sent. `length` is announced, where it is known;
/// `size` is about how much will be sent.
fn streamed(
    result: impl Stream<Item = std::io::Result<Bytes>> + Send + 'static,
    length: Option<u64>,
    size: u64,
    close: Bytes,
    timeout: Duration,
) -> Reply {
    let piece = |bytes: Bytes| stream::once(async move { Ok(bytes) });
    let around = (OPEN.len() + close.len()) as u64;
    let result = pace::paced(result, size, timeout);
    let body = piece(Bytes::from_static(OPEN))
        .chain(result)
        .chain(piece(close));
    let content_type = HeaderValue::from_static("application/json");
    let mut reply = Reply::stream(content_type, body.boxed());
    if let Some(length) = length {
        let length = HeaderValue::from(length + around);
        reply.headers.push((CONTENT_LENGTH, length));
    }
    reply
}
