//! What a proxy makes of the caller: whether it answers, the clocks, the signature, the token, the
//! tools. Two requests, as every command makes them.

use http::Method;
use serde::Serialize;
use serde_json::{Value, json};

use crate::auth::keys::{KEY_ID, NamedKey, PublicKey};
use crate::auth::token::{self, VerificationKey};
use crate::auth::virtual_keys;
use crate::cli::output;
use crate::cli::remote::{Remote, Response, TokenRefusal, signature_hint};
use crate::clock::unix_now;
use crate::error::{Code, Verdict};

/// Seconds by which clocks may differ before it is worth a word. Signatures bear twice as many.
const LARGEST_DIFFERENCE: u64 = 30;
/// Names of tools that are shown.
const MOST_NAMES: usize = 10;

pub struct ProxyStatus {
    url: String,
    reachable: bool,
    version: Option<String>,
    /// The proxy has token keys. None where it doesn't say.
    wants_token: Option<bool>,
    /// Seconds by which the proxy's clock is ahead.
    clock_ahead: Option<i64>,
    signature: SignatureOutcome,
    pub token: TokenOutcome,
    /// What the caller may call. None where the proxy doesn't say.
    tools: Option<Vec<String>>,
    checks: Vec<Check>,
}

enum SignatureOutcome {
    /// Sent, and the request was taken.
    Accepted,
    NotNeeded,
    Refused(Verdict),
    /// Taken for now: the proxy warns.
    Warned(Verdict),
    Unknown,
}

pub enum TokenOutcome {
    Accepted,
    NotNeeded,
    Refused(TokenRefusal),
    Unknown,
}

/// One question and its answer, in the shape of `ati doctor`.
#[derive(Serialize)]
struct Check {
    check: &'static str,
    status: Grade,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Grade {
    Ok,
    Warn,
    Fail,
}

impl ProxyStatus {
    pub fn ask(remote: &Remote) -> Self {
        let mut status = ProxyStatus {
            url: remote.shown_url(),
            reachable: false,
            version: None,
            wants_token: None,
            clock_ahead: None,
            signature: SignatureOutcome::Unknown,
            token: TokenOutcome::Unknown,
            tools: None,
            checks: Vec::new(),
        };
        match remote.ask(Method::GET, "health", &[], None) {
            Ok(health) => status.judge_health(&health),
            Err(failure) => {
                let fix = failure.hint.clone().unwrap_or_default();
                status.fail("reachable", failure.one_line(), fix);
            }
        }
        if status.reachable {
            match remote.ask(Method::GET, "tools", &[], None) {
                Ok(answer) => status.judge_tools(&answer, remote),
                Err(failure) => {
                    let fix = failure.hint.clone().unwrap_or_default();
                    status.fail("tools", failure.one_line(), fix);
                }
            }
        }
        status
    }

    fn judge_health(&mut self, health: &Response) {
        let said: Value = serde_json::from_str(&health.body).unwrap_or_default();
        self.version = said["version"].as_str().map(str::to_owned);
        self.wants_token = said["auth"].as_str().map(|auth| auth != "disabled");
        // Where /health isn't exempt, its refusal shows that an ATI proxy is there.
        let is_ati = match health.status {
            200 => self.version.is_some(),
            403 => health.signature_refusal().is_some(),
            _ => false,
        };
        if !is_ati {
            let message = format!(
                "{} answers with {}, and not as an ATI proxy does",
                self.url, health.status
            );
            let fix = "look at ATI_PROXY_URL: its port, and its path";
            return self.fail("reachable", message, fix.to_owned());
        }
        self.reachable = true;
        let version = self.version.as_deref().unwrap_or("of an unknown version");
        self.ok("reachable", format!("ati {version} at {}", self.url));
        self.clock_ahead = health.clock_ahead;
        self.judge_clock();
    }

    fn judge_clock(&mut self) {
        let Some(ahead) = self.clock_ahead else {
            return self.ok("clock", "the proxy doesn't tell its time".to_owned());
        };
        let seconds = ahead.unsigned_abs();
        match ahead {
            0 => self.ok("clock", "agrees with the proxy's".to_owned()),
            _ if seconds <= LARGEST_DIFFERENCE => {
                self.ok("clock", format!("{seconds} s from the proxy's"));
            }
            _ => {
                let side = if ahead > 0 { "behind" } else { "ahead of" };
                self.add(
                    "clock",
                    Grade::Warn,
                    format!("{seconds} s {side} the proxy's"),
                    Some(
                        "set it with chronyd or systemd-timesyncd: signatures and tokens depend \
                         on it"
                            .to_owned(),
                    ),
                );
            }
        }
    }

