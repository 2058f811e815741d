//! The token of a confirmation in the text of a request.

use std::collections::BTreeMap;

use serde_json::value::{RawValue, to_raw_value};

/// The member of `_meta` that confirms a call.
const CONFIRM_META: &str = "ati/confirm";

type Members = BTreeMap<String, Box<RawValue>>;

/// The same request with this token, or without any. Everything else stays as it was written: a
/// token is for these arguments. None for what is no request.
pub fn with_confirm(text: &[u8], token: Option<&str>) -> Option<Vec<u8>> {
    let mut message: Members = serde_json::from_slice(text).ok()?;
    let mut params = inner(&message, "params");
    let mut meta = inner(&params, "_meta");
    match token {
        Some(token) => meta.insert(CONFIRM_META.to_owned(), to_raw_value(token).ok()?),
        None => meta.remove(CONFIRM_META),
    };
    match meta.is_empty() {
        true => params.remove("_meta"),
        false => params.insert("_meta".to_owned(), to_raw_value(&meta).ok()?),
    };
    message.insert("params".to_owned(), to_raw_value(&params).ok()?);
    serde_json::to_vec(&message).ok()
}

fn inner(members: &Members, name: &str) -> Members {
    let text = members.get(name).map(|text| text.get());
    text.and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_comes_and_goes_and_arguments_keep_their_text() {
        let arguments = r#"{"n":1.50,"big":123456789012345678901234567890}"#;
        let line = |meta: &str| {
            format!(
                r#"{{"id":7,"jsonrpc":"2.0","method":"tools/call","params":{{{meta}"arguments":{arguments},"name":"t"}}}}"#
            )
        };
        let text = |line: &str, token| {
            String::from_utf8(with_confirm(line.as_bytes(), token).unwrap()).unwrap()
        };
        let plain = line("");
        let confirmed = text(&plain, Some("ati-confirm_x"));
        assert_eq!(
            confirmed,
            line(r#""_meta":{"ati/confirm":"ati-confirm_x"},"#)
        );
        assert_eq!(text(&confirmed, None), plain);
        let other = line(r#""_meta":{"progressToken":1},"#);
        assert_eq!(text(&other, None), other);
        assert!(with_confirm(b"[]", None).is_none());
    }
}
