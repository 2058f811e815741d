//! Questions at `/help`. They cost the operator money, so they are limited and audited as calls
//! are, by the name of their scope.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::admit::count;
use super::audit_guard::AuditGuard;
use super::{CallTrail, Context};
use crate::auth::{Identity, scope};
use crate::error::{CallError, HelpError};
use crate::request_id::RequestId;
use crate::telemetry::audit;

/// Counts a question against the caller's limits: those whose pattern matches `help`.
pub async fn limit_question(
    identity: &Identity,
    request_id: RequestId,
    context: Context<'_>,
) -> Result<(), HelpError> {
    let counted = count(scope::HELP, identity, request_id, context, false).await;
    counted.map_err(|error| match error {
        CallError::RateLimited { retry_after, .. } => HelpError::Limited {
            why: error.to_string(),
            retry_after,
        },
        error => HelpError::Request(error.to_string()),
    })
}

/// Writes the audit line of a question when it ends; dropped before that, as abandoned.
pub struct QuestionRecord<'a>(AuditGuard<'a>);

impl<'a> QuestionRecord<'a> {
    /// `subject` is the tool or provider that it is about.
    pub fn new(
        question: &str,
        subject: Option<&str>,
        identity: &'a Arc<Identity>,
        request_id: RequestId,
        trail: &'a CallTrail,
        context: Context<'a>,
    ) -> Self {
        let audit = context.audit;
        let mut guard = AuditGuard::new(scope::HELP, None, identity, request_id, audit, trail);
        let mut args = Map::new();
        args.insert("query".to_owned(), Value::from(question));
        if let Some(subject) = subject {
            args.insert("tool".to_owned(), Value::from(subject));
        }
        guard.set_args(audit::redact(&args));
        QuestionRecord(guard)
    }

    pub fn end<T>(self, outcome: &Result<T, HelpError>) {
        let error = outcome.as_ref().err();
        let label = error.map_or("ok", HelpError::label);
        self.0.end_with(label, error.map(ToString::to_string));
    }
}
