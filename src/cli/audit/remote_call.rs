use std::time::{Instant, SystemTime};

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::path;
use crate::auth::session::{self, SESSION_TOKEN};
use crate::auth::token;
use crate::config::Environment;
use crate::error::Failure;
use crate::request_id::RequestId;
use crate::telemetry::audit::{self, Audit, AuditEntry};
use crate::text;

/// The audit record of a call that the proxy runs, written on the caller's machine.
pub struct RemoteCall<'a> {
    tool: &'a str,
    args: Box<RawValue>,
    started: Instant,
    /// The proxy's id of the call, from its answer.
    pub request_id: Option<RequestId>,
}

impl<'a> RemoteCall<'a> {
    pub fn start(tool: &'a str, args: &Map<String, Value>) -> Self {
        RemoteCall {
            tool,
            args: audit::redact(args),
            started: Instant::now(),
            request_id: None,
        }
    }

    /// The tool is a program: its words are recorded.
    pub fn of_program(&mut self, words: &[String]) {
        self.args = audit::redact_words(words);
    }

    pub fn end(self, failure: Option<&Failure>) {
        let claims = session::resolve(SESSION_TOKEN)
            .ok()
            .flatten()
            .and_then(|token| token::inspect(&token))
            .unwrap_or_default();
        let claim = |name: &str| claims.get(name).and_then(Value::as_str);
        Audit::direct(&path(&Environment::read())).record(&AuditEntry {
            ts: audit::timestamp(SystemTime::now()),
            tool: self.tool,
            args: &self.args,
            status: if failure.is_none() { "ok" } else { "error" },
            duration_ms: self.started.elapsed().as_millis() as u64,
            agent_sub: claim("sub").unwrap_or("unknown"),
            job_id: claim("job_id"),
            sandbox_id: claim("sandbox_id"),
            file: None,
            request_id: self.request_id,
            error: failure.map(|failure| {
                text::clip_chars(&failure.one_line(), audit::LONGEST_ERROR).to_owned()
            }),
        });
    }
}
