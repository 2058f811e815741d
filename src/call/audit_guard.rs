use std::time::{Duration, Instant, SystemTime};

use serde_json::value::RawValue;

use crate::auth::Identity;
use crate::catalog::Tool;
use crate::error::CallError;
use crate::request_id::RequestId;
use crate::telemetry::audit::{self, Audit, AuditEntry};

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
    started: Instant,
    /// Before that.
    waited: Duration,
    ended: bool,
}

impl<'a> AuditGuard<'a> {
    pub fn new(
        name: &'a str,
        tool: Option<&'a Tool>,
        identity: &'a Identity,
        request_id: RequestId,
        audit: &'a Audit,
    ) -> Self {
        AuditGuard {
            name,
            tool,
            args: audit::not_parsed(),
            identity,
            request_id,
            audit,
            started: Instant::now(),
            waited: Duration::ZERO,
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

    pub fn end<T>(mut self, outcome: &Result<T, CallError>) {
        self.ended = true;
        match outcome {
            Ok(_) => self.record("ok", None),
            Err(error) => self.record(error.outcome(), Some(error.audit_text())),
        }
    }

    fn record(&self, outcome: &'static str, error: Option<String>) {
        let took = self.waited + self.started.elapsed();
        if let Some(tool) = self.tool {
            tool.metrics.observe(outcome, took.as_secs_f64());
        }
        self.audit.record(&AuditEntry {
            ts: audit::timestamp(SystemTime::now()),
            tool: self.name,
            args: &self.args,
            status: if error.is_none() { "ok" } else { "error" },
            duration_ms: took.as_millis() as u64,
            agent_sub: &self.identity.subject,
            job_id: self.identity.job_id.as_deref(),
            sandbox_id: self.identity.sandbox_id.as_deref(),
            request_id: Some(self.request_id),
            error: error
                .map(|error| crate::text::clip_chars(&error, audit::LONGEST_ERROR).to_owned()),
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
