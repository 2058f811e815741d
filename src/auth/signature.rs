//! `X-Sandbox-Signature: t=<unix>,s=<hex>`: HMAC-SHA256 over `<t>.<METHOD>.<path>`.

use hmac::Mac as _;
use http::HeaderName;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use zeroize::Zeroizing;

use crate::error::Problem;
pub use crate::error::Verdict;
use crate::keyring::{self, HmacSha256, Keyring, SIGNING_SECRET, Secret};
use crate::pattern::Pattern;

pub const HEADER: HeaderName = HeaderName::from_static("x-sandbox-signature");

/// The signing secret before the current one, and the date until which it is accepted (RFC 3339).
/// Without a date it is always accepted.
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

    /// Whether a path below a route's prefix is exempt: only by a pattern that covers the whole
    /// prefix, or one that is written below it.
    pub fn is_exempt_below(&self, prefix: &str, path: &str) -> bool {
        let covers = |pattern: &Pattern| {
            let text = pattern.as_str();
            let written = &text[..text.find('*').unwrap_or(text.len())];
            let below = !prefix.is_empty()
                && written
                    .strip_prefix(prefix)
                    .is_some_and(|rest| rest.starts_with('/'));
            below || pattern.matches(prefix) || pattern.matches(&format!("{prefix}/"))
        };
        self.exempt
            .iter()
            .any(|pattern| pattern.matches(path) && covers(pattern))
    }
}

/// The keyed HMAC state of a shared secret. It is made once per snapshot; each signature clones it.
#[derive(Clone)]
pub struct SigningKey(HmacSha256);

impl SigningKey {
    /// Even-length hex is decoded, anything else counts as the bytes themselves.
    pub fn new(secret: &Secret) -> Self {
        let raw = secret.expose();
        let decoded = Zeroizing::new(hex::decode(raw).unwrap_or_default());
        let bytes = if decoded.is_empty() { raw } else { &decoded };
        SigningKey(keyring::keyed(bytes))
    }

    /// The key that a signer uses who takes the digits of a hex secret for the secret itself. None
    /// where the secret isn't hex.
    fn undecoded(secret: &Secret) -> Option<Self> {
        let raw = secret.expose();
        let decoded = Zeroizing::new(hex::decode(raw).unwrap_or_default());
        (!decoded.is_empty()).then(|| SigningKey(keyring::keyed(raw)))
    }

    /// The header that a sandbox would send.
    pub fn sign(&self, timestamp: u64, method: &str, path: &str) -> String {
        let tag = self.mac(&timestamp.to_string(), method, path).finalize();
        format!("t={timestamp},s={}", hex::encode(tag.into_bytes()))
    }

    /// The state after `<t>.<METHOD>.<path>`.
    fn mac(&self, timestamp: &str, method: &str, path: &str) -> HmacSha256 {
        let mut mac = self.0.clone();
        for part in [timestamp, ".", method, ".", path] {
            mac.update(part.as_bytes());
        }
        mac
    }
}

/// The current secret, and the previous one while both are accepted.
#[derive(Clone)]
pub struct SigningKeys {
    current: SigningKey,
    previous: Option<(SigningKey, u64)>,
    /// The current secret taken as text, where it is hex. It proves nothing; the log tells of it.
    undecoded: Option<SigningKey>,
}

