//! What a caller over HTTP gets instead of an answer. Every `match` here names every refusal: a
//! new one doesn't compile until it has a status, a body, a label, and a decision about its
//! headers and about the caller's connection.

use std::borrow::Cow;

use http::StatusCode;

use super::{
    AdminRefusal, BearerFault, CallError, HelpError, RemoteSkillError, RpcRefusal, Shortage,
    SkillRefusal, UpstreamFailure, Verdict,
};

/// Why a request was not served. The only place where an error status is chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The headers allow two readings of where the body ends.
    AmbiguousFraming,
    /// The body doesn't follow its framing.
    BadRequest,
    /// What HTTP/1.1 doesn't allow. The text says what.
    Malformed(&'static str),
    /// The header has more bytes than it may have.
    HeaderTooLarge,
    /// A path that an upstream could read differently than ati does. The text says why.
    UnsafePath(&'static str),
    /// The request target is neither a path nor an `http` URL.
    UnknownTarget,
    /// `Connection` names `Host`, which every request needs to its end.
    HostIsHopByHop,
    /// The sandbox's signature is not valid, in enforce mode.
    Signature(Verdict),
    /// No bearer token, or one that isn't accepted. `WWW-Authenticate` says why.
    Unauthenticated(BearerFault),
    /// A virtual key was sent, and there is no store to look it up in.
    KeyStoreUnavailable,
    /// Key administration without `ATI_ADMIN_TOKEN`.
    AdminDisabled,
    /// Key administration without a database.
    AdminStoreMissing,
    /// The credential of a route can't be read or sent: a row of the database.
    CredentialUnusable,
    /// Key administration that didn't do what it was asked.
    Administration(Box<AdminRefusal>),
    /// `max_in_flight` is reached, or the process is ending.
    Overloaded,
    /// As many connections are open as the operator allows. Answered before HTTP begins.
    TooManyConnections,
    /// No built-in endpoint and no route.
    NotFound { passthrough: bool },
    /// A known path, and a method that it doesn't have.
    MethodNotAllowed { allow: &'static str },
    /// `/.well-known/jwks.json` without an ES256 key.
    JwksNotConfigured,
    /// A passthrough route's `deny_paths`.
    PathDenied,
    /// A body longer than the route's `max_request_bytes`.
    TooLarge,
    /// The upstream of a route failed.
    Upstream(UpstreamFault),
    /// No answer of a language model: `/help`.
    Help(Box<HelpError>),
    /// A tool that doesn't exist, or that this caller may not see.
    NoSuchTool(String),
    /// A skill that isn't there, or can't be given out: `/skills`.
    Skill(Box<SkillRefusal>),
    /// A tool call that ended without a result.
    Call(Box<CallError>),
    /// `/mcp/{provider}` of a provider that isn't there, or is no MCP server.
    NoSuchProvider(String),
    /// A JSON-RPC request that ended without a result.
    Rpc(Box<RpcRefusal>),
    /// A JSON-RPC request without `Content-Type: application/json`.
    NotJson,
    /// A web page of another origin than the operator allows asks for `/mcp`.
    OriginDenied,
    /// A file that can't be taken, or isn't there: `/files`.
    File(Box<CallError>),
    /// No answer about a skill of the remote catalogue: `/skillati`.
    RemoteSkill(Box<RemoteSkillError>),
    /// A defect of ati. The reason is in the log.
    Internal,
}

/// How an upstream failed. Holds no host and no address: callers see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpstreamFault {
    Unresolved,
    Connect,
    ConnectTimeout,
    Tls,
    Timeout,
    Closed,
    Protocol,
    /// A body longer than `max_response_bytes`.
    TooLarge,
    /// A body that can't be searched for secrets, on a route with `scrub`.
    Unsearchable,
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
            UpstreamFault::Unsearchable => "unsearchable",
        }
    }

    /// What was being done, in the words of OTLP's `error_kind`.
    pub fn phase(self) -> &'static str {
        match self {
            UpstreamFault::ConnectTimeout | UpstreamFault::Timeout => "timeout",
            UpstreamFault::Unresolved | UpstreamFault::Connect | UpstreamFault::Tls => "connect",
            UpstreamFault::Closed
            | UpstreamFault::Protocol
            | UpstreamFault::TooLarge
            | UpstreamFault::Unsearchable => "send",
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
            UpstreamFault::Unsearchable => {
                "its answer is encoded or partial, and can't be searched for credentials"
            }
        }
    }

    pub fn is_timeout(self) -> bool {
        match self {
            UpstreamFault::ConnectTimeout | UpstreamFault::Timeout => true,
            UpstreamFault::Unresolved
            | UpstreamFault::Connect
            | UpstreamFault::Tls
            | UpstreamFault::Closed
            | UpstreamFault::Protocol
            | UpstreamFault::TooLarge
            | UpstreamFault::Unsearchable => false,
        }
    }
}

