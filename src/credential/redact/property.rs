//! Whatever the key, the escapes and the chunks: a caller never sees the key. What a caller sees is
//! found without the code under test: the answer is unescaped again and again, and the key is
//! looked for in each result.

use std::collections::HashSet;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use percent_encoding::percent_decode;

use super::escapes::LAYERS;
use super::tests::{Random, contains, in_chunks, patterns, whole};

const KEYS: usize = 640;
const CASES_PER_KEY: usize = 16;
/// A longer text gets no further layer.
const LONGEST: usize = 150;

/// A text that holds the key, or an encoding of it, and what has to be gone afterwards.
struct Case {
    text: Vec<u8>,
    hidden: Vec<Vec<u8>>,
    ways: Vec<&'static str>,
}

impl Case {
    /// Whether the key is there, for a reader who undoes each layer.
    fn is_sound(&self) -> bool {
        let mut text = self.text.clone();
        for way in self.ways.iter().rev() {
            text = match *way {
                "json" => without_json(&text),
                "percent" => percent_decode(&text).collect(),
                "form" => percent_decode(&spaced(&text)).collect(),
                _ => text,
            };
        }
        self.hidden.iter().any(|part| contains(&text, part))
    }
}

fn case(key: &[u8], random: &mut Random) -> Case {
    let mut ways = Vec::new();
    let mut hidden = vec![key.to_vec()];
    let mut text = match random.below(8) {
        0 => {
            let encoded = match random.coin() {
                true => STANDARD.encode(key),
                false => URL_SAFE_NO_PAD.encode(key),
            };
            // Its last characters depend on what follows the key.
            hidden = vec![encoded.as_bytes()[..key.len() * 8 / 6].to_vec()];
            ways.push("base64");
            encoded.into_bytes()
        }
        1 => {
            let encoded = hex::encode(key).into_bytes();
            hidden = vec![encoded.clone()];
            ways.push("hex");
            encoded
        }
        _ => key.to_vec(),
    };
    if std::str::from_utf8(key).is_err() {
        hidden.push(String::from_utf8_lossy(key).into_owned().into_bytes());
    }
    let before = random.text("abc {\"k\":,\\%", 6);
    // A backslash or a percent sign right before the key would make another text of it.
    text = [
        before.trim_end_matches(['\\', '%']).as_bytes(),
        b" ",
        &text,
        b" end",
    ]
    .concat();
    // Fewer are more likely: they are what is met, and cheaper to test.
    let most = LAYERS as usize + 1;
    let layers = random.below(most).min(random.below(most));
    for _ in 0..layers {
        if text.len() > LONGEST {
            break;
        }
        let (way, longer) = match random.below(3) {
            0 => ("json", json(&text, random)),
            1 => ("percent", percent(&text, false, random)),
            _ => ("form", percent(&text, true, random)),
        };
        ways.push(way);
        text = longer;
    }
    Case { text, hidden, ways }
}

/// A JSON string, without its quotes, by a library that escapes what it has to and what it likes.
fn json(text: &[u8], random: &mut Random) -> Vec<u8> {
    let likes = random.below(4);
    let mut out = String::new();
    for c in String::from_utf8_lossy(text).chars() {
        let escapes = match likes {
            0 => false,
            1 => !c.is_ascii_alphanumeric(),
            2 => random.below(3) == 0,
            _ => random.below(30) == 0,
        };
        let short = match c {
            '"' | '\\' | '/' => Some(c),
            '\n' => Some('n'),
            '\t' => Some('t'),
            '\r' => Some('r'),
            '\u{8}' => Some('b'),
            '\u{c}' => Some('f'),
            _ => None,
        };
        let must = c != '/' && (short.is_some() || c < ' ');
        match short {
            Some(letter) if (must || escapes) && random.coin() => out.extend(['\\', letter]),
            _ if must || escapes => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    out += &match random.coin() {
                        true => format!("\\u{unit:04x}"),
                        false => format!("\\u{unit:04X}"),
                    };
                }
            }
            _ => out.push(c),
        }
    }
    out.into_bytes()
}

