//! Input: a secret; a line break; a recipe; a line break; a text. The byte 1 in the text stands for
//! the secret, encoded and escaped as the recipe says; the byte 2 in the secret for a line break.
//! No reader of the redacted text sees the secret, and a stream gives the same as a whole buffer,
//! however it is cut.
#![no_main]

use std::collections::HashSet;

use ati::credential::Attachment;
use ati_fuzz::{contains, first_line, form_decoded, json_decoded, percent_decoded, pieces};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use libfuzzer_sys::fuzz_target;

const REPLACEMENT: &[u8] = b"[REDACTED]";
const SHORTEST: usize = 8;
/// Layers of escapes, and how long a text may get by them.
const MOST_LAYERS: u8 = 3;
const LONGEST: usize = 600;

/// The bytes of the recipe, one decision each, again and again.
struct Recipe<'a>(std::iter::Cycle<std::slice::Iter<'a, u8>>);

impl Recipe<'_> {
    fn next(&mut self) -> u8 {
        self.0.next().copied().unwrap_or_default()
    }
}

/// The secret in an encoding, and what of it must not be seen.
fn encoded(secret: &[u8], recipe: &mut Recipe<'_>) -> (Vec<u8>, Vec<u8>) {
    let way = recipe.next();
    let lead = vec![b'x'; usize::from(way / 16 % 3)];
    let whole = |text: String| (text.clone().into_bytes(), text.into_bytes());
    let base64 = |text: String| {
        // The characters at the ends depend on the bytes around the secret, too.
        let begin = (lead.len() * 8).div_ceil(6);
        let end = (lead.len() + secret.len()) * 8 / 6;
        let hidden = text.as_bytes()[begin..end].to_vec();
        (text.into_bytes(), hidden)
    };
    match way % 8 {
        1 => base64(STANDARD.encode([&lead, secret].concat())),
        2 => base64(URL_SAFE_NO_PAD.encode([&lead, secret].concat())),
        3 => whole(hex::encode(secret)),
        4 => whole(hex::encode_upper(secret)),
        _ => (secret.to_vec(), secret.to_vec()),
    }
}

/// A JSON string without its quotes, by a library that escapes what it must and what it likes.
fn json(text: &[u8], recipe: &mut Recipe<'_>) -> Vec<u8> {
    let mut out = String::new();
    for c in String::from_utf8_lossy(text).chars() {
        let choice = recipe.next();
        let way = choice % 3;
        let must = matches!(c, '"' | '\\') || c < ' ';
        let short = match c {
            '"' | '\\' | '/' => Some(c),
            '\n' => Some('n'),
            '\t' => Some('t'),
            '\r' => Some('r'),
            '\u{8}' => Some('b'),
            '\u{c}' => Some('f'),
            _ => None,
        };
        match short {
            Some(letter) if way == 1 || (must && way == 0) => {
                out.extend(['\\', letter]);
            }
            _ if must || way == 2 => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    out += &match choice & 16 {
                        0 => format!("\\u{unit:04x}"),
                        _ => format!("\\u{unit:04X}"),
                    };
                }
            }
            _ => out.push(c),
        }
    }
    out.into_bytes()
}

fn percent(text: &[u8], form: bool, recipe: &mut Recipe<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    for byte in text {
        let choice = recipe.next();
        // Half a character would be lost in a layer of JSON.
        let must = *byte == b'%' || (form && *byte == b'+') || !byte.is_ascii();
        match choice % 3 {
            1 if form && *byte == b' ' => out.push(b'+'),
            0 | 1 if !must => out.push(*byte),
            _ if choice & 16 == 0 => out.extend(format!("%{byte:02x}").bytes()),
            _ => out.extend(format!("%{byte:02X}").bytes()),
        }
    }
    out
}

/// Every text that a reader of this one can come to.
fn readings(text: &[u8], layers: u8) -> HashSet<Vec<u8>> {
    let mut seen = HashSet::from([text.to_vec()]);
    let mut newest = vec![text.to_vec()];
    for _ in 0..layers {
        let mut found = Vec::new();
        for text in newest {
            for reading in [
                json_decoded(&text),
                percent_decoded(&text),
                form_decoded(&text),
            ] {
                if seen.insert(reading.clone()) {
                    found.push(reading);
                }
            }
        }
        newest = found;
    }
    seen
}

/// Whether both are the same, or one of them is cut short: a search that costs too much gives up,
/// and replaces the rest.
fn agree(a: &[u8], b: &[u8]) -> bool {
    let cut_short = |short: &[u8], long: &[u8]| {
        let begin = short.strip_suffix(REPLACEMENT);
        begin.is_some_and(|begin| long.starts_with(begin))
    };
    a == b || cut_short(a, b) || cut_short(b, a)
}

fuzz_target!(|data: &[u8]| {
    let (secret, rest) = first_line(data);
    let (recipe_bytes, text) = first_line(rest);
    let line_break = |byte: &u8| if *byte == 2 { b'\n' } else { *byte };
    let secret: Vec<u8> = secret.iter().map(line_break).collect();
    // A secret that is made of the replacement's characters can't be told from it.
    let is_replacement = secret.iter().any(|byte| matches!(byte, b'[' | b']'));
    if secret.len() < SHORTEST || secret.len() > 64 || is_replacement || secret == b"REDACTED" {
        return;
    }
    let mut recipe = Recipe(recipe_bytes.iter().cycle());
    let mut hidden = vec![secret.clone()];
    if str::from_utf8(&secret).is_err() {
        hidden.push(String::from_utf8_lossy(&secret).into_owned().into_bytes());
    }
    let mut input = Vec::new();
    for (index, part) in text.split(|byte| *byte == 1).enumerate() {
        if index > 0 {
            let (mut inserted, part) = encoded(&secret, &mut recipe);
            hidden.push(part);
            for _ in 0..recipe.next() % (MOST_LAYERS + 1) {
                let longer = match recipe.next() % 3 {
                    0 => json(&inserted, &mut recipe),
                    1 => percent(&inserted, false, &mut recipe),
                    _ => percent(&inserted, true, &mut recipe),
                };
                if longer.len() > LONGEST {
                    break;
                }
                inserted = longer;
            }
            input.extend(inserted);
        }
        input.extend_from_slice(part);
        if input.len() > LONGEST {
            return;
        }
    }

    let attachment = Attachment::default().with_redacted([&secret[..]].into_iter());
    let mut whole = input.clone();
    attachment.redact(&mut whole);
    let mut redactor = attachment.redactor();
    let mut streamed = Vec::new();
    // Each piece costs a search, so single bytes are for short texts.
    let shortest = (input.len() / 16) as u8;
    let sizes: Vec<u8> = recipe_bytes
        .iter()
        .map(|size| (*size).max(shortest))
        .collect();
    for piece in pieces(&input, &sizes) {
        streamed.extend(redactor.push(piece));
    }
    streamed.extend(redactor.finish());

    let show = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
    assert!(
        agree(&whole, &streamed),
        "{} and {}",
        show(&whole),
        show(&streamed)
    );
    let both = HashSet::from([whole, streamed]);
    for clean in both {
        for reading in readings(&clean, MOST_LAYERS) {
            let seen = hidden.iter().find(|part| contains(&reading, part));
            assert_eq!(
                seen,
                None,
                "{} in {} of {}",
                show(&secret),
                show(&clean),
                show(&input)
            );
        }
    }
});