impl SigningKeys {
    /// The signing secrets of a keyring. A date that can't be read ends the overlap, because an
    /// overlap without end would be the more dangerous mistake.
    pub fn of(keyring: &Keyring, warnings: &mut Vec<Problem>) -> Option<Self> {
        let secret = keyring.get(SIGNING_SECRET)?;
        let current = SigningKey::new(secret);
        let not_after = match keyring.get(PREVIOUS_NOT_AFTER) {
            // An entry without a value is meant to end the overlap.
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
            undecoded: SigningKey::undecoded(secret),
        })
    }

    /// Whether a header with a wrong digest was signed with the text of a hex secret instead of
    /// the bytes that it stands for: the mistake of many first integrations. For the log, never for
    /// an answer.
    pub fn matches_as_text(&self, header: &[u8], method: &str, path: &str) -> bool {
        let (Some(key), Some((timestamp, digits))) = (&self.undecoded, split(header)) else {
            return false;
        };
        let tag = hex::decode(digits).unwrap_or_default();
        key.mac(timestamp, method, path).verify_slice(&tag).is_ok()
    }

    /// Compares in constant time.
    fn verify(&self, mac: impl Fn(&SigningKey) -> HmacSha256, tag: &[u8], now: u64) -> Verdict {
        let signed_with = |key: &SigningKey| mac(key).verify_slice(tag).is_ok();
        if signed_with(&self.current) {
            return Verdict::Valid;
        }
        match &self.previous {
            Some((key, not_after)) if now <= *not_after && signed_with(key) => {
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
            undecoded: None,
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
    let Some(tag) = decode_tag(digits) else {
        // Not hex at all, or hex of another length.
        let is_hex = digits.bytes().all(|b| b.is_ascii_hexdigit());
        return if is_hex {
            Verdict::Mismatch
        } else {
            Verdict::Malformed
        };
    };
    keys.verify(|key| key.mac(timestamp, method, path), &tag, now)
}

/// As `hex` decodes it, with one look at a table for each digit: at every request.
fn decode_tag(digits: &str) -> Option<[u8; 32]> {
    let digits: &[u8; 64] = digits.as_bytes().try_into().ok()?;
    let mut tag = [0; 32];
    let mut all = 0;
    for (byte, [high, low]) in tag.iter_mut().zip(digits.as_chunks().0) {
        let (high, low) = (DIGITS[usize::from(*high)], DIGITS[usize::from(*low)]);
        all |= high | low;
        *byte = high << 4 | low;
    }
    (all != NO_DIGIT).then_some(tag)
}

/// What a byte stands for as a hex digit. `NO_DIGIT` has all bits, so it stays visible among
/// others.
const DIGITS: [u8; 256] = {
    let mut table = [NO_DIGIT; 256];
    let mut value = 0;
    while value < 16 {
        let digit = b"0123456789abcdef"[value];
        table[digit as usize] = value as u8;
        table[digit.to_ascii_uppercase() as usize] = value as u8;
        value += 1;
    }
    table
};
const NO_DIGIT: u8 = u8::MAX;

/// `t` and `s`, neither of them empty. Other parts are allowed, parts without `=` are not.
fn split(header: &[u8]) -> Option<(&str, &str)> {
    let (mut timestamp, mut digits): (&[u8], &[u8]) = (b"", b"");
    let mut rest = Some(header);
    while let Some(parts) = rest {
        let end = memchr::memchr(b',', parts);
        let part = &parts[..end.unwrap_or(parts.len())];
        rest = end.map(|end| &parts[end + 1..]);
        let at = part.iter().position(|byte| *byte == b'=')?;
        let value = part[at + 1..].trim_ascii();
        match part[..at].trim_ascii() {
            // Twice: another server on the way may have read the other one.
            b"t" if timestamp.is_empty() => timestamp = value,
            b"s" if digits.is_empty() => digits = value,
            b"t" | b"s" => return None,
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
    fn signature_equals_the_one_that_openssl_makes() {
        // printf '1700000000.GET./a' | openssl dgst -sha256 -hmac secret
        let openssl = "7301eb87e6db5ce1cbb17c94cfa2f00569f740238d84c2e4f8845c4a22bf4cfa";
        assert_eq!(
            key("secret").sign(1_700_000_000, "GET", "/a"),
            format!("t=1700000000,s={openssl}")
        );
    }

    #[test]
    fn digest_is_decoded_as_hex_whatever_its_digits_are() {
        for byte in 0..=0x7f_u8 {
            let digits = format!("0F{}{}", char::from(byte), "a9".repeat(31));
            for digits in [&digits[..64], &digits[..63], &digits] {
                let expected = hex::decode(digits).ok().and_then(|tag| tag.try_into().ok());
                assert_eq!(decode_tag(digits), expected, "{digits:?}");
            }
        }
    }

    #[test]
    fn previous_secret_is_accepted_until_its_date() {
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
    fn secret_in_hex_is_decoded_and_any_other_is_not() {
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
    fn digest_made_with_the_text_of_a_hex_secret_is_recognised_and_still_refused() {
        let hex = "736563726574";
        let keys = |secret: &str| {
            let entry = (SIGNING_SECRET.to_owned(), Secret::new(secret.as_bytes()));
            let entries = [(entry.0, entry.1.unwrap())].into_iter().collect();
            let keyring = Keyring::new(entries, crate::keyring::Source::Credentials);
            SigningKeys::of(&keyring, &mut Vec::new()).unwrap()
        };
        let as_text = SigningKey::undecoded(&Secret::new(hex.as_bytes()).unwrap()).unwrap();
        let header = as_text.sign(1000, "GET", "/a");
        let header = header.as_bytes();
        let verdict = check(Some(&keys(hex)), 60, Some(header), "GET", "/a", 1000);
        assert_eq!(verdict, Verdict::Mismatch);
        assert!(keys(hex).matches_as_text(header, "GET", "/a"));
        assert!(!keys(hex).matches_as_text(header, "GET", "/b"));
        for odd in [&b"t=1000,s=zz"[..], b"t=1000,s=", b"", b"\xff"] {
            assert!(!keys(hex).matches_as_text(odd, "GET", "/a"));
        }
        let other = key("other").sign(1000, "GET", "/a");
        assert!(!keys(hex).matches_as_text(other.as_bytes(), "GET", "/a"));
        // A secret that isn't hex has one reading.
        assert!(SigningKey::undecoded(&Secret::new(b"secret").unwrap()).is_none());
    }

    #[test]
    fn signature_that_is_wrong_gets_the_first_reason_in_order() {
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
            (
                Some(format!("t=1,t={now},s={digits}")),
                "malformed_signature",
            ),
            (
                Some(format!("t={now},s={digits},s={digits}")),
                "malformed_signature",
            ),
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
    fn pattern_exempts_only_routes_whose_prefix_it_covers() {
        let settings = Settings {
            mode: Mode::Enforce,
            drift_seconds: 60,
            exempt: ["/npm/*", "/svc/open/*", "/exact"]
                .map(Pattern::new)
                .to_vec(),
        };
        for (prefix, path, exempt) in [
            ("/npm", "/npm/x", true),
            ("/npm/cache", "/npm/cache/x", true),
            ("", "/npm/x", false),
            ("/np", "/np/x", false),
            ("/svc", "/svc/open/x", true),
            ("/svc", "/svc/shut/x", false),
            ("/exact", "/exact", true),
            ("/exact", "/exact/x", false),
        ] {
            assert_eq!(
                settings.is_exempt_below(prefix, path),
                exempt,
                "{prefix} {path}"
            );
        }
    }

    #[test]
    fn timestamp_at_the_limit_of_the_drift_is_valid() {
        for at in [1_700_000_060, 1_699_999_940] {
            let header = key("secret").sign(at, "GET", "/a");
            assert_eq!(verdict(Some(&header), 1_700_000_000), Verdict::Valid);
        }
    }

    #[test]
    fn timestamp_is_checked_before_the_absence_of_a_secret() {
        let checked = |header: &[u8]| check(None, 60, Some(header), "GET", "/", 1000);
        assert_eq!(checked(b"t=1000,s=zz"), Verdict::NoSecret);
        assert_eq!(checked(b"t=1,s=zz"), Verdict::Expired { drift: 999 });
        assert_eq!(checked(b"\xff"), Verdict::Malformed);
    }
}
