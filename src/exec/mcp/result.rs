//! The result of a tool, in the shape that callers of existing deployments know.

use std::sync::Arc;

use rmcp::model::{CallToolResult, ContentBlock};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};

use super::McpError;
use super::big::SMALL;
use super::tool_result::ToolResult;
use crate::credential::Attachment;

/// How much of a tool's own error is told.
const LONGEST_ERROR: usize = 64 << 10;
/// The member of `_meta` that names the server.
const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";

/// A single item is the result itself; a text that is JSON becomes that JSON. Several items stay
/// together. Secrets are redacted.
pub fn shape(result: &CallToolResult, attachment: &Attachment) -> Result<Box<RawValue>, McpError> {
    if result.is_error == Some(true) {
        return Err(failed(result, attachment, None));
    }
    let mut bytes = match result.content.as_slice() {
        [ContentBlock::Text(text)] => as_json(&redacted(&text.text, attachment)),
        [] if result.structured_content.is_some() => encode(
            result.structured_content.clone().unwrap_or_default(),
            attachment,
        ),
        [media @ (ContentBlock::Image(_) | ContentBlock::Audio(_))] => {
            encode(without_metadata(media), attachment)
        }
        several => {
            let content: Vec<Value> = several.iter().map(without_metadata).collect();
            let mut all = Map::new();
            all.insert("content".to_owned(), content.into());
            all.insert("isError".to_owned(), false.into());
            if let Some(structured) = &result.structured_content {
                all.insert("structuredContent".to_owned(), structured.clone());
            }
            encode(all.into(), attachment)
        }
    };
    attachment.redact(&mut bytes);
    Ok(redacted_json(&bytes))
}

/// As [`shape`], of a result that is one text.
fn shape_text(text: String, attachment: &Attachment) -> Box<RawValue> {
    if attachment.redacts() {
        let mut bytes = as_json(&attachment.redact_text(text, usize::MAX));
        attachment.redact(&mut bytes);
        return redacted_json(&bytes);
    }
    let json: Result<&RawValue, _> = serde_json::from_str(text.trim());
    match json {
        Ok(json) => json.to_owned(),
        Err(_) => to_raw_value(&text).unwrap_or_default(),
    }
}

/// What is no JSON any more becomes a string.
fn redacted_json(bytes: &[u8]) -> Box<RawValue> {
    let text = || to_raw_value(&String::from_utf8_lossy(bytes)).unwrap_or_default();
    serde_json::from_slice(bytes).unwrap_or_else(|_| text())
}

/// The result in the form that the caller reads.
pub fn made(
    result: ToolResult,
    attachment: &Attachment,
    is_native: bool,
) -> Result<Box<RawValue>, McpError> {
    match result {
        ToolResult::Text(text) => Ok(shape_text(text, attachment)),
        ToolResult::Whole(result) if is_native => native(*result, attachment),
        ToolResult::Whole(result) => shape(&result, attachment),
    }
}

/// The result as the server gave it, for a caller that speaks MCP itself: every kind of content,
/// and `structuredContent`. Secrets are redacted.
pub fn native(
    mut result: CallToolResult,
    attachment: &Attachment,
) -> Result<Box<RawValue>, McpError> {
    let is_error = *result.is_error.get_or_insert(false);
    // The era of the caller decides on it, and the server isn't the caller's.
    result.result_type = None;
    if let Some(meta) = &mut result.meta {
        meta.remove(SERVER_INFO);
    }
    result.meta = result.meta.filter(|meta| !meta.is_empty());
    let mut bytes = encode(
        serde_json::to_value(&result).unwrap_or_default(),
        attachment,
    );
    attachment.redact(&mut bytes);
    let text = String::from_utf8_lossy(&bytes).into_owned();
    if is_error {
        return Err(failed(&result, attachment, Some(text.into())));
    }
    RawValue::from_string(text).map_err(|_| McpError::Tool {
        text: "its result makes no sense once secrets are redacted".to_owned(),
        native: None,
    })
}

fn failed(result: &CallToolResult, attachment: &Attachment, native: Option<Arc<str>>) -> McpError {
    let text = attachment.redact_text(error_text(result), LONGEST_ERROR);
    McpError::Tool { text, native }
}

