//! The outcome of a call as a result of `tools/call`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;

use bytes::Bytes;
use futures::stream::{self, Stream, StreamExt as _};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use crate::call::{Finished, Output};
use crate::error::{CallError, Confirmation};
use crate::mcp::{CONFIRM, ClientRequest, Era, PrettyText, success};
use crate::telemetry::metrics::METRICS;
use crate::telemetry::trail::{CallFailure, CallTrail};
use crate::text::clip_chars;

/// JSON text, read from disk while it is sent.
pub type TextStream = Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>;

/// The JSON text of a result: in one line, so that it can stand in an event or on a line.
pub enum ResultText {
    Whole(Vec<u8>),
    Stream {
        text: TextStream,
        /// About how much will be sent.
        size: u64,
    },
}

impl ResultText {
    pub fn of(value: &Value) -> Self {
        ResultText::Whole(value.to_string().into_bytes())
    }
}

/// The member of `_meta` that says what would confirm a call.
pub const CONFIRMATION: &str = "ati/confirmation";
/// Characters of what a person is shown of a call.
const LONGEST_SHOWN: usize = 1000;
const OPEN: &[u8] = b"{\"content\":[{\"type\":\"text\",\"text\":";

/// Behind the text: what the program wrote to its standard error as a text of its own, and what
/// `structured` has.
fn end(era: Era, stderr: Option<&str>, structured: &str) -> Vec<u8> {
    let mut end = "}".to_owned();
    if let Some(stderr) = stderr.filter(|text| !text.is_empty()) {
        let block = json!({"type": "text", "text": format!("stderr:\n{stderr}")});
        end += &format!(",{block}");
    }
    end += &format!("]{structured},\"isError\":false");
    end += match era {
        Era::Handshake => "}",
        Era::Stateless => ",\"resultType\":\"complete\"}",
    };
    end.into_bytes()
}

/// The member for clients that want data, of a program whose output is JSON. It has to be an
/// object, so that a list is put into one.
fn structured_content(raw: &str, is_wanted: bool) -> String {
    let value = raw.trim_ascii();
    let one_line = |text: &str| String::from_utf8_lossy(&one_line(text.as_bytes())).into_owned();
    match value.as_bytes().first().filter(|_| is_wanted) {
        Some(b'{') => format!(",\"structuredContent\":{}", one_line(value)),
        Some(b'[') => format!(",\"structuredContent\":{{\"result\":{}}}", one_line(value)),
        _ => String::new(),
    }
}

pub fn finished(finished: Finished, era: Era) -> ResultText {
    match finished.output {
        Output::Raw(raw) if finished.is_native => ResultText::Whole(native(raw.get(), era)),
        Output::Raw(raw) => {
            let structured = structured_content(raw.get(), finished.stderr.is_some());
            let raw = raw.get().as_bytes();
            let mut text = Vec::with_capacity(raw.len() + raw.len() / 4 + 100);
            text.extend_from_slice(OPEN);
            push_text(raw, &mut text);
            text.extend_from_slice(&end(era, finished.stderr.as_deref(), &structured));
            ResultText::Whole(text)
        }
        Output::Spooled(json) => {
            let size = json.body_length();
            let end = end(era, finished.stderr.as_deref(), "");
            streamed(json.into_stream().boxed(), size, end)
        }
        Output::WithFiles(json) => {
            let size = json.len();
            let end = end(era, finished.stderr.as_deref(), "");
            streamed(json.into_stream().boxed(), size, end)
        }
    }
}

/// A JSON string is the text itself; anything else is printed.
fn push_text(json: &[u8], out: &mut Vec<u8>) {
    if json.starts_with(b"\"") {
        out.extend_from_slice(json);
    } else {
        out.push(b'"');
        PrettyText::default().push(json, out);
        out.push(b'"');
    }
}

