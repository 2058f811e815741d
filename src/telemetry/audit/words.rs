//! The words of a program as the audit keeps them.

use serde_json::Value;
use serde_json::value::RawValue;

use super::redact::{LONGEST, clipped, is_secret, redacted_text};

const REDACTED: &str = "[REDACTED]";
/// Flags whose value is `user:password`.
const USER_FLAGS: [&str; 4] = ["-u", "--user", "--proxy-user", "-U"];

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
    let secrets = each(words).filter_map(|(_, secret)| secret.map(str::to_owned));
    secrets.filter(|secret| !secret.is_empty()).collect()
}

/// Each word without its secret, and the secret.
fn each(words: &[String]) -> impl Iterator<Item = (String, Option<&str>)> {
    let mut before: Option<&str> = None;
    words.iter().map(move |word| {
        let flag = before.replace(word).unwrap_or_default();
        redact(word, flag)
    })
}

/// `flag` is the word before.
fn redact<'a>(word: &'a str, flag: &str) -> (String, Option<&'a str>) {
    let is_flag = |word: &str| word.starts_with('-') && word.len() > 1;
    // A secret may begin with one dash.
    if is_flag(flag) && !flag.contains('=') && is_secret(flag) && !word.starts_with("--") {
        return (REDACTED.to_owned(), Some(word));
    }
    if USER_FLAGS.contains(&flag)
        && let Some((user, password)) = word.split_once(':')
    {
        return (format!("{user}:{REDACTED}"), Some(password));
    }
    if let Some(json) = redacted_json(word) {
        return (json, None);
    }
    if let Some((kept, secret)) = named_value(word).or_else(|| in_url(word)) {
        return (format!("{kept}{REDACTED}"), Some(secret)).with_rest(word);
    }
    (word.to_owned(), None)
}

/// Appends what stands behind the secret.
trait WithRest {
    fn with_rest(self, word: &str) -> Self;
}

impl WithRest for (String, Option<&str>) {
    fn with_rest(mut self, word: &str) -> Self {
        if let Some(secret) = self.1 {
            let kept = self.0.len() - REDACTED.len();
            self.0.push_str(&word[kept + secret.len()..]);
        }
        self
    }
}

/// `--token=V`, `token=V`, `Authorization: V`: what stands before the value, and the value.
fn named_value(word: &str) -> Option<(&str, &str)> {
    let end = word.find(['=', ':'])?;
    let name = &word[..end];
    let plain = |c: char| c.is_alphanumeric() || "-_.[]".contains(c);
    if name.is_empty() || !name.chars().all(plain) {
        return None;
    }
    let value = word[end + 1..].trim_start();
    if !is_secret(name) {
        // The value of a flag may have a name of its own: `--header=Authorization: V`.
        let (_, secret) = named_value(value).filter(|_| word[end..].starts_with('='))?;
        return Some((&word[..word.len() - secret.len()], secret));
    }
    // `key://` is the beginning of a URL.
    if value.is_empty() || value.starts_with("//") {
        return None;
    }
    Some((&word[..word.len() - value.len()], value))
}

/// The password of `scheme://user:password@host`, and what stands before it.
fn in_url(word: &str) -> Option<(&str, &str)> {
    let begin = word.find("://")? + 3;
    let authority = word[begin..].split(['/', '?', '#']).next()?;
    let (user, _) = authority.rsplit_once('@')?;
    let (name, password) = user.split_once(':')?;
    let at = begin + name.len() + 1;
    Some((&word[..at], password))
}

/// A JSON object or list with its secrets replaced.
fn redacted_json(word: &str) -> Option<String> {
    if !word.starts_with(['{', '[']) {
        return None;
    }
    let value: Value = serde_json::from_str(word).ok()?;
    Some(redacted_text(&value))
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
    fn secret_words_are_what_was_replaced() {
        let line = words(&["--token", "one", "--password=two", "me", "-u", "a:three"]);
        assert_eq!(secret_words(&line), ["one", "two", "three"]);
    }

    #[test]
    fn many_and_long_words_are_cut() {
        let long = "ü".repeat(300);
        assert_eq!(kept(&[&long]), json!(["ü".repeat(200) + "...[truncated]"]));
        let many: Vec<String> = (0..100_000).map(|n| n.to_string()).collect();
        assert!(redact_words(&many).get().len() < 2 * LONGEST);
    }
}
