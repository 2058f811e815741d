//! What an answer of the proxy that is no success means: a code, the inner message, what to do.

use serde_json::Value;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::{Caller, Response};
use crate::auth::sandbox;
use crate::auth::token;
use crate::auth::virtual_keys;
use crate::clock::unix_now;
use crate::error::{Code, Confirmation, Failure, Verdict};
use crate::text;

const LONGEST_ERROR: usize = 64 << 10;

/// Why the proxy doesn't take a token.
#[derive(Debug, PartialEq, Eq)]
pub enum TokenRefusal {
    Missing,
    Malformed,
    Expired,
    /// For another reason, in the proxy's words where it gives one.
    Other(Option<String>),
    /// A virtual key, in the proxy's words where they say more than that it isn't known.
    Key(Option<String>),
}

impl TokenRefusal {
    /// From the proxy's challenge and, where that says nothing, from the token itself.
    fn new(challenge: Option<&str>, sent: Option<&str>) -> Self {
        let Some(sent) = sent else {
            return TokenRefusal::Missing;
        };
        // ati's own descriptions begin with a label: `token_expired: it expired 75 s ago`.
        let why = challenge.and_then(|text| parameter(text, "error_description"));
        let (label, words) = match why.as_deref() {
            None => ("", None),
            Some(why) => match why.split_once(": ") {
                Some((label, words)) => (label, Some(words)),
                None => ("", Some(why)),
            },
        };
        if virtual_keys::is_one(sent) {
            let why = words.filter(|_| label != "key_unknown");
            return TokenRefusal::Key(why.map(str::to_owned));
        }
        let says = |part: &str| {
            label == format!("token_{part}") || words.is_some_and(|words| words.contains(part))
        };
        if says("expired") {
            return TokenRefusal::Expired;
        }
        let Some(claims) = token::inspect(sent).filter(|_| !says("malformed")) else {
            return TokenRefusal::Malformed;
        };
        let exp = claims.get("exp").and_then(Value::as_u64);
        match words {
            None if exp.is_some_and(|exp| exp < unix_now()) => TokenRefusal::Expired,
            words => TokenRefusal::Other(words.map(str::to_owned)),
        }
    }

    pub fn code(&self) -> Code {
        match self {
            TokenRefusal::Missing => Code::MissingKey,
            TokenRefusal::Expired => Code::AuthExpired,
            TokenRefusal::Malformed | TokenRefusal::Other(_) | TokenRefusal::Key(_) => {
                Code::InvalidToken
            }
        }
    }

    pub fn words(&self) -> String {
        match self {
            TokenRefusal::Missing => "no session token was sent".to_owned(),
            TokenRefusal::Malformed => "the session token is malformed".to_owned(),
            TokenRefusal::Expired => "the session token has expired".to_owned(),
            TokenRefusal::Other(None) => "the session token is not accepted".to_owned(),
            TokenRefusal::Other(Some(why)) => {
                format!("the session token is not accepted: {why}")
            }
            TokenRefusal::Key(None) => "the virtual key is not known: it was revoked, has \
                                        expired, or is another proxy's"
                .to_owned(),
            TokenRefusal::Key(Some(why)) => format!("the virtual key is not accepted: {why}"),
        }
    }

    pub fn fix(&self, caller: &Caller) -> String {
        match self {
            TokenRefusal::Missing => match &caller.unreadable_token {
                Some(why) => format!("the file with the token can't be read: {why}"),
                None => "set ATI_SESSION_TOKEN, or ATI_SESSION_TOKEN_FILE, or write the token to \
                         /run/ati/session_token"
                    .to_owned(),
            },
            TokenRefusal::Malformed => {
                "a token is a JWT, three parts with dots between them: was it cut, or is it \
                 another secret?"
                    .to_owned()
            }
            TokenRefusal::Expired => match caller.token.as_deref().and_then(expiry) {
                Some(at) => format!("it ended at {at}: ask for a new one"),
                None => "ask for a new one".to_owned(),
            },
            TokenRefusal::Other(_) => {
                "'ati token inspect' shows what it says; it must be issued for this proxy, with \
                 its key, audience and issuer"
                    .to_owned()
            }
            TokenRefusal::Key(_) => "ask its issuer for another: 'ati admin keys issue'".to_owned(),
        }
    }
}

fn expiry(token: &str) -> Option<String> {
    let exp = token::inspect(token)?.get("exp")?.as_i64()?;
    let at = OffsetDateTime::from_unix_timestamp(exp).ok()?;
    at.format(&Rfc3339).ok()
}

