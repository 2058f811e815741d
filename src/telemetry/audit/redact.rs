use std::fmt::Write as _;

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::text::clip_chars;

/// A value whose name contains one of these words is a secret.
const SECRET_WORDS: [&str; 9] = [
    "password",
    "passphrase",
    "passwd",
    "secret",
    "token",
    "key",
    "credential",
    "auth",
    "cookie",
];
const LONGEST_TEXT: usize = 200;
/// For all arguments of a call together.
pub(super) const LONGEST: usize = 32 << 10;

/// Arguments as the audit keeps them: secrets replaced at any depth, long texts and lists cut.
pub fn redact(args: &Map<String, Value>) -> Box<RawValue> {
    let mut out = String::new();
    object(args, &mut out);
    RawValue::from_string(out).unwrap_or_default()
}

/// In place of arguments that can't be parsed, or that weren't, because the call was refused
/// before.
pub fn not_parsed() -> Box<RawValue> {
    let marker = r#"{"...":"[not parsed]"}"#.to_owned();
    RawValue::from_string(marker).unwrap_or_default()
}

/// One value as text, with secrets replaced.
pub(super) fn redacted_text(value: &Value) -> String {
    let mut out = String::new();
    write(value, &mut out);
    out
}

fn object(map: &Map<String, Value>, out: &mut String) {
    out.push('{');
    for (n, (name, value)) in map.iter().enumerate() {
        if n > 0 {
            out.push(',');
        }
        if out.len() > LONGEST {
            out.push_str("\"...\":\"[truncated]\"");
            break;
        }
        text(&clipped(name), out);
        out.push(':');
        if is_secret(name) {
            out.push_str("\"[REDACTED]\"");
        } else {
            write(value, out);
        }
    }
    out.push('}');
}

fn write(value: &Value, out: &mut String) {
    match value {
        Value::String(string) => text(&clipped(string), out),
        Value::Object(map) => object(map, out),
        Value::Array(list) => {
            out.push('[');
            for (n, item) in list.iter().enumerate() {
                if n > 0 {
                    out.push(',');
                }
                if out.len() > LONGEST {
                    out.push_str("\"...[truncated]\"");
                    break;
                }
                write(item, out);
            }
            out.push(']');
        }
        plain => {
            let _ = write!(out, "{plain}");
        }
    }
}

fn text(string: &str, out: &mut String) {
    out.push_str(&serde_json::to_string(string).unwrap_or_default());
}

pub(super) fn clipped(string: &str) -> String {
    let kept = clip_chars(string, LONGEST_TEXT);
    if kept.len() < string.len() {
        return format!("{kept}...[truncated]");
    }
    kept.to_owned()
}

pub(super) fn is_secret(name: &str) -> bool {
    let name = name.to_lowercase();
    SECRET_WORDS.iter().any(|word| name.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn redacted(args: Value) -> Value {
        let Value::Object(args) = args else { panic!() };
        serde_json::from_str(redact(&args).get()).unwrap()
    }

    #[test]
    fn secrets_are_replaced_at_every_depth() {
        let args = json!({"q": "x", "API_KEY": "s", "Authorization": 5,
            "deep": [{"userPassword": {"a": "s"}, "n": null}]});
        let expected = json!({"q": "x", "API_KEY": "[REDACTED]", "Authorization": "[REDACTED]",
            "deep": [{"userPassword": "[REDACTED]", "n": null}]});
        assert_eq!(redacted(args), expected);
    }

    #[test]
    fn long_texts_and_lists_are_cut() {
        let long = "ü".repeat(201);
        let seen = redacted(json!({"a": long, "b": "ü".repeat(200)}));
        assert_eq!(seen["a"], "ü".repeat(200) + "...[truncated]");
        assert_eq!(seen["b"], "ü".repeat(200));
        let many: Vec<Value> = (0..100_000).map(|n| json!({"n": n})).collect();
        let seen = redacted(json!({"list": many, "after": 1}));
        assert!(seen.to_string().len() < 2 * LONGEST);
    }
}
