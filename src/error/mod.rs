//! What can go wrong, as closed sets: a new member doesn't compile until it has a status, a code and a label.
//!
//! [`Refusal`] is what a caller over HTTP gets instead of an answer. [`Failure`] is what ends a command.
//! [`Problem`] is one thing wrong with what an operator configured; they are collected and reported together.

mod call;

use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};

use http::StatusCode;

pub use call::{CallError, McpError, ToolError};

/// Why a request was not served. The one place where an error status is chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// Two ways to tell where the body ends.
    AmbiguousFraming,
    /// A body that isn't what its framing says.
    BadRequest,
    /// A path that an upstream could read differently than we do.
    UnsafePath(&'static str),
    /// The sandbox's signature, in enforce mode. The text is the contract's reason.
    Signature(Cow<'static, str>),
    /// No token, or none that holds. The label says which; the caller isn't told.
    Unauthenticated(&'static str),
    /// A virtual key was sent, and there is nothing to look it up in.
    KeyStoreUnavailable,
    /// Key administration without `ATI_ADMIN_TOKEN`.
    AdminDisabled,
    /// Key administration without a database.
    AdminStoreMissing,
    /// As much is under way as the operator allows.
    Overloaded,
    /// No built-in and no route.
    NotFound { passthrough: bool },
    /// A known path, another method.
    MethodNotAllowed { allow: &'static str },
    /// `/.well-known/jwks.json` without an ES256 key.
    JwksNotConfigured,
    /// A passthrough route's `deny_paths`.
    PathDenied,
    /// More body than `max_request_bytes`.
    TooLarge,
    /// The upstream failed us; the kind is one of [`UpstreamFault`]'s.
    Upstream(UpstreamFault),
    /// `/help` without an `_llm` manifest.
    HelpNotConfigured,
    /// A tool that isn't there, or that this caller may not see.
    NoSuchTool(String),
    /// A tool call that ended without a result.
    Call(Box<CallError>),
    /// A route of the contract that this build doesn't serve yet.
    NotImplemented,
    /// A defect of ours. The reason is in the log.
    Internal,
}

/// What went wrong on the other side. Never says where that is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpstreamFault {
    Unresolved,
    Connect,
    ConnectTimeout,
    Tls,
    Timeout,
    Closed,
    Protocol,
    /// More body than `max_response_bytes`.
    TooLarge,
}

impl UpstreamFault {
    /// The `kind` label of `ati_upstream_errors_total`.
    pub fn kind(self) -> &'static str {
        match self {
            UpstreamFault::Unresolved => "dns",
            UpstreamFault::Connect => "connect",
            UpstreamFault::ConnectTimeout => "connect_timeout",
            UpstreamFault::Tls => "tls",
            UpstreamFault::Timeout => "timeout",
            UpstreamFault::Closed => "closed",
            UpstreamFault::Protocol => "protocol",
            UpstreamFault::TooLarge => "too_large",
        }
    }

    pub fn words(self) -> &'static str {
        match self {
            UpstreamFault::Unresolved => "its name can't be resolved",
            UpstreamFault::Connect => "connection refused or unreachable",
            UpstreamFault::ConnectTimeout => "timed out while connecting",
            UpstreamFault::Tls => "the TLS handshake failed",
            UpstreamFault::Timeout => "timed out while waiting for data",
            UpstreamFault::Closed => "it closed the connection",
            UpstreamFault::Protocol => "it did not answer in HTTP",
            UpstreamFault::TooLarge => "its answer exceeds max_response_bytes",
        }
    }

    pub fn is_timeout(self) -> bool {
        matches!(self, UpstreamFault::ConnectTimeout | UpstreamFault::Timeout)
    }
}

