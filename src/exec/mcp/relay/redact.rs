//! Redaction of whole messages, whatever their method: a server may repeat the credential that it
//! was given in a resource, a prompt, a notification or an error as well as in a result.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use super::super::message::MOST_VALUES;
use super::super::result::{redact_strings, redacted};
use crate::credential::Attachment;
use crate::json;
use crate::runtime::ComputePool;

/// A message up to this size is searched where it is: that takes about a millisecond.
const SMALL: usize = 64 << 10;

/// The message without secrets. It is the same text where it held none. None: it has too many
/// values.
pub async fn clean(
    attachment: &Arc<Attachment>,
    pieces: Vec<Bytes>,
    pool: &ComputePool,
    owner: &str,
) -> Option<Vec<u8>> {
    let whole = move |pieces: Vec<Bytes>| match <[Bytes; 1]>::try_from(pieces) {
        Ok([text]) => Vec::from(text),
        Err(pieces) => pieces.concat(),
    };
    if pieces.iter().map(Bytes::len).sum::<usize>() <= SMALL {
        return search(attachment, whole(pieces));
    }
    let attachment = attachment.clone();
    let searched = pool.run_patiently(owner, move || search(&attachment, whole(pieces)));
    searched.await.ok().flatten()
}

fn search(attachment: &Attachment, mut text: Vec<u8>) -> Option<Vec<u8>> {
    if json::has_more_values_than(&text, MOST_VALUES) {
        return None;
    }
    // A server may have escaped a secret in a text of its own, and encoded that text once more.
    if memchr::memchr(b'\\', &text).is_some()
        && let Ok(mut value) = serde_json::from_slice::<Value>(&text)
        && holds_secret(&value, attachment)
    {
        redact_strings(&mut value, attachment);
        text = serde_json::to_vec(&value).unwrap_or_default();
    }
    attachment.redact(&mut text);
    Some(text)
}

fn holds_secret(value: &Value, attachment: &Attachment) -> bool {
    match value {
        Value::String(text) => text.contains('\\') && redacted(text, attachment) != *text,
        Value::Array(items) => items.iter().any(|item| holds_secret(item, attachment)),
        Value::Object(members) => members
            .iter()
            .any(|(_, member)| holds_secret(member, attachment)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn secret_is_redacted_in_every_kind_of_message_and_others_stay_as_they_are() {
        let secret = b"planted/secret/value";
        let attachment = Attachment::default().with_redacted([&secret[..]].into_iter());
        let attachment = Arc::new(attachment);
        let pool = ComputePool::default();
        let clean =
            async |text: Vec<u8>| super::clean(&attachment, vec![text.into()], &pool, "p").await;
        let escaped = r#"{"key": "planted\/secret\/value"}"#;
        for message in [
            json!({"id": 1, "result": {"contents": [{"uri": "x", "text": "planted/secret/value"}]}}),
            json!({"id": 1, "error": {"code": 1, "message": "planted/secret/value"}}),
            json!({"method": "notifications/message", "params": {"data": escaped}}),
            json!({"id": 1, "result": {"messages": [{"content": {"text": json!(escaped).to_string()}}]}}),
        ] {
            let text = clean(message.to_string().into_bytes()).await;
            let text = String::from_utf8(text.unwrap()).unwrap();
            assert!(
                text.contains("[REDACTED]") && !text.contains("secret"),
                "{text}"
            );
        }
        let plain = br#"{"id":1.50,"result":{"x":1.0,"y":"a\\b\n","z":123456789012345678901}}"#;
        let same = clean(plain.to_vec()).await;
        assert_eq!(same.unwrap(), plain);
        let big = format!(
            r#"{{"result":"{}planted/secret/value"}}"#,
            "x".repeat(SMALL)
        );
        let text = clean(big.into_bytes()).await.unwrap();
        assert!(text.ends_with(br#"[REDACTED]"}"#));
    }
}
