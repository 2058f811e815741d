use serde_json::{Value, json};

use super::{MOST_TOKENS, Question, TEMPERATURE, Wire};

pub fn body(model: &str, question: &Question<'_>, in_pieces: bool, wire: Wire) -> Value {
    let mut body = json!({
        "model": model,
        "messages": [
            {"role": "system", "content": question.system},
            {"role": "user", "content": question.user},
        ],
        "temperature": TEMPERATURE,
    });
    let limit = match wire {
        Wire::OpenAiOlder => "max_tokens",
        Wire::OpenAi | Wire::Anthropic => "max_completion_tokens",
    };
    body[limit] = json!(MOST_TOKENS);
    if in_pieces {
        body["stream"] = json!(true);
    }
    body
}

pub fn text(answer: &Value) -> Option<String> {
    let text = answer["choices"][0]["message"]["content"].as_str();
    text.map(str::to_owned)
}

/// The next text, and whether the answer ends with it.
pub fn piece(event: &Value) -> (Option<&str>, bool) {
    let choice = &event["choices"][0];
    let text = choice["delta"]["content"].as_str();
    (text, choice["finish_reason"].is_string())
}
