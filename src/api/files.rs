//! `PUT /files` and `GET /files/{id}`: files as they are, without JSON and base64 around them.

use std::time::Instant;

use futures::StreamExt as _;
use http::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue};
use percent_encoding::percent_decode_str;
use serde::Serialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::body::BodyError;
use super::{Reply, Request, Services, check_page, context, pace};
use crate::auth::Identity;
use crate::call::payload::{check_offered, failed, incoming, owner, store, uploader};
use crate::error::{CallError, FileFault, Refusal, Success};
use crate::exec::files::{FilesError, StoredFile};
use crate::snapshot::Snapshot;

/// The name of a file that is put, percent-encoded where it isn't ASCII.
const FILENAME: &str = "x-ati-filename";
/// The digest of a file that is fetched.
const SHA256: &str = "x-ati-sha256";
/// Bytes of a name or a media type.
const LONGEST_TEXT: usize = 1024;

#[derive(Serialize)]
struct Put {
    file: String,
    size_bytes: u64,
    sha256: String,
    /// RFC 3339.
    expires_at: String,
}

/// Keeps the body for a call that names it.
pub(super) async fn put(
    mut request: Request,
    identity: &Identity,
    snapshot: &Snapshot,
    services: &Services,
) -> Result<Reply, Refusal> {
    let context = context(snapshot, services);
    check_offered(&snapshot.catalog).map_err(refused)?;
    check_page(&request.parts.headers, snapshot)?;
    if uploader(&snapshot.catalog, identity).is_none() {
        let tool = "file_manager:upload".to_owned();
        return Err(refused(CallError::OutOfScope(tool)));
    }
    let most = context.file_limits.max_bytes;
    if request.body.announces_more_than(most) {
        return Err(refused(failed(FilesError::TooLarge(most))));
    }
    let (mut file, mut read, started) = (incoming(&context), 0, Instant::now());
    while let Some(piece) = request.body.next().await {
        let piece = piece.map_err(unread)?;
        read += piece.len() as u64;
        let time = context.limits.timeout + pace::time_for(read);
        if started.elapsed() > time {
            return Err(unread(BodyError::TooSlow(time)));
        }
        let written = file.write(&piece).await;
        written.map_err(|e| refused(failed(e)))?;
    }
    let content = file.finish().await.map_err(|e| refused(failed(e)))?;
    let headers = &request.parts.headers;
    let (size_bytes, sha256) = (content.len(), content.sha256_hex());
    let stored = StoredFile {
        content,
        name: text(headers, FILENAME).map(|name| {
            let decoded = percent_decode_str(name).decode_utf8_lossy();
            decoded.into_owned()
        }),
        // What clients send where they know no type says nothing.
        content_type: text(headers, CONTENT_TYPE.as_str())
            .filter(|kind| *kind != "application/octet-stream" && !kind.starts_with(FORM))
            .map(str::to_owned),
    };
    let expires = OffsetDateTime::now_utc() + context.file_limits.ttl;
    let expires = expires.replace_nanosecond(0).unwrap_or(expires);
    let put = Put {
        file: store(stored, identity, &context).map_err(refused)?,
        size_bytes,
        sha256,
        expires_at: expires.format(&Rfc3339).unwrap_or_default(),
    };
    let mut reply = Reply::json(request.id, &put)?;
    reply.status = Success::Created.status();
    Ok(reply)
}

/// curl's own, where it isn't told another.
const FORM: &str = "application/x-www-form-urlencoded";

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let text = headers.get(name)?.to_str().ok()?.trim();
    (!text.is_empty() && text.len() <= LONGEST_TEXT).then_some(text)
}

/// Sends a file, which is gone then.
pub(super) fn get(
    request: &Request,
    identity: &Identity,
    snapshot: &Snapshot,
    services: &Services,
) -> Result<Reply, Refusal> {
    check_offered(&snapshot.catalog).map_err(refused)?;
    check_page(&request.parts.headers, snapshot)?;
    let id = request.path().rsplit('/').next().unwrap_or_default();
    let taken = services.runtime.files.take(&owner(identity), id);
    let file = taken.ok_or_else(|| refused(FileFault::NotFound.into()))?;
    let kind = file.content_type.as_deref().map(HeaderValue::from_str);
    let kind = kind.and_then(Result::ok);
    let kind = kind.unwrap_or(HeaderValue::from_static("application/octet-stream"));
    let (size, sha256) = (file.content.len(), file.content.sha256_hex());
    let timeout = snapshot.settings.tools.timeout;
    let body = pace::paced(file.content.body.into_stream(), size, timeout);
    let mut reply = Reply::stream(kind, body.boxed());
    let no_store = HeaderValue::from_static("no-store");
    reply.headers.extend([
        (CONTENT_LENGTH, HeaderValue::from(size)),
        (CACHE_CONTROL, no_store),
        // A browser must not show an upstream's page as one of this server.
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (CONTENT_DISPOSITION, HeaderValue::from_static("attachment")),
    ]);
    if let Ok(digest) = HeaderValue::from_str(&sha256) {
        let name = http::HeaderName::from_static(SHA256);
        reply.headers.push((name, digest));
    }
    Ok(reply)
}

fn refused(error: CallError) -> Refusal {
    Refusal::File(Box::new(error))
}

fn unread(error: BodyError) -> Refusal {
    refused(CallError::UnreadableBody(error.to_string()))
}
