//! What several targets need. Decoders are written anew here: a mistake in ati's own must not hide
//! itself.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// Cuts `data` into pieces of these sizes, again and again.
pub fn pieces<'a>(mut data: &'a [u8], sizes: &[u8]) -> Vec<&'a [u8]> {
    let mut sizes = sizes.iter().cycle();
    let mut all = Vec::new();
    while !data.is_empty() {
        let size = sizes.next().map_or(data.len(), |size| usize::from(*size));
        let (piece, rest) = data.split_at(size.clamp(1, data.len()));
        all.push(piece);
        data = rest;
    }
    all
}

/// The part before the first line break, and the part after it.
pub fn first_line(data: &[u8]) -> (&[u8], &[u8]) {
    match data.iter().position(|byte| *byte == b'\n') {
        Some(at) => (&data[..at], &data[at + 1..]),
        None => (data, &[]),
    }
}

pub fn contains(text: &[u8], part: &[u8]) -> bool {
    !part.is_empty() && text.windows(part.len()).any(|window| window == part)
}

fn hex_digit(byte: Option<&u8>) -> Option<u32> {
    char::from(*byte?).to_digit(16)
}

/// Decodes `%XX`. What is no escape stays.
pub fn percent_decoded(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let digits = hex_digit(text.get(at + 1)).zip(hex_digit(text.get(at + 2)));
        match digits {
            Some((high, low)) if text[at] == b'%' => {
                out.push((high * 16 + low) as u8);
                at += 3;
            }
            _ => {
                out.push(text[at]);
                at += 1;
            }
        }
    }
    out
}

/// As [`percent_decoded`], with `+` for a space.
pub fn form_decoded(text: &[u8]) -> Vec<u8> {
    let space = |byte: &u8| if *byte == b'+' { b' ' } else { *byte };
    percent_decoded(&text.iter().map(space).collect::<Vec<u8>>())
}

/// Decodes the escapes of JSON strings. What is no escape stays.
pub fn json_decoded(text: &[u8]) -> Vec<u8> {
    let unit = |at: usize| -> Option<u16> {
        if text.get(at) != Some(&b'\\') || text.get(at + 1) != Some(&b'u') {
            return None;
        }
        let mut value = 0;
        for place in at + 2..at + 6 {
            value = value * 16 + hex_digit(text.get(place))?;
        }
        Some(value as u16)
    };
    let mut out = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let letter = text.get(at + 1).filter(|_| text[at] == b'\\');
        let short = letter.and_then(|letter| match letter {
            b'"' | b'\\' | b'/' => Some(*letter),
            b'b' => Some(8),
            b'f' => Some(12),
            b'n' => Some(b'\n'),
            b'r' => Some(b'\r'),
            b't' => Some(b'\t'),
            _ => None,
        });
        let units: Vec<u16> = unit(at).into_iter().chain(unit(at + 6)).collect();
        let pair = String::from_utf16(&units)
            .ok()
            .filter(|text| units.len() == 2 && text.chars().count() == 1);
        let single = units
            .first()
            .and_then(|unit| char::from_u32(u32::from(*unit)));
        if let Some(byte) = short {
            out.push(byte);
            at += 2;
        } else if let Some(pair) = pair {
            out.extend(pair.bytes());
            at += 12;
        } else if let Some(single) = single {
            out.extend(single.to_string().bytes());
            at += 6;
        } else {
            out.push(text[at]);
            at += 1;
        }
    }
    out
}

/// A folder for what is read from files only. `run` removes it.
fn folder() -> &'static Path {
    static FOLDER: LazyLock<PathBuf> =
        LazyLock::new(|| tempfile::tempdir().expect("a folder for the inputs").keep());
    &FOLDER
}

/// Writes the text to a file of this name.
pub fn file(name: &str, text: &[u8]) -> PathBuf {
    let path = folder().join(name);
    std::fs::write(&path, text).expect("the input is written");
    path
}

/// A folder without files.
pub fn empty_folder() -> PathBuf {
    let path = folder().join("empty");
    std::fs::create_dir_all(&path).expect("an empty folder");
    path
}

/// That a message to an MCP server is one line of JSON, and answers the request of `text`.
pub fn check_answer(text: &[u8], answer: &[u8]) {
    let (line, rest) = first_line(answer);
    assert!(answer.ends_with(b"\n") && rest.is_empty(), "one line");
    let answer: serde_json::Value = serde_json::from_slice(line).expect("the answer is JSON");
    // A request is answered even if a part that isn't read is no JSON, as half a surrogate pair.
    if let Ok(request) = serde_json::from_slice::<serde_json::Value>(text) {
        assert!(is_same_id(&answer["id"], &request["id"]));
    }
    assert!(answer["id"].is_string() || answer["id"].is_number());
}

/// Equal as texts or as numbers: `-0` comes back as `0`.
pub fn is_same_id(a: &serde_json::Value, b: &serde_json::Value) -> bool {
    a == b || (a.is_number() && a.as_f64() == b.as_f64())
}
