//! `ati auth`: what the caller's own token says, and what the proxy makes of it.

mod proxy;

use std::time::Duration;

use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::remote::Remote;
use super::{Format, output, token as token_command};
use crate::auth::session::{self, SESSION_TOKEN};
use crate::auth::token::{self, VerificationKey, Verifier};
use crate::auth::virtual_keys;
use crate::clock::unix_now;
use crate::config::Environment;
use crate::error::{Code, Failure};
use proxy::{ProxyStatus, TokenOutcome};

/// For each question to the proxy: a status must not keep its reader waiting.
const TIMEOUT: Duration = Duration::from_secs(15);

#[derive(clap::Subcommand)]
pub enum Command {
    /// Show the subject of your session token, its scopes and when it expires; with ATI_PROXY_URL,
    /// whether the proxy takes your signature and token, and what you may call
    #[command(
        visible_alias = "show",
        after_help = "Exit code 3 where the proxy refuses the signature or the token, 4 where it \
                      doesn't answer."
    )]
    Status,
}

/// `asked`: the format that was asked for by name. Without a token and a proxy the default is a
/// sentence for people, which existing scripts know.
pub fn status(format: Format, asked: Option<Format>) -> Result<u8, Failure> {
    let remote = Remote::from_environment()?.map(|remote| remote.within(TIMEOUT));
    let token = session::resolve(SESSION_TOKEN)
        .map_err(|e| Failure::new(Code::MissingKey, "session token").because(e))?;
    let Some(remote) = remote else {
        return match token {
            Some(token) => without_proxy(&token, format),
            None => {
                no_token(asked);
                Ok(0)
            }
        };
    };
    let proxy = ProxyStatus::ask(&remote);
    if token.as_deref().is_some_and(virtual_keys::is_one) {
        of_key(&proxy, format);
        return Ok(proxy.exit_code());
    }
    let claims = token.as_deref().and_then(token::inspect);
    let claims = claims.map_or(Value::Null, Value::Object);
    let verified = match &token {
        Some(token) => verified_through(&remote, &proxy, token)?,
        None => None,
    };
    let status = Status::new(&claims, verified);
    match format {
        Format::Json => {
            let mut json = status.as_json();
            json["proxy"] = proxy.as_json();
            output::pretty(&json);
        }
        Format::Text | Format::Table => {
            match (&token, claims.is_null()) {
                (None, _) => output::line(NO_TOKEN),
                (Some(_), true) => output::line("The session token is malformed"),
                (Some(_), false) => status.print(),
            }
            proxy.print();
        }
    }
    Ok(proxy.exit_code())
}

/// A virtual key says nothing about itself: only the proxy knows what it opens.
fn of_key(proxy: &ProxyStatus, format: Format) {
    let accepted = match proxy.token {
        TokenOutcome::Accepted => Some(true),
        TokenOutcome::Refused(_) => Some(false),
        TokenOutcome::NotNeeded | TokenOutcome::Unknown => None,
    };
    match format {
        Format::Json => {
            let mut json = Status::new(&Value::Null, None).as_json();
            json["kind"] = json!("virtual_key");
            json["accepted"] = json!(accepted);
            json["proxy"] = proxy.as_json();
            output::pretty(&json);
        }
        Format::Text | Format::Table => {
            output::line(match accepted {
                Some(true) => "ATI_SESSION_TOKEN is a virtual key, and the proxy accepts it",
                Some(false) => "ATI_SESSION_TOKEN is a virtual key, and the proxy refuses it",
                None => "ATI_SESSION_TOKEN is a virtual key, which only a proxy can check",
            });
            proxy.print();
        }
    }
}

const NO_TOKEN: &str = "No session token set (ATI_SESSION_TOKEN not configured)";

fn no_token(asked: Option<Format>) {
    // `ati run` on this machine wants a token where the environment names token keys.
    let needed = Environment::read().jwt().is_some();
    if asked == Some(Format::Json) {
        let mut json = Status::new(&Value::Null, None).as_json();
        json["unrestricted"] = json!(!needed);
        return output::pretty(&json);
    }
    output::line(NO_TOKEN);
    output::line(match needed {
        true => "Token keys are configured on this machine: a token is needed to call tools.",
        false => "Running in unrestricted mode — all tools accessible.",
    });
}

fn without_proxy(token: &str, format: Format) -> Result<u8, Failure> {
    if virtual_keys::is_one(token) {
        return Err(key_without_proxy());
    }
    let claims = token::inspect(token)
        .ok_or_else(|| Failure::invalid("Invalid ATI_SESSION_TOKEN: not a well-formed token"))?;
    let claims = Value::Object(claims);
    let status = Status::new(&claims, verified_here(token)?);
    match format {
        Format::Json => output::pretty(&status.as_json()),
        Format::Text | Format::Table => status.print(),
    }
    Ok(0)
}

