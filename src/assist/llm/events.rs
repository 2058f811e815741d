//! Server-sent events, as far as language models use them: the `data` of each.

use crate::error::HelpError;

/// Bytes of one line; an event has a few words of the answer.
const LONGEST_LINE: usize = 1 << 20;

#[derive(Default)]
pub struct Events {
    line: Vec<u8>,
    data: Option<String>,
}

impl Events {
    /// The events that are complete with these bytes.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<String>, HelpError> {
        let mut complete = Vec::new();
        for byte in bytes {
            match byte {
                b'\n' => self.end_line(&mut complete),
                byte => self.line.push(*byte),
            }
            let data = self.data.as_ref().map_or(0, String::len);
            if self.line.len() + data > LONGEST_LINE {
                let why = format!("an event of it exceeds {LONGEST_LINE} bytes");
                return Err(HelpError::Unparsable(why));
            }
        }
        Ok(complete)
    }

    fn end_line(&mut self, complete: &mut Vec<String>) {
        let line = std::mem::take(&mut self.line);
        let line = String::from_utf8_lossy(&line);
        let line = line.trim_end_matches('\r');
        if line.is_empty() {
            complete.extend(self.data.take());
        } else if let Some(data) = line.strip_prefix("data:") {
            let data = data.strip_prefix(' ').unwrap_or(data);
            match &mut self.data {
                None => self.data = Some(data.to_owned()),
                Some(known) => {
                    known.push('\n');
                    known.push_str(data);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_complete_wherever_their_bytes_are_cut() {
        let text =
            "event: x\r\ndata: {\"a\":\r\ndata: 1}\r\n\r\n: ping\n\ndata:[DONE]\n\ndata: half";
        for size in [1, 3, text.len()] {
            let mut events = Events::default();
            let mut found = Vec::new();
            for piece in text.as_bytes().chunks(size) {
                found.extend(events.push(piece).unwrap());
            }
            assert_eq!(found, ["{\"a\":\n1}", "[DONE]"]);
        }
        let endless = vec![b'x'; LONGEST_LINE + 1];
        assert!(Events::default().push(&endless).is_err());
    }
}
