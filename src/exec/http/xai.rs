//! `handler = "xai"` of older manifests: an endpoint where an agent searches by itself. The caller
//! sends a question and gets the agent's final text with its citations.

use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};

use super::HttpError;
use crate::egress::EgressError;
use crate::json;

const MODEL: &str = "grok-4";
const MOST_CITATIONS: usize = 500;
/// An answer with more values passes unchanged.
const MOST_VALUES: usize = 500_000;

/// The endpoint's request body, made of the caller's arguments. With `messages` or `input` among
/// them the caller has written the body itself, and only the model is filled in.
pub fn question(endpoint: &str, args: &Map<String, Value>) -> Map<String, Value> {
    let mut body = args.clone();
    body.entry("model").or_insert_with(|| json!(MODEL));
    if body.contains_key("messages") || body.contains_key("input") {
        return body;
    }
    let asked = ["query", "prompt", "question"]
        .iter()
        .find_map(|name| body.shift_remove(*name))
        .unwrap_or_default();
    let messages = json!([{"role": "user", "content": asked}]);
    if endpoint.trim_end_matches('/').ends_with("/responses") {
        body.insert("input".into(), messages);
        body.entry("tools")
            .or_insert_with(|| json!([{"type": "web_search"}, {"type": "x_search"}]));
    } else {
        body.insert("messages".into(), messages);
        body.entry("search_parameters")
            .or_insert_with(|| json!({"mode": "on", "return_citations": true}));
    }
    body
}

/// The agent's last message and its citations. An answer of another shape passes unchanged.
pub fn answer(result: &RawValue) -> Result<Box<RawValue>, HttpError> {
    let whole: Value = json::parse(result.get(), MOST_VALUES).unwrap_or_default();
    let (text, mut citations) = match &whole["output"] {
        Value::Array(output) => from_responses(output),
        _ => (
            whole["choices"][0]["message"]["content"]
                .as_str()
                .map(str::to_owned),
            Vec::new(),
        ),
    };
    let Some(text) = text else {
        return Ok(result.to_owned());
    };
    let listed = whole["citations"].as_array().into_iter().flatten();
    for citation in listed.take(MOST_CITATIONS) {
        if !citations.contains(citation) {
            citations.push(citation.clone());
        }
    }
    to_raw_value(&json!({"text": text, "citations": citations}))
        .map_err(|e| EgressError::Setup(e.to_string()).into())
}

fn from_responses(output: &[Value]) -> (Option<String>, Vec<Value>) {
    let last = output.iter().rev().find(|item| item["type"] == "message");
    let parts: Vec<&Value> = last
        .and_then(|message| message["content"].as_array())
        .into_iter()
        .flatten()
        .filter(|part| part["type"] == "output_text")
        .collect();
    let text: String = parts
        .iter()
        .filter_map(|part| part["text"].as_str())
        .collect();
    let mut citations = Vec::new();
    for note in parts
        .iter()
        .filter_map(|part| part["annotations"].as_array())
        .flatten()
        .take(MOST_CITATIONS)
    {
        let url = &note["url"];
        if url.is_string() && !citations.contains(url) {
            citations.push(url.clone());
        }
    }
    (last.map(|_| text), citations)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(endpoint: &str, args: Value) -> Value {
        let Value::Object(args) = args else { panic!() };
        Value::Object(question(endpoint, &args))
    }

    #[test]
    fn question_becomes_the_endpoints_request_body() {
        let chat = ask(
            "/chat/completions",
            json!({"query": "why", "temperature": 0}),
        );
        assert_eq!(chat["messages"][0]["content"], "why");
        assert_eq!(chat["temperature"], 0);
        assert_eq!(chat["model"], MODEL);
        assert!(chat.get("query").is_none());
        let responses = ask("/responses", json!({"query": "why", "model": "m"}));
        assert_eq!(responses["input"][0]["content"], "why");
        assert_eq!(responses["model"], "m");
        let own = ask("/responses", json!({"input": "x", "query": "kept"}));
        assert_eq!(
            (own["input"].as_str(), own["query"].as_str()),
            (Some("x"), Some("kept"))
        );
    }

    #[test]
    fn answer_is_the_final_text_with_its_citations() {
        let shaped = |value: Value| -> Value {
            let raw = to_raw_value(&value).unwrap();
            serde_json::from_str(answer(&raw).unwrap().get()).unwrap()
        };
        assert_eq!(
            shaped(
                json!({"choices": [{"message": {"content": "Because."}}], "citations": ["https://a"]})
            ),
            json!({"text": "Because.", "citations": ["https://a"]})
        );
        assert_eq!(
            shaped(json!({"output": [
                {"type": "message", "content": [{"type": "output_text", "text": "Let me see."}]},
                {"type": "web_search_call"},
                {"type": "message", "content": [{"type": "output_text", "text": "Because.",
                    "annotations": [{"url": "https://a"}, {"url": "https://a"}]}]},
            ], "citations": ["https://a", "https://b"]})),
            json!({"text": "Because.", "citations": ["https://a", "https://b"]})
        );
        assert_eq!(shaped(json!({"other": 1})), json!({"other": 1}));
    }
}
