//! Why a tool call did not end in a result: one closed set for `/call`, `/mcp` and `ati run`. Each
//! member has a status, a text, a code for scripts and a label for metrics. Executors have error
//! types of their own, which reach this one as an [`ExecError`].

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use http::StatusCode;

use super::{Code, Confirmation, ConfirmationFault, FileFault};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    #[error("Failed to read request body: {0}")]
    UnreadableBody(String),
    #[error("Invalid request: {0}")]
    InvalidRequest(String),
    #[error("Unknown tool: '{0}'")]
    UnknownTool(String),
    #[error("Access denied: '{0}' is not in your scopes")]
    OutOfScope(String),
    /// A file tool without a manifest, on a proxy that every machine reaches and that asks callers
    /// for no proof.
    #[error(
        "Access denied: '{0}' is offered to no caller: this proxy listens beyond loopback, and has \
         neither token keys nor signature mode enforce. Its operator can set one of these, or write \
         a manifest with handler = \"file_manager\", or say --insecure"
    )]
    Withheld(String),
    /// The token's `exp` is over. The leeway is for the check of the token, and not for calls.
    #[error("Scopes have expired (expired at {0})")]
    ScopesExpired(u64),
    /// A rule of the operator's policy, or of the one in the caller's token, denies the call.
    #[error("Access denied: '{tool}' is denied by policy: {rule}")]
    PolicyDenied { tool: String, rule: String },
    #[error("Confirmation required: '{}' wants to be confirmed: {}", .0.tool, .0.rule)]
    ConfirmationRequired(Box<Confirmation>),
    /// The call has a token that doesn't confirm it.
    #[error("Confirmation refused: '{tool}': {fault}")]
    ConfirmationRefused {
        tool: String,
        rule: String,
        fault: ConfirmationFault,
    },
    #[error("Invalid arguments: {name}: {what}")]
    InvalidArgument {
        name: String,
        what: String,
        missing: bool,
    },
    /// Words of a command line that are no argument, for a tool that isn't a program.
    #[error("Invalid arguments: {0}")]
    StrayWords(String),
    #[error("Rate limit exceeded for '{pattern}': {count}/{unit} (limit: {limit}/{unit})")]
    RateLimited {
        pattern: String,
        count: usize,
        limit: u32,
        unit: &'static str,
        /// Seconds until there is room for a call.
        retry_after: u64,
    },
    /// `X-Ati-Upstream-Url` is no URL, or the provider takes none.
    #[error("Invalid upstream URL: {0}")]
    UpstreamUrl(String),
    /// `X-Ati-Upstream-Url` is not on the provider's allowlist.
    #[error("Upstream URL denied: {0}")]
    UpstreamDenied(String),
    /// The tools of an MCP server can't be listed, so that it isn't known whether it has this one.
    #[error("provider '{provider}' is down: {why}")]
    ProviderDown {
        provider: String,
        why: String,
        /// Seconds until the server is asked again.
        retry_after: u64,
    },
    /// The executor of the tool's handler failed.
    #[error(transparent)]
    Exec(#[from] ExecError),
    /// The upstream answered, and the manifest's `extract` can't be applied to the answer.
    #[error("Response processing error: JSONPath extraction failed: {message}")]
    Extraction {
        message: String,
        /// The answer, as JSON text.
        raw: String,
    },
    /// The file that the call sends or asks for.
    #[error(transparent)]
    File(#[from] FileFault),
    /// There is no room for the call at the moment.
    #[error("Too busy: {0}")]
    Busy(Shortage),
    /// What the call needs the database for. Nothing was run.
    #[error("Unavailable: {0}: the database is away")]
    DatabaseAway(&'static str),
    /// A defect of ati.
    #[error("Internal error: {0}")]
    Internal(&'static str),
}

/// What all calls share, and what is used up at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Shortage {
    #[error("the bodies of all calls together would need more memory than max_memory_bytes")]
    Memory,
    #[error("the temporary files of all calls together would need more than max_spool_bytes")]
    Spool,
    #[error("the files of all calls together would need more than [files] spool_bytes")]
    FileSpool,
    #[error("too many files of this caller wait to be used")]
    Files,
    #[error("too many calls wait to be worked on")]
    Queue,
    #[error("the call's time was over before it was worked on")]
    Time,
}

impl Shortage {
    /// The label in metrics.
    pub fn label(self) -> &'static str {
        match self {
            Shortage::Memory => "memory_full",
            Shortage::Spool => "spool_full",
            Shortage::FileSpool => "file_spool_full",
            Shortage::Files => "too_many_files",
            Shortage::Queue => "compute_full",
            Shortage::Time => "compute_timeout",
        }
    }
}

/// Seconds after which a call that found no room may find some.
const RETRY_AFTER_SHORTAGE: u64 = 1;
/// Seconds after which the database may be back.
const RETRY_AFTER_AWAY: u64 = 1;

/// How the upstream of a route or a tool failed, for logs and metrics. It isn't a refusal of ati's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UpstreamFailure {
    /// One of a fixed set.
    pub kind: &'static str,
    /// Of an upstream that answered.
    pub status: Option<u16>,
}

