//! What a caller over HTTP gets instead of an answer.

use std::borrow::Cow;

use http::StatusCode;

use super::CallError;

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
    /// As many connections are open as the operator allows. Answered before HTTP begins.
    TooManyConnections,
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
            | Refusal::TooManyConnections
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
            Refusal::TooManyConnections => Body::Json("too many connections".into()),
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
            Refusal::Overloaded | Refusal::TooManyConnections => Some(("retry-after", "1")),
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
            Refusal::TooManyConnections => "too_many_connections",
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_callers_drift_is_no_metric_label() {
        let refusal = Refusal::Signature("expired_timestamp_drift=61s".into());
        assert_eq!(refusal.label(), "expired_timestamp");
        assert_eq!(
            refusal.body(),
            Body::Text("expired_timestamp_drift=61s".into())
        );
    }
}
