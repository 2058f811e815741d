//! Input, in lines: the request that was signed (`GET /a`), the request that arrives, when each of
//! them was made (`100 160`), and the header, in which `{t}` stands for the time, `{s}` for the
//! digest in lower case and `{S}` in upper case. A signature counts for its own request, within the
//! drift, and for no other.
#![no_main]

use std::sync::LazyLock;

use ati::auth::signature::{SigningKey, SigningKeys, Verdict, check};
use ati::keyring::Secret;
use ati_fuzz::first_line;
use libfuzzer_sys::fuzz_target;
use ring::hmac;

const SECRET: &[u8] = b"planted-signing-secret";
const DRIFT: u64 = 60;

static KEYS: LazyLock<(SigningKey, SigningKeys)> = LazyLock::new(|| {
    let key = SigningKey::new(&Secret::new(SECRET).expect("locked memory"));
    (key.clone(), key.into())
});

/// A method is a token, and a path begins with a slash: other requests don't get this far.
fn request(line: &[u8]) -> Option<(&str, &str)> {
    let (method, path) = str::from_utf8(line).ok()?.split_once(' ')?;
    let is_method = http::Method::from_bytes(method.as_bytes()).is_ok();
    (is_method && path.starts_with('/')).then_some((method, path))
}

fn digest(time: &str, method: &str, path: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET);
    hex::encode(hmac::sign(
        &key,
        format!("{time}.{method}.{path}").as_bytes(),
    ))
}

/// Every value that the header gives under this name.
fn values<'h>(header: &'h str, name: &str) -> Vec<&'h str> {
    let parts = header.split(',').filter_map(|part| part.split_once('='));
    parts
        .filter(|(key, _)| key.trim() == name)
        .map(|(_, value)| value.trim())
        .collect()
}

fuzz_target!(|data: &[u8]| {
    let (signed, rest) = first_line(data);
    let (arriving, rest) = first_line(rest);
    let (times, template) = first_line(rest);
    let (key, keys) = &*KEYS;

    // Bytes as they come, for a request that exists.
    let verdict = check(Some(keys), DRIFT, Some(data), "GET", "/a", 1_700_000_000);
    assert!(!matches!(verdict, Verdict::Valid | Verdict::ValidPrevious));
    keys.matches_as_text(data, "GET", "/a");

    let (Some(signed), Some((method, path))) = (request(signed), request(arriving)) else {
        return;
    };
    let Some((signed_at, now)) = str::from_utf8(times).ok().and_then(|times| {
        let (signed_at, now) = times.split_once(' ')?;
        Some((signed_at.parse::<u64>().ok()?, now.parse::<u64>().ok()?))
    }) else {
        return;
    };
    let time = signed_at.to_string();
    let own = digest(&time, signed.0, signed.1);
    assert_eq!(
        key.sign(signed_at, signed.0, signed.1),
        format!("t={time},s={own}")
    );

    let in_time = now.abs_diff(signed_at) <= DRIFT && i64::try_from(signed_at).is_ok();
    let ask = |header: &[u8]| check(Some(keys), DRIFT, Some(header), method, path, now);
    let header = key.sign(signed_at, signed.0, signed.1);
    let valid = ask(header.as_bytes()) == Verdict::Valid;
    assert_eq!(
        valid,
        in_time && signed == (method, path),
        "{header} for {method} {path}"
    );

    let Ok(template) = str::from_utf8(template) else {
        return;
    };
    let header = template
        .replace("{t}", &time)
        .replace("{s}", &own)
        .replace("{S}", &own.to_uppercase());
    if ask(header.as_bytes()) == Verdict::Valid {
        let proof = values(&header, "t").into_iter().any(|time| {
            let expected = digest(time, method, path);
            let digests = values(&header, "s");
            let fresh = time
                .parse::<i64>()
                .is_ok_and(|time| i128::from(time).abs_diff(i128::from(now)) <= u128::from(DRIFT));
            fresh
                && digests
                    .iter()
                    .any(|one| one.eq_ignore_ascii_case(&expected))
        });
        assert!(proof, "{header} was accepted for {method} {path} at {now}");
    }
});
