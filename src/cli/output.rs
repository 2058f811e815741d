//! The only writer of stdout. A reader that has closed the pipe is no error; what can't be written
//! for another reason fails the command, when it ends.

use std::io::{self, BufWriter, IsTerminal as _, Read, Write};

use base64::engine::general_purpose::STANDARD;
use base64::write::EncoderWriter;
use comfy_table::{Table, presets};
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::{Map, Value};

use super::Format;
use crate::clock::unix_now;
use crate::error::{Code, Failure};
use crate::exec::Progress;
use crate::text;

/// Bytes of a progress message that are printed.
const LONGEST_MESSAGE: usize = 200;

/// The first failed write.
static FAILED: Mutex<Option<io::Error>> = Mutex::new(None);

fn written(outcome: io::Result<()>) {
    if let Err(e) = outcome
        && e.kind() != io::ErrorKind::BrokenPipe
    {
        FAILED.lock().get_or_insert(e);
    }
}

/// What is left of the output is written. Fails where not all of it could be: a full disk must not
/// look like a success.
pub fn finish() -> Result<(), Failure> {
    written(io::stdout().flush());
    match FAILED.lock().take() {
        None => Ok(()),
        Some(e) => Err(Failure::new(Code::ExecutionFailed, "standard output").because(e)),
    }
}

/// A message of a protocol, as it is. False where the reader has left.
pub fn protocol(message: &[u8]) -> bool {
    let mut out = io::stdout().lock();
    out.write_all(message).and_then(|()| out.flush()).is_ok()
}

pub fn line(text: &str) {
    written(writeln!(io::stdout().lock(), "{text}"));
}

/// A part of a longer text, at once.
pub fn piece(text: &str) {
    let mut out = io::stdout().lock();
    written(out.write_all(text.as_bytes()).and_then(|()| out.flush()));
}

/// Whether a person reads along.
pub fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// A text as it is, without a line break behind it; except on a terminal, where the next prompt
/// would follow it.
pub fn exact(text: &str) {
    let mut out = std::io::stdout().lock();
    written(out.write_all(text.as_bytes()));
    if out.is_terminal() && !text.ends_with('\n') {
        written(writeln!(out));
    }
}

pub fn pretty(value: &impl Serialize) {
    let mut out = io::stdout().lock();
    let outcome = serde_json::to_writer_pretty(&mut out, value).map_err(io::Error::from);
    written(outcome.and_then(|()| writeln!(out)));
}

pub fn compact(value: &impl Serialize) {
    let mut out = io::stdout().lock();
    let outcome = serde_json::to_writer(&mut out, value).map_err(io::Error::from);
    written(outcome.and_then(|()| writeln!(out)));
}

/// A result in the format that was asked for.
pub fn value(value: &Value, format: Format) {
    match format {
        Format::Json => pretty(value),
        Format::Text => as_text(value),
        Format::Table => match as_table(value) {
            Some((headers, rows)) => table(&headers, rows.into_iter()),
            None => pretty(value),
        },
    }
}

/// A result that has lines of its own: they are printed where no format, or text, was asked for.
pub fn lines_or_value(asked: Option<Format>, lines: impl FnOnce(), make: impl FnOnce() -> Value) {
    match asked {
        None | Some(Format::Text) => lines(),
        Some(format) => value(&make(), format),
    }
}

/// What a command did, where a format was asked for. Without one, its log says so.
pub fn done(asked: Option<Format>, make: impl FnOnce() -> Value) {
    if let Some(format) = asked {
        value(&make(), format);
    }
}

/// Lines for people on stderr, where a log record would not read well.
pub fn note(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// The progress of a call, on stderr: stdout is for its result.
pub fn progress(progress: &Progress) {
    let total = progress.total.map(|total| format!("/{total}"));
    let message = progress
        .message
        .as_deref()
        .map(printable)
        .unwrap_or_default();
    let message = text::clip(&message, LONGEST_MESSAGE);
    let line = format!("{}{} {message}", progress.done, total.unwrap_or_default());
    let _ = writeln!(std::io::stderr().lock(), "{}", line.trim_end());
}

/// How long ago a Unix time was, for people.
pub fn ago(at: u64) -> String {
    match unix_now().saturating_sub(at) {
        seconds @ 0..120 => format!("{seconds} s ago"),
        seconds @ 120..7200 => format!("{} min ago", seconds / 60),
        seconds @ 7200..172_800 => format!("{} h ago", seconds / 3600),
        seconds => format!("{} days ago", seconds / 86_400),
    }
}

/// Text of an upstream, safe for a terminal: on one line, without what isn't seen.
pub fn printable(text: &str) -> String {
    text.replace(text::is_hidden, " ")
}

/// The same of several lines.
pub fn printable_lines(text: &str) -> String {
    let is_seen = |c: &char| matches!(c, '\n' | '\t') || !text::is_hidden(*c);
    text.chars().filter(is_seen).collect()
}

pub fn table(headers: &[impl AsRef<str>], rows: impl Iterator<Item = Vec<String>>) {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL);
    table.set_header(headers.iter().map(AsRef::as_ref));
    table.add_rows(rows.map(|row| row.iter().map(|cell| printable(cell)).collect::<Vec<_>>()));
    line(&table.to_string());
}

