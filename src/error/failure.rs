//! What ends a command.

use std::error::Error;
use std::fmt;

use super::{Confirmation, Problem};
use crate::request_id::RequestId;

/// The public code of a failed command. Its prefix decides the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    ToolNotFound,
    ExecutionFailed,
    ScopeDenied,
    AuthExpired,
    MissingKey,
    /// A token that no verifier can accept: malformed, of another key, issuer or audience.
    InvalidToken,
    /// The proxy doesn't accept the request's signature, or wants one.
    Signature,
    ProviderTimeout,
    UpstreamError,
    ProviderNotFound,
    ProviderUnavailable,
    MissingArg,
    InvalidValue,
    RateExceeded,
    /// The call runs once it is confirmed.
    ConfirmRequired,
    /// The confirmation isn't accepted.
    ConfirmRefused,
}

impl Code {
    pub const ALL: [Code; 16] = [
        Code::ToolNotFound,
        Code::ExecutionFailed,
        Code::ScopeDenied,
        Code::AuthExpired,
        Code::MissingKey,
        Code::InvalidToken,
        Code::Signature,
        Code::ProviderTimeout,
        Code::UpstreamError,
        Code::ProviderNotFound,
        Code::ProviderUnavailable,
        Code::MissingArg,
        Code::InvalidValue,
        Code::RateExceeded,
        Code::ConfirmRequired,
        Code::ConfirmRefused,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Code::ToolNotFound => "tool.not_found",
            Code::ExecutionFailed => "tool.execution_failed",
            Code::ScopeDenied => "auth.scope_denied",
            Code::AuthExpired => "auth.expired",
            Code::MissingKey => "auth.missing_key",
            Code::InvalidToken => "auth.invalid_token",
            Code::Signature => "auth.signature",
            Code::ProviderTimeout => "provider.timeout",
            Code::UpstreamError => "provider.upstream_error",
            Code::ProviderNotFound => "provider.not_found",
            Code::ProviderUnavailable => "provider.unavailable",
            Code::MissingArg => "input.missing_arg",
            Code::InvalidValue => "input.invalid_value",
            Code::RateExceeded => "rate.exceeded",
            Code::ConfirmRequired => "confirm.required",
            Code::ConfirmRefused => "confirm.refused",
        }
    }

    pub fn exit_code(self) -> u8 {
        match self {
            Code::ToolNotFound | Code::ExecutionFailed => 1,
            Code::MissingArg | Code::InvalidValue => 2,
            Code::ScopeDenied
            | Code::AuthExpired
            | Code::MissingKey
            | Code::InvalidToken
            | Code::Signature => 3,
            Code::ProviderTimeout
            | Code::UpstreamError
            | Code::ProviderNotFound
            | Code::ProviderUnavailable => 4,
            Code::RateExceeded => 5,
            Code::ConfirmRequired | Code::ConfirmRefused => 6,
        }
    }
}

/// What ends a command: a code for scripts, a sentence for people, its cause, perhaps a hint.
///
/// `Display` is the sentence alone; [`Failure::one_line`] adds the causes.
#[derive(Debug)]
pub struct Failure {
    pub code: Code,
    pub message: String,
    pub hint: Option<String>,
    /// The status of a proxy's answer, where that is what failed.
    pub status: Option<u16>,
    /// The proxy's id of the request.
    pub request_id: Option<RequestId>,
    pub source: Option<Cause>,
    /// What would confirm the call that failed.
    pub confirmation: Option<Box<Confirmation>>,
    /// The rule of a policy that denied the call, or that wants it confirmed.
    pub rule: Option<String>,
}

/// An error of any type. It must not hold a secret: causes are printed.
pub type Cause = Box<dyn Error + Send + Sync>;

impl Failure {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Failure {
            code,
            message: message.into(),
            hint: None,
            status: None,
            request_id: None,
            source: None,
            confirmation: None,
            rule: None,
        }
    }

    pub fn invalid(message: impl Into<String>) -> Self {
        Failure::new(Code::InvalidValue, message)
    }

    /// The error's own text as the message, its causes as the causes.
    pub fn from_error(code: Code, error: impl Error + Send + Sync + 'static) -> Self {
        Failure::new(code, error.to_string()).because(error)
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub fn because(mut self, cause: impl Into<Cause>) -> Self {
        self.source = Some(cause.into());
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
        let mut chain = Vec::new();
        let mut next = Error::source(self);
        while let Some(cause) = next {
            chain.push(cause.to_string());
            next = cause.source();
        }
        // A failure made of an error has that error's text as its message.
        chain.retain(|cause| *cause != self.message);
        chain
    }

    /// The message and its causes, as they are printed: `message: cause: cause`.
    pub fn one_line(&self) -> String {
        let mut line = self.message.clone();
        for cause in self.chain() {
            // The text of many errors ends with the text of their own cause.
            if !line.ends_with(&cause) {
                line.push_str(": ");
                line.push_str(&cause);
            }
        }
        line
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for Failure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.source {
            Some(cause) => Some(cause.as_ref()),
            None => None,
        }
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
                "confirm" => 6,
                _ => 1,
            };
            assert_eq!(code.exit_code(), expected, "{}", code.as_str());
        }
    }

    #[test]
    fn causes_follow_the_message_and_are_not_repeated() {
        let io = std::io::Error::from(std::io::ErrorKind::NotFound);
        let inner = Failure::invalid("/etc/x").because(io);
        let failure = Failure::invalid("rolled back").because(inner);
        assert_eq!(failure.to_string(), "rolled back");
        assert_eq!(failure.one_line(), "rolled back: /etc/x: entity not found");
        assert_eq!(failure.chain(), ["/etc/x", "entity not found"]);

        let same = Failure::from_error(Code::ExecutionFailed, failure);
        assert_eq!(same.one_line(), "rolled back: /etc/x: entity not found");
        let repeating = Failure::invalid("no runtime: out of threads").because("out of threads");
        assert_eq!(repeating.one_line(), "no runtime: out of threads");
    }
}