/// A server's own result, in one line, with what the era adds to it.
fn native(raw: &str, era: Era) -> Vec<u8> {
    let own = raw
        .contains(CONFIRMATION)
        .then(|| without_confirmation(raw));
    let raw = own.flatten().unwrap_or(Cow::Borrowed(raw));
    let mut text = one_line(raw.as_bytes());
    if era == Era::Stateless && text.pop() == Some(b'}') {
        if text.len() > 1 {
            text.push(b',');
        }
        text.extend_from_slice(b"\"resultType\":\"complete\"}");
    }
    text
}

/// Only ati says what has to be confirmed: its user would be asked a server's question.
fn without_confirmation(raw: &str) -> Option<Cow<'_, str>> {
    type Members = BTreeMap<String, Box<RawValue>>;
    let mut result: Members = serde_json::from_str(raw).ok()?;
    let mut meta: Members = serde_json::from_str(result.get("_meta")?.get()).ok()?;
    meta.remove(CONFIRMATION)?;
    result.insert("_meta".to_owned(), to_raw_value(&meta).ok()?);
    serde_json::to_string(&result).ok().map(Cow::Owned)
}

/// A line break of valid JSON is white space: those in strings are escaped.
fn one_line(text: &[u8]) -> Vec<u8> {
    let mut text = text.trim_ascii().to_vec();
    text.retain(|byte| !matches!(byte, b'\n' | b'\r'));
    text
}

/// `end` is what follows the text.
fn streamed(json: TextStream, size: u64, end: Vec<u8>) -> ResultText {
    let text = StreamedText {
        json,
        form: None,
        phase: Phase::Open,
        end,
    };
    let text = stream::unfold(text, |mut text| async move {
        let piece = text.next().await?;
        Some((piece, text))
    });
    ResultText::Stream {
        text: text.boxed(),
        size,
    }
}

/// A result with a text that is written while its JSON is read.
struct StreamedText {
    json: TextStream,
    /// None before the first byte, which tells a string from other values.
    form: Option<Form>,
    phase: Phase,
    end: Vec<u8>,
}

enum Form {
    /// A JSON string, which is the text as it is.
    Text,
    Printed(PrettyText),
}

enum Phase {
    Open,
    Body,
    End,
}

impl StreamedText {
    async fn next(&mut self) -> Option<io::Result<Bytes>> {
        match self.phase {
            Phase::Open => {
                self.phase = Phase::Body;
                Some(Ok(Bytes::from_static(OPEN)))
            }
            Phase::Body => Some(match self.json.next().await {
                Some(Ok(piece)) => Ok(self.push(&piece)),
                Some(Err(e)) => {
                    self.phase = Phase::End;
                    Err(e)
                }
                None => {
                    self.phase = Phase::End;
                    let quotes: &[u8] = match self.form {
                        None => b"\"\"",
                        Some(Form::Text) => b"",
                        Some(Form::Printed(_)) => b"\"",
                    };
                    Ok([quotes, &self.end].concat().into())
                }
            }),
            Phase::End => None,
        }
    }

    fn push(&mut self, piece: &[u8]) -> Bytes {
        let mut out = Vec::new();
        let mut piece = piece;
        if self.form.is_none() {
            piece = piece.trim_ascii_start();
            match piece.first() {
                None => return Bytes::new(),
                Some(b'"') => self.form = Some(Form::Text),
                Some(_) => {
                    out.push(b'"');
                    self.form = Some(Form::Printed(PrettyText::default()));
                }
            }
        }
        match &mut self.form {
            Some(Form::Printed(pretty)) => pretty.push(piece, &mut out),
            _ => out.extend(piece.iter().filter(|byte| !matches!(byte, b'\n' | b'\r'))),
        }
        out.into()
    }
}

