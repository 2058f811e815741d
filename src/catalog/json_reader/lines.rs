//! The lines of the places of a JSON document. Only a document with problems is read for it.

use std::collections::HashMap;

use super::join;
use crate::error::Problem;

/// Gives each problem the line of its place, or of the nearest place above it that is there.
pub fn add_lines<'a>(text: &str, problems: impl Iterator<Item = &'a mut Problem>) {
    let mut problems = problems.peekable();
    if problems.peek().is_none() {
        return;
    }
    let mut walk = Walk {
        text: text.as_bytes(),
        at: 0,
        line: 1,
        lines: HashMap::new(),
    };
    // What can't be walked through has no lines.
    let _ = walk.value("");
    for problem in problems {
        let mut place = problem.key.as_deref().unwrap_or_default();
        while !place.is_empty() && !walk.lines.contains_key(place) {
            place = &place[..place.rfind(['.', '[']).unwrap_or(0)];
        }
        problem.line = walk.lines.get(place).copied();
    }
}

struct Walk<'a> {
    text: &'a [u8],
    at: usize,
    line: u32,
    lines: HashMap<String, u32>,
}

impl Walk<'_> {
    fn value(&mut self, place: &str) -> Option<()> {
        self.skip_space();
        self.lines.entry(place.to_owned()).or_insert(self.line);
        match self.peek()? {
            b'{' => self.object(place),
            b'[' => self.array(place),
            b'"' => self.string().map(drop),
            _ => {
                while self.peek().is_some_and(|c| !b",]} \t\r\n".contains(&c)) {
                    self.at += 1;
                }
                Some(())
            }
        }
    }

    fn object(&mut self, place: &str) -> Option<()> {
        self.at += 1;
        loop {
            self.skip_space();
            match self.peek()? {
                b'}' => break,
                b',' => self.at += 1,
                _ => {
                    let line = self.line;
                    let key: String = serde_json::from_slice(self.string()?).ok()?;
                    let below = join(place, &key);
                    self.lines.insert(below.clone(), line);
                    self.skip_space();
                    self.at += usize::from(self.peek()? == b':');
                    self.value(&below)?;
                }
            }
        }
        self.at += 1;
        Some(())
    }

    fn array(&mut self, place: &str) -> Option<()> {
        self.at += 1;
        let mut index = 0;
        loop {
            self.skip_space();
            match self.peek()? {
                b']' => break,
                b',' => self.at += 1,
                _ => {
                    self.value(&format!("{place}[{index}]"))?;
                    index += 1;
                }
            }
        }
        self.at += 1;
        Some(())
    }

    /// The text with its quotes.
    fn string(&mut self) -> Option<&[u8]> {
        let start = self.at;
        if self.peek()? != b'"' {
            return None;
        }
        self.at += 1;
        while self.peek()? != b'"' {
            self.at += 1 + usize::from(self.peek()? == b'\\');
        }
        self.at += 1;
        self.text.get(start..self.at)
    }

    fn skip_space(&mut self) {
        while let Some(c) = self.peek().filter(u8::is_ascii_whitespace) {
            self.line += u32::from(c == b'\n');
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_has_the_line_that_it_is_in() {
        let text = "{\n \"a\\u0062\": [1,\n  {\"c\": \"x\\\"}\",\n   \"d\": {}}],\n \"\": true\n}";
        let mut problems: Vec<Problem> = ["ab", "ab[1].c", "ab[1].d.missing.deep", "\"\"", ""]
            .map(|place| Problem::new("p").key(place))
            .into();
        add_lines(text, problems.iter_mut());
        let lines: Vec<_> = problems.iter().map(|problem| problem.line).collect();
        assert_eq!(lines, [Some(2), Some(3), Some(4), Some(5), Some(1)]);
        let mut broken = [Problem::new("p").key("b")];
        add_lines("{\"a\": [", broken.iter_mut());
        assert_eq!(broken[0].line, Some(1));
    }
}
