//! Takes the route's credentials out of what the upstream sends: out of headers always, out of
//! bodies where the manifest says `scrub = true`.

use bytes::Bytes;
use http::header::{
    ACCEPT_ENCODING, ACCEPT_RANGES, CONTENT_ENCODING, CONTENT_LENGTH, IF_RANGE, RANGE,
    TRANSFER_ENCODING,
};
use http::{HeaderMap, HeaderName, HeaderValue};
use pingora_error::Result;
use pingora_http::{RequestHeader, ResponseHeader};

use super::Ctx;
use crate::credential::Attachment;
use crate::error::UpstreamFault;

/// Asks for a body that can be searched: whole and without a content coding. Out of ranges, a
/// caller could put together what is redacted in a whole body.
pub(super) fn prepare(request: &mut RequestHeader) -> Result<()> {
    request.remove_header(&RANGE);
    request.remove_header(&IF_RANGE);
    request.insert_header(ACCEPT_ENCODING, "identity")
}

/// Only headers that repeat a credential are touched.
pub(super) fn headers(response: &mut ResponseHeader, attachment: &Attachment) -> Result<()> {
    let found = repeating(&response.headers, attachment);
    for name in found {
        let values = response.headers.get_all(&name).iter();
        let clean: Vec<Vec<u8>> = values.map(|value| redacted(value, attachment)).collect();
        response.remove_header(&name);
        for value in clean {
            response.append_header(name.clone(), value)?;
        }
    }
    let reason = response.get_reason_phrase().unwrap_or_default();
    if attachment.redact_header(reason.as_bytes()).is_some() {
        response.set_reason_phrase(None)?;
    }
    Ok(())
}

/// As [`headers`], for the trailers of HTTP/2.
pub(super) fn trailers(trailers: &mut HeaderMap, attachment: &Attachment) {
    for name in repeating(trailers, attachment) {
        let values = trailers.get_all(&name).iter();
        let clean: Vec<Vec<u8>> = values.map(|value| redacted(value, attachment)).collect();
        trailers.remove(&name);
        let clean = clean
            .iter()
            .filter_map(|it| HeaderValue::from_bytes(it).ok());
        for value in clean {
            trailers.append(name.clone(), value);
        }
    }
}

fn repeating(headers: &HeaderMap, attachment: &Attachment) -> Vec<HeaderName> {
    let mut found = Vec::new();
    for (name, value) in headers {
        if attachment.redact_header(value.as_bytes()).is_some() && !found.contains(name) {
            found.push(name.clone());
        }
    }
    found
}

fn redacted(value: &HeaderValue, attachment: &Attachment) -> Vec<u8> {
    let clean = attachment.redact_header(value.as_bytes());
    clean.unwrap_or_else(|| value.as_bytes().to_vec())
}

/// Before the body of a response on a route with `scrub`: its length isn't known any more. An error
/// where the body can't be searched.
pub(super) fn begin(
    response: &mut ResponseHeader,
    ctx: &mut Ctx,
    is_head: bool,
) -> std::result::Result<(), UpstreamFault> {
    ctx.scrubber = None;
    let status = response.status.as_u16();
    let Some(forward) = ctx.forward().filter(|forward| forward.scrubs()) else {
        return Ok(());
    };
    if response.status.is_informational() {
        return Ok(());
    }
    response.remove_header(&ACCEPT_RANGES);
    let is_empty = response
        .headers
        .get(CONTENT_LENGTH)
        .is_some_and(|length| length.as_bytes() == b"0");
    if is_empty {
        return Ok(());
    }
    response.remove_header(&CONTENT_LENGTH);
    if is_head || matches!(status, 204 | 304) {
        return Ok(());
    }
    let only = |name: HeaderName, word: &str| {
        let values = response.headers.get_all(name);
        values.iter().all(|value| {
            let value = value.as_bytes().trim_ascii();
            value.is_empty() || value.eq_ignore_ascii_case(word.as_bytes())
        })
    };
    let searchable =
        only(CONTENT_ENCODING, "identity") && only(TRANSFER_ENCODING, "chunked") && status != 206;
    if !searchable {
        return Err(UpstreamFault::Unsearchable);
    }
    ctx.scrubber = Some(forward.attachment().redactor());
    Ok(())
}

/// A piece of a body. With the last one comes what was kept back.
pub(super) fn body(body: &mut Option<Bytes>, end: bool, ctx: &mut Ctx) {
    let Some(scrubber) = &mut ctx.scrubber else {
        return;
    };
    let mut clean = match body.take() {
        Some(piece) => scrubber.push(&piece),
        None => Vec::new(),
    };
    if end {
        clean.extend(rest(ctx).unwrap_or_default());
    }
    *body = (!clean.is_empty()).then(|| clean.into());
}

/// What was kept back at the end of a body.
pub(super) fn rest(ctx: &mut Ctx) -> Option<Bytes> {
    let scrubber = ctx.scrubber.take()?;
    Some(scrubber.finish().into())
}