    fn judge_tools(&mut self, answer: &Response, remote: &Remote) {
        self.judge_signature(answer, remote);
        self.judge_token(answer, remote);
        if answer.status != 200 {
            let judged = matches!(answer.status, 401) || answer.signature_refusal().is_some();
            if !judged {
                let failure = answer.failure(remote.caller());
                let fix = failure.hint.clone().unwrap_or_default();
                self.fail("tools", failure.message, fix);
            }
            return;
        }
        let listed: Vec<Value> = serde_json::from_str(&answer.body).unwrap_or_default();
        let names: Vec<String> = listed
            .iter()
            .filter_map(|tool| tool["name"].as_str().map(str::to_owned))
            .collect();
        if names.is_empty() {
            let fix = match self.token {
                TokenOutcome::Accepted => "ask for a token whose scope names tools: tool:<name>",
                _ => "the proxy has no tools: its operator adds manifests",
            };
            let (message, fix) = ("none may be called".to_owned(), Some(fix.to_owned()));
            self.add("tools", Grade::Warn, message, fix);
        } else {
            let shown = names[..names.len().min(MOST_NAMES)].join(", ");
            let more = if names.len() > MOST_NAMES {
                ", …"
            } else {
                ""
            };
            self.ok("tools", format!("{} ({shown}{more})", names.len()));
        }
        self.tools = Some(names);
    }

    fn judge_signature(&mut self, answer: &Response, remote: &Remote) {
        let caller = remote.caller();
        let source = caller.signing.as_ref().map(|signing| &signing.source);
        let warned = answer.signature_status.as_deref();
        let warned = warned.and_then(Verdict::from_reason);
        if let Some(verdict) = answer.signature_refusal() {
            let fix = signature_hint(verdict, caller, answer.path());
            self.fail("signature", format!("refused: {}", verdict.reason()), fix);
            self.signature = SignatureOutcome::Refused(verdict);
        } else if let Some(verdict) = warned.filter(|verdict| !verdict.is_valid()) {
            let fix = signature_hint(verdict, caller, answer.path());
            let message = format!("{}: will be refused in enforce mode", verdict.reason());
            self.add("signature", Grade::Warn, message, Some(fix));
            self.signature = SignatureOutcome::Warned(verdict);
        } else if let Some(source) = source {
            let message = match warned {
                Some(_) => format!("valid, with the secret of {source}"),
                None => format!("sent with the secret of {source}, and not refused"),
            };
            self.ok("signature", message);
            self.signature = SignatureOutcome::Accepted;
        } else {
            self.ok("signature", "none sent, and none asked for".to_owned());
            self.signature = SignatureOutcome::NotNeeded;
        }
    }

    fn judge_token(&mut self, answer: &Response, remote: &Remote) {
        let caller = remote.caller();
        // One is looked at even where there are no token keys.
        let is_key = caller.token.as_deref().is_some_and(virtual_keys::is_one);
        let is_ignored = caller.token.is_none() || (self.wants_token == Some(false) && !is_key);
        if let Some(refusal) = answer.token_refusal(caller) {
            self.fail("token", refusal.words(), refusal.fix(caller));
            self.token = TokenOutcome::Refused(refusal);
        } else if answer.status != 200 {
            let why = "not looked at: the request was refused before that";
            self.add("token", Grade::Warn, why.to_owned(), None);
        } else if is_ignored {
            self.ok(
                "token",
                "not asked for: the proxy has no token keys".to_owned(),
            );
            self.token = TokenOutcome::NotNeeded;
        } else if is_over(caller.token.as_deref(), self.clock_ahead) {
            // Lists are still answered within the leeway for clocks; calls aren't.
            let refusal = TokenRefusal::Expired;
            self.fail("token", refusal.words(), refusal.fix(caller));
            self.token = TokenOutcome::Refused(refusal);
        } else {
            self.ok("token", "accepted".to_owned());
            self.token = TokenOutcome::Accepted;
        }
    }