/// How a refusal looks on the wire. Clients of existing deployments tell these apart.
#[derive(Debug, PartialEq, Eq)]
pub enum Body {
    Empty,
    Text(Cow<'static, str>),
    /// `{"error": <text>}`
    Json(Cow<'static, str>),
    /// `{"content": "", "error": <text>}`, the envelope of `/help`.
    Help(Cow<'static, str>),
    /// `{"result": null, "error": <text>}`, the envelope of `/call`.
    Call(Box<CallError>),
}

impl Refusal {
    pub fn status(&self) -> StatusCode {
        match self {
            Refusal::AmbiguousFraming | Refusal::BadRequest | Refusal::UnsafePath(_) => {
                StatusCode::BAD_REQUEST
            }
            Refusal::Signature(_) | Refusal::PathDenied => StatusCode::FORBIDDEN,
            Refusal::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Refusal::Upstream(fault) if fault.is_timeout() => StatusCode::GATEWAY_TIMEOUT,
            Refusal::Upstream(_) => StatusCode::BAD_GATEWAY,
            Refusal::Unauthenticated(_) => StatusCode::UNAUTHORIZED,
            Refusal::KeyStoreUnavailable
            | Refusal::AdminDisabled
            | Refusal::AdminStoreMissing
            | Refusal::HelpNotConfigured
            | Refusal::Overloaded => StatusCode::SERVICE_UNAVAILABLE,
            Refusal::NotFound { .. } | Refusal::JwksNotConfigured | Refusal::NoSuchTool(_) => {
                StatusCode::NOT_FOUND
            }
            Refusal::Call(error) => error.status(),
            Refusal::MethodNotAllowed { .. } => StatusCode::METHOD_NOT_ALLOWED,
            Refusal::NotImplemented => StatusCode::NOT_IMPLEMENTED,
            Refusal::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    pub fn body(&self) -> Body {
        match self {
            Refusal::AmbiguousFraming => {
                Body::Text("bad request: the body's length can be read in two ways".into())
            }
            Refusal::BadRequest => Body::Text("bad request: malformed body".into()),
            Refusal::UnsafePath(what) => Body::Text(format!("bad request: {what}").into()),
            Refusal::Signature(reason) => Body::Text(reason.clone()),
            Refusal::PathDenied => Body::Text("forbidden: path denied by policy".into()),
            Refusal::TooLarge => {
                Body::Text("payload too large: request exceeds max_request_bytes".into())
            }
            Refusal::Upstream(fault) => {
                let status = if fault.is_timeout() {
                    "gateway timeout"
                } else {
                    "bad gateway"
                };
                Body::Text(format!("{status}: upstream error: {}", fault.words()).into())
            }
            Refusal::Unauthenticated(_)
            | Refusal::KeyStoreUnavailable
            | Refusal::AdminDisabled
            | Refusal::MethodNotAllowed { .. } => Body::Empty,
            Refusal::AdminStoreMissing => {
                Body::Json("admin endpoints require ATI_DB_URL + ATI_ADMIN_TOKEN".into())
            }
            Refusal::Overloaded => Body::Json("too many requests in flight".into()),
            Refusal::NotFound { passthrough: true } => {
                Body::Text("not found: no passthrough route".into())
            }
            Refusal::NotFound { passthrough: false } => {
                Body::Text("not found: passthrough disabled".into())
            }
            Refusal::JwksNotConfigured => Body::Json("JWKS not configured".into()),
            Refusal::HelpNotConfigured => Body::Help(
                "No _llm.toml manifest found. Proxy help requires a configured LLM provider."
                    .into(),
            ),
            Refusal::NoSuchTool(name) => Body::Json(format!("Tool '{name}' not found").into()),
            Refusal::Call(error) => Body::Call(error.clone()),
            Refusal::NotImplemented => Body::Json("not implemented".into()),
            Refusal::Internal => Body::Json("internal error".into()),
        }
    }

    /// A header that this refusal owes the caller besides its body.
    pub fn header(&self) -> Option<(&'static str, &'static str)> {
        match self {
            Refusal::MethodNotAllowed { allow } => Some(("allow", allow)),
            Refusal::Overloaded => Some(("retry-after", "1")),
            _ => None,
        }
    }

    /// The `reason` label of `ati_refusals_total`: one of a fixed few, never what a caller sent.
    pub fn label(&self) -> &'static str {
        match self {
            Refusal::AmbiguousFraming => "ambiguous_framing",
            Refusal::BadRequest => "bad_request",
            Refusal::UnsafePath(_) => "unsafe_path",
            Refusal::Signature(reason) => signature_label(reason),
            Refusal::Unauthenticated(label) => label,
            Refusal::PathDenied => "path_denied",
            Refusal::TooLarge => "too_large",
            Refusal::Upstream(_) => "upstream",
            Refusal::KeyStoreUnavailable => "key_store_unavailable",
            Refusal::AdminDisabled => "admin_disabled",
            Refusal::AdminStoreMissing => "admin_store_missing",
            Refusal::Overloaded => "overloaded",
            Refusal::NotFound { .. } => "not_found",
            Refusal::MethodNotAllowed { .. } => "method_not_allowed",
            Refusal::JwksNotConfigured => "jwks_not_configured",
            Refusal::HelpNotConfigured => "help_not_configured",
            Refusal::NoSuchTool(_) => "no_such_tool",
            Refusal::Call(error) => error.outcome(),
            Refusal::NotImplemented => "not_implemented",
            Refusal::Internal => "internal",
        }
    }

    /// Whether the connection ends with this answer, because what follows on it can't be trusted.
    pub fn poisons_connection(&self) -> bool {
        matches!(
            self,
            Refusal::AmbiguousFraming
                | Refusal::BadRequest
                | Refusal::UnsafePath(_)
                | Refusal::Internal
        )
    }
}

/// The drift in `expired_timestamp_drift=61s` is the caller's to choose, so it is no label.
fn signature_label(reason: &str) -> &'static str {
    match reason {
        "missing_signature" => "missing_signature",
        "malformed_signature" => "malformed_signature",
        "invalid_timestamp" => "invalid_timestamp",
        "no_signing_secret_configured" => "no_signing_secret_configured",
        "hmac_mismatch" => "hmac_mismatch",
        _ => "expired_timestamp",
    }
}

/// The public code of a failed command. Its prefix decides the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    ToolNotFound,
    ExecutionFailed,
    ScopeDenied,
    AuthExpired,
    MissingKey,
    ProviderTimeout,
    UpstreamError,
    ProviderNotFound,
    MissingArg,
    InvalidValue,
    RateExceeded,
}

impl Code {
    pub const ALL: [Code; 11] = [
        Code::ToolNotFound,
        Code::ExecutionFailed,
        Code::ScopeDenied,
        Code::AuthExpired,
        Code::MissingKey,
        Code::ProviderTimeout,
        Code::UpstreamError,
        Code::ProviderNotFound,
        Code::MissingArg,
        Code::InvalidValue,
        Code::RateExceeded,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Code::ToolNotFound => "tool.not_found",
            Code::ExecutionFailed => "tool.execution_failed",
            Code::ScopeDenied => "auth.scope_denied",
            Code::AuthExpired => "auth.expired",
            Code::MissingKey => "auth.missing_key",
            Code::ProviderTimeout => "provider.timeout",
            Code::UpstreamError => "provider.upstream_error",
            Code::ProviderNotFound => "provider.not_found",
            Code::MissingArg => "input.missing_arg",
            Code::InvalidValue => "input.invalid_value",
            Code::RateExceeded => "rate.exceeded",
        }
    }

    pub fn exit_code(self) -> u8 {
        match self {
            Code::ToolNotFound | Code::ExecutionFailed => 1,
            Code::MissingArg | Code::InvalidValue => 2,
            Code::ScopeDenied | Code::AuthExpired | Code::MissingKey => 3,
            Code::ProviderTimeout | Code::UpstreamError | Code::ProviderNotFound => 4,
            Code::RateExceeded => 5,
        }
    }
}

/// What ends a command: a code for scripts, a sentence for people, perhaps what to do about it.
#[derive(Debug)]
pub struct Failure {
    pub code: Code,
    pub message: String,
    pub hint: Option<String>,
    pub source: Option<anyhow::Error>,
}

impl Failure {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Failure {
            code,
            message: message.into(),
            hint: None,
            source: None,
        }
    }