impl UpstreamFailure {
    pub fn new(kind: &'static str) -> Self {
        UpstreamFailure { kind, status: None }
    }

    /// It answered, and with a status that is an error.
    pub fn status(status: u16) -> Self {
        UpstreamFailure {
            kind: "status",
            status: Some(status),
        }
    }
}

/// The status of a call whose executor failed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ExecStatus {
    BadRequest,
    Forbidden,
    TooLarge,
    #[default]
    BadGateway,
    Unavailable,
    /// A disk of ati's machine is full.
    NoSpace,
    Internal,
    /// The upstream's own, as far as it is the status of an error.
    Upstream(u16),
}

impl ExecStatus {
    fn code(self) -> StatusCode {
        match self {
            ExecStatus::BadRequest => StatusCode::BAD_REQUEST,
            ExecStatus::Forbidden => StatusCode::FORBIDDEN,
            ExecStatus::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            ExecStatus::BadGateway => StatusCode::BAD_GATEWAY,
            ExecStatus::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            ExecStatus::NoSpace => StatusCode::INSUFFICIENT_STORAGE,
            ExecStatus::Internal => StatusCode::INTERNAL_SERVER_ERROR,
            ExecStatus::Upstream(status) => {
                StatusCode::from_u16(status.clamp(400, 599)).unwrap_or(StatusCode::BAD_GATEWAY)
            }
        }
    }
}

/// What an executor's error type tells the pipeline. Executors implement it in their own folder, so
/// that a new one changes nothing here.
pub trait ExecFailure: Error + Send + Sync + 'static {
    /// Stands before the error's text: `Upstream API error`. Empty where the text says it all.
    fn intro(&self) -> &'static str;

    /// The status of the answer to `/call`. A shortage has its own.
    fn status(&self) -> ExecStatus {
        ExecStatus::default()
    }

    /// The `outcome` label of `ati_tool_calls_total`.
    fn outcome(&self) -> &'static str;

    fn code(&self) -> Code;

    /// None where ati ended the call itself.
    fn upstream_failure(&self) -> Option<UpstreamFailure>;

    /// What ati had no room for, where it failed for that.
    fn shortage(&self) -> Option<Shortage> {
        None
    }

    /// The tool's own result, as an MCP client may get it, where the tool says that it failed.
    fn native_result(&self) -> Option<&str> {
        None
    }

    /// The error's text for the audit line, without arguments of the caller.
    fn audit_text(&self) -> String {
        self.to_string()
    }
}

/// The error of any executor.
#[derive(Debug, Clone)]
pub struct ExecError(Arc<dyn ExecFailure>);

impl ExecError {
    pub fn outcome(&self) -> &'static str {
        self.0.outcome()
    }

    pub fn code(&self) -> Code {
        self.0.code()
    }

    pub fn upstream_failure(&self) -> Option<UpstreamFailure> {
        self.0.upstream_failure()
    }

    pub fn native_result(&self) -> Option<&str> {
        self.0.native_result()
    }

    pub fn audit_text(&self) -> String {
        self.introduced(&self.0.audit_text())
    }

    fn introduced(&self, text: &str) -> String {
        match self.0.intro() {
            "" => text.to_owned(),
            intro => format!("{intro}: {text}"),
        }
    }
}

impl<F: ExecFailure> From<F> for ExecError {
    fn from(failure: F) -> Self {
        ExecError(Arc::new(failure))
    }
}

impl fmt::Display for ExecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.introduced(&self.0.to_string()))
    }
}

impl Error for ExecError {
    /// The failure's own cause: its text already stands in this one's.
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}

/// Equal where a caller couldn't tell them apart.
impl PartialEq for ExecError {
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string() && self.outcome() == other.outcome()
    }
}

impl Eq for ExecError {}

impl CallError {
    pub fn status(&self) -> StatusCode {
        match self {
            CallError::UnreadableBody(_) | CallError::UpstreamUrl(_) => StatusCode::BAD_REQUEST,
            CallError::InvalidRequest(_)
            | CallError::InvalidArgument { .. }
            | CallError::StrayWords(_) => StatusCode::UNPROCESSABLE_ENTITY,
            CallError::UnknownTool(_) => StatusCode::NOT_FOUND,
            CallError::OutOfScope(_)
            | CallError::Withheld(_)
            | CallError::ScopesExpired(_)
            | CallError::PolicyDenied { .. }
            | CallError::ConfirmationRefused { .. }
            | CallError::UpstreamDenied(_) => StatusCode::FORBIDDEN,
            CallError::ConfirmationRequired(_) => StatusCode::CONFLICT,
            CallError::RateLimited { .. } => StatusCode::TOO_MANY_REQUESTS,
            CallError::ProviderDown { .. } | CallError::Busy(_) | CallError::DatabaseAway(_) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            CallError::Exec(error) if error.0.shortage().is_some() => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            CallError::Exec(error) => error.0.status().code(),
            CallError::File(fault) => fault.status(),
            CallError::Extraction { .. } | CallError::Internal(_) => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
        }
    }