    fn ok(&mut self, check: &'static str, message: String) {
        self.add(check, Grade::Ok, message, None);
    }

    fn fail(&mut self, check: &'static str, message: String, fix: String) {
        let fix = Some(fix).filter(|fix| !fix.is_empty());
        self.add(check, Grade::Fail, message, fix);
    }

    fn add(&mut self, check: &'static str, status: Grade, message: String, fix: Option<String>) {
        self.checks.push(Check {
            check,
            status,
            message: output::printable(&message),
            fix,
        });
    }

    /// 0 where the proxy takes the caller's requests.
    pub fn exit_code(&self) -> u8 {
        let fails = |about: &[&str]| {
            let mut failed = self.checks.iter().filter(|it| it.status == Grade::Fail);
            failed.any(|it| about.contains(&it.check))
        };
        if fails(&["signature", "token"]) {
            Code::Signature.exit_code()
        } else if fails(&["reachable", "tools"]) {
            Code::UpstreamError.exit_code()
        } else {
            0
        }
    }

    pub fn as_json(&self) -> Value {
        let (signature, reason) = match self.signature {
            SignatureOutcome::Accepted => ("accepted", None),
            SignatureOutcome::NotNeeded => ("not_needed", None),
            SignatureOutcome::Refused(verdict) => ("refused", Some(verdict.reason())),
            SignatureOutcome::Warned(verdict) => ("warned", Some(verdict.reason())),
            SignatureOutcome::Unknown => ("unknown", None),
        };
        let token = match &self.token {
            TokenOutcome::Accepted => "accepted",
            TokenOutcome::NotNeeded => "not_needed",
            TokenOutcome::Refused(TokenRefusal::Missing) => "missing",
            TokenOutcome::Refused(TokenRefusal::Malformed) => "malformed",
            TokenOutcome::Refused(TokenRefusal::Expired) => "expired",
            TokenOutcome::Refused(TokenRefusal::Other(_) | TokenRefusal::Key(_)) => "refused",
            TokenOutcome::Unknown => "unknown",
        };
        let names = self.tools.as_deref();
        json!({
            "url": self.url,
            "ok": self.exit_code() == 0,
            "reachable": self.reachable,
            "version": self.version,
            "clock_difference_secs": self.clock_ahead,
            "signature": signature,
            "signature_reason": reason,
            "token": token,
            "tools": names.map(<[String]>::len),
            "tool_names": names.map(|names| &names[..names.len().min(MOST_NAMES)]),
            "checks": self.checks,
        })
    }

    pub fn print(&self) {
        output::line(&format!("{:<10}{}", "Proxy:", self.url));
        for check in &self.checks {
            let mark = match check.status {
                Grade::Ok => "ok  ",
                Grade::Warn => "WARN",
                Grade::Fail => "FAIL",
            };
            output::line(&format!("  {mark} {}: {}", check.check, check.message));
            if let Some(fix) = &check.fix {
                output::line(&format!("       fix: {fix}"));
            }
        }
    }
}

/// Whether a token's time is over by the proxy's clock.
fn is_over(token: Option<&str>, clock_ahead: Option<i64>) -> bool {
    let claims = token.and_then(token::inspect).unwrap_or_default();
    let exp = claims.get("exp").and_then(Value::as_u64);
    let theirs = unix_now().saturating_add_signed(clock_ahead.unwrap_or(0));
    exp.is_some_and(|exp| exp <= theirs)
}

/// The keys that the proxy verifies tokens with, where it publishes some.
pub fn published_keys(remote: &Remote) -> Option<VerificationKey> {
    let path = ".well-known/jwks.json";
    let answer = remote.ask(Method::GET, path, &[], None).ok()?;
    let jwks: Value = serde_json::from_str(&answer.body).ok()?;
    let keys: Vec<NamedKey> = jwks["keys"]
        .as_array()?
        .iter()
        .filter_map(|jwk| {
            let kid = jwk["kid"].as_str().unwrap_or(KEY_ID).to_owned();
            PublicKey::from_jwk(jwk).map(|key| NamedKey { kid, key })
        })
        .collect();
    (!keys.is_empty()).then_some(VerificationKey::Es256(keys))
}