/// A failed call as a result. The caller's model reads it, and may do better.
pub fn failed(error: &CallError, request: &ClientRequest, trail: &CallTrail) -> ResultText {
    let era = request.era;
    let upstream = error.upstream_failure();
    let label = error.outcome();
    if upstream.is_none() {
        METRICS.refused(label);
    }
    trail.failed(CallFailure { label, upstream });
    if let CallError::Exec(exec) = error
        && let Some(own) = exec.native_result()
    {
        return ResultText::Whole(native(own, era));
    }
    match error.confirmation() {
        Some(wanted) if era == Era::Stateless && request.offers_elicitation => {
            elicit(wanted, request)
        }
        Some(_) => wants_confirmation(error, era),
        None => error_text(&error.to_string(), era),
    }
}

/// A question to the client's user. The client calls again with the answer and this state, which is
/// the token: the pending call itself is kept here.
fn elicit(wanted: &Confirmation, request: &ClientRequest) -> ResultText {
    let params = question(wanted, request);
    ResultText::of(&json!({
        "resultType": "input_required",
        "inputRequests": {CONFIRM: {"method": "elicitation/create", "params": params}},
        "requestState": wanted.token,
        "_meta": {CONFIRMATION: wanted},
    }))
}

/// The parameters of `elicitation/create`: what is to be run, with which arguments, and why that is
/// asked.
pub fn question(wanted: &Confirmation, request: &ClientRequest) -> Value {
    let arguments = request.arguments.as_deref().map_or("{}", RawValue::get);
    let message = format!(
        "Run '{}'? It wants to be confirmed: {}.\nArguments: {}\nEffects: {}",
        shown(&wanted.tool),
        shown(&wanted.rule),
        shown(arguments),
        shown(&wanted.effects.to_string())
    );
    let agreed = json!({"type": "boolean", "title": "Run it", "default": false});
    let schema =
        json!({"type": "object", "properties": {"confirm": agreed}, "required": ["confirm"]});
    json!({"mode": "form", "message": message, "requestedSchema": schema})
}

/// The answer to a call that the client's user declines: it isn't run.
pub fn declined(request: &ClientRequest) -> Vec<u8> {
    let text = match error_text(super::DECLINED, request.era) {
        ResultText::Whole(text) => text,
        ResultText::Stream { .. } => Vec::new(),
    };
    success(&request.id, &text)
}

/// For a person: in one line, without characters that hide or turn others, and not too long.
fn shown(text: &str) -> String {
    let text = text.replace(hides, " ");
    match clip_chars(&text, LONGEST_SHOWN) {
        whole if whole.len() == text.len() => text,
        begin => format!("{begin}… ({} characters)", text.chars().count()),
    }
}

