//! Requests of clients that speak to an MCP server itself (`/mcp/{provider}`): the same checks,
//! limits and records as for a call of one of its tools.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use serde_json::value::RawValue;

use super::policy::{self, AskedCall};
use super::{Call, Context, check_end, limit, mcp, upstream_override};
use crate::auth::Identity;
use crate::catalog::mcp::relayed::RelayedTool;
use crate::catalog::{Provider, Tool};
use crate::credential::{Lookup, UsedSecrets};
use crate::error::{CallError, ExecError};
use crate::exec::ExecContext;
use crate::exec::mcp::Target;
use crate::policy::Named;
use crate::request_id::RequestId;
use crate::telemetry::audit::{self, Audit, AuditEntry};
use crate::telemetry::trail::{CallFacts, CallTrail};

/// Who asks, and of which server.
#[derive(Clone, Copy)]
pub struct Relayed<'a> {
    pub provider: &'a Arc<Provider>,
    pub identity: &'a Arc<Identity>,
    pub upstream_url: Option<&'a str>,
    pub request_id: RequestId,
    pub trail: &'a CallTrail,
    pub secrets: &'a UsedSecrets,
    pub context: Context<'a>,
}

impl<'a> Relayed<'a> {
    fn call(&self) -> Call<'a> {
        let customer = self.identity.customer_id.as_deref();
        Call {
            provider: self.provider,
            tool: None,
            identity: self.identity,
            lookup: Lookup::tool(self.context.keyring, customer),
            upstream_override: None,
            native: true,
            request_id: self.request_id,
            trail: self.trail,
            secrets: self.secrets,
            context: self.context,
        }
    }

    /// Whether the caller may use this server at all.
    pub fn authorize(&self) -> Result<(), CallError> {
        check_end(self.identity)?;
        let (catalog, scopes) = (self.context.catalog, &self.identity.scopes);
        if catalog.allows_server(self.provider, scopes) {
            Ok(())
        } else {
            Err(CallError::OutOfScope(self.provider.name.clone()))
        }
    }

    /// The tool of this name. Whether the caller may call it is for [`Self::admit`] to say.
    pub fn tool(&self, remote_name: &str) -> RelayedTool<'a> {
        let catalog = self.context.catalog;
        catalog.relayed_tool(self.provider, remote_name, &self.identity.scopes)
    }

    /// Whether the caller may call this tool now. Counts the call against its limits.
    pub async fn admit(
        &self,
        tool: &RelayedTool<'_>,
        arguments: Option<&RawValue>,
        confirm: Option<&str>,
    ) -> Result<(), CallError> {
        check_end(self.identity)?;
        if !tool.is_allowed() {
            return Err(CallError::OutOfScope(tool.name.clone()));
        }
        let call = self.call();
        let known = tool.tool.map(AsRef::as_ref);
        let delegation = self.identity.delegation.as_deref();
        let is_doubtful = || {
            let weighs = self.context.policy.weighs_effects(delegation);
            weighs || self.is_like_a_listed_one(&tool.name)
        };
        if known.is_none() && is_doubtful() {
            // Nothing is known of what it does, and the server may read its name in another way.
            return Err(CallError::PolicyDenied {
                tool: tool.name.clone(),
                rule: "policy.unlisted".to_owned(),
            });
        }
        let facts = known.map(Tool::facts).unwrap_or_default();
        let asked = AskedCall {
            name: Named {
                tool: &tool.name,
                provider: &self.provider.name,
                program: None,
                command: "",
                words: &[],
            },
            as_command: None,
            facts: &facts,
            tool: known,
            confirm,
        };
        let text = arguments.map_or("{}", RawValue::get);
        let key = || policy::raw_arguments_key(text, self.upstream_url);
        policy::decide(&call, &asked, key).await?;
        limit(&call, &tool.name, false).await
    }

    /// Whether a lax server could take this name for that of a tool that it lists: by another case
    /// of letters, blanks, or other marks between words.
    fn is_like_a_listed_one(&self, name: &str) -> bool {
        let letters = |name: &str| -> String {
            let letters = name.chars().filter(|c| c.is_alphanumeric());
            letters.flat_map(char::to_lowercase).collect()
        };
        let (wanted, own) = (letters(name), &self.provider.name);
        let mut tools = self.context.catalog.tools().iter();
        tools.any(|tool| tool.provider.name == *own && letters(&tool.name) == wanted)
    }

    /// The server, with the caller's credential.
    pub fn target(&self) -> Result<Arc<Target>, CallError> {
        let mut call = self.call();
        call.upstream_override = self
            .upstream_url
            .map(|url| upstream_override::check(url, self.provider, &call.lookup))
            .transpose()?;
        Ok(mcp::target(&call).map_err(ExecError::from)?)
    }

    pub fn exec_context(&self) -> ExecContext<'a> {
        self.call().exec_context()
    }
}

/// What is recorded of a request when it ends.
pub struct RelayRecord {
    name: String,
    tool: Option<Arc<Tool>>,
    provider: Arc<Provider>,
    args: Box<RawValue>,
    identity: Arc<Identity>,
    request_id: RequestId,
    started: Instant,
}

impl RelayRecord {
    /// `name` is a tool of the catalogue, or a provider and a method.
    pub fn new(
        name: String,
        tool: Option<Arc<Tool>>,
        args: Box<RawValue>,
        relayed: &Relayed<'_>,
    ) -> Self {
        RelayRecord {
            name,
            tool,
            provider: relayed.provider.clone(),
            args,
            identity: relayed.identity.clone(),
            request_id: relayed.request_id,
            started: Instant::now(),
        }
    }

    /// Counts the call and writes its audit line. None: the client left before the answer.
    pub fn write(&self, outcome: Option<Result<(), &CallError>>, audit: &Audit, trail: &CallTrail) {
        let (label, error) = match outcome {
            Some(Ok(())) => ("ok", None),
            Some(Err(error)) => (error.outcome(), Some(error.audit_text())),
            None => (
                "abandoned",
                Some("abandoned: the caller left, or the process ended".to_owned()),
            ),
        };
        let took = self.started.elapsed();
        if let Some(tool) = &self.tool {
            tool.metrics.observe(label, took.as_secs_f64());
        }
        let entry = AuditEntry {
            ts: audit::timestamp(SystemTime::now()),
            tool: &self.name,
            args: &self.args,
            status: if error.is_none() { "ok" } else { "error" },
            duration_ms: took.as_millis() as u64,
            agent_sub: &self.identity.subject,
            job_id: self.identity.job_id.as_deref(),
            sandbox_id: self.identity.sandbox_id.as_deref(),
            request_id: Some(self.request_id),
            file: None,
            error: error
                .map(|error| crate::text::clip_chars(&error, audit::LONGEST_ERROR).to_owned()),
        };
        audit.record(&entry);
        let error = entry.error;
        trail.ended(|| CallFacts {
            name: self.name.as_str().into(),
            provider: Some(self.provider.name.as_str().into()),
            handler: Some(self.provider.handler_name().into()),
            args: self.args.clone(),
            error: error.map(Into::into),
        });
    }
}
