//! `X-Sandbox-Signature: t=<unix>,s=<hex>`: HMAC-SHA256 over `<t>.<METHOD>.<path>`.

use http::HeaderName;
use ring::hmac;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use zeroize::Zeroizing;

use crate::error::Problem;
pub use crate::error::Verdict;
use crate::keyring::{Keyring, SIGNING_SECRET, Secret};
use crate::pattern::Pattern;

pub const HEADER: HeaderName = HeaderName::from_static("x-sandbox-signature");

/// The secret before the current one, and until when it counts (RFC 3339; always, where that isn't set).
pub const PREVIOUS: &str = "sandbox_signing_shared_secret_previous";
pub const PREVIOUS_NOT_AFTER: &str = "sandbox_signing_shared_secret_previous_not_after";

/// Paths that probes and package caches use without a signature.
pub const DEFAULT_EXEMPT: [&str; 9] = [
    "/healthz",
    "/health",
    "/root/*",
    "/root/**",
    "/npm/*",
    "/npm/**",
    "/otel/*",
    "/otel/**",
    "/.well-known/jwks.json",
];

/// What a bad signature leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Allow, and log the verdict.
    Log,
    /// Allow, and tell the caller in X-Signature-Status.
    Warn,
    /// Refuse with 403.
    Enforce,
}

impl Mode {
    pub fn as_str(self) -> &'static str {
        match self {
            Mode::Log => "log",
            Mode::Warn => "warn",
            Mode::Enforce => "enforce",
        }
    }
}

#[derive(Debug, Clone)]
pub struct Settings {
    pub mode: Mode,
    pub drift_seconds: u64,
    pub exempt: Vec<Pattern>,
}

impl Settings {
    pub fn is_exempt(&self, path: &str) -> bool {
        self.exempt.iter().any(|pattern| pattern.matches(path))
    }
}

/// The shared secret, kept only as the HMAC state that it leads to.
#[derive(Clone)]
pub struct SigningKey(hmac::Key);

impl SigningKey {
    /// Even-length hex is decoded, anything else counts as the bytes themselves.
    pub fn new(secret: &Secret) -> Self {
        let raw = secret.expose();
        let decoded = Zeroizing::new(hex::decode(raw).unwrap_or_default());
        let bytes = if decoded.is_empty() { raw } else { &decoded };
        SigningKey(hmac::Key::new(hmac::HMAC_SHA256, bytes))
    }

    /// The header that a sandbox would send.
    pub fn sign(&self, timestamp: u64, method: &str, path: &str) -> String {
        let message = format!("{timestamp}.{method}.{path}");
        let tag = hmac::sign(&self.0, message.as_bytes());
        format!("t={timestamp},s={}", hex::encode(tag))
    }
}

/// The secret in use, and the one before it for as long as both count.
#[derive(Clone)]
pub struct SigningKeys {
    current: SigningKey,
    previous: Option<(SigningKey, u64)>,
}

impl SigningKeys {
    /// What a keyring has. A date that can't be read ends the overlap: nobody meant it to last forever.
    pub fn of(keyring: &Keyring, warnings: &mut Vec<Problem>) -> Option<Self> {
        let current = keyring.get(SIGNING_SECRET).map(SigningKey::new)?;
        let not_after = match keyring.get(PREVIOUS_NOT_AFTER) {
            // There, and empty: somebody meant it to end.
            None if keyring.names().any(|name| name == PREVIOUS_NOT_AFTER) => None,
            None => Some(u64::MAX),
            Some(text) => std::str::from_utf8(text.expose())
                .ok()
                .and_then(|text| OffsetDateTime::parse(text.trim(), &Rfc3339).ok())
                .and_then(|date| u64::try_from(date.unix_timestamp()).ok()),
        };
        let previous = keyring.get(PREVIOUS).map(SigningKey::new);
        if previous.is_some() && not_after.is_none() {
            let message =
                "not a date like 2026-12-31T00:00:00Z; the previous secret is not accepted";
            warnings.push(Problem::new(message).key(PREVIOUS_NOT_AFTER));
        }
        Some(SigningKeys {
            current,
            previous: previous.zip(not_after),
        })
    }

