//! Executes HTTP tools: builds the request, attaches the credential, sends it, reads the answer.

mod error;
mod header_names;
mod multipart;
mod request;
mod send;
mod style;
mod xai;

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value};

pub use error::{HttpError, LONGEST_URL};

use super::credentials::{CallCredential, obtain, renew_after_refusal};
use super::egress::{self, Redacted, not_spooled};
use super::{Answer, ExecContext, SpooledJson};
use crate::catalog::{Dialect, HttpInvocation, Tool};
use crate::egress::EgressError;
use crate::error::UpstreamFault;
use crate::spool::SpoolError;
use crate::text;
use request::Wire;
use send::Response;

/// How much of an upstream's error body the caller gets.
const LONGEST_ERROR: usize = 64 << 10;
/// A body up to this size is looked through where it is: that takes a fraction of a millisecond.
const SMALL_BODY: u64 = 64 << 10;
/// The same for the text of arguments.
const SMALL_ARGUMENTS: usize = 64 << 10;
/// Bytes of the longest character, so that none is cut in two before the text is clipped.
const UTF8_LONGEST: usize = 4;

/// One call of an HTTP tool.
pub struct Request<'a> {
    pub tool: &'a Arc<Tool>,
    pub invocation: &'a HttpInvocation,
    pub args: Map<String, Value>,
    /// Bytes of the text that the arguments were parsed from.
    pub size: usize,
    /// The provider's, with its keys filled in where it has any.
    pub base_url: Cow<'a, str>,
}

pub async fn run(
    request: Request<'_>,
    credential: &CallCredential,
    context: ExecContext<'_>,
) -> Result<Answer, HttpError> {
    let tool = request.tool;
    let exchange = exchange(request, credential, context);
    let result = tokio::time::timeout(context.limits.timeout, exchange).await;
    let result = result.unwrap_or(Err(EgressError::Request(UpstreamFault::Timeout).into()));
    result.map_err(|error| match (error, tool.provider.base_url()) {
        // A key may be part of the host: the error shows the URL as the manifest has it.
        (HttpError::Egress(EgressError::Blocked(_)), Some(url)) if url.template.is_some() => {
            EgressError::Blocked(url.text.clone()).into()
        }
        (error, _) => error,
    })
}

async fn exchange(
    request: Request<'_>,
    credential: &CallCredential,
    context: ExecContext<'_>,
) -> Result<Answer, HttpError> {
    let (provider, dialect) = (&request.tool.provider, request.invocation.dialect);
    let source = provider.outbound.source;
    let wire = build(request, context).await?;
    let mut attachment = obtain(credential, source, context).await?;
    context.secrets.add(&attachment);
    let mut response = send::send(&wire, &attachment, &provider.name, source, context).await?;
    // One retry: a second refusal is not about the credential's age.
    if response.is_unauthorized() && renew_after_refusal(credential, &attachment, context) {
        attachment = obtain(credential, source, context).await?;
        context.secrets.add(&attachment);
        response = send::send(&wire, &attachment, &provider.name, source, context).await?;
    }
    let provider = &provider.name;
    let answer = into_answer(response, provider, context).await?;
    match dialect {
        Dialect::Plain => Ok(answer),
        Dialect::Agentic => {
            let is_small = answer.size() <= SMALL_BODY;
            let look = move || {
                let whole = answer.into_raw_blocking();
                let whole = whole.map_err(|e| not_spooled(SpoolError::Disk(e)))?;
                Ok(Answer::Memory(xai::answer(&whole)?))
            };
            compute(is_small, provider, context, look).await?
        }
    }
}