    pub fn invalid(message: impl Into<String>) -> Self {
        Failure::new(Code::InvalidValue, message)
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub fn because(mut self, source: impl Into<anyhow::Error>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Everything wrong at once, as one failure of a command.
    pub fn from_problems(what: &str, problems: &[Problem]) -> Self {
        let list: Vec<String> = problems.iter().map(Problem::to_string).collect();
        Failure::invalid(match list.as_slice() {
            [one] => one.clone(),
            many => format!("{what}: {} problems: {}", many.len(), many.join("; ")),
        })
    }

    /// The causes, outermost first, without the message itself.
    pub fn chain(&self) -> Vec<String> {
        self.source
            .as_ref()
            .map(|e| e.chain().map(ToString::to_string).collect())
            .unwrap_or_default()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// One thing wrong with what an operator configured: where, and what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub file: Option<PathBuf>,
    pub key: Option<String>,
    pub message: String,
    pub intro: Intro,
    /// The credential that this is about, where one is missing.
    pub missing_credential: Option<String>,
}

/// How a problem with a file is introduced. Scripts look for the words about manifests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Intro {
    #[default]
    Plain,
    UnparsableManifest,
    InvalidManifest,
}

impl Problem {
    pub fn new(message: impl Into<String>) -> Self {
        Problem {
            file: None,
            key: None,
            message: message.into(),
            intro: Intro::Plain,
            missing_credential: None,
        }
    }

    pub fn intro(mut self, intro: Intro) -> Self {
        self.intro = intro;
        self
    }

    pub fn missing_credential(mut self, name: &str) -> Self {
        self.missing_credential = Some(name.to_owned());
        self
    }

    pub fn file(mut self, file: &Path) -> Self {
        self.file = Some(file.to_path_buf());
        self
    }

    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            let file = file.display();
            match self.intro {
                Intro::Plain => write!(f, "{file}: ")?,
                Intro::UnparsableManifest => write!(f, "Failed to parse manifest {file}: ")?,
                Intro::InvalidManifest => write!(f, "Manifest {file} is invalid: ")?,
            }
        }
        if let Some(key) = &self.key {
            write!(f, "{key}: ")?;
        }
        f.write_str(&self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_follow_the_prefix() {
        for code in Code::ALL {
            let (prefix, _) = code.as_str().split_once('.').unwrap();
            let expected = match prefix {
                "input" => 2,
                "auth" => 3,
                "provider" => 4,
                "rate" => 5,
                _ => 1,
            };
            assert_eq!(code.exit_code(), expected, "{}", code.as_str());
        }
    }

    #[test]
    fn a_callers_drift_is_no_metric_label() {
        let refusal = Refusal::Signature("expired_timestamp_drift=61s".into());
        assert_eq!(refusal.label(), "expired_timestamp");
        assert_eq!(
            refusal.body(),
            Body::Text("expired_timestamp_drift=61s".into())
        );
    }

    #[test]
    fn a_problem_says_where_it_is() {
        let p = Problem::new("no such mode")
            .file(Path::new("/etc/ati.toml"))
            .key("signature.mode");
        assert_eq!(p.to_string(), "/etc/ati.toml: signature.mode: no such mode");
    }
}
