use http::{HeaderName, HeaderValue};
use serde_json::{Value, json};

use super::{Answer, MOST_TOKENS, Piece, Question, TEMPERATURE};

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

/// Why a text ends that has as many tokens as it may.
const CUT: &str = "max_tokens";

pub fn answer(answer: &Value) -> Option<Answer> {
    let blocks = answer["content"].as_array()?;
    let texts = blocks.iter().filter_map(|block| block["text"].as_str());
    Some(Answer {
        text: texts.collect(),
        is_cut: answer["stop_reason"] == CUT,
    })
}

pub fn piece(event: &Value) -> Piece<'_> {
    Piece {
        text: event["delta"]["text"].as_str(),
        is_last: event["type"] == "message_stop",
        is_cut: event["delta"]["stop_reason"] == CUT,
    }
}