fn percent(text: &[u8], form: bool, random: &mut Random) -> Vec<u8> {
    let likes = random.below(4);
    let mut out = Vec::new();
    for byte in text {
        let escapes = match likes {
            0 => false,
            // Half a character would be lost in a layer of JSON.
            _ if !byte.is_ascii() => true,
            1 => !byte.is_ascii_alphanumeric(),
            2 => random.below(3) == 0,
            _ => random.below(30) == 0,
        };
        let must = *byte == b'%' || (form && *byte == b'+');
        if form && *byte == b' ' && random.coin() {
            out.push(b'+');
        } else if must || escapes {
            out.extend(match random.coin() {
                true => format!("%{byte:02x}").into_bytes(),
                false => format!("%{byte:02X}").into_bytes(),
            });
        } else {
            out.push(*byte);
        }
    }
    out
}

/// The text with its JSON escapes decoded. What is no escape stays.
fn without_json(text: &[u8]) -> Vec<u8> {
    let unit = |at: usize| -> Option<u32> {
        let digits = text.get(at..at + 6)?.strip_prefix(b"\\u")?;
        let digits = std::str::from_utf8(digits).ok()?;
        let all = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        u32::from_str_radix(digits, 16).ok().filter(|_| all)
    };
    let mut out = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let letter = text.get(at + 1).copied().filter(|_| text[at] == b'\\');
        let short = letter.and_then(|letter| {
            let letters = b"\"\\/nrtbf".iter().position(|known| *known == letter)?;
            Some(b"\"\\/\n\r\t\x08\x0c"[letters])
        });
        if let Some(byte) = short {
            out.push(byte);
            at += 2;
            continue;
        }
        let pair = unit(at).zip(unit(at + 6));
        let pair = pair.map(|(high, low)| [high as u16, low as u16]);
        let paired = pair.and_then(|pair| String::from_utf16(&pair).ok());
        let paired = paired.filter(|text| text.chars().count() == 1);
        if let Some(character) = paired {
            out.extend(character.bytes());
            at += 12;
        } else if let Some(character) = unit(at).and_then(char::from_u32) {
            out.extend(character.to_string().bytes());
            at += 6;
        } else {
            out.push(text[at]);
            at += 1;
        }
    }
    out
}

fn spaced(text: &[u8]) -> Vec<u8> {
    let space = |byte: &u8| if *byte == b'+' { b' ' } else { *byte };
    text.iter().map(space).collect()
}

/// Every text that a reader of this one can come to.
fn everything_to_see(text: &[u8]) -> HashSet<Vec<u8>> {
    let mut seen = HashSet::from([text.to_vec()]);
    let mut newest = vec![text.to_vec()];
    for _ in 0..LAYERS {
        let mut found = Vec::new();
        for text in newest {
            let readings = [
                without_json(&text),
                percent_decode(&text).collect(),
                percent_decode(&spaced(&text)).collect(),
            ];
            for reading in readings {
                if seen.insert(reading.clone()) {
                    found.push(reading);
                }
            }
        }
        newest = found;
    }
    seen
}

fn shows(text: &[u8], hidden: &[Vec<u8>]) -> bool {
    let shown = everything_to_see(text);
    let shows = |text: &Vec<u8>| hidden.iter().any(|part| contains(text, part));
    shown.iter().any(shows)
}

#[test]
fn caller_never_sees_a_key_however_it_is_escaped_and_cut_into_chunks() {
    let mut random = Random(0xA076_1D64_78BD_642F);
    for number in 0..KEYS {
        let mut key = random.key();
        key.truncate(8 + random.below(12));
        let patterns = patterns(&[&key]);
        for _ in 0..CASES_PER_KEY {
            let case = case(&key, &mut random);
            let label = || {
                let (key, text) = (&key[..], &case.text[..]);
                let [key, text] = [key, text].map(String::from_utf8_lossy);
                format!("case {number}: key {key:?} as {:?} in {text:?}", case.ways)
            };
            assert!(case.is_sound(), "no test: {}", label());
            let clean = whole(&patterns, &case.text);
            // Single bytes cost a search each, so they are for short texts.
            let few = case.text.len() / (2 + random.below(4));
            let longest = match random.below(4) {
                0 if case.text.len() < 100 => 1,
                _ => few.max(5),
            };
            let pieces = in_chunks(&patterns, &case.text, longest, &mut random);
            assert!(!shows(&clean, &case.hidden), "{}", label());
            assert_eq!(pieces, clean, "{}", label());
        }
    }
}