/// Whether [`made`] takes so little time that a worker may do it.
pub fn is_small(result: &ToolResult) -> bool {
    match result {
        ToolResult::Text(_) => true,
        ToolResult::Whole(result) => is_small_whole(result),
    }
}

fn is_small_whole(result: &CallToolResult) -> bool {
    let mut room = SMALL;
    let mut fits = |bytes: usize| match room.checked_sub(bytes) {
        Some(left) => {
            room = left;
            true
        }
        None => false,
    };
    let blocks = result.content.iter().all(|block| match block {
        ContentBlock::Text(text) => fits(text.text.len()),
        ContentBlock::Image(image) => fits(image.data.len()),
        ContentBlock::Audio(audio) => fits(audio.data.len()),
        // Embedded resources and links: their texts aren't measured, but most of them are big.
        _ => false,
    });
    blocks
        && result
            .structured_content
            .iter()
            .all(|value| value_fits(value, &mut fits))
}

/// Looks at no more of the value than there is room for.
fn value_fits(value: &Value, fits: &mut impl FnMut(usize) -> bool) -> bool {
    // A value takes a few bytes at least.
    const LEAST: usize = 8;
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => fits(LEAST),
        Value::String(text) => fits(LEAST + text.len()),
        Value::Array(items) => fits(LEAST) && items.iter().all(|item| value_fits(item, fits)),
        Value::Object(members) => {
            let mut members = members.iter();
            fits(LEAST) && members.all(|(name, value)| fits(name.len()) && value_fits(value, fits))
        }
    }
}

/// Redacts strings before they are encoded: a server may have escaped a secret in a text of its
/// own, and encoding would escape those escapes once more.
fn encode(mut value: Value, attachment: &Attachment) -> Vec<u8> {
    redact_strings(&mut value, attachment);
    serde_json::to_vec(&value).unwrap_or_default()
}

