//! A stand-in for the servers of language models: it speaks OpenAI's and Anthropic's formats, whole
//! and in pieces, and keeps the prompts that it got.

use std::io::Write;
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::support::upstream::{Received, Upstream};

pub struct Llm(pub Upstream);

impl Llm {
    /// Answers every question with this text.
    pub fn saying(text: &str) -> Self {
        let text = text.to_owned();
        Llm(Upstream::answering(move |received, stream| {
            answer(received, stream, &text)
        }))
    }

    /// Answers every question with these bytes, and closes the connection.
    pub fn raw(bytes: impl Into<Vec<u8>>) -> Self {
        let bytes = bytes.into();
        Llm(Upstream::answering(move |_, stream| {
            let _ = stream.write_all(&bytes);
            false
        }))
    }

    pub fn url(&self) -> String {
        self.0.url()
    }

    /// The body of the last question.
    pub fn asked(&self) -> Value {
        serde_json::from_slice(&self.0.last().body).unwrap()
    }

    /// Everything that was sent with the last question, as text.
    pub fn prompt(&self) -> String {
        let body = self.asked();
        let messages = body["messages"].as_array().unwrap().iter();
        let messages = messages.filter_map(|message| message["content"].as_str());
        let system = body["system"].as_str().unwrap_or_default();
        format!("{system}\n{}", messages.collect::<Vec<_>>().join("\n"))
    }
}

fn answer(received: &Received, stream: &mut TcpStream, text: &str) -> bool {
    let asked: Value = serde_json::from_slice(&received.body).unwrap_or_default();
    let is_anthropic = received.target.ends_with("/v1/messages");
    if asked["stream"] == true {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
                    transfer-encoding: chunked\r\n\r\n";
        let _ = stream.write_all(head.as_bytes());
        for event in events(text, is_anthropic) {
            let _ = write!(stream, "{:x}\r\n{event}\r\n", event.len());
            let _ = stream.flush();
        }
        return stream.write_all(b"0\r\n\r\n").is_ok();
    }
    let body = match is_anthropic {
        true => json!({"type": "message", "content": [{"type": "text", "text": text}]}),
        false => json!({"choices": [{"message": {"role": "assistant", "content": text}}]}),
    };
    whole(stream, "200 OK", "", &body.to_string())
}

/// The text in events of a few characters each.
pub fn events(text: &str, is_anthropic: bool) -> Vec<String> {
    let letters: Vec<char> = text.chars().collect();
    let pieces = letters
        .chunks(7)
        .map(|piece| piece.iter().collect::<String>());
    let mut events: Vec<String> = pieces
        .map(|piece| match is_anthropic {
            true => {
                let event = json!({"type": "content_block_delta", "delta": {"text": piece}});
                format!("event: content_block_delta\ndata: {event}\n\n")
            }
            false => {
                let event = json!({"choices": [{"delta": {"content": piece}}]});
                format!("data: {event}\n\n")
            }
        })
        .collect();
    events.push(match is_anthropic {
        true => "event: message_stop\ndata: {\"type\": \"message_stop\"}\n\n".to_owned(),
        false => "data: [DONE]\n\n".to_owned(),
    });
    events
}

pub fn whole(stream: &mut TcpStream, status: &str, headers: &str, body: &str) -> bool {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\n{headers}content-length: {length}\
         \r\n\r\n"
    );
    stream.write_all((head + body).as_bytes()).is_ok()
}
