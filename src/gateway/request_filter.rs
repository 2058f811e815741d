use http::header::{CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use http::request::Parts;
use pingora_error::Result as HookResult;
use pingora_proxy::Session;
use tracing::Level;

use super::header_watch::{BodyLength, Inspected};
use super::load::RouteGuard;
use super::{Ctx, HeaderWatch, refuse};
use crate::auth::signature::{Mode, Verdict};
use crate::auth::virtual_keys::VirtualKeys;
use crate::clock::unix_now;
use crate::error::Refusal;
use crate::filters::{self, Rules, target};
use crate::hop_by_hop;
use crate::route::Match;
use crate::telemetry::metrics::METRICS;
use crate::telemetry::record;

/// A longer job id isn't logged: no sandbox has one.
const JOB_ID_LENGTH: usize = 128;

/// The job that the request says it belongs to. Hearsay: the signature doesn't cover this header.
pub(super) fn job_header(request: &Parts) -> Option<&str> {
    let value = request.headers.get("x-sandbox-job-id")?;
    let id = value.to_str().ok()?;
    (1..=JOB_ID_LENGTH).contains(&id.len()).then_some(id)
}

/// Admission. `Ok(false)` means that the request goes on to the next hook.
pub(super) async fn run(
    session: &mut Session,
    ctx: &mut Ctx,
    keys: Option<&VirtualKeys>,
) -> HookResult<bool> {
    if ctx.admitted.is_some() {
        return Ok(false);
    }
    let inspected = inspect(session, ctx.header_watch.as_deref());
    if let Err(refusal) = inspected.and_then(|()| to_origin_form(session)) {
        return refuse(ctx, refusal);
    }
    let raw_header = || session.as_http1().map(|_| session.to_h1_raw());
    match admit(session.req_header(), raw_header, keys, unix_now(), ctx).await {
        Ok(()) => Ok(false),
        Err(refusal) => refuse(ctx, refusal),
    }
}

/// Admission, and what is counted and logged of it. `now` is Unix time in seconds.
pub(super) async fn admit(
    request: &Parts,
    raw_header: impl FnOnce() -> Option<bytes::Bytes>,
    keys: Option<&VirtualKeys>,
    now: u64,
    ctx: &mut Ctx,
) -> Result<(), Refusal> {
    let Some(snapshot) = &ctx.snapshot else {
        return Err(Refusal::Internal);
    };
    let rules = Rules { snapshot, keys };
    let result = filters::admit(request, raw_header, rules, now, &mut ctx.trail).await;

    let unmatched = || snapshot.routes.metrics(Match::Nothing).clone();
    let route = ctx.trail.metrics.take().unwrap_or_else(unmatched);
    ctx.route = Some(RouteGuard::enter(route));
    if let Some(verdict) = ctx.trail.verdict {
        let mode = snapshot.settings.signature.mode;
        METRICS.signatures.count(mode.as_str(), verdict);
        log_signature(request, ctx, mode, verdict);
    }
    ctx.admitted = Some(result?);
    Ok(())
}

/// Looks at the request as it came, before Pingora's parser made it tidy.
fn inspect(session: &mut Session, watch: Option<&HeaderWatch>) -> Result<(), Refusal> {
    let (Some(watch), Some(http1)) = (watch, session.as_http1()) else {
        return Ok(());
    };
    let headers = &session.req_header().headers;
    let body = if headers.contains_key(TRANSFER_ENCODING) {
        BodyLength::Chunked
    } else {
        let length = headers
            .get(CONTENT_LENGTH)
            .and_then(|value| value.to_str().ok());
        BodyLength::Known(
            length
                .and_then(|text| text.parse().ok())
                .unwrap_or_default(),
        )
    };
    let inspected = watch.inspect(http1.get_headers_raw_bytes().len(), body)?;
    if inspected == Inspected::UnseenChunks || hop_by_hop::closes(headers) {
        session.set_keepalive(None);
    }
    Ok(())
}

/// A target that is a whole URL becomes the path that it names, for all that follows, the upstream
/// included.
fn to_origin_form(session: &mut Session) -> Result<(), Refusal> {
    if session.as_http1().is_none() {
        return Ok(());
    }
    let Some(named) = target::absolute(session.req_header().raw_path())? else {
        return Ok(());
    };
    let request = session.req_header_mut();
    let host = request.insert_header(HOST, named.authority);
    let path = request.set_raw_path(&named.path_and_query);
    host.and(path).map_err(|_| Refusal::UnknownTarget)
}

/// Scripts of existing deployments search for these records, by message and by `"reason":"valid"`.
fn log_signature(request: &Parts, ctx: &Ctx, mode: Mode, verdict: Verdict) {
    if !ctx.log.signatures || !tracing::enabled!(target: "ati::sig_verify", tracing::Level::INFO) {
        return;
    }
    let target = "ati::sig_verify";
    record::emit(Level::INFO, target, "sig_verify", |record| {
        record
            .str("request_id", ctx.request_id.text().as_str())
            .str("mode", mode.as_str())
            .bool("valid", verdict.is_valid())
            .str("reason", &verdict.reason())
            .str("job_id", job_header(request).unwrap_or("none"))
            .str("method", request.method.as_str())
            .str(
                "path",
                crate::text::clip(request.uri.path(), record::LONGEST_PATH),
            );
        if let Some(matches) = ctx.trail.matches_as_text {
            record.bool("matches_as_text", matches);
        }
    });
}
