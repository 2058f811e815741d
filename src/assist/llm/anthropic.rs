use http::{HeaderName, HeaderValue};
use serde_json::{Value, json};

use super::{MOST_TOKENS, Question, TEMPERATURE};

pub const VERSION: (HeaderName, HeaderValue) = (
    HeaderName::from_static("anthropic-version"),
    HeaderValue::from_static("2023-06-01"),
);

pub fn body(model: &str, question: &Question<'_>, in_pieces: bool) -> Value {
    let mut body = json!({
        "model": model,
        "max_tokens": MOST_TOKENS,
        "temperature": TEMPERATURE,
        "system": question.system,
        "messages": [{"role": "user", "content": question.user}],
    });
    if in_pieces {
        body["stream"] = json!(true);
    }
    body
}

pub fn text(answer: &Value) -> Option<String> {
    let blocks = answer["content"].as_array()?;
    let texts = blocks.iter().filter_map(|block| block["text"].as_str());
    Some(texts.collect())
}

/// The next text, and whether the answer ends with it.
pub fn piece(event: &Value) -> (Option<&str>, bool) {
    let text = event["delta"]["text"].as_str();
    (text, event["type"] == "message_stop")
}
