//! A JSON result as the text of a content block: pretty-printed, and written as a JSON string. One
//! pass over the text without parsing it: it works on pieces, and numbers keep their digits.

/// Feed it the JSON text of one value, piece by piece. Of text that isn't JSON the output makes no
/// more sense than the input.
#[derive(Debug, Default)]
pub struct PrettyText {
    depth: usize,
    quoted: bool,
    escaped: bool,
    /// A bracket was opened, and nothing is in it yet.
    is_empty: bool,
}

impl PrettyText {
    pub fn push(&mut self, piece: &[u8], out: &mut Vec<u8>) {
        out.reserve(piece.len() + piece.len() / 4);
        for &byte in piece {
            if self.quoted {
                self.push_quoted(byte, out);
                continue;
            }
            match byte {
                b' ' | b'\t' | b'\n' | b'\r' => {}
                b']' | b'}' => {
                    self.depth = self.depth.saturating_sub(1);
                    if !std::mem::take(&mut self.is_empty) {
                        self.new_line(out);
                    }
                    out.push(byte);
                }
                b',' => {
                    out.push(b',');
                    self.new_line(out);
                }
                b':' => out.extend_from_slice(b": "),
                _ => {
                    if std::mem::take(&mut self.is_empty) {
                        self.new_line(out);
                    }
                    match byte {
                        b'[' | b'{' => {
                            out.push(byte);
                            self.depth += 1;
                            self.is_empty = true;
                        }
                        b'"' => {
                            out.extend_from_slice(b"\\\"");
                            self.quoted = true;
                        }
                        other => out.push(other),
                    }
                }
            }
        }
    }

    fn push_quoted(&mut self, byte: u8, out: &mut Vec<u8>) {
        match byte {
            b'\\' => {
                out.extend_from_slice(b"\\\\");
                self.escaped = !self.escaped;
                return;
            }
            b'"' => {
                out.extend_from_slice(b"\\\"");
                self.quoted = self.escaped;
            }
            other => out.push(other),
        }
        self.escaped = false;
    }

    fn new_line(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"\\n");
        out.extend(std::iter::repeat_n(b' ', 2 * self.depth));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn pretty(pieces: &[&[u8]]) -> String {
        let (mut text, mut out) = (PrettyText::default(), vec![b'"']);
        for piece in pieces {
            text.push(piece, &mut out);
        }
        out.push(b'"');
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn text_is_what_serde_prints_and_escapes() {
        for json in [
            r#"{"a":[1,2,{"b":null}],"c":{},"d":[],"e":"x","f":[[],{}]}"#,
            "{ \"a\" :\n[ ] }",
            r#"{"quote\"d":"back\\slash \\\" [,:{ }","tab":"\t","é":"\u00e9 ü"}"#,
            "true",
            "-1.5",
            "[]",
            r#"["\\"]"#,
        ] {
            let value: Value = serde_json::from_str(json).unwrap();
            let expected = serde_json::to_string_pretty(&value).unwrap();
            let decoded: String = serde_json::from_str(&pretty(&[json.as_bytes()])).unwrap();
            // Escapes inside of strings stay as they were written.
            let reparsed: Value = serde_json::from_str(&decoded).unwrap();
            assert_eq!(reparsed, value, "{json}");
            assert_eq!(decoded.lines().count(), expected.lines().count(), "{json}");
            if !json.contains("\\u") {
                assert_eq!(decoded, expected, "{json}");
            }
            let bytes: Vec<&[u8]> = json.as_bytes().chunks(1).collect();
            assert_eq!(pretty(&bytes), pretty(&[json.as_bytes()]));
        }
        assert_eq!(
            pretty(&[b"12345678901234567890.10"]),
            "\"12345678901234567890.10\""
        );
    }
}
