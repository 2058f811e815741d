//! Base64 in pieces, as strict as [`STANDARD`] is with a whole text.

use base64::engine::general_purpose::STANDARD;
use base64::{DecodeError, Engine as _};

/// Letters that make three bytes.
const GROUP: usize = 4;

/// Decodes a text that comes in pieces of any size.
#[derive(Debug, Default)]
pub struct Decoder {
    /// The last letters that came. They may be the last of all, where padding is allowed.
    held: Vec<u8>,
    /// Letters before `held`.
    decoded: usize,
}

impl Decoder {
    /// Appends to `out` what can be decoded by now.
    pub fn push(&mut self, mut text: &[u8], out: &mut Vec<u8>) -> Result<(), DecodeError> {
        while !self.held.is_empty() && !text.is_empty() {
            if self.held.len() == GROUP {
                let held = std::mem::take(&mut self.held);
                self.decode_groups(&held, out)?;
                break;
            }
            let missing = (GROUP - self.held.len()).min(text.len());
            self.held.extend_from_slice(&text[..missing]);
            text = &text[missing..];
        }
        if text.is_empty() {
            return Ok(());
        }
        let (groups, last) = text.split_at((text.len() - 1) / GROUP * GROUP);
        self.decode_groups(groups, out)?;
        self.held.extend_from_slice(last);
        Ok(())
    }

    /// The end of the text.
    pub fn finish(self, out: &mut Vec<u8>) -> Result<(), DecodeError> {
        let before = self.decoded;
        let last = STANDARD.decode(&self.held).map_err(|e| match e {
            DecodeError::InvalidByte(at, byte) => DecodeError::InvalidByte(before + at, byte),
            DecodeError::InvalidLastSymbol(at, byte) => {
                DecodeError::InvalidLastSymbol(before + at, byte)
            }
            DecodeError::InvalidLength(length) => DecodeError::InvalidLength(before + length),
            DecodeError::InvalidPadding => DecodeError::InvalidPadding,
        })?;
        out.extend_from_slice(&last);
        Ok(())
    }

    /// Whole groups, more letters follow: they hold no padding.
    fn decode_groups(&mut self, groups: &[u8], out: &mut Vec<u8>) -> Result<(), DecodeError> {
        let (start, bytes) = (out.len(), groups.len() / GROUP * 3);
        out.resize(start + bytes, 0);
        let written = STANDARD.decode_slice_unchecked(groups, &mut out[start..]);
        if written != Ok(bytes) {
            let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
            let at = groups.iter().position(|byte| !is_letter(byte)).unwrap_or(0);
            return Err(DecodeError::InvalidByte(self.decoded + at, groups[at]));
        }
        self.decoded += groups.len();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(text: &[u8], size: usize) -> Result<Vec<u8>, DecodeError> {
        let (mut decoder, mut out) = (Decoder::default(), Vec::new());
        for piece in text.chunks(size) {
            decoder.push(piece, &mut out)?;
        }
        decoder.finish(&mut out)?;
        Ok(out)
    }

    #[test]
    fn text_in_pieces_is_decoded_as_the_whole_text_is() {
        let long = STANDARD.encode((0..=255).collect::<Vec<u8>>());
        let mut texts = vec![
            String::new(),
            long.clone(),
            format!("{long}="),
            format!("{long}\u{e4}{long}"),
            format!("{}*{}", &long[..200], &long[201..]),
        ];
        for text in [
            "Q",
            "QQ",
            "QR==",
            "QQ=",
            "QQ==",
            "QQQ=",
            "QQQQ",
            "QQ==QQ==",
            "QQQQQ",
            "QQQQQ===",
            "====",
            "=",
            "QQ==QQQQQQQQ",
            "Q=QQ",
            "QQQQ\n",
            "QQ QQ",
            "QQQQ====",
            "-_-_",
            "QQ==\n",
        ] {
            texts.push(text.to_owned());
        }
        for text in texts {
            let whole = STANDARD.decode(&text).ok();
            let expected = decode(text.as_bytes(), text.len().max(1));
            assert_eq!(expected.clone().ok(), whole, "{text}");
            for size in 1..=text.len().clamp(1, 70) {
                assert_eq!(decode(text.as_bytes(), size), expected, "{text} {size}");
            }
        }
    }
}
