//! The `id` of a message that is too long to be read: clients write it near the beginning or at the
//! end.

/// Bytes of the beginning, and of the end, that are kept.
const KEPT: usize = 1024;

#[derive(Default)]
pub struct Ends {
    head: Vec<u8>,
    tail: Vec<u8>,
}

impl Ends {
    pub fn push(&mut self, piece: &[u8]) {
        let room = KEPT - self.head.len();
        self.head.extend_from_slice(&piece[..piece.len().min(room)]);
        self.tail
            .extend_from_slice(&piece[piece.len().saturating_sub(KEPT)..]);
        let over = self.tail.len().saturating_sub(KEPT);
        self.tail.drain(..over);
    }

    /// As JSON.
    pub fn id(&self) -> Option<Box<str>> {
        in_head(&self.head).or_else(|| in_tail(&self.tail))
    }
}

/// Goes through the members of the message until the one that isn't complete.
fn in_head(head: &[u8]) -> Option<Box<str>> {
    let mut rest = head.trim_ascii_start().strip_prefix(b"{")?;
    loop {
        let (key, after) = value(rest)?;
        let after = after.trim_ascii_start().strip_prefix(b":")?;
        let (text, after) = value(after)?;
        if key == b"\"id\"" {
            return id(text);
        }
        rest = after.trim_ascii_start().strip_prefix(b",")?;
    }
}

/// A complete value, and what comes after it.
fn value(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = text.trim_ascii_start();
    let (mut depth, mut in_text, mut escaped) = (0_usize, false, false);
    for (at, byte) in text.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => {
                in_text = !in_text;
                if !in_text && depth == 0 {
                    return Some(text.split_at(at + 1));
                }
            }
            _ if in_text => {}
            b'{' | b'[' => depth += 1,
            b'}' | b']' if depth > 0 => {
                depth -= 1;
                if depth == 0 {
                    return Some(text.split_at(at + 1));
                }
            }
            // The end of a number or a word.
            b',' | b'}' | b']' | b':' if depth == 0 => return Some(text.split_at(at)),
            _ => {}
        }
    }
    None
}

/// The last member of the message. Within a text the quotes of `"id"` would be escaped, and where
/// one brace comes after its value, that is the message's own.
fn in_tail(tail: &[u8]) -> Option<Box<str>> {
    const KEY: &[u8] = b"\"id\"";
    let members = tail.trim_ascii_end().strip_suffix(b"}")?;
    let at = memchr::memmem::rfind(members, KEY)?;
    members[..at].trim_ascii_end().strip_suffix(b",")?;
    let after = members[at + KEY.len()..].trim_ascii_start();
    id(after.strip_prefix(b":")?)
}

/// A number, or a text.
fn id(text: &[u8]) -> Option<Box<str>> {
    let text = std::str::from_utf8(text).ok()?.trim();
    let value: serde_json::Value = serde_json::from_str(text).ok()?;
    (value.is_number() || value.is_string()).then(|| text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id_of(text: &str) -> Option<String> {
        let mut ends = Ends::default();
        for piece in text.as_bytes().chunks(700) {
            ends.push(piece);
        }
        ends.id().map(String::from)
    }

    #[test]
    fn id_is_found_at_the_beginning_and_at_the_end() {
        let long = "z".repeat(5000);
        let found = |text: &str| id_of(&text.replace("LONG", &long));
        for (text, id) in [
            (
                r#"{"jsonrpc":"2.0","id":7,"params":{"a":"LONG"}}"#,
                Some("7"),
            ),
            (
                r#" { "a" : {"id":1,"b":[2]} , "id" : "x,}" ,"c":"LONG"}"#,
                Some("\"x,}\""),
            ),
            (r#"{"params":{"a":"LONG"},"id":8}"#, Some("8")),
            (r#"{"params":{"a":"LONG"}, "id" : "a" } "#, Some("\"a\"")),
            (r#"{"params":{"a":"LONG","id":8}}"#, None),
            (r#"{"params":"LONG \",\"id\":8}"#, None),
            (r#"{"params":"LONG","id":null}"#, None),
            ("LONG", None),
            ("", None),
        ] {
            assert_eq!(found(text).as_deref(), id, "{text}");
        }
    }
}