/// A refusal's body. Clients of existing deployments distinguish these forms.
#[derive(Debug, PartialEq, Eq)]
pub enum RefusalBody {
    Empty,
    Text(Cow<'static, str>),
    /// `{"error": <text>}`
    Json(Cow<'static, str>),
    /// `{"content": "", "error": <text>}`, the envelope of `/help`.
    Help(Cow<'static, str>),
    /// `{"result": null, "error": <text>, …}`, the envelope of `/call`.
    Call(Box<CallError>),
    /// A JSON-RPC error, as text.
    Rpc(Vec<u8>),
}

/// What becomes of the caller's connection once a refusal is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterRefusal {
    /// It serves further requests, if the request's body was read to its end.
    KeepOpen,
    /// It is closed. A body that is still being sent is read first, within limits, so that the
    /// caller gets the answer and not a reset.
    Close,
    /// It is closed at once: what follows on it can't be trusted.
    CloseUnread,
}

impl Refusal {
    pub fn status(&self) -> StatusCode {
        match self {
            Refusal::AmbiguousFraming
            | Refusal::BadRequest
            | Refusal::Malformed(_)
            | Refusal::UnsafePath(_)
            | Refusal::UnknownTarget
            | Refusal::HostIsHopByHop => StatusCode::BAD_REQUEST,
            Refusal::HeaderTooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Refusal::Signature(_) | Refusal::PathDenied | Refusal::OriginDenied => {
                StatusCode::FORBIDDEN
            }
            Refusal::NotJson => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Refusal::Rpc(refusal) => refusal.status(),
            Refusal::Skill(refusal) => refusal.status(),
            Refusal::Administration(refusal) => refusal.status(),
            Refusal::RemoteSkill(error) => error.status(),
            Refusal::Help(error) => error.status(),
            Refusal::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Refusal::Upstream(fault) if fault.is_timeout() => StatusCode::GATEWAY_TIMEOUT,
            Refusal::Upstream(_) => StatusCode::BAD_GATEWAY,
            Refusal::Unauthenticated(_) => StatusCode::UNAUTHORIZED,
            Refusal::KeyStoreUnavailable
            | Refusal::AdminDisabled
            | Refusal::AdminStoreMissing
            | Refusal::CredentialUnusable
            | Refusal::TooManyConnections
            | Refusal::Overloaded => StatusCode::SERVICE_UNAVAILABLE,
            Refusal::NotFound { .. }
            | Refusal::JwksNotConfigured
            | Refusal::NoSuchProvider(_)
            | Refusal::NoSuchTool(_) => StatusCode::NOT_FOUND,
            Refusal::Call(error) | Refusal::File(error) => error.status(),
            Refusal::MethodNotAllowed { .. } => StatusCode::METHOD_NOT_ALLOWED,
            Refusal::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    pub fn body(&self) -> RefusalBody {
        match self {
            Refusal::AmbiguousFraming => {
                RefusalBody::Text("bad request: the body's length can be read in two ways".into())
            }
            Refusal::BadRequest => RefusalBody::Text("bad request: malformed body".into()),
            Refusal::UnsafePath(what) | Refusal::Malformed(what) => {
                RefusalBody::Text(format!("bad request: {what}").into())
            }
            Refusal::HeaderTooLarge => {
                RefusalBody::Text("request header fields too large: more than 64 KiB".into())
            }
            Refusal::UnknownTarget => RefusalBody::Text(
                "bad request: the target is neither a path nor an http URL".into(),
            ),
            Refusal::HostIsHopByHop => {
                RefusalBody::Text("bad request: the Connection header names Host".into())
            }
            Refusal::Signature(verdict) => RefusalBody::Text(verdict.reason()),
            Refusal::PathDenied => RefusalBody::Text("forbidden: path denied by policy".into()),
            Refusal::TooLarge => {
                RefusalBody::Text("payload too large: request exceeds max_request_bytes".into())
            }
            Refusal::Upstream(fault) => {
                let status = if fault.is_timeout() {
                    "gateway timeout"
                } else {
                    "bad gateway"
                };
                RefusalBody::Text(format!("{status}: upstream error: {}", fault.words()).into())
            }
            Refusal::Unauthenticated(_)
            | Refusal::KeyStoreUnavailable
            | Refusal::AdminDisabled
            | Refusal::MethodNotAllowed { .. } => RefusalBody::Empty,
            Refusal::AdminStoreMissing => {
                RefusalBody::Json("admin endpoints require ATI_DB_URL + ATI_ADMIN_TOKEN".into())
            }
            Refusal::CredentialUnusable => RefusalBody::Text(
                "service unavailable: this route's credential can't be read".into(),
            ),
            Refusal::Overloaded => RefusalBody::Json("too many requests in flight".into()),
            Refusal::TooManyConnections => RefusalBody::Json("too many connections".into()),
            Refusal::NotFound { passthrough: true } => {
                RefusalBody::Text("not found: no passthrough route".into())
            }
            Refusal::NotFound { passthrough: false } => {
                RefusalBody::Text("not found: passthrough disabled".into())
            }
            Refusal::JwksNotConfigured => RefusalBody::Json("JWKS not configured".into()),
            Refusal::Help(error) => RefusalBody::Help(error.to_string().into()),
            Refusal::NoSuchTool(name) => {
                RefusalBody::Json(format!("Tool '{name}' not found").into())
            }
            Refusal::NoSuchProvider(name) => {
                RefusalBody::Json(format!("MCP provider '{name}' not found").into())
            }
            Refusal::Call(error) => RefusalBody::Call(error.clone()),
            Refusal::Rpc(refusal) => RefusalBody::Rpc(refusal.body()),
            Refusal::Skill(refusal) => refusal.body(),
            Refusal::Administration(refusal) => refusal.body(),
            Refusal::NotJson => {
                RefusalBody::Text("Expected request with `Content-Type: application/json`".into())
            }
            Refusal::OriginDenied => RefusalBody::Text("forbidden: origin not allowed".into()),
            Refusal::File(error) => RefusalBody::Json(error.to_string().into()),
            Refusal::RemoteSkill(error) => RefusalBody::Json(error.to_string().into()),
            Refusal::Internal => RefusalBody::Json("internal error".into()),
        }
    }

    /// Why, in words, also where the body is empty.
    pub fn text(&self) -> String {
        match self.body() {
            RefusalBody::Text(text) | RefusalBody::Json(text) | RefusalBody::Help(text) => {
                text.into_owned()
            }
            RefusalBody::Call(error) => error.to_string(),
            RefusalBody::Rpc(body) => String::from_utf8_lossy(&body).into_owned(),
            RefusalBody::Empty => {
                if let Refusal::Unauthenticated(fault) = self {
                    format!("{}: {}", fault.label(), fault.words())
                } else {
                    self.label().replace('_', " ")
                }
            }
        }
    }

    /// A header that is sent with the body.
    pub fn header(&self) -> Option<(&'static str, Cow<'static, str>)> {
        match self {
            Refusal::MethodNotAllowed { allow } => Some(("allow", (*allow).into())),
            Refusal::Overloaded | Refusal::TooManyConnections => Some(("retry-after", "1".into())),
            Refusal::Unauthenticated(fault) => Some(("www-authenticate", fault.challenge().into())),
            Refusal::Call(error) | Refusal::File(error) => error
                .retry_after()
                .map(|seconds| ("retry-after", seconds.to_string().into())),
            Refusal::Rpc(refusal) => refusal
                .retry_after()
                .map(|seconds| ("retry-after", seconds.into())),
            Refusal::Help(error) => error
                .retry_after()
                .map(|seconds| ("retry-after", seconds.to_string().into())),
            Refusal::Administration(refusal) => refusal
                .retry_after()
                .map(|seconds| ("retry-after", seconds.into())),
            Refusal::AmbiguousFraming
            | Refusal::BadRequest
            | Refusal::Malformed(_)
            | Refusal::HeaderTooLarge
            | Refusal::UnsafePath(_)
            | Refusal::UnknownTarget
            | Refusal::HostIsHopByHop
            | Refusal::Signature(_)
            | Refusal::KeyStoreUnavailable
            | Refusal::CredentialUnusable
            | Refusal::AdminDisabled
            | Refusal::AdminStoreMissing
            | Refusal::NotFound { .. }
            | Refusal::JwksNotConfigured
            | Refusal::PathDenied
            | Refusal::TooLarge
            | Refusal::Upstream(_)
            | Refusal::NoSuchTool(_)
            | Refusal::NoSuchProvider(_)
            | Refusal::Skill(_)
            | Refusal::NotJson
            | Refusal::OriginDenied
            | Refusal::RemoteSkill(_)
            | Refusal::Internal => None,
        }
    }

    /// The `reason` label of `ati_refusals_total`: one of a fixed set, never what a caller sent.
    pub fn label(&self) -> &'static str {
        match self {
            Refusal::AmbiguousFraming => "ambiguous_framing",
            Refusal::BadRequest => "bad_request",
            Refusal::Malformed(_) => "malformed_request",
            Refusal::HeaderTooLarge => "header_too_large",
            Refusal::UnsafePath(_) => "unsafe_path",
            Refusal::UnknownTarget => "unknown_target",
            Refusal::HostIsHopByHop => "host_is_hop_by_hop",
            Refusal::Signature(verdict) => verdict.label(),
            Refusal::Unauthenticated(fault) => fault.label(),
            Refusal::PathDenied => "path_denied",
            Refusal::TooLarge => "too_large",
            Refusal::Upstream(_) => "upstream",
            Refusal::KeyStoreUnavailable => "key_store_unavailable",
            Refusal::CredentialUnusable => "credential_unusable",
            Refusal::AdminDisabled => "admin_disabled",
            Refusal::AdminStoreMissing => "admin_store_missing",
            Refusal::Overloaded => "overloaded",
            Refusal::TooManyConnections => "too_many_connections",
            Refusal::NotFound { .. } => "not_found",
            Refusal::MethodNotAllowed { .. } => "method_not_allowed",
            Refusal::JwksNotConfigured => "jwks_not_configured",
            Refusal::Help(error) => error.label(),
            Refusal::NoSuchTool(_) => "no_such_tool",
            Refusal::NoSuchProvider(_) => "no_such_provider",
            Refusal::Call(error) | Refusal::File(error) => error.outcome(),
            Refusal::Rpc(refusal) => refusal.error.label(),
            Refusal::Skill(refusal) => refusal.label(),
            Refusal::Administration(refusal) => refusal.label(),
            Refusal::NotJson => "not_json",
            Refusal::OriginDenied => "origin_denied",
            Refusal::RemoteSkill(error) => error.label(),
            Refusal::Internal => "internal",
        }
    }

    /// How the upstream failed. None: the refusal is ati's own.
    pub fn upstream_failure(&self) -> Option<UpstreamFailure> {
        if let Refusal::Upstream(fault) = self {
            Some(UpstreamFailure::new(fault.kind()))
        } else if let Refusal::Call(error) = self {
            error.upstream_failure()
        } else if let Refusal::RemoteSkill(error) = self {
            error.upstream_failure()
        } else if let Refusal::Help(error) = self {
            error.upstream_failure()
        } else {
            None
        }
    }

    pub fn connection(&self) -> AfterRefusal {
        match self {
            Refusal::AmbiguousFraming
            | Refusal::BadRequest
            | Refusal::Malformed(_)
            | Refusal::HeaderTooLarge
            | Refusal::UnsafePath(_)
            | Refusal::UnknownTarget
            | Refusal::HostIsHopByHop
            | Refusal::Internal => AfterRefusal::CloseUnread,
            // Pingora closes the connection after a failed upstream in any case: the answer says
            // so.
            Refusal::Upstream(_) | Refusal::TooLarge | Refusal::TooManyConnections => {
                AfterRefusal::Close
            }
            Refusal::Call(error) | Refusal::File(error) => match error.as_ref() {
                // Where the body ends isn't known, or too far off.
                CallError::UnreadableBody(_)
                | CallError::Busy(Shortage::Memory | Shortage::Spool | Shortage::FileSpool) => {
                    AfterRefusal::Close
                }
                CallError::InvalidRequest(_)
                | CallError::UnknownTool(_)
                | CallError::OutOfScope(_)
                | CallError::Withheld(_)
                | CallError::ScopesExpired(_)
                | CallError::PolicyDenied { .. }
                | CallError::ConfirmationRequired(_)
                | CallError::ConfirmationRefused { .. }
                | CallError::InvalidArgument { .. }
                | CallError::RateLimited { .. }
                | CallError::UpstreamUrl(_)
                | CallError::UpstreamDenied(_)
                | CallError::ProviderDown { .. }
                | CallError::Exec(_)
                | CallError::Extraction { .. }
                | CallError::File(_)
                | CallError::Busy(Shortage::Queue | Shortage::Time | Shortage::Files)
                | CallError::StrayWords(_)
                | CallError::DatabaseAway(_)
                | CallError::Internal(_) => AfterRefusal::KeepOpen,
            },
            Refusal::Rpc(refusal) => refusal.connection(),
            Refusal::Signature(_)
            | Refusal::NotJson
            | Refusal::OriginDenied
            | Refusal::Unauthenticated(_)
            | Refusal::KeyStoreUnavailable
            | Refusal::CredentialUnusable
            | Refusal::AdminDisabled
            | Refusal::AdminStoreMissing
            | Refusal::Administration(_)
            | Refusal::Overloaded
            | Refusal::NotFound { .. }
            | Refusal::MethodNotAllowed { .. }
            | Refusal::JwksNotConfigured
            | Refusal::PathDenied
            | Refusal::Help(_)
            | Refusal::NoSuchTool(_)
            | Refusal::Skill(_)
            | Refusal::NoSuchProvider(_)
            | Refusal::RemoteSkill(_) => AfterRefusal::KeepOpen,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expired_signature_tells_the_caller_its_drift_and_keeps_it_out_of_the_label() {
        let refusal = Refusal::Signature(Verdict::Expired { drift: 61 });
        assert_eq!(refusal.label(), "expired_timestamp");
        assert_eq!(
            refusal.body(),
            RefusalBody::Text("expired_timestamp_drift=61s".into())
        );
    }
}
