//! What checking a caller led to: its signature, its token, the admin bearer. The checks are in
//! `auth` and `filters`; the results are here, because refusals hold them.

use std::borrow::Cow;

/// What checking a sandbox's signature led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Valid,
    /// Signed with the previous secret, which is still accepted.
    ValidPrevious,
    Missing,
    Malformed,
    InvalidTimestamp,
    Expired {
        drift: u64,
    },
    NoSecret,
    Mismatch,
}

impl Verdict {
    pub fn is_valid(self) -> bool {
        match self {
            Verdict::Valid | Verdict::ValidPrevious => true,
            Verdict::Missing
            | Verdict::Malformed
            | Verdict::InvalidTimestamp
            | Verdict::Expired { .. }
            | Verdict::NoSecret
            | Verdict::Mismatch => false,
        }
    }

    /// The text that callers get and that scripts grep for.
    pub fn reason(self) -> Cow<'static, str> {
        match self {
            Verdict::Expired { drift } => format!("expired_timestamp_drift={drift}s").into(),
            Verdict::Valid
            | Verdict::ValidPrevious
            | Verdict::Missing
            | Verdict::Malformed
            | Verdict::InvalidTimestamp
            | Verdict::NoSecret
            | Verdict::Mismatch => self.label().into(),
        }
    }

    /// The value of a metric label. Without the drift: the caller chooses it, and a label must
    /// not have more values than ati gives it.
    pub fn label(self) -> &'static str {
        match self {
            Verdict::Valid | Verdict::ValidPrevious => "valid",
            Verdict::Missing => "missing_signature",
            Verdict::Malformed => "malformed_signature",
            Verdict::InvalidTimestamp => "invalid_timestamp",
            Verdict::Expired { .. } => "expired_timestamp",
            Verdict::NoSecret => "no_signing_secret_configured",
            Verdict::Mismatch => "hmac_mismatch",
        }
    }
}

/// Why a token isn't accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenFault {
    #[error("there is no token")]
    Missing,
    #[error("longer than {limit} bytes")]
    TooLong { limit: usize },
    #[error("not a well-formed token with the required claims (sub, aud, iat, exp, scope)")]
    Malformed,
    #[error("signed with another key or algorithm")]
    BadSignature,
    #[error("expired")]
    Expired,
    #[error("for another audience")]
    WrongAudience,
    #[error("from another issuer")]
    WrongIssuer,
    #[error("has a rate limit that can't be read")]
    BadRate,
    /// Its header has `crit`.
    #[error("demands extensions (crit) that ati doesn't know")]
    Critical,
}

/// Why a request with a bad or missing `Authorization` header was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BearerFault {
    Token(TokenFault),
    /// Not the admin token.
    NotAdmin,
}

impl BearerFault {
    /// The value of a metric label.
    pub fn label(self) -> &'static str {
        match self {
            BearerFault::Token(TokenFault::Missing) => "token_missing",
            BearerFault::Token(TokenFault::TooLong { .. }) => "token_too_long",
            BearerFault::Token(TokenFault::Malformed) => "token_malformed",
            BearerFault::Token(TokenFault::BadSignature) => "token_signature",
            BearerFault::Token(TokenFault::Expired) => "token_expired",
            BearerFault::Token(TokenFault::WrongAudience) => "token_audience",
            BearerFault::Token(TokenFault::WrongIssuer) => "token_issuer",
            BearerFault::Token(TokenFault::BadRate) => "token_rate",
            BearerFault::Token(TokenFault::Critical) => "token_crit",
            BearerFault::NotAdmin => "admin_token",
        }
    }
}

impl From<TokenFault> for BearerFault {
    fn from(fault: TokenFault) -> Self {
        BearerFault::Token(fault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expired_signature_names_its_drift_in_the_reason_and_not_in_the_label() {
        let verdict = Verdict::Expired { drift: 61 };
        assert_eq!(verdict.reason(), "expired_timestamp_drift=61s");
        assert_eq!(verdict.label(), "expired_timestamp");
    }
}