    fn verify(&self, message: &[u8], tag: &[u8], now: u64) -> Verdict {
        if hmac::verify(&self.current.0, message, tag).is_ok() {
            return Verdict::Valid;
        }
        match &self.previous {
            Some((SigningKey(key), not_after))
                if now <= *not_after && hmac::verify(key, message, tag).is_ok() =>
            {
                Verdict::ValidPrevious
            }
            _ => Verdict::Mismatch,
        }
    }
}

impl From<SigningKey> for SigningKeys {
    fn from(current: SigningKey) -> Self {
        SigningKeys {
            current,
            previous: None,
        }
    }
}

/// The checks in the order of the contract: shape, time, secret, digits, digest.
pub fn check(
    keys: Option<&SigningKeys>,
    drift_seconds: u64,
    header: Option<&[u8]>,
    method: &str,
    path: &str,
    now: u64,
) -> Verdict {
    let header = header.unwrap_or_default().trim_ascii();
    if header.is_empty() {
        return Verdict::Missing;
    }
    let Some((timestamp, digits)) = split(header) else {
        return Verdict::Malformed;
    };
    let Ok(signed_at) = timestamp.parse::<i64>() else {
        return Verdict::InvalidTimestamp;
    };
    let drift = i128::from(now).abs_diff(i128::from(signed_at));
    if drift > u128::from(drift_seconds) {
        return Verdict::Expired {
            drift: u64::try_from(drift).unwrap_or(u64::MAX),
        };
    }
    let Some(keys) = keys else {
        return Verdict::NoSecret;
    };
    let mut tag = [0u8; 32];
    if hex::decode_to_slice(digits, &mut tag).is_err() {
        // Not hex at all, or hex of another length.
        let is_hex = digits.bytes().all(|b| b.is_ascii_hexdigit());
        return if is_hex {
            Verdict::Mismatch
        } else {
            Verdict::Malformed
        };
    }
    let mut message = Vec::with_capacity(timestamp.len() + method.len() + path.len() + 2);
    message.extend_from_slice(timestamp.as_bytes());
    message.push(b'.');
    message.extend_from_slice(method.as_bytes());
    message.push(b'.');
    message.extend_from_slice(path.as_bytes());
    keys.verify(&message, &tag, now)
}

