use std::time::{Duration, Instant, SystemTime};

use serde_json::value::RawValue;

use crate::auth::Identity;
use crate::catalog::Tool;
use crate::error::CallError;
use crate::request_id::RequestId;
use crate::telemetry::audit::{self, Audit, AuditEntry};
use crate::telemetry::trail::{CallFacts, CallTrail, FileFacts};

/// Counts a call and writes its audit line when the call ends. Dropped before that, because the
/// caller left or the process stops, it records the call as abandoned.
pub struct AuditGuard<'a> {
    name: &'a str,
    /// None where the tool isn't known yet. Such a call isn't counted: a label of a metric is
    /// never what a caller sent.
    tool: Option<&'a Tool>,
    /// Redacted.
    args: Box<RawValue>,
    identity: &'a Identity,
    request_id: RequestId,
    audit: &'a Audit,
    trail: &'a CallTrail,
    started: Instant,
    /// Before that.
    waited: Duration,
    file: Option<FileFacts>,
    ended: bool,
}

impl<'a> AuditGuard<'a> {
    pub fn new(
        name: &'a str,
        tool: Option<&'a Tool>,
        identity: &'a Identity,
        request_id: RequestId,
        audit: &'a Audit,
        trail: &'a CallTrail,
    ) -> Self {
        AuditGuard {
            name,
            tool,
            args: audit::not_parsed(),
            identity,
            request_id,
            audit,
            trail,
            started: Instant::now(),
            waited: Duration::ZERO,
            file: None,
            ended: false,
        }
    }

    /// Until then, the line says that the arguments weren't parsed.
    pub fn set_args(&mut self, redacted: Box<RawValue>) {
        self.args = redacted;
    }

    /// The call had already waited so long.
    pub fn after(mut self, waited: Duration) -> Self {
        self.waited = waited;
        self
    }

    /// The call transferred this file.
    pub fn with_file(mut self, file: Option<FileFacts>) -> Self {
        self.file = file;
        self
    }

    pub fn end<T>(self, outcome: &Result<T, CallError>) {
        match outcome {
            Ok(_) => self.end_with("ok", None),
            Err(error) => self.end_with(error.outcome(), Some(error.audit_text())),
        }
    }

    /// With the label of the outcome in metrics.
    pub fn end_with(mut self, outcome: &'static str, error: Option<String>) {
        self.ended = true;
        self.record(outcome, error);
    }

    fn record(&mut self, outcome: &'static str, error: Option<String>) {
        let took = self.waited + self.started.elapsed();
        if let Some(tool) = self.tool {
            tool.metrics.observe(outcome, took.as_secs_f64());
        }
        let error =
            error.map(|error| crate::text::clip_chars(&error, audit::LONGEST_ERROR).to_owned());
        let entry = AuditEntry {
            ts: audit::timestamp(SystemTime::now()),
            tool: self.name,
            args: &self.args,
            status: if error.is_none() { "ok" } else { "error" },
            duration_ms: took.as_millis() as u64,
            agent_sub: &self.identity.subject,
            job_id: self.identity.job_id.as_deref(),
            sandbox_id: self.identity.sandbox_id.as_deref(),
            request_id: Some(self.request_id),
            file: self.file.as_ref(),
            error,
        };
        self.audit.record(&entry);
        let error = entry.error;
        let (tool, args) = (self.tool, &mut self.args);
        self.trail.ended(|| CallFacts {
            name: self.name.into(),
            provider: tool.map(|tool| tool.provider.name.as_str().into()),
            handler: tool.map(|tool| tool.provider.handler_name().into()),
            args: std::mem::take(args),
            error: error.map(Into::into),
        });
    }
}

impl Drop for AuditGuard<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.record(
                "abandoned",
                Some("abandoned: the caller left, or the process ended".to_owned()),
            );
        }
    }
}