/// Why a virtual key proves nothing on this machine.
pub fn key_without_proxy() -> Failure {
    let message = "ATI_SESSION_TOKEN is a virtual key, which only a proxy can check";
    Failure::new(Code::InvalidToken, message).hint("set ATI_PROXY_URL to the proxy that issued it")
}

/// Whether the token is valid, by the key that `ati token validate` would use. `None` where there
/// is none.
fn verified_here(token: &str) -> Result<Option<bool>, Failure> {
    let env = Environment::read();
    let key = token_command::configured_key(&env)?;
    Ok(key.map(|key| holds(&key, &env, token)))
}

/// Whether the token is valid: by what the proxy made of it; where it didn't look, by the keys that
/// it publishes, then by those of this machine.
fn verified_through(
    remote: &Remote,
    proxy: &ProxyStatus,
    token: &str,
) -> Result<Option<bool>, Failure> {
    match proxy.token {
        TokenOutcome::Accepted => Ok(Some(true)),
        TokenOutcome::Refused(_) => Ok(Some(false)),
        TokenOutcome::NotNeeded | TokenOutcome::Unknown => match proxy::published_keys(remote) {
            Some(key) => Ok(Some(holds(&key, &Environment::read(), token))),
            None => verified_here(token),
        },
    }
}

fn holds(key: &VerificationKey, env: &Environment, token: &str) -> bool {
    let verifier = Verifier::new(key, &env.expectations(None, None));
    verifier.verify(token, unix_now()).is_ok()
}

struct Status<'a> {
    claims: &'a Value,
    scopes: Vec<&'a str>,
    expires: Option<u64>,
    now: u64,
    verified: Option<bool>,
}

impl<'a> Status<'a> {
    fn new(claims: &'a Value, verified: Option<bool>) -> Self {
        let scope = claims["scope"].as_str().unwrap_or_default();
        Status {
            claims,
            scopes: scope.split_ascii_whitespace().collect(),
            expires: claims["exp"].as_u64(),
            now: unix_now(),
            verified,
        }
    }

    /// How many scopes begin like this.
    fn count(&self, prefix: &str) -> usize {
        let scopes = self.scopes.iter();
        scopes.filter(|scope| scope.starts_with(prefix)).count()
    }

    fn has_wildcard(&self) -> bool {
        self.scopes.contains(&"*")
    }

    fn helps(&self) -> bool {
        self.scopes
            .iter()
            .any(|scope| matches!(*scope, "help" | "*"))
    }

    fn remaining(&self) -> Option<u64> {
        self.expires.map(|expires| expires.saturating_sub(self.now))
    }

    fn as_json(&self) -> Value {
        let claim = |name: &str| self.claims[name].clone();
        json!({
            "sub": claim("sub"),
            "iss": claim("iss"),
            "aud": claim("aud"),
            "scope": claim("scope"),
            "scopes": self.scopes,
            "tool_scopes": self.count("tool:"),
            "skill_scopes": self.count("skill:"),
            "help_enabled": self.helps(),
            "exp": claim("exp"),
            "iat": claim("iat"),
            "jti": claim("jti"),
            "job_id": claim("job_id"),
            "sandbox_id": claim("sandbox_id"),
            "time_remaining_secs": self.remaining(),
            "expired": self.remaining() == Some(0),
            "signature_verified": self.verified.unwrap_or(false),
        })
    }

    fn print(&self) {
        let line =
            |label: &str, text: &str| output::line(&format!("{:<10}{text}", format!("{label}:")));
        for (label, name) in [
            ("Agent", "sub"),
            ("Issuer", "iss"),
            ("Audience", "aud"),
            ("Job ID", "job_id"),
            ("Sandbox", "sandbox_id"),
        ] {
            match &self.claims[name] {
                Value::Null => {}
                Value::String(text) => line(label, &output::printable(text)),
                other => line(label, &output::printable(&other.to_string())),
            }
        }
        let help = if self.helps() { "enabled" } else { "disabled" };
        let (tools, skills) = (self.count("tool:"), self.count("skill:"));
        let everything = match self.has_wildcard() {
            true => "; * allows everything",
            false => "",
        };
        line(
            "Scopes",
            &format!("{tools} tools, {skills} skills, help {help}{everything}"),
        );
        line("Expires", &self.expiry());
        line(
            "Verified",
            match self.verified {
                Some(true) => "YES",
                Some(false) => "NO (it does not hold)",
                None => "NO (public key not available)",
            },
        );
    }

    fn expiry(&self) -> String {
        let (Some(expires), Some(left)) = (self.expires, self.remaining()) else {
            return "never".to_owned();
        };
        let when = i64::try_from(expires)
            .ok()
            .and_then(|at| OffsetDateTime::from_unix_timestamp(at).ok())
            .and_then(|at| at.format(&Rfc3339).ok())
            .unwrap_or_default();
        match left {
            0 => format!("{when} (EXPIRED)"),
            left => format!("{when} ({}h {}m remaining)", left / 3600, left % 3600 / 60),
        }
    }
}