/// The request as it is sent. The arguments end with it: freeing many takes its time, too.
async fn build(request: Request<'_>, context: ExecContext<'_>) -> Result<Wire, HttpError> {
    let build =
        |tool: &Tool, invocation: &HttpInvocation, base_url: &str, args: &_| match invocation
            .dialect
        {
            Dialect::Plain => request::build(tool, invocation, base_url, args),
            Dialect::Agentic => {
                let question = xai::question(&invocation.endpoint, args);
                request::build(tool, invocation, base_url, &question)
            }
        };
    let (tool, invocation, args) = (request.tool, request.invocation, request.args);
    if request.size <= SMALL_ARGUMENTS {
        return build(tool, invocation, &request.base_url, &args);
    }
    let provider = &tool.provider.name;
    let (tool, invocation) = (tool.clone(), invocation.clone());
    let base_url = request.base_url.into_owned();
    let build = move || build(&tool, &invocation, &base_url, &args);
    egress::compute(provider, context, build).await?
}

/// Does what is small where it is, and the rest on the threads for long work. Providers take turns.
async fn compute<T: Send + 'static>(
    is_small: bool,
    provider: &str,
    context: ExecContext<'_>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, EgressError> {
    if is_small {
        return Ok(work());
    }
    egress::compute(provider, context, work).await
}

async fn into_answer(
    response: Response,
    provider: &str,
    context: ExecContext<'_>,
) -> Result<Answer, HttpError> {
    if response.is_success() {
        return Ok(match response.body {
            Redacted::Memory(body) => {
                let is_small = body.len() as u64 <= SMALL_BODY;
                let check = move || Answer::Memory(Answer::from_bytes(&body));
                compute(is_small, provider, context, check).await?
            }
            Redacted::Spooled(body) => {
                let check = move || Answer::Spooled(SpooledJson::check_blocking(body));
                compute(false, provider, context, check).await?
            }
        });
    }
    let status = response.status();
    let not_found = response.is_not_found();
    let (body, is_whole) = match response.body {
        Redacted::Memory(mut body) => {
            let is_whole = body.len() <= LONGEST_ERROR;
            body.truncate(LONGEST_ERROR + UTF8_LONGEST);
            (Bytes::from(body), is_whole)
        }
        Redacted::Spooled(body) => {
            let head = body.head(LONGEST_ERROR + UTF8_LONGEST).await;
            (head.map_err(not_spooled)?, false)
        }
    };
    if not_found && is_whole && says_no_records(&body) {
        return Ok(Answer::Memory(Answer::from_bytes(br#"{"records":[]}"#)));
    }
    let text = String::from_utf8_lossy(&body);
    Err(HttpError::Status {
        status,
        body: text::clip(&text, LONGEST_ERROR).to_owned(),
    })
}

/// Whether a 404 means "nothing found": some APIs answer so, and to an agent that is a result.
fn says_no_records(body: &[u8]) -> bool {
    let Ok(body) = serde_json::from_slice::<Value>(body) else {
        return false;
    };
    let message = body["error"]["message"]
        .as_str()
        .or_else(|| body["error"].as_str())
        .or_else(|| body["message"].as_str())
        .unwrap_or_default()
        .trim();
    if body["type"] == "not_found" || body["error"]["type"] == "not_found" {
        let bare = message.trim_end_matches('.');
        if bare.eq_ignore_ascii_case("not found") {
            return true;
        }
    }
    let lower = message.to_lowercase();
    let rest = lower.strip_prefix("no ").unwrap_or(&lower);
    ["records", "companies", "persons", "results", "matches"]
        .iter()
        .filter_map(|subject| rest.strip_prefix(subject))
        .any(|rest| {
            rest.strip_prefix(" were")
                .unwrap_or(rest)
                .starts_with(" found")
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_a_404_about_records_is_a_result() {
        for good in [
            json!({"error": {"message": "No records found"}}),
            json!({"error": "no results were found for this query"}),
            json!({"message": "Companies found: none"}),
            json!({"message": "matches found"}),
            json!({"type": "not_found", "message": "Not found"}),
        ] {
            assert!(says_no_records(good.to_string().as_bytes()), "{good}");
        }
        for bad in [
            json!({"error": {"message": "Endpoint not found"}}),
            json!({"message": "Not found"}),
            json!({"message": "No such records"}),
            json!({"type": "not_found", "message": "No such key"}),
            json!("No records found"),
        ] {
            assert!(!says_no_records(bad.to_string().as_bytes()), "{bad}");
        }
        assert!(!says_no_records(b"No records found"));
    }
}