fn as_text(value: &Value) {
    match value {
        Value::Object(map) if map.is_empty() => {}
        Value::Array(items) if items.is_empty() => {}
        value => line(&text_of(value)),
    }
}

/// A line for each member.
pub fn text_of(value: &Value) -> String {
    let lines: Vec<String> = match value {
        Value::Object(map) => {
            let line = |(key, value): (&String, &Value)| format!("{key}: {}", inline(value));
            map.iter().map(line).collect()
        }
        Value::Array(items) => items.iter().map(inline).collect(),
        value => vec![inline(value)],
    };
    lines.join("\n")
}

/// A file as base64, with text before and after it.
pub fn encoded_file(before: &str, mut file: impl Read, after: &str) {
    let mut out = BufWriter::with_capacity(64 << 10, io::stdout().lock());
    let outcome = out.write_all(before.as_bytes()).and_then(|()| {
        let mut encoder = EncoderWriter::new(&mut out, &STANDARD);
        io::copy(&mut file, &mut encoder)?;
        encoder.finish()?;
        drop(encoder);
        writeln!(out, "{after}")?;
        out.flush()
    });
    written(outcome);
}

/// A string as it is, anything else as compact JSON.
fn inline(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Headers and rows: a row for each object of a list, or the keys and values of one object. `None`
/// for other shapes.
pub fn as_table(value: &Value) -> Option<(Vec<String>, Vec<Vec<String>>)> {
    let cell = |value: Option<&Value>| match value {
        None | Some(Value::Null) => String::new(),
        Some(value) => inline(value),
    };
    match value {
        Value::Object(map) => {
            let rows = sorted(map).map(|key| vec![key.clone(), cell(map.get(key))]);
            Some((vec!["Key".into(), "Value".into()], rows.collect()))
        }
        Value::Array(items) if !items.is_empty() => {
            let maps: Option<Vec<&Map<String, Value>>> =
                items.iter().map(Value::as_object).collect();
            let maps = maps?;
            let mut headers: Vec<String> = Vec::new();
            for key in maps.iter().flat_map(|map| sorted(map)) {
                if !headers.contains(key) {
                    headers.push(key.clone());
                }
            }
            let row =
                |map: &&Map<String, Value>| headers.iter().map(|key| cell(map.get(key))).collect();
            let rows = maps.iter().map(row).collect();
            Some((headers, rows))
        }
        _ => None,
    }
}

fn sorted(map: &Map<String, Value>) -> impl Iterator<Item = &String> {
    let mut keys: Vec<&String> = map.keys().collect();
    keys.sort();
    keys.into_iter()
}

/// The JSON line on stderr that scripts read.
pub fn structured_error(failure: &Failure, chain: Option<&Vec<String>>) {
    let mut error = serde_json::json!({
        "code": failure.code.as_str(),
        "message": failure.one_line(),
        "exit_code": failure.code.exit_code(),
    });
    if let Some(status) = failure.status {
        error["status"] = serde_json::json!(status);
    }
    if let Some(id) = failure.request_id {
        error["request_id"] = serde_json::json!(id);
    }
    if let Some(hint) = &failure.hint {
        error["hint"] = serde_json::json!(hint);
    }
    if let Some(rule) = &failure.rule {
        error["rule"] = serde_json::json!(rule);
    }
    if let Some(confirmation) = &failure.confirmation {
        error["confirmation"] = serde_json::json!(confirmation);
    }
    if let Some(chain) = chain {
        error["chain"] = serde_json::json!(chain);
    }
    let _ = writeln!(
        std::io::stderr(),
        "{}",
        serde_json::json!({ "error": error })
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_objects_and_lists_of_objects_become_tables() {
        let (headers, rows) =
            as_table(&json!([{"b": 1, "a": null}, {"c": "x", "a": [1]}])).unwrap();
        assert_eq!(headers, ["a", "b", "c"]);
        assert_eq!(rows, [["", "1", ""], ["[1]", "", "x"]]);
        let (headers, rows) = as_table(&json!({"z": true, "a": "t"})).unwrap();
        assert_eq!(headers, ["Key", "Value"]);
        assert_eq!(rows, [["a", "t"], ["z", "true"]]);
        for shapeless in [json!([]), json!([1, 2]), json!("x"), json!([{"a": 1}, 5])] {
            assert!(as_table(&shapeless).is_none(), "{shapeless}");
        }
    }
}
