use serde_json::{Value, json};

use super::{Answer, MOST_TOKENS, Piece, Question, TEMPERATURE, Wire};

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

pub fn answer(answer: &Value) -> Option<Answer> {
    let choice = &answer["choices"][0];
    let text = choice["message"]["content"].as_str()?;
    Some(Answer {
        text: text.to_owned(),
        is_cut: is_cut(choice),
    })
}

pub fn piece(event: &Value) -> Piece<'_> {
    let choice = &event["choices"][0];
    Piece {
        text: choice["delta"]["content"].as_str(),
        is_last: choice["finish_reason"].is_string(),
        is_cut: is_cut(choice),
    }
}

fn is_cut(choice: &Value) -> bool {
    choice["finish_reason"] == "length"
}