/// What to do about a signature that the proxy refuses. `path` is the one that was signed.
pub fn signature_hint(verdict: Verdict, caller: &Caller, path: &str) -> String {
    match (verdict, &caller.signing) {
        (Verdict::Missing, None) => format!(
            "this proxy takes signed requests only: put its sandbox_signing_shared_secret into {}",
            sandbox::SOURCES
        ),
        (Verdict::Mismatch, Some(signing)) => format!(
            "the secret of {} is not the proxy's sandbox_signing_shared_secret (both sides decode \
             a secret that is hex of even length), or a server in between changes the path: \
             '{path}' was signed",
            signing.source
        ),
        (Verdict::Expired { drift }, _) => format!(
            "the clocks of this machine and of the proxy differ by {drift} s: chronyd or \
             systemd-timesyncd sets them"
        ),
        (Verdict::NoSecret, _) => {
            "the proxy's keyring has no sandbox_signing_shared_secret: its operator can add one"
                .to_owned()
        }
        (
            Verdict::Missing
            | Verdict::Malformed
            | Verdict::InvalidTimestamp
            | Verdict::Mismatch
            | Verdict::Valid
            | Verdict::ValidPrevious,
            _,
        ) => "a server in between changes or removes X-Sandbox-Signature".to_owned(),
    }
}

impl Response {
    /// The verdict on the signature, where that is why the request was refused. Its body is the
    /// bare reason; other refusals with this status are JSON.
    pub fn signature_refusal(&self) -> Option<Verdict> {
        if self.status != 403 || self.is_json {
            return None;
        }
        Verdict::from_reason(self.body.trim()).filter(|verdict| !verdict.is_valid())
    }

    pub fn token_refusal(&self, caller: &Caller) -> Option<TokenRefusal> {
        (self.status == 401)
            .then(|| TokenRefusal::new(self.challenge.as_deref(), caller.token.as_deref()))
    }

    /// The path that was signed.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The failure that this answer means: the proxy uses each status for one kind of refusal.
    pub fn failure(&self, caller: &Caller) -> Failure {
        let (code, words, hint) = if let Some(verdict) = self.signature_refusal() {
            let hint = signature_hint(verdict, caller, &self.path);
            (Code::Signature, None, Some(hint))
        } else if let Some(refusal) = self.token_refusal(caller) {
            let hint = refusal.fix(caller);
            (refusal.code(), Some(refusal.words()), Some(hint))
        } else if self.lacks_key_store(caller) {
            let words = "the proxy can't look up the virtual key: it has no database, or can't \
                         reach it";
            let hint = "its operator sets ATI_DB_URL; its log says why a database isn't reached";
            (Code::UpstreamError, Some(words.into()), Some(hint.into()))
        } else {
            let (code, hint) = self.kind();
            (code, None, hint.map(str::to_owned))
        };
        let inner = self.inner().or(words);
        let inner = inner.as_deref().unwrap_or(self.reason);
        let mut failure = Failure::new(code, format!("Proxy error ({}): {inner}", self.status));
        failure.hint = hint;
        failure.status = Some(self.status);
        failure.request_id = self.request_id;
        failure.confirmation = self.confirmation();
        failure.rule = match &failure.confirmation {
            Some(wanted) => Some(wanted.rule.clone()),
            None => self.rule(),
        };
        failure
    }

    /// Whether the proxy has nothing to look a virtual key up in. Its other refusals with this
    /// status say why.
    fn lacks_key_store(&self, caller: &Caller) -> bool {
        let sent_key = caller.token.as_deref().is_some_and(virtual_keys::is_one);
        self.status == 503 && sent_key && self.inner().is_none()
    }

    /// What would confirm the call.
    fn confirmation(&self) -> Option<Box<Confirmation>> {
        if self.status != 409 {
            return None;
        }
        let mut body: Value = serde_json::from_str(&self.body).ok()?;
        serde_json::from_value(body["confirmation"].take()).ok()
    }

    /// The rule of a policy that denied the call.
    fn rule(&self) -> Option<String> {
        if self.status != 403 {
            return None;
        }
        let body: Value = serde_json::from_str(&self.body).ok()?;
        body["rule"].as_str().map(str::to_owned)
    }

