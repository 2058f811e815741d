//! A plain request: for admission as `http` knows it, and for the upstream as bytes.

use std::borrow::Cow;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, Version};

use super::Plain;
use super::answer::line;
use crate::auth::signature;
use crate::filters::Forward;
use crate::gateway::strip::{Fate, Strip};
use crate::http1::request::Head;
use crate::telemetry::otel::traceparent;
use crate::{hop_by_hop, request_id};

/// What admission looks at. The values share the memory of `bytes`. None: `http` doesn't take it.
pub(super) fn parts(head: &Head, bytes: &Bytes) -> Option<Parts> {
    let mut parts = http::Request::new(()).into_parts().0;
    parts.method = Method::from_bytes(head.method.get(bytes)).ok()?;
    parts.uri = Uri::from_maybe_shared(bytes.slice_ref(head.target.get(bytes))).ok()?;
    parts.version = Version::HTTP_11;
    let mut headers = HeaderMap::with_capacity(head.fields.len());
    for field in &head.fields {
        let name = field.name.get(bytes);
        let name = if name.eq_ignore_ascii_case(signature::HEADER.as_str().as_bytes()) {
            // Most requests have it, and it is no name that `http` knows: it would be copied.
            signature::HEADER
        } else {
            HeaderName::from_bytes(name).ok()?
        };
        let value = bytes.slice_ref(field.value.get(bytes));
        headers.append(name, HeaderValue::from_maybe_shared(value).ok()?);
    }
    parts.headers = headers;
    Some(parts)
}

/// Appends the request as the upstream gets it, without its body: strip what a caller may not send,
/// rewrite, attach the credential.
pub(super) fn write(out: &mut Vec<u8>, head: &Head, plain: &Plain) -> Option<()> {
    let Plain {
        ctx,
        parts,
        head: bytes,
    } = plain;
    let forward = ctx.forward()?;
    let route = &forward.route;
    let with_auth = !forward.forwards_authorization;
    let attachment = forward.attachment();
    let table = Strip {
        attachment,
        keep_authorization: forward.forwards_authorization,
        behind_proxy: ctx.caller.behind_proxy,
    };
    out.reserve(room(head, plain, forward));
    let reserved = out.capacity();
    out.extend_from_slice(head.method.get(bytes));
    out.push(b' ');
    route.write_target(out, &forward.path, parts.uri.query(), attachment, with_auth);
    out.extend_from_slice(b" HTTP/1.1\r\n");
    for field in &head.fields {
        let written = field.name.get(bytes);
        let mut space = [0; 64];
        let name = lower_case(written, &mut space);
        if attachment.sets(with_auth, &name) || hop_by_hop::contains(&name) {
            continue;
        }
        if *name == *b"host" {
            line(out, b"Host", route.host_header.as_bytes());
        } else if table.fate(&name) == Fate::Keep {
            line(out, written, field.value.get(bytes));
        }
    }
    if let Some(id) = ctx.id_for_upstream()
        && !attachment.sets(with_auth, request_id::HEADER.as_bytes())
    {
        line(out, request_id::HEADER.as_bytes(), id.as_bytes());
    }
    if let Some(parent) = ctx.traceparent()
        && !attachment.sets(with_auth, traceparent::HEADER.as_bytes())
    {
        let name = traceparent::HEADER.as_bytes();
        line(out, name, parent.text().as_bytes());
    }
    for (name, value) in attachment.headers(with_auth) {
        line(out, name.as_str().as_bytes(), value.as_bytes());
    }
    out.extend_from_slice(b"\r\n");
    debug_assert_eq!(
        out.capacity(),
        reserved,
        "a copy of the credential was left behind"
    );
    Some(())
}

/// As much as the head can need: a buffer that grows leaves a copy of the credential behind.
fn room(head: &Head, plain: &Plain, forward: &Forward) -> usize {
    let (route, attachment) = (&forward.route, forward.attachment());
    let headers = attachment.headers(true);
    let headers: usize = headers
        .map(|(name, value)| name.as_str().len() + value.len() + 4)
        .sum();
    // A header of the caller's may have no blank behind its colon.
    plain.head.len()
        + head.fields.len()
        + route.target_room(&forward.path, attachment, true)
        + route.host_header.len()
        + headers
        + 256
}

/// A header's name in lower case. Nearly all fit into `space`.
pub(super) fn lower_case<'a>(name: &[u8], space: &'a mut [u8; 64]) -> Cow<'a, [u8]> {
    let Some(own) = space.get_mut(..name.len()) else {
        return Cow::Owned(name.to_ascii_lowercase());
    };
    own.copy_from_slice(name);
    // All of them: a fixed number of bytes takes a few instructions.
    space.make_ascii_lowercase();
    Cow::Borrowed(&space[..name.len()])
}
