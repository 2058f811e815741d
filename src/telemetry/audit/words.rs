//! The words of a program as the audit keeps them.

use std::ops::Range;

use serde_json::Value;
use serde_json::value::RawValue;

use super::redact::{LONGEST, clipped, is_secret, redacted_text};

const REDACTED: &str = "[REDACTED]";
/// Flags whose value is `user:password`.
const USER_FLAGS: [&str; 4] = ["-u", "--user", "--proxy-user", "-U"];
/// Of URLs in which a name without a password is a user's, and no token.
const USER_SCHEMES: [&str; 4] = ["ssh", "git+ssh", "sftp", "rsync"];
/// Parts of a secret that are shorter say nothing.
const SHORTEST_PART: usize = 4;

/// A JSON list of the words, with secrets replaced and long words cut.
pub fn redact_words(words: &[String]) -> Box<RawValue> {
    let mut out = String::from("[");
    for (n, (word, _)) in each(words).enumerate() {
        if n > 0 {
            out.push(',');
        }
        if out.len() > LONGEST {
            out.push_str("\"...[truncated]\"");
            break;
        }
        out.push_str(&serde_json::to_string(&clipped(&word)).unwrap_or_default());
    }
    out.push(']');
    RawValue::from_string(out).unwrap_or_default()
}

/// What is replaced in the words. An error of the program may repeat it.
pub fn secret_words(words: &[String]) -> Vec<String> {
    let secrets = each(words).flat_map(|(_, secrets)| secrets);
    secrets.filter(|secret| !secret.is_empty()).collect()
}

/// Each word without its secrets, and the secrets.
fn each(words: &[String]) -> impl Iterator<Item = (String, Vec<String>)> {
    let mut before: Option<&str> = None;
    words.iter().map(move |word| {
        let flag = before.replace(word).unwrap_or_default();
        redact(word, flag)
    })
}

/// `flag` is the word before.
fn redact(word: &str, flag: &str) -> (String, Vec<String>) {
    let has_value = flag.contains(['=', '{', '"']);
    let is_flag = flag.starts_with('-') && flag.len() > 1 && !has_value;
    if is_flag && is_secret(flag) && !looks_like_a_flag(word) {
        return (REDACTED.to_owned(), vec![word.to_owned()]);
    }
    let mut found = named_values(word);
    found.extend(in_urls(word));
    found.extend(user_password(word, flag));
    let found = merged(found);
    // JSON without secrets stays as it is written: it may be a part of a credential.
    let json = json_at(word).filter(|(_, value)| names_a_secret(value));
    let Some((at, value)) = json else {
        return replaced(word, &found);
    };
    // A secret as a whole, or a part of one.
    if found.iter().any(|it| it.start <= at && at < it.end) {
        return replaced(word, &found);
    }
    let before: Vec<_> = found.into_iter().filter(|it| it.end <= at).collect();
    let (mut text, mut secrets) = replaced(&word[..at], &before);
    text.push_str(&redacted_text(&value));
    secrets_in(&value, false, &mut secrets);
    (text, secrets)
}

/// Behind the flag of a secret: `--next` is another flag, and `--Pa5s` a secret.
fn looks_like_a_flag(word: &str) -> bool {
    let Some(name) = word.strip_prefix("--") else {
        return false;
    };
    let name = name.split('=').next().unwrap_or_default();
    name.chars().all(|c| c.is_ascii_lowercase() || c == '-')
}

/// In order, and without overlaps.
fn merged(mut found: Vec<Range<usize>>) -> Vec<Range<usize>> {
    found.sort_by_key(|it| it.start);
    let mut out: Vec<Range<usize>> = Vec::new();
    for next in found {
        match out.last_mut() {
            Some(last) if next.start <= last.end => last.end = last.end.max(next.end),
            _ => out.push(next),
        }
    }
    out
}

/// The word without these parts, and the parts.
fn replaced(word: &str, found: &[Range<usize>]) -> (String, Vec<String>) {
    let (mut text, mut secrets, mut at) = (String::new(), Vec::new(), 0);
    for part in found {
        text.push_str(&word[at..part.start]);
        text.push_str(REDACTED);
        at = part.end;
        add_secret(&word[part.clone()], &mut secrets);
    }
    text.push_str(&word[at..]);
    (text, secrets)
}

/// A program may repeat only a part of it: of `Bearer V` the value, of `V&name=W` the first.
fn add_secret(secret: &str, secrets: &mut Vec<String>) {
    secrets.push(secret.to_owned());
    let is_end = |c: char| c == '&' || c == ';' || c.is_whitespace();
    let is_scheme = |part: &str| ["bearer", "basic"].contains(&part.to_lowercase().as_str());
    let parts = secret
        .split(is_end)
        .filter(|part| part.len() >= SHORTEST_PART);
    let parts = parts.filter(|part| part.len() < secret.len() && !is_scheme(part));
    secrets.extend(parts.map(str::to_owned));
}