    /// The `outcome` label of `ati_tool_calls_total`.
    pub fn outcome(&self) -> &'static str {
        match self {
            CallError::UnreadableBody(_) => "unreadable_body",
            CallError::InvalidRequest(_) => "invalid_request",
            CallError::UnknownTool(_) => "unknown_tool",
            CallError::OutOfScope(_) | CallError::Withheld(_) | CallError::UpstreamDenied(_) => {
                "denied"
            }
            CallError::PolicyDenied { .. } => "policy_denied",
            CallError::ConfirmationRequired(_) => "confirmation_required",
            CallError::ConfirmationRefused { .. } => "confirmation_refused",
            CallError::ScopesExpired(_) => "expired",
            CallError::UpstreamUrl(_) => "invalid_request",
            CallError::InvalidArgument { .. } | CallError::StrayWords(_) => "invalid_arguments",
            CallError::RateLimited { .. } => "rate_limited",
            CallError::ProviderDown { .. } => "provider_down",
            CallError::Exec(error) => error.outcome(),
            CallError::Extraction { .. } => "extraction",
            CallError::File(fault) => fault.outcome(),
            CallError::Busy(shortage) => shortage.label(),
            CallError::DatabaseAway(_) => "store_away",
            CallError::Internal(_) => "internal",
        }
    }

    pub fn code(&self) -> Code {
        match self {
            CallError::UnknownTool(_) => Code::ToolNotFound,
            CallError::OutOfScope(_)
            | CallError::Withheld(_)
            | CallError::PolicyDenied { .. }
            | CallError::UpstreamDenied(_) => Code::ScopeDenied,
            CallError::ConfirmationRequired(_) => Code::ConfirmRequired,
            CallError::ConfirmationRefused { .. } => Code::ConfirmRefused,
            CallError::ScopesExpired(_) => Code::AuthExpired,
            CallError::InvalidArgument { missing: true, .. } => Code::MissingArg,
            CallError::UnreadableBody(_)
            | CallError::UpstreamUrl(_)
            | CallError::InvalidRequest(_)
            | CallError::InvalidArgument { .. }
            | CallError::StrayWords(_) => Code::InvalidValue,
            CallError::RateLimited { .. } => Code::RateExceeded,
            CallError::ProviderDown { .. } => Code::ProviderUnavailable,
            CallError::Exec(error) => error.code(),
            CallError::File(fault) => fault.code(),
            CallError::Busy(_) | CallError::DatabaseAway(_) => Code::ExecutionFailed,
            CallError::Extraction { .. } | CallError::Internal(_) => Code::ExecutionFailed,
        }
    }

    /// The text of the audit line: without arguments of the caller, which the audit redacts.
    pub fn audit_text(&self) -> String {
        if let CallError::Exec(error) = self {
            error.audit_text()
        } else if let CallError::StrayWords(_) = self {
            "Invalid arguments: words that belong to no argument".to_owned()
        } else {
            self.to_string()
        }
    }

    /// Seconds after which the same call may succeed, where that is known.
    pub fn retry_after(&self) -> Option<u64> {
        if let CallError::ProviderDown { retry_after, .. }
        | CallError::RateLimited { retry_after, .. } = self
        {
            Some(*retry_after)
        } else if let CallError::Busy(_) = self {
            Some(RETRY_AFTER_SHORTAGE)
        } else if let CallError::DatabaseAway(_) = self {
            Some(RETRY_AFTER_AWAY)
        } else if let CallError::Exec(error) = self {
            error.0.shortage().map(|_| RETRY_AFTER_SHORTAGE)
        } else {
            None
        }
    }

    /// None where ati ended the call itself.
    pub fn upstream_failure(&self) -> Option<UpstreamFailure> {
        if let CallError::Exec(error) = self {
            error.upstream_failure()
        } else {
            None
        }
    }

    /// The rule of a policy that ended the call.
    pub fn rule(&self) -> Option<&str> {
        if let CallError::PolicyDenied { rule, .. } | CallError::ConfirmationRefused { rule, .. } =
            self
        {
            Some(rule)
        } else {
            self.confirmation().map(|wanted| wanted.rule.as_str())
        }
    }

    /// What its caller can confirm.
    pub fn confirmation(&self) -> Option<&Confirmation> {
        if let CallError::ConfirmationRequired(wanted) = self {
            Some(wanted)
        } else {
            None
        }
    }

    /// The answer of `/call`: `{"result": …, "error": …}`, and what a policy says about it.
    pub fn envelope(&self) -> String {
        let error = serde_json::Value::String(self.to_string());
        let mut body = format!(
            "{{\"result\":{},\"error\":{error}",
            self.raw().unwrap_or("null")
        );
        if let Some(wanted) = self.confirmation() {
            body += &format!(",\"confirmation\":{}", serde_json::json!(wanted));
        } else if let Some(rule) = self.rule() {
            body += &format!(",\"rule\":{}", serde_json::json!(rule));
        }
        body + "}"
    }

    /// The upstream's answer, where only `extract` failed.
    pub fn raw(&self) -> Option<&str> {
        if let CallError::Extraction { raw, .. } = self {
            Some(raw)
        } else {
            None
        }
    }
}
