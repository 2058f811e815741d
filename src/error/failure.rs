//! What ends a command.

use std::fmt;

use super::Problem;

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
}