fn hides(c: char) -> bool {
    let turns = matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}');
    c.is_control() || turns || matches!(c, '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// The answer of `/call` to the same, as the text that a model reads and as data.
fn wants_confirmation(error: &CallError, era: Era) -> ResultText {
    let envelope = error.envelope();
    let data: Value = serde_json::from_str(&envelope).unwrap_or_default();
    let mut result = json!({
        "content": [{"type": "text", "text": envelope}],
        "structuredContent": data,
        "isError": true,
        "_meta": {CONFIRMATION: error.confirmation()},
    });
    if era == Era::Stateless {
        result["resultType"] = "complete".into();
    }
    ResultText::of(&result)
}

pub fn error_text(text: &str, era: Era) -> ResultText {
    let content = json!([{"type": "text", "text": format!("Error: {text}")}]);
    let mut result = json!({"content": content, "isError": true});
    if era == Era::Stateless {
        result["resultType"] = "complete".into();
    }
    ResultText::of(&result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::ResultFormat;

    fn text(output: &str, is_native: bool, era: Era) -> Value {
        let raw: Box<RawValue> = serde_json::from_str(output).unwrap();
        let finished = Finished {
            output: Output::Raw(raw),
            format: ResultFormat::default(),
            warnings: Vec::new(),
            is_native,
            is_program: false,
            stderr: None,
        };
        let ResultText::Whole(text) = super::finished(finished, era) else {
            panic!("not whole");
        };
        assert!(!text.contains(&b'\n'));
        serde_json::from_slice(&text).unwrap()
    }

    #[test]
    fn string_is_the_text_and_other_values_are_printed() {
        let of = |output: &str| text(output, false, Era::Handshake);
        let expected =
            |text: &str| json!({"content": [{"type": "text", "text": text}], "isError": false});
        assert_eq!(of(r#""a \"b\"\n""#), expected("a \"b\"\n"));
        assert_eq!(
            of("{\"a\": [1.50]}"),
            expected("{\n  \"a\": [\n    1.50\n  ]\n}")
        );
        assert_eq!(of("null"), expected("null"));
        let stateless = text("5", false, Era::Stateless);
        assert_eq!(stateless["resultType"], "complete");
    }

    #[test]
    fn output_of_a_local_tool_is_data_and_its_errors_stand_apart() {
        let of = |output: &str, stderr: &str| {
            let finished = Finished {
                output: Output::Raw(serde_json::from_str(output).unwrap()),
                format: ResultFormat::default(),
                warnings: Vec::new(),
                is_native: false,
                is_program: false,
                stderr: Some(stderr.to_owned()),
            };
            let ResultText::Whole(text) = super::finished(finished, Era::Handshake) else {
                panic!("not whole");
            };
            serde_json::from_slice::<Value>(&text).unwrap()
        };
        let shown = of("{\"a\":\n[1.50]}", "warned\n\"x\"");
        assert_eq!(shown["structuredContent"].to_string(), "{\"a\":[1.5]}");
        assert_eq!(shown["content"][1]["text"], "stderr:\nwarned\n\"x\"");
        assert_eq!(of("[1]", "")["structuredContent"], json!({"result": [1]}));
        let text = of("\"plain\"", "");
        assert!(text.get("structuredContent").is_none());
        assert_eq!(text["content"].as_array().unwrap().len(), 1);
    }

    #[test]
    fn native_result_stays_as_it_is() {
        let own = r#"{"content": [{"type": "image", "data": "AA==", "mimeType": "image/png"}],
            "structuredContent": {"n": 1.50}, "isError": false}"#;
        let shown = text(own, true, Era::Handshake);
        assert_eq!(shown, serde_json::from_str::<Value>(own).unwrap());
        let shown = text(own, true, Era::Stateless);
        assert_eq!(shown["resultType"], "complete");
        assert_eq!(shown["content"][0]["type"], "image");
        let asking = r#"{"content": [], "_meta": {"ati/confirmation": {"token": "t"}, "x": 1.50}}"#;
        let shown = text(asking, true, Era::Handshake);
        assert_eq!(shown, json!({"content": [], "_meta": {"x": 1.5}}));
    }

    #[tokio::test]
    async fn streamed_text_equals_the_whole_one() {
        for json in [
            " {\"a\": [1, \"x\"]}\n",
            "\"text\"\n",
            "12",
            "\"split \\\" quote\"",
        ] {
            let whole = text(json.trim(), false, Era::Stateless);
            for size in 1..=json.len() {
                let pieces: Vec<_> = json
                    .as_bytes()
                    .chunks(size)
                    .map(|piece| Ok(Bytes::copy_from_slice(piece)))
                    .collect();
                let ResultText::Stream { text, .. } = streamed(
                    stream::iter(pieces).boxed(),
                    1,
                    end(Era::Stateless, None, ""),
                ) else {
                    panic!("not streamed");
                };
                let pieces: Vec<_> = text.collect().await;
                let bytes: Vec<u8> = pieces.into_iter().flat_map(Result::unwrap).collect();
                assert!(!bytes.contains(&b'\n'));
                let value: Value = serde_json::from_slice(&bytes).unwrap();
                assert_eq!(value, whole, "{json} in pieces of {size}");
            }
        }
    }
}
