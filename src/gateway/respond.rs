//! Answers of our own, on the wire.

use std::borrow::Cow;

use bytes::Bytes;
use http::StatusCode;
use pingora_error::Result;
use pingora_http::ResponseHeader;
use pingora_proxy::Session;

use super::Ctx;
use crate::api::Reply;
use crate::auth::signature::Mode;
use crate::error::{Refusal, RefusalBody};

pub(super) async fn reply(session: &mut Session, ctx: &Ctx, reply: Reply) -> Result<()> {
    write(
        session,
        ctx,
        reply.status,
        Some(reply.content_type),
        None,
        reply.body,
    )
    .await
}

pub(super) async fn refusal(session: &mut Session, ctx: &Ctx, refusal: &Refusal) -> Result<()> {
    let (content_type, body) = match refusal.body() {
        RefusalBody::Empty => (None, Bytes::new()),
        RefusalBody::Text(Cow::Borrowed(text)) => (None, Bytes::from_static(text.as_bytes())),
        RefusalBody::Text(Cow::Owned(text)) => (None, Bytes::from(text)),
        RefusalBody::Json(text) => json(serde_json::json!({ "error": text })),
        RefusalBody::Help(text) => json(serde_json::json!({ "content": "", "error": text })),
        RefusalBody::Call(error) => {
            let text = serde_json::Value::String(error.to_string());
            let result = error.raw().unwrap_or("null");
            let body = format!("{{\"result\":{result},\"error\":{text}}}");
            (Some("application/json"), Bytes::from(body))
        }
    };
    write(
        session,
        ctx,
        refusal.status(),
        content_type,
        refusal.header(),
        body,
    )
    .await
}

fn json(value: serde_json::Value) -> (Option<&'static str>, Bytes) {
    (Some("application/json"), Bytes::from(value.to_string()))
}

async fn write(
    session: &mut Session,
    ctx: &Ctx,
    status: StatusCode,
    content_type: Option<&'static str>,
    extra: Option<(&'static str, &'static str)>,
    body: Bytes,
) -> Result<()> {
    let mut header = ResponseHeader::build(status, Some(5))?;
    if let Some(content_type) = content_type {
        header.insert_header("content-type", content_type)?;
    }
    if let Some((name, value)) = extra {
        header.insert_header(name, value)?;
    }
    header.insert_header("content-length", body.len())?;
    add_signature_status(&mut header, ctx)?;
    session
        .write_response_header(Box::new(header), false)
        .await?;
    session.write_response_body(Some(body), true).await
}

/// In warn mode every answer says what its request's signature was worth.
pub(super) fn add_signature_status(header: &mut ResponseHeader, ctx: &Ctx) -> Result<()> {
    if ctx.snapshot.settings.signature.mode == Mode::Warn
        && let Some(verdict) = ctx.trail.verdict
    {
        header.insert_header("x-signature-status", verdict.reason().as_ref())?;
    }
    Ok(())
}