/// The values in `--token=V`, `Authorization: V`, `?a=b&token=V`, `"token":"V"`.
fn named_values(word: &str) -> Vec<Range<usize>> {
    let plain = |c: char| c.is_alphanumeric() || "-_.[]%".contains(c);
    let mut found = Vec::new();
    let mut done = 0;
    for (end, sign) in word.match_indices(['=', ':']) {
        if end < done {
            continue;
        }
        // White space may stand before a colon, and quotes around a name.
        let text = word[done..end].trim_end_matches([' ', '\t', '"', '\'', '\\']);
        let name = &text[text.trim_end_matches(plain).len()..];
        let before = word[..done + text.len() - name.len()].chars().next_back();
        let value = word[end + 1..].trim_start();
        let begin = word.len() - value.len();
        // A host has a port, and `key://` is the beginning of a URL.
        let is_other = sign == ":" && (before == Some('/') || before == Some('@'));
        let is_other = is_other || value.is_empty() || value.starts_with("//");
        // Where a value has a name before it, this is a part of that: `a:key:b` is none.
        let is_inner = sign == ":" && before == Some(':');
        if name.is_empty() || is_other || is_inner || !is_secret(name) {
            continue;
        }
        let length = match before {
            Some('?' | '&') => value.find('&').unwrap_or(value.len()),
            _ => value.len(),
        };
        found.push(begin..begin + length);
        done = begin + length;
    }
    found
}

/// In URLs: the password of `user:password@host`, and all of `token@host`.
fn in_urls(word: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    for (end, sign) in word.match_indices("://") {
        let begin = end + sign.len();
        let is_end = |c: char| "/?#".contains(c) || c.is_whitespace();
        let authority = word[begin..].split(is_end).next().unwrap_or_default();
        let Some((user, _)) = authority.rsplit_once('@') else {
            continue;
        };
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
        let before = &word[..end];
        let scheme = &before[before.trim_end_matches(is_plain).len()..];
        match user.split_once(':') {
            Some((name, password)) if !password.is_empty() => {
                found.push(begin + name.len() + 1..begin + user.len());
            }
            Some((name, _)) => found.push(begin..begin + name.len()),
            None if USER_SCHEMES.contains(&scheme) => {}
            None => found.push(begin..begin + user.len()),
        }
    }
    found.retain(|it| !it.is_empty());
    found
}

/// The password in `-u user:password`, `-uuser:password` and `--user=user:password`.
fn user_password(word: &str, flag: &str) -> Option<Range<usize>> {
    let is_glued = |flag: &&&str| {
        let rest = word.strip_prefix(**flag);
        rest.is_some_and(|rest| flag.len() == 2 || rest.starts_with('='))
    };
    let begin = match USER_FLAGS.contains(&flag) {
        true => 0,
        false => USER_FLAGS.iter().find(is_glued)?.len(),
    };
    let colon = begin + word[begin..].find(':')?;
    Some(colon + 1..word.len())
}

/// A JSON object or list at the end of the word, and where it begins.
fn json_at(word: &str) -> Option<(usize, Value)> {
    let behind_name = word.find('=').map(|at| at + 1);
    let begins = [word.find('{'), word.find('['), behind_name];
    begins.into_iter().flatten().find_map(|at| {
        let text = &word[at..];
        let is_json = text.trim_start().starts_with(['{', '[']);
        let value = is_json.then(|| serde_json::from_str(text).ok())??;
        Some((at, value))
    })
}

fn names_a_secret(value: &Value) -> bool {
    match value {
        Value::Array(list) => list.iter().any(names_a_secret),
        Value::Object(map) => {
            let mut each = map.iter();
            each.any(|(name, value)| is_secret(name) || names_a_secret(value))
        }
        _ => false,
    }
}

