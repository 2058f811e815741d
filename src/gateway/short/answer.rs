//! The head of an upstream's answer, as the caller gets it.

use std::io::Write as _;

use pingora_core::protocols::http::date::get_cached_date;

use super::request::lower_case;
use crate::error::usual_reason;
use crate::gateway::Ctx;
use crate::gateway::early_request_filter::readable_id;
use crate::http1::answer::{Head, has_no_body};
use crate::{hop_by_hop, request_id};

/// What the head says besides what the upstream said.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kind {
    /// Another answer follows.
    pub is_interim: bool,
    /// The body goes out in chunks.
    pub is_chunked: bool,
    /// The connection can be used again.
    pub keeps: bool,
}

/// Two lengths, or one that isn't a number: callers differ in how they read those.
#[derive(Debug)]
pub(super) struct TwoLengths;

/// Appends the head to `out`. `bytes` are those that it was parsed from. Returns the upstream's own
/// request id.
pub(super) fn write(
    out: &mut Vec<u8>,
    head: &Head,
    bytes: &[u8],
    kind: Kind,
    ctx: &Ctx,
) -> Result<Option<Box<str>>, TwoLengths> {
    let Some(forward) = ctx.forward() else {
        return Ok(None);
    };
    let attachment = forward.attachment();
    let version: &[u8] = match head.minor_version {
        0 if !kind.is_chunked => b"HTTP/1.0 ",
        _ => b"HTTP/1.1 ",
    };
    out.extend_from_slice(version);
    let reason = head.reason.get(bytes);
    // Three digits: the parser takes no others.
    let digit = |unit: u16| b'0' + (head.status / unit % 10) as u8;
    out.extend_from_slice(&[digit(100), digit(10), digit(1), b' ']);
    if attachment.redact_header(reason).is_none() {
        out.extend_from_slice(reason);
    } else {
        out.extend_from_slice(usual_reason(head.status).as_bytes());
    }
    out.extend_from_slice(b"\r\n");

    let named: Vec<&str> = head
        .values(bytes, "connection")
        // Most answers have one of these, which name no header.
        .filter(|value| !matches!(*value, b"keep-alive" | b"close"))
        .filter_map(|value| std::str::from_utf8(value).ok())
        .flat_map(hop_by_hop::named_in)
        .collect();
    let has_no_length = head.status < 200 || head.status == 204;
    let has_coding = head.values(bytes, "transfer-encoding").next().is_some();
    let mut has_length = false;
    let mut upstream_id = None;
    for field in &head.fields {
        let (written, value) = (field.name.get(bytes), field.value.get(bytes));
        let mut space = [0; 64];
        let name = lower_case(written, &mut space);
        let value = head.unfolded(value);
        let redacted = attachment.redact_header(&value);
        let value = redacted.as_deref().unwrap_or(&value);
        match &*name {
            b"content-length" if has_no_length || has_coding => continue,
            b"content-length" => {
                let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
                if !is_number || std::mem::replace(&mut has_length, true) {
                    return Err(TwoLengths);
                }
            }
            b"transfer-encoding" if kind.is_chunked || has_no_body(head.status) => continue,
            b"date" if !kind.is_interim => continue,
            name if name == request_id::HEADER.as_bytes() => {
                upstream_id = readable_id(value).map(Box::from);
                continue;
            }
            name if ctx.is_common_header(name) || hop_by_hop::stays_here(name, &named) => continue,
            _ => {}
        }
        line(out, written, value);
    }
    if kind.is_chunked {
        line(out, b"Transfer-Encoding", b"chunked");
    }
    let _ = ctx.common_headers(|name, value| {
        line(out, name.as_bytes(), value);
        Ok::<_, ()>(())
    });
    if !kind.is_interim {
        line(out, b"Date", get_cached_date().as_bytes());
        let connection: &[u8] = if kind.keeps { b"keep-alive" } else { b"close" };
        line(out, b"Connection", connection);
    }
    out.extend_from_slice(b"\r\n");
    Ok(upstream_id)
}

pub(super) fn line(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

pub(super) fn write_chunk(out: &mut Vec<u8>, content: &[u8]) {
    if content.is_empty() {
        return;
    }
    let _ = write!(out, "{:X}\r\n", content.len());
    out.extend_from_slice(content);
    out.extend_from_slice(b"\r\n");
}

pub(super) fn write_last_chunk(out: &mut Vec<u8>) {
    out.extend_from_slice(b"0\r\n\r\n");
}
