use http::header::HOST;
use pingora_error::Result;
use pingora_proxy::Session;

use super::load::RouteGuard;
use super::{Ctx, refuse};
use crate::auth::signature::{Mode, Verdict};
use crate::clock::unix_now;
use crate::error::Refusal;
use crate::filters::{self, target};
use crate::route::Match;
use crate::telemetry::record;

/// A longer job id isn't logged: no sandbox has one.
const JOB_ID_LENGTH: usize = 128;

/// Admission. `Ok(false)` means that the request goes on to the next hook.
pub(super) async fn run(session: &mut Session, ctx: &mut Ctx) -> Result<bool> {
    let Some(snapshot) = &ctx.snapshot else {
        return refuse(ctx, Refusal::Internal);
    };
    if let Err(refusal) = to_origin_form(session) {
        return refuse(ctx, refusal);
    }
    let request = session.req_header();
    let raw_header = || session.as_http1().map(|_| session.to_h1_raw());
    let result = filters::admit(request, raw_header, snapshot, unix_now(), &mut ctx.trail).await;

    let unmatched = || snapshot.routes.metrics(Match::Nothing).clone();
    let route = ctx.trail.metrics.take().unwrap_or_else(unmatched);
    ctx.route = Some(RouteGuard::enter(route));
    if let Some(verdict) = ctx.trail.verdict {
        log_signature(session, ctx, snapshot.settings.signature.mode, verdict);
    }
    match result {
        Ok(pass) => {
            ctx.admitted = Some(pass);
            Ok(false)
        }
        Err(refusal) => refuse(ctx, refusal),
    }
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
fn log_signature(session: &Session, ctx: &Ctx, mode: Mode, verdict: Verdict) {
    if !ctx.log.signatures || !tracing::enabled!(target: "ati::sig_verify", tracing::Level::INFO) {
        return;
    }
    let request = session.req_header();
    let job_id = request
        .headers
        .get("x-sandbox-job-id")
        .and_then(|value| value.to_str().ok())
        .filter(|id| id.len() <= JOB_ID_LENGTH);
    record::emit("sig_verify", |record| {
        record
            .str("request_id", ctx.request_id.text().as_str())
            .str("mode", mode.as_str())
            .bool("valid", verdict.is_valid())
            .str("reason", &verdict.reason())
            .str("job_id", job_id.unwrap_or("none"))
            .str("method", request.method.as_str())
            .str(
                "path",
                crate::text::clip(request.uri.path(), record::LONGEST_PATH),
            );
        if let Some(matches) = ctx.trail.matches_as_text {
            record.bool("matches_as_text", matches);
        }
        record.str("target", "ati::sig_verify");
    });
}