/// The texts in a value that are secrets by a name above them.
fn secrets_in(value: &Value, is_named: bool, secrets: &mut Vec<String>) {
    match value {
        Value::String(text) if is_named => add_secret(text, secrets),
        Value::Array(list) => {
            for item in list {
                secrets_in(item, is_named, secrets);
            }
        }
        Value::Object(map) => {
            for (name, value) in map {
                secrets_in(value, is_named || is_secret(name), secrets);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn words(line: &[&str]) -> Vec<String> {
        line.iter().map(|word| (*word).to_owned()).collect()
    }

    fn kept(line: &[&str]) -> Value {
        serde_json::from_str(redact_words(&words(line)).get()).unwrap()
    }

    #[test]
    fn secrets_among_words_are_replaced() {
        for (line, expected) in [
            (
                &["--token", "s3cret", "list"][..],
                json!(["--token", REDACTED, "list"]),
            ),
            (&["--password=s3cret"], json!(["--password=[REDACTED]"])),
            (&["--api-key", "-s3cret"], json!(["--api-key", REDACTED])),
            (&["--auth", "--next", "x"], json!(["--auth", "--next", "x"])),
            (
                &["-H", "Authorization: Bearer s3cret"],
                json!(["-H", "Authorization: [REDACTED]"]),
            ),
            (
                &["--header=X-Api-Key: s3cret"],
                json!(["--header=X-Api-Key: [REDACTED]"]),
            ),
            (&["-f", "token=s3cret"], json!(["-f", "token=[REDACTED]"])),
            (&["-u", "me:s3cret"], json!(["-u", "me:[REDACTED]"])),
            (
                &["https://me:s3cret@host/path"],
                json!(["https://me:[REDACTED]@host/path"]),
            ),
            (
                &["--params", r#"{"password": "s3cret", "n": 1}"#],
                json!(["--params", r#"{"password":"[REDACTED]","n":1}"#]),
            ),
            (
                &["pr", "list", "--limit", "5"],
                json!(["pr", "list", "--limit", "5"]),
            ),
            (&["-", "--", "a=b", "x:y"], json!(["-", "--", "a=b", "x:y"])),
        ] {
            assert_eq!(kept(line), expected, "{line:?}");
        }
    }

    #[test]
    fn secrets_within_words_are_replaced() {
        for (line, expected) in [
            (&["--user=me:s3cret"][..], json!(["--user=me:[REDACTED]"])),
            (
                &["-ume:s3cret", "-U", "b:c"],
                json!(["-ume:[REDACTED]", "-U", "b:[REDACTED]"]),
            ),
            (
                &["https://h/?a=1&token=s3cret&b=2"],
                json!(["https://h/?a=1&token=[REDACTED]&b=2"]),
            ),
            (
                &["-d", "user=a&password=s3cret"],
                json!(["-d", "user=a&password=[REDACTED]"]),
            ),
            (
                &[
                    r#"--data={"password":"s3cret"}"#,
                    r#"x={"token":"s3cret","n":1}"#,
                ],
                json!([
                    r#"--data={"password":"[REDACTED]"}"#,
                    r#"x={"token":"[REDACTED]","n":1}"#
                ]),
            ),
            (
                &[r#"-d{"password":"s3cret"}"#, r#"{'token': 's3cret'"#],
                json!([r#"-d{"password":"[REDACTED]"}"#, "{'token': [REDACTED]"]),
            ),
            (&[r#"token={"a":"s3cret"}"#], json!(["token=[REDACTED]"])),
            (
                &[
                    "https://s3cret@host/x",
                    "https://s3cret:@host",
                    "ssh://git@host/x",
                ],
                json!([
                    "https://[REDACTED]@host/x",
                    "https://[REDACTED]:@host",
                    "ssh://git@host/x"
                ]),
            ),
            (
                &[
                    "--from=https://a:s3cret@b/",
                    "https://a/?u=https://b:s3cret@c/d",
                ],
                json!([
                    "--from=https://a:[REDACTED]@b/",
                    "https://a/?u=https://b:[REDACTED]@c/d"
                ]),
            ),
            (
                &["--passphrase", "s3cret"],
                json!(["--passphrase", REDACTED]),
            ),
            (
                &["-H", "Cookie: a=s3cret; b=c", "X-Auth : s3cret"],
                json!(["-H", "Cookie: [REDACTED]", "X-Auth : [REDACTED]"]),
            ),
            (
                &["--token", "--S3cret", "--"],
                json!(["--token", REDACTED, "--"]),
            ),
            (
                &[
                    "https://auth.example.com:8443/x",
                    "arn:aws:secretsmanager:us",
                ],
                json!([
                    "https://auth.example.com:8443/x",
                    "arn:aws:secretsmanager:us"
                ]),
            ),
        ] {
            assert_eq!(kept(line), expected, "{line:?}");
        }
    }

    #[test]
    fn secret_words_are_what_was_replaced() {
        let line = words(&["--token", "one", "--password=two", "me", "-u", "a:three"]);
        assert_eq!(secret_words(&line), ["one", "two", "three"]);
        let line = words(&[
            "-ume:four",
            "https://h/?token=five&x=1",
            r#"--data={"password":["six"],"n":{"key":{"a":"seven"}}}"#,
            "Authorization: Bearer eight8",
        ]);
        assert_eq!(
            secret_words(&line),
            ["four", "five", "six", "seven", "Bearer eight8", "eight8"]
        );
    }

    #[test]
    fn many_and_long_words_are_cut() {
        let long = "ü".repeat(300);
        assert_eq!(kept(&[&long]), json!(["ü".repeat(200) + "...[truncated]"]));
        let many: Vec<String> = (0..100_000).map(|n| n.to_string()).collect();
        assert!(redact_words(&many).get().len() < 2 * LONGEST);
    }
}
