//! `ati auth`: what the caller's own token says.

use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::{Format, output, problem_failure};
use crate::auth::session::{self, SESSION_TOKEN};
use crate::auth::token;
use crate::clock::unix_now;
use crate::config::Environment;
use crate::error::{Code, Failure};
use crate::snapshot;

#[derive(clap::Subcommand)]
pub enum Command {
    /// Show the subject of your session token, its scopes and when it expires
    Status,
}

pub fn status(format: Format) -> Result<u8, Failure> {
    let token = session::resolve(SESSION_TOKEN)
        .map_err(|e| Failure::new(Code::MissingKey, "session token").because(e))?;
    let Some(token) = token else {
        output::line("No session token set (ATI_SESSION_TOKEN not configured)");
        output::line("Running in unrestricted mode — all tools accessible.");
        return Ok(0);
    };
    let claims = token::inspect(&token)
        .ok_or_else(|| Failure::invalid("Invalid ATI_SESSION_TOKEN: not a well-formed token"))?;
    let claims = Value::Object(claims);
    let status = Status::new(&claims, verified(&token)?);
    match format {
        Format::Json => output::pretty(&status.as_json()),
        Format::Text | Format::Table => status.print(),
    }
    Ok(0)
}

/// Whether the token is valid. `None` where no key to verify it with is configured.
fn verified(token: &str) -> Result<Option<bool>, Failure> {
    let Some(jwt) = Environment::read().jwt() else {
        return Ok(None);
    };
    let verifier = snapshot::load_verifier(&jwt, &mut Vec::new())
        .map_err(|problem| problem_failure(Code::InvalidValue, &problem))?;
    Ok(Some(verifier.verify(token, unix_now()).is_ok()))
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

    fn with_prefix(&self, prefix: &str) -> Vec<&'a str> {
        let scopes = self.scopes.iter().copied();
        scopes.filter(|scope| scope.starts_with(prefix)).collect()
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
            "tool_scopes": self.with_prefix("tool:"),
            "skill_scopes": self.with_prefix("skill:"),
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
        let (tools, skills) = (
            self.with_prefix("tool:").len(),
            self.with_prefix("skill:").len(),
        );
        line(
            "Scopes",
            &format!("{tools} tools, {skills} skills, help {help}"),
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