pub(super) fn redact_strings(value: &mut Value, attachment: &Attachment) {
    match value {
        Value::String(text) => *text = redacted(text, attachment),
        Value::Array(items) => {
            for item in items {
                redact_strings(item, attachment);
            }
        }
        Value::Object(members) => {
            for (_, member) in members.iter_mut() {
                redact_strings(member, attachment);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

pub(super) fn redacted(text: &str, attachment: &Attachment) -> String {
    attachment.redact_text(text, usize::MAX)
}

/// A text that is JSON is taken as it is; any other becomes a JSON string.
fn as_json(text: &str) -> Vec<u8> {
    let parsed: Result<&RawValue, _> = serde_json::from_str(text.trim());
    match parsed {
        Ok(json) => json.get().as_bytes().to_vec(),
        Err(_) => serde_json::to_vec(text).unwrap_or_default(),
    }
}

/// The block without members that serve the protocol only.
fn without_metadata(block: &ContentBlock) -> Value {
    match block {
        ContentBlock::Text(text) => json!({"type": "text", "text": text.text}),
        other => serde_json::to_value(other).unwrap_or_default(),
    }
}

fn error_text(result: &CallToolResult) -> String {
    let texts: Vec<&str> = result
        .content
        .iter()
        .filter_map(|block| match block {
            ContentBlock::Text(text) => Some(text.text.as_str()),
            _ => None,
        })
        .collect();
    match (texts.is_empty(), &result.structured_content) {
        (false, _) => texts.join("\n"),
        (true, Some(structured)) => structured.to_string(),
        (true, None) => "the tool failed, and didn't say why".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shaped(result: Value) -> Result<String, String> {
        let result: CallToolResult = serde_json::from_value(result).unwrap();
        let shaped = shape(&result, &Attachment::default());
        shaped
            .map(|raw| raw.get().to_owned())
            .map_err(|e| e.to_string())
    }

    #[test]
    fn single_item_is_the_result_and_several_stay_together() {
        let text = |text: &str| json!({"type": "text", "text": text});
        let one = |block: Value| shaped(json!({"content": [block]})).unwrap();
        assert_eq!(one(text("hello")), "\"hello\"");
        assert_eq!(one(text(r#"{"b": 1.0, "a": 2}"#)), r#"{"b": 1.0, "a": 2}"#);
        assert_eq!(one(text(" 12 ")), "12");
        let image = json!({"type": "image", "data": "AAAA", "mimeType": "image/png"});
        let shown: Value = serde_json::from_str(&one(image.clone())).unwrap();
        assert_eq!(shown, image);
        let both = shaped(json!({"content": [text("a"), image], "structuredContent": {"x": 1}}));
        let both: Value = serde_json::from_str(&both.unwrap()).unwrap();
        assert_eq!(both["content"][0]["text"], "a");
        assert_eq!(both["content"][1]["mimeType"], "image/png");
        assert_eq!(both["structuredContent"]["x"], 1);
        assert_eq!(both["isError"], false);
        assert_eq!(
            shaped(json!({"content": [], "structuredContent": [1]})).unwrap(),
            "[1]"
        );
    }

    #[test]
    fn result_is_small_up_to_the_size_that_a_worker_has_time_for() {
        let is_small = |result: Value| is_small_whole(&serde_json::from_value(result).unwrap());
        let text = |length: usize| json!({"type": "text", "text": "x".repeat(length)});
        assert!(is_small(
            json!({"content": [text(100)], "structuredContent": {"a": [1]}})
        ));
        assert!(!is_small(
            json!({"content": [text(SMALL / 2), text(SMALL)]})
        ));
        assert!(!is_small(
            json!({"content": [], "structuredContent": vec![0; SMALL]})
        ));
        assert!(!is_small(
            json!({"content": [], "structuredContent": {"x".repeat(SMALL): 1}})
        ));
        let nested = vec![json!({"a": {"b": []}}); SMALL];
        assert!(!is_small(
            json!({"content": [], "structuredContent": nested})
        ));
    }

    #[test]
    fn result_marked_as_error_is_an_error() {
        let failed =
            json!({"content": [{"type": "text", "text": "no such file"}], "isError": true});
        assert_eq!(shaped(failed), Err("no such file".to_owned()));
        assert!(shaped(json!({"content": [], "isError": true})).is_err());
    }

    #[test]
    fn secret_in_json_that_was_escaped_three_times_is_redacted() {
        let secret = "planted/secret\"value";
        let attachment = Attachment::default().with_redacted([secret.as_bytes()].into_iter());
        let mut text = json!({"key": secret, "m%C3%A4h": "planted%2Fsecret%22value"}).to_string();
        text = text.replace('/', "\\/");
        for layer in 0..4 {
            let block = json!({"type": "text", "text": text});
            let results = [
                json!({"content": [block]}),
                json!({"content": [block, block]}),
                json!({"content": [], "structuredContent": {"log": text, text.clone(): 1}}),
                json!({"content": [block], "isError": true}),
            ];
            for result in results {
                let result: CallToolResult = serde_json::from_value(result).unwrap();
                let told = match shape(&result, &attachment) {
                    Ok(raw) => raw.get().to_owned(),
                    Err(error) => error.to_string(),
                };
                assert!(!told.contains("secret"), "{layer}: {told}");
                assert!(told.contains("[REDACTED]"), "{layer}: {told}");
            }
            text = json!({"inner": text}).to_string();
        }
    }

    #[test]
    fn secret_that_the_server_escaped_is_redacted_in_every_shape() {
        let secret = b"planted/secret/value";
        let attachment = Attachment::default().with_redacted([&secret[..]].into_iter());
        let escaped = r#"sent {"key": "planted\/secret\/value"}"#;
        let text = json!({"type": "text", "text": escaped});
        for result in [
            json!({"content": [text]}),
            json!({"content": [text, text]}),
            json!({"content": [], "structuredContent": {"log": escaped}}),
        ] {
            let result: CallToolResult = serde_json::from_value(result).unwrap();
            let shaped = shape(&result, &attachment).unwrap();
            assert!(!shaped.get().contains("secret"), "{}", shaped.get());
            assert!(shaped.get().contains("[REDACTED]"), "{}", shaped.get());
        }
    }
}