    fn kind(&self) -> (Code, Option<&'static str>) {
        let error = self.error().unwrap_or_default();
        let says = |text: &str| error.contains(text);
        if let Some(code) = of_file_tool(&error) {
            return (code, None);
        }
        match self.status {
            403 if self
                .error()
                .is_some_and(|e| e.starts_with("Scopes have expired")) =>
            {
                (Code::AuthExpired, Some("ask for a new token"))
            }
            403 if error.starts_with("Confirmation refused: ") => (
                Code::ConfirmRefused,
                Some("the same call without --confirm gives a new token"),
            ),
            403 if says(" is denied by policy: ") => (Code::ScopeDenied, None),
            409 if self.confirmation().is_some() => (Code::ConfirmRequired, None),
            403 => (
                Code::ScopeDenied,
                Some("'ati auth status' shows what your token allows"),
            ),
            // An ATI proxy says in JSON that it doesn't know a tool.
            404 if self.error().is_none() => (
                Code::UpstreamError,
                Some("is ATI_PROXY_URL the address of an ATI proxy, and its path right?"),
            ),
            // As where the catalogue is read without a proxy.
            404 if error.starts_with("Skill '") => (
                Code::ExecutionFailed,
                Some("'ati skill list' and 'ati skill fetch catalog' list those that you may see"),
            ),
            404 if error.starts_with("Path '") => (
                Code::ExecutionFailed,
                Some("'ati skill fetch resources' lists the files"),
            ),
            404 => (
                Code::ToolNotFound,
                Some("'ati tool list' shows the tools that you may use"),
            ),
            422 if says("Invalid arguments: ") && says("is required") => (Code::MissingArg, None),
            400 | 422 => (Code::InvalidValue, None),
            // The arguments, and not the upstream, which was never asked.
            502 if says("Invalid path parameter ") => (Code::InvalidValue, None),
            429 => (Code::RateExceeded, None),
            503 if self.error().is_some_and(|e| e.starts_with("provider '")) => {
                (Code::ProviderUnavailable, None)
            }
            502 if error.starts_with("CLI error: ") => (code_of_program(&error), None),
            503 if error.starts_with("CLI error: ") => (Code::ProviderUnavailable, None),
            502 | 503 => (Code::UpstreamError, None),
            504 => (Code::ProviderTimeout, None),
            _ => (Code::ExecutionFailed, None),
        }
    }

    /// The message of a JSON body.
    fn error(&self) -> Option<String> {
        let body: Value = serde_json::from_str(&self.body).ok()?;
        let error = &body["error"];
        let text = error.as_str().or_else(|| error["message"].as_str())?;
        Some(text.to_owned())
    }

    /// What the body says, once, without the JSON around it. None where it says nothing.
    fn inner(&self) -> Option<String> {
        let text = self.error().unwrap_or_else(|| self.body.trim().to_owned());
        (!text.is_empty()).then(|| text::clip(&text, LONGEST_ERROR).to_owned())
    }
}

/// The same codes as where the program runs on this machine.
fn code_of_program(error: &str) -> Code {
    let says = |text: &str| error.starts_with(&format!("CLI error: {text}"));
    if says("CLI timed out") || says("auth_generator: Generator timed out") {
        Code::ProviderTimeout
    } else if says("Missing keyring key: ") {
        Code::MissingKey
    } else {
        Code::ExecutionFailed
    }
}

/// File tools use statuses that mean something else for other tools. Their texts don't change.
fn of_file_tool(error: &str) -> Option<Code> {
    let begins = |text: &str| error.starts_with(text);
    if begins("Missing required argument: ") {
        return Some(Code::MissingArg);
    }
    if begins("No such file: ")
        || begins("Unknown upload destination ")
        || begins("Invalid URL: ")
        || begins("URL is not allowed (private/internal address)")
        || (begins("Host '") && error.ends_with("is not in the download allowlist"))
        || begins("Response exceeds max-bytes ")
    {
        return Some(Code::InvalidValue);
    }
    if begins("Upload failed: keyring key '") {
        return Some(Code::MissingKey);
    }
    if begins("Download failed: it took longer than ")
        || begins("Upload failed: it took longer than ")
    {
        return Some(Code::ProviderTimeout);
    }
    // The token isn't why.
    if error.contains("' is offered to no caller: ") {
        return Some(Code::ScopeDenied);
    }
    if begins("Upload destinations not configured ") {
        return Some(Code::ExecutionFailed);
    }
    begins("Upstream returned status ").then_some(Code::UpstreamError)
}

/// A parameter of a challenge: `Bearer error="…", error_description="…"`.
fn parameter(challenge: &str, name: &str) -> Option<String> {
    let mut rest = challenge;
    loop {
        let at = rest.find(&format!("{name}=\""))?;
        let before = rest[..at].chars().next_back();
        rest = &rest[at + name.len() + 2..];
        if before.is_none_or(|c| c == ' ' || c == ',') {
            break;
        }
    }
    let mut value = String::new();
    let mut chars = rest.chars();
    while let Some(c) = chars.next() {
        match c {
            '"' => return Some(value),
            '\\' => value.extend(chars.next()),
            c => value.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests;
