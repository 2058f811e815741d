//! Answers of ati's own, written to the caller.

use std::borrow::Cow;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method};
use pingora_error::{Error, Result};
use pingora_http::ResponseHeader;
use pingora_proxy::Session;
use tokio::sync::watch;

use super::body::Upload;
use super::{Ctx, stream};
use crate::api::{Reply, ReplyBody, mcp};
use crate::error::{Refusal, RefusalBody};

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

pub(super) async fn reply(
    session: &mut Session,
    ctx: &Ctx,
    reply: Reply,
    upload: &mut Upload,
    abandoned: watch::Receiver<bool>,
) -> Result<()> {
    let mut header = ResponseHeader::build(reply.status, Some(reply.headers.len() + 5))?;
    for (name, value) in reply.headers {
        header.append_header(name, value)?;
    }
    add_common_headers(&mut header, ctx)?;
    match reply.body {
        ReplyBody::Whole(body) => write(session, header, body).await,
        ReplyBody::Stream(body) => {
            stream::write(session, ctx, header, body, upload, abandoned).await
        }
    }
}

pub(super) async fn refusal(session: &mut Session, ctx: &Ctx, refusal: &Refusal) -> Result<()> {
    let Reply {
        status,
        headers,
        body,
    } = refusal_reply(session.req_header(), ctx, refusal);
    let mut header = ResponseHeader::build(status, Some(5))?;
    for (name, value) in headers {
        header.insert_header(name, value)?;
    }
    add_common_headers(&mut header, ctx)?;
    let ReplyBody::Whole(body) = body else {
        return Ok(());
    };
    write(session, header, body).await
}

/// What a refused caller is told: the one place that makes it, for both ways.
pub(super) fn refusal_reply(request: &Parts, ctx: &Ctx, refusal: &Refusal) -> Reply {
    let mut reply = plain_refusal(refusal);
    let more = where_to_get_a_token(request, ctx, refusal);
    if let (Some((name, value)), false) = (refusal.header(), more.is_empty()) {
        reply.headers.retain(|(known, _)| known != name);
        if let Ok(value) = HeaderValue::from_str(&(value.into_owned() + &more)) {
            reply.headers.push((HeaderName::from_static(name), value));
        }
    }
    reply
}

/// A refusal without what depends on the request, for the admin listener.
pub fn plain_refusal(refusal: &Refusal) -> Reply {
    let (content_type, body) = match refusal.body() {
        RefusalBody::Empty => (None, Bytes::new()),
        RefusalBody::Text(Cow::Borrowed(text)) => (Some(TEXT), Bytes::from_static(text.as_bytes())),
        RefusalBody::Text(Cow::Owned(text)) => (Some(TEXT), Bytes::from(text)),
        RefusalBody::Json(text) => json(serde_json::json!({ "error": text })),
        RefusalBody::Help(text) => json(serde_json::json!({ "content": "", "error": text })),
        RefusalBody::Rpc(text) => (Some(JSON), Bytes::from(text)),
        RefusalBody::Call(error) => (Some(JSON), Bytes::from(error.envelope())),
    };
    let mut headers = Vec::with_capacity(2);
    if let Some(content_type) = content_type {
        headers.push((CONTENT_TYPE, content_type));
    }
    if let Some((name, value)) = refusal.header() {
        // ati writes these values itself: a value that can't be sent would be a defect.
        if let Ok(value) = HeaderValue::from_str(&value) {
            headers.push((HeaderName::from_static(name), value));
        }
    }
    Reply {
        status: refusal.status(),
        headers,
        body: ReplyBody::Whole(body),
    }
}

/// What an MCP client without a token needs to know, where the operator has told it.
fn where_to_get_a_token(request: &Parts, ctx: &Ctx, refusal: &Refusal) -> String {
    let (Refusal::Unauthenticated(_), Some(snapshot)) = (refusal, &ctx.snapshot) else {
        return String::new();
    };
    let settings = &snapshot.settings.mcp;
    let challenge = mcp::challenge(request.uri.path(), &request.headers, settings);
    challenge.unwrap_or_default()
}

fn json(value: serde_json::Value) -> (Option<HeaderValue>, Bytes) {
    (Some(JSON), Bytes::from(value.to_string()))
}

/// An error here is the caller's end of the connection.
async fn write(session: &mut Session, mut header: ResponseHeader, body: Bytes) -> Result<()> {
    header.insert_header(CONTENT_LENGTH, body.len())?;
    let is_head = session.req_header().method == Method::HEAD;
    let written = async {
        session
            .write_response_header(Box::new(header), is_head)
            .await?;
        if is_head {
            return Ok(());
        }
        session.write_response_body(Some(body), true).await
    };
    written.await.map_err(Error::into_down)
}

pub(super) fn add_common_headers(header: &mut ResponseHeader, ctx: &Ctx) -> Result<()> {
    ctx.common_headers(|name, value| header.insert_header(name, value))
}