/// `t` and `s`, neither of them empty. Other parts are allowed, parts without `=` are not.
fn split(header: &[u8]) -> Option<(&str, &str)> {
    let (mut timestamp, mut digits): (&[u8], &[u8]) = (b"", b"");
    for part in header.split(|byte| *byte == b',') {
        let at = part.iter().position(|byte| *byte == b'=')?;
        let value = part[at + 1..].trim_ascii();
        match part[..at].trim_ascii() {
            b"t" => timestamp = value,
            b"s" => digits = value,
            _ => {}
        }
    }
    if timestamp.is_empty() || digits.is_empty() {
        return None;
    }
    Some((
        std::str::from_utf8(timestamp).ok()?,
        std::str::from_utf8(digits).ok()?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> SigningKey {
        SigningKey::new(&Secret::new(text.as_bytes()).unwrap())
    }

    fn verdict(header: Option<&str>, now: u64) -> Verdict {
        let keys = key("secret").into();
        check(Some(&keys), 60, header.map(str::as_bytes), "GET", "/a", now)
    }

    #[test]
    fn agrees_with_openssl() {
        // printf '1700000000.GET./a' | openssl dgst -sha256 -hmac secret
        let openssl = "7301eb87e6db5ce1cbb17c94cfa2f00569f740238d84c2e4f8845c4a22bf4cfa";
        assert_eq!(
            key("secret").sign(1_700_000_000, "GET", "/a"),
            format!("t=1700000000,s={openssl}")
        );
    }

    #[test]
    fn the_secret_before_counts_until_its_date() {
        let keyring = |entries: &[(&str, &str)]| {
            let entries = entries.iter().map(|(name, value)| {
                let secret = Secret::new(value.as_bytes()).unwrap();
                ((*name).to_owned(), secret)
            });
            Keyring::new(entries.collect(), crate::keyring::Source::Credentials)
        };
        let now = 1_700_000_000; // 2023-11-14T22:13:20Z
        let verdicts = |not_after: Option<&str>| {
            let mut entries = vec![(SIGNING_SECRET, "new"), (PREVIOUS, "old")];
            entries.extend(not_after.map(|date| (PREVIOUS_NOT_AFTER, date)));
            let mut warnings = Vec::new();
            let keys = SigningKeys::of(&keyring(&entries), &mut warnings);
            let ask = |secret: &str| {
                let header = key(secret).sign(now, "GET", "/a");
                check(keys.as_ref(), 60, Some(header.as_bytes()), "GET", "/a", now)
            };
            (ask("new"), ask("old"), ask("other"), warnings.len())
        };
        let both = (Verdict::Valid, Verdict::ValidPrevious, Verdict::Mismatch, 0);
        assert_eq!(verdicts(None), both);
        assert_eq!(verdicts(Some("2023-11-14T22:13:20Z")), both);
        let over = (Verdict::Valid, Verdict::Mismatch, Verdict::Mismatch, 0);
        assert_eq!(verdicts(Some("2023-11-14T22:13:19Z")), over);
        assert_eq!(verdicts(Some("")).1, Verdict::Mismatch);
        assert_eq!(
            verdicts(Some("soon")),
            (Verdict::Valid, Verdict::Mismatch, Verdict::Mismatch, 1)
        );
        assert!(SigningKeys::of(&keyring(&[(PREVIOUS, "old")]), &mut Vec::new()).is_none());
    }

    #[test]
    fn hex_secrets_are_decoded_and_others_are_not() {
        assert_eq!(
            key("736563726574").sign(1, "GET", "/"),
            key("secret").sign(1, "GET", "/")
        );
        assert_ne!(
            key("73656372657").sign(1, "GET", "/"),
            key("secret").sign(1, "GET", "/")
        );
    }

    #[test]
    fn every_reason_in_its_order() {
        let now = 1_700_000_000;
        let good = key("secret").sign(now, "GET", "/a");
        let (_, digits) = good.split_once("s=").unwrap();
        let cases = [
            (Some(good.clone()), "valid"),
            (
                Some(format!(" t = {now} , v=2 , s = {} ", digits.to_uppercase())),
                "valid",
            ),
            (None, "missing_signature"),
            (Some("  ".into()), "missing_signature"),
            (Some(format!("t={now}")), "malformed_signature"),
            (Some(format!("t={now},s=")), "malformed_signature"),
            (
                Some(format!("t={now},s={digits},junk")),
                "malformed_signature",
            ),
            (Some(format!("t={now},s=zz")), "malformed_signature"),
            (Some(format!("t=soon,s={digits}")), "invalid_timestamp"),
            (
                Some(format!("t=99999999999999999999,s={digits}")),
                "invalid_timestamp",
            ),
            (
                Some(format!("t={},s=zz", now - 61)),
                "expired_timestamp_drift=61s",
            ),
            (
                Some(format!("t={},s=zz", now + 61)),
                "expired_timestamp_drift=61s",
            ),
            (
                Some(format!("t={},s={digits}", i64::MIN)),
                "expired_timestamp_drift=9223372038554775808s",
            ),
            (Some(format!("t={now},s={}", &digits[2..])), "hmac_mismatch"),
            (Some(format!("t={now},s={}", &digits[1..])), "hmac_mismatch"),
            (Some(format!("t={},s={digits}", now - 1)), "hmac_mismatch"),
            (Some(key("other").sign(now, "GET", "/a")), "hmac_mismatch"),
            (Some(key("secret").sign(now, "POST", "/a")), "hmac_mismatch"),
            (Some(key("secret").sign(now, "GET", "/b")), "hmac_mismatch"),
        ];
        for (header, reason) in cases {
            assert_eq!(
                verdict(header.as_deref(), now).reason(),
                reason,
                "{header:?}"
            );
        }
    }

    #[test]
    fn the_limits_of_the_drift_pass() {
        for at in [1_700_000_060, 1_699_999_940] {
            let header = key("secret").sign(at, "GET", "/a");
            assert_eq!(verdict(Some(&header), 1_700_000_000), Verdict::Valid);
        }
    }

    #[test]
    fn without_a_secret_the_time_still_comes_first() {
        let checked = |header: &[u8]| check(None, 60, Some(header), "GET", "/", 1000);
        assert_eq!(checked(b"t=1000,s=zz"), Verdict::NoSecret);
        assert_eq!(checked(b"t=1,s=zz"), Verdict::Expired { drift: 999 });
        assert_eq!(checked(b"\xff"), Verdict::Malformed);
    }
}
