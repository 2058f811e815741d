//! Everything that is decided about a call before its tool is run.

use std::sync::Arc;

use super::arguments::{Args, validate};
use super::report::{Report, Step};
use super::work::Work;
use super::{Call, Context, Counting, Input, policy, program, upstream_override};
use crate::auth::rate::Rate;
use crate::auth::{Identity, scope};
use crate::catalog::schema::Prepared;
use crate::catalog::{Catalog, Tool, Unlisted};
use crate::clock;
use crate::error::CallError;
use crate::request_id::RequestId;
use crate::telemetry::Throttle;

/// What the caller asks for, besides the tool.
pub(super) struct CallParts<'a> {
    pub args: Args<'a>,
    pub upstream_url: Option<&'a str>,
    pub confirm: Option<&'a str>,
}

/// A call that may be made.
pub(super) struct ReadyCall {
    pub input: Input,
    /// For the caller: arguments that the tool doesn't know.
    pub unknown: Vec<String>,
}

/// The steps up to the tool. Each is told to `report` before it begins.
pub(super) async fn admit(
    call: &mut Call<'_>,
    tool: &Arc<Tool>,
    asked: CallParts<'_>,
    work: &Work<'_>,
    report: &mut Report<'_, '_>,
) -> Result<ReadyCall, CallError> {
    let args = asked.args;
    // Before the arguments: a caller without the scope learns nothing of what the tool takes, and
    // its arguments cost next to nothing.
    report.reach(Step::Scope);
    let is_program = tool.invocation.is_program();
    if let Err(refused) = authorize(tool, call.identity, call.context.catalog) {
        report.set_args(|| match is_program {
            true => args.audited_words_unparsed(),
            false => args.audited_unparsed(Some(tool)),
        });
        return Err(refused);
    }
    // Before the limit: a call that could never be sent doesn't count against it.
    report.reach(Step::Schema);
    let (input, unknown) = if is_program {
        let words = args.into_words(work).await?;
        report.set_args(|| program::audited(call, &words));
        program::check(&words)?;
        (Input::Words(words), Vec::new())
    } else {
        let mut given = args.parse(tool, work, &call.context).await?;
        let audited = std::mem::take(&mut given.audited);
        report.set_args(|| audited);
        let (size, content) = (given.size, given.content.take());
        let Prepared { args, unknown } = validate(tool, given, work).await?;
        let input = Input::Arguments {
            args,
            size,
            content,
        };
        (input, unknown)
    };
    call.upstream_override = asked
        .upstream_url
        .map(|url| upstream_override::check(url, &tool.provider, &call.lookup))
        .transpose()?;
    // Before the limit: a call that waits for its confirmation doesn't count against it.
    policy::check(call, tool, &input, asked.confirm, report).await?;
    report.reach(Step::Rate);
    limit(call, &tool.name, report.is_dry()).await?;
    Ok(ReadyCall {
        input,
        unknown: unknown.iter().map(ToString::to_string).collect(),
    })
}

pub fn authorize(tool: &Tool, identity: &Identity, catalog: &Catalog) -> Result<(), CallError> {
    check_end(identity)?;
    if catalog.is_withheld(tool) {
        return Err(CallError::Withheld(tool.name.clone()));
    }
    if tool.is_allowed(&identity.scopes) {
        Ok(())
    } else {
        Err(CallError::OutOfScope(tool.name.clone()))
    }
}

/// A token ends at its `exp`, by this clock. The leeway is for the check of the token itself, so
/// that callers whose clock differs learn why their calls fail.
pub(super) fn check_end(identity: &Identity) -> Result<(), CallError> {
    match identity.expires {
        Some(exp) if clock::unix_now() >= exp => Err(CallError::ScopesExpired(exp)),
        _ => Ok(()),
    }
}

/// As [`authorize`], before the tool's server has listed it.
pub fn authorize_unlisted(tool: &Unlisted<'_>, identity: &Identity) -> Result<(), CallError> {
    check_end(identity)?;
    if tool.is_allowed(&identity.scopes) {
        Ok(())
    } else {
        Err(CallError::OutOfScope(tool.name.clone()))
    }
}

/// Counts by the canonical name, so that an alias doesn't escape a limit. A `dry` call is only
/// compared with the limit.
pub(super) async fn limit(call: &Call<'_>, tool: &str, dry: bool) -> Result<(), CallError> {
    let identity = call.identity;
    if identity.rates.is_empty() {
        return Ok(());
    }
    let name = format!("tool:{tool}");
    warn_of_idle_limits(&identity.rates, &name, call);
    count(&name, identity, call.request_id, call.context, dry).await
}

/// Counts against the limits whose pattern matches a name.
pub(super) async fn count(
    name: &str,
    identity: &Identity,
    request_id: RequestId,
    context: Context<'_>,
    dry: bool,
) -> Result<(), CallError> {
    let matching = identity
        .rates
        .iter()
        .filter(|(pattern, _)| scope::grants(pattern, name));
    let rates = &context.runtime.rates;
    let subject = &identity.subject;
    let counted = match (context.counting, dry) {
        (Counting::InMemory, false) => match &context.runtime.shared_limits {
            Some(shared) => shared.admit(subject, matching, rates).await,
            None => rates.admit(subject, matching, clock::unix_millis()),
        },
        (Counting::InMemory, true) => rates.would_admit(subject, matching, clock::unix_millis()),
        (Counting::InFile, true) => {
            rates.load();
            rates.would_admit(subject, matching, clock::unix_millis())
        }
        (Counting::InFile, false) => rates
            .admit_shared(subject, matching, clock::unix_millis)
            .map_err(|e| {
                tracing::error!(
                    %request_id,
                    error = %e,
                    "rate-state.json can't be read or written"
                );
                CallError::Internal("calls can't be counted against their limit")
            })?,
    };
    counted.map_err(|exceeded| CallError::RateLimited {
        pattern: exceeded.pattern,
        count: exceeded.count,
        limit: exceeded.rate.limit,
        unit: exceeded.rate.unit.word(),
        retry_after: exceeded.wait.div_ceil(1000).max(1),
    })
}

/// A limit whose pattern matches no tool limits nothing, though its issuer meant it to. All tools
/// are looked at, so not for every call.
fn warn_of_idle_limits(rates: &[(String, Rate)], name: &str, call: &Call<'_>) {
    static LAST: Throttle = Throttle::new();
    let matches = |pattern: &str, name: &str| scope::grants(pattern, name);
    if rates.iter().all(|(pattern, _)| matches(pattern, name)) || !LAST.is_due() {
        return;
    }
    let tools = call.context.catalog.tools();
    for (pattern, _) in rates {
        let limits = |tool: &Tool| matches(pattern, &format!("tool:{}", tool.name));
        if !matches(pattern, scope::HELP) && !tools.iter().any(|tool| limits(tool)) {
            let (request_id, subject) = (call.request_id, &call.identity.subject);
            tracing::warn!(%request_id, subject, pattern, "a rate limit matches no tool");
        }
    }
}
