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

    /// The verdict that [`Verdict::reason`] gives this text for. None for any other text.
    pub fn from_reason(text: &str) -> Option<Self> {
        let drift = text
            .strip_prefix("expired_timestamp_drift=")
            .and_then(|rest| rest.strip_suffix('s')?.parse().ok());
        if let Some(drift) = drift {
            return Some(Verdict::Expired { drift });
        }
        [
            Verdict::Valid,
            Verdict::Missing,
            Verdict::Malformed,
            Verdict::InvalidTimestamp,
            Verdict::NoSecret,
            Verdict::Mismatch,
        ]
        .into_iter()
        .find(|verdict| verdict.label() == text)
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
    #[error("has no claim {0}")]
    MissingClaim(&'static str),
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
    /// What it forbids isn't known, so nothing is allowed.
    #[error("carries a policy (ati.delegation) that can't be read")]
    BadDelegation,
    #[error("has a customer_id that no customer can have")]
    BadCustomer,
    /// Its header has `crit`.
    #[error("demands extensions (crit) that ati doesn't know")]
    Critical,
}

/// Why a virtual key isn't accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyFault {
    #[error("no such key: it never was, or it was revoked")]
    Unknown,
    #[error("it is blocked")]
    Blocked,
    #[error("it has expired")]
    Expired,
    #[error("has a rate limit that can't be read")]
    BadRate,
    #[error("has a customer_id that no customer can have")]
    BadCustomer,
}

/// Why a request with a bad or missing `Authorization` header was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BearerFault {
    Token(TokenFault),
    /// The token's end, and the leeway after it, are over.
    TokenExpired {
        /// Seconds since its end.
        ago: u64,
    },
    /// A virtual key that isn't accepted.
    Key(KeyFault),
    /// No bearer where the admin token is asked for.
    AdminMissing,
    /// Not the admin token.
    NotAdmin,
}

impl BearerFault {
    /// The value of `WWW-Authenticate` (RFC 6750, 3). Programs tell faults apart by the first word
    /// of `error_description`, which is the label. Nothing here comes from the caller's header.
    pub fn challenge(self) -> String {
        let realm = match self {
            BearerFault::Token(_) | BearerFault::TokenExpired { .. } | BearerFault::Key(_) => "ati",
            BearerFault::AdminMissing | BearerFault::NotAdmin => "ati-admin",
        };
        // RFC 6750: without a token there is no error code.
        let error = match self {
            BearerFault::Token(TokenFault::Missing) | BearerFault::AdminMissing => "",
            BearerFault::Token(_)
            | BearerFault::TokenExpired { .. }
            | BearerFault::Key(_)
            | BearerFault::NotAdmin => ", error=\"invalid_token\"",
        };
        let label = self.label();
        let words = self.words();
        let scheme = match self {
            BearerFault::Key(_) => "Ati-Key",
            _ => "Bearer",
        };
        format!("{scheme} realm=\"{realm}\"{error}, error_description=\"{label}: {words}\"")
    }

    pub(super) fn words(self) -> Cow<'static, str> {
        match self {
            BearerFault::Token(TokenFault::Missing) => {
                "there is no Authorization: Bearer <token>".into()
            }
            BearerFault::Token(fault) => fault.to_string().into(),
            BearerFault::Key(fault) => fault.to_string().into(),
            BearerFault::TokenExpired { ago } => format!("it expired {ago} s ago").into(),
            BearerFault::AdminMissing => {
                "there is no Authorization: Bearer <ATI_ADMIN_TOKEN>".into()
            }
            BearerFault::NotAdmin => "it isn't the value of ATI_ADMIN_TOKEN".into(),
        }
    }

    /// The value of a metric label.
    pub fn label(self) -> &'static str {
        match self {
            BearerFault::Token(TokenFault::Missing) => "token_missing",
            BearerFault::Token(TokenFault::TooLong { .. }) => "token_too_long",
            BearerFault::Token(TokenFault::Malformed) => "token_malformed",
            BearerFault::Token(TokenFault::MissingClaim(_)) => "token_claim",
            BearerFault::Token(TokenFault::BadSignature) => "token_signature",
            BearerFault::Token(TokenFault::Expired) | BearerFault::TokenExpired { .. } => {
                "token_expired"
            }
            BearerFault::Token(TokenFault::WrongAudience) => "token_audience",
            BearerFault::Token(TokenFault::WrongIssuer) => "token_issuer",
            BearerFault::Token(TokenFault::BadRate) => "token_rate",
            BearerFault::Token(TokenFault::BadDelegation) => "token_delegation",
            BearerFault::Token(TokenFault::BadCustomer) => "token_customer",
            BearerFault::Key(KeyFault::Unknown) => "key_unknown",
            BearerFault::Key(KeyFault::Blocked) => "key_blocked",
            BearerFault::Key(KeyFault::Expired) => "key_expired",
            BearerFault::Key(KeyFault::BadRate) => "key_rate",
            BearerFault::Key(KeyFault::BadCustomer) => "key_customer",
            BearerFault::AdminMissing => "admin_token_missing",
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

    #[test]
    fn verdict_is_read_back_from_its_reason() {
        for verdict in [
            Verdict::Valid,
            Verdict::Missing,
            Verdict::Malformed,
            Verdict::InvalidTimestamp,
            Verdict::Expired { drift: 61 },
            Verdict::NoSecret,
            Verdict::Mismatch,
        ] {
            assert_eq!(Verdict::from_reason(&verdict.reason()), Some(verdict));
        }
        for other in [
            "",
            "expired_timestamp",
            "expired_timestamp_drift=s",
            "forbidden: path denied by policy",
        ] {
            assert_eq!(Verdict::from_reason(other), None, "{other}");
        }
    }

    #[test]
    fn challenge_begins_its_description_with_the_label() {
        assert_eq!(
            BearerFault::TokenExpired { ago: 90 }.challenge(),
            "Bearer realm=\"ati\", error=\"invalid_token\", \
             error_description=\"token_expired: it expired 90 s ago\""
        );
        assert_eq!(
            BearerFault::Token(TokenFault::MissingClaim("scope")).challenge(),
            "Bearer realm=\"ati\", error=\"invalid_token\", \
             error_description=\"token_claim: has no claim scope\""
        );
        assert_eq!(
            BearerFault::NotAdmin.challenge(),
            "Bearer realm=\"ati-admin\", error=\"invalid_token\", \
             error_description=\"admin_token: it isn't the value of ATI_ADMIN_TOKEN\""
        );
    }

    #[test]
    fn challenge_without_a_token_has_no_error_code() {
        for (fault, begin) in [
            (
                BearerFault::Token(TokenFault::Missing),
                "Bearer realm=\"ati\", error_description=\"token_missing: ",
            ),
            (
                BearerFault::AdminMissing,
                "Bearer realm=\"ati-admin\", error_description=\"admin_token_missing: ",
            ),
        ] {
            let challenge = fault.challenge();
            assert!(challenge.starts_with(begin), "{challenge}");
        }
    }
}
