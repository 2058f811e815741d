//! The list of encodings in which a secret is found, for everything that redacts.
//!
//! | Encoding | How it is found |
//! |---|---|
//! | plain | literally |
//! | JSON-escaped | escape by escape (`escapes.rs`), so that no choice of a JSON library matters |
//! | percent | escape by escape, in either case, whichever bytes the encoder leaves alone |
//! | form | as percent, with `+` for any space |
//! | several of these, one in another | through [`super::escapes::LAYERS`] layers |
//! | base64, base64url | once for each of three offsets, escaped in all these ways |
//! | hex | in upper and in lower case, escaped in all these ways |
//! | read as Latin-1 | as some servers read headers: each byte as a character |

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use zeroize::Zeroizing;

/// Shorter values can't be told from ordinary words.
pub(in crate::credential) const SHORTEST: usize = 8;

/// A secret of several lines is also looked for line by line, because some programs repeat their
/// input that way.
pub(super) fn of(secret: &[u8]) -> Vec<Zeroizing<Vec<u8>>> {
    let lines = secret.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    std::iter::once(secret)
        .chain(lines.filter(|line| line.len() < secret.len()))
        .filter(|value| value.len() >= SHORTEST)
        .flat_map(of_value)
        .collect()
}

fn of_value(value: &[u8]) -> Vec<Zeroizing<Vec<u8>>> {
    let mut all = vec![
        value.to_vec(),
        hex::encode(value).into_bytes(),
        hex::encode_upper(value).into_bytes(),
    ];
    if !value.is_ascii() {
        let latin: String = value.iter().map(|byte| char::from(*byte)).collect();
        all.push(latin.into_bytes());
    }
    if std::str::from_utf8(value).is_err() {
        // JSON has no other way to write it.
        all.push(String::from_utf8_lossy(value).into_owned().into_bytes());
    }
    for offset in 0..3 {
        all.push(base64_at(offset, value, &STANDARD));
        all.push(base64_at(offset, value, &URL_SAFE));
    }
    all.into_iter().map(Zeroizing::new).collect()
}

/// The base64 characters that depend on the value alone, where `offset` bytes precede it in a group
/// of three. The characters at both ends depend on its neighbours too.
fn base64_at(offset: usize, value: &[u8], engine: &impl Engine) -> Vec<u8> {
    let mut padded = Zeroizing::new(Vec::with_capacity(offset + value.len()));
    padded.resize(offset, 0);
    padded.extend_from_slice(value);
    let encoded = Zeroizing::new(engine.encode(&*padded));
    let begin = (offset * 8).div_ceil(6);
    let end = padded.len() * 8 / 6;
    encoded.as_bytes()[begin..end].to_vec()
}
