//! The text of a shell function, as far as the shell evaluates it.

use super::block::here_document_end;

/// Characters after which an open bracket counts as never closed, and of a command: a text full of
/// them must not take long.
const LONGEST: usize = 4096;

pub fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// The text with spaces in place of texts in single quotes, comments, and here documents that
/// aren't expanded. The places of all else stay the same. Where quotes don't match, it is the text
/// as it is.
pub fn blanked(text: &str) -> String {
    let mut scan = Scan {
        text,
        at: 0,
        out: String::with_capacity(text.len()),
        open: Vec::new(),
        here: Vec::new(),
    };
    match scan.run() {
        Some(()) if scan.out.len() == text.len() => scan.out,
        _ => text.to_owned(),
    }
}

struct Scan<'a> {
    text: &'a str,
    at: usize,
    out: String,
    /// `"` or `(`, the innermost last.
    open: Vec<char>,
    here: Vec<(String, bool, bool)>,
}

impl Scan<'_> {
    fn left(&self) -> &str {
        &self.text[self.at..]
    }

    fn keep(&mut self, bytes: usize) {
        let mut end = (self.at + bytes).min(self.text.len());
        while !self.text.is_char_boundary(end) {
            end += 1;
        }
        self.out.push_str(&self.text[self.at..end]);
        self.at = end;
    }

    fn blank(&mut self, bytes: usize) {
        self.out.extend(std::iter::repeat_n(' ', bytes));
        self.at += bytes;
    }

    /// None where a quote isn't closed.
    fn run(&mut self) -> Option<()> {
        while let Some(c) = self.left().chars().next() {
            let quoted = self.open.last() == Some(&'"');
            let before = self.text[..self.at].chars().next_back();
            let at_word = before.is_none_or(|c| c.is_whitespace() || ";&|(".contains(c));
            match c {
                '\\' => self.keep(2),
                '"' if quoted => {
                    self.open.pop();
                    self.keep(1);
                }
                '"' => {
                    self.open.push('"');
                    self.keep(1);
                }
                '$' if self.left().starts_with("$(") => {
                    self.open.push('(');
                    self.keep(2);
                }
                _ if quoted => self.keep(c.len_utf8()),
                '\'' => {
                    let escapes = before == Some('$');
                    let length = single_quoted(&self.left()[1..], escapes)?;
                    self.blank(length + 2);
                }
                '(' => {
                    self.open.push('(');
                    self.keep(1);
                }
                ')' => {
                    self.open.pop();
                    self.keep(1);
                }
                '#' if at_word => {
                    let length = self.left().find('\n').unwrap_or(self.left().len());
                    self.blank(length);
                }
                '<' if self.left().starts_with("<<<") => self.keep(3),
                '<' if self.left().starts_with("<<") => {
                    let rest = &self.left()[2..];
                    let word = rest.trim_start_matches(['-', ' ', '\t']);
                    let raw = word.starts_with(['\'', '"', '\\']);
                    let end = here_document_end(rest);
                    self.here
                        .extend(end.map(|(end, indented)| (end, indented, raw)));
                    self.keep(2);
                }
                '\n' => {
                    self.keep(1);
                    self.here_documents();
                }
                _ => self.keep(c.len_utf8()),
            }
        }
        (!self.open.contains(&'"')).then_some(())
    }

    fn here_documents(&mut self) {
        for (end, indented, raw) in std::mem::take(&mut self.here) {
            let mut length = 0;
            let mut is_closed = false;
            for line in self.left().split_inclusive('\n') {
                length += line.len();
                let line = line.trim_end_matches('\n');
                let line = if indented {
                    line.trim_start_matches('\t')
                } else {
                    line
                };
                if line == end {
                    is_closed = true;
                    break;
                }
            }
            // `(( a << b ))` begins no document.
            if is_closed && raw {
                self.blank(length);
            } else if is_closed {
                self.keep(length);
            }
        }
    }
}

/// Bytes up to the quote that ends the text.
fn single_quoted(text: &str, escapes: bool) -> Option<usize> {
    let mut skipped = false;
    text.char_indices()
        .find(|(_, c)| {
            if std::mem::take(&mut skipped) {
                return false;
            }
            skipped = escapes && *c == '\\';
            *c == '\''
        })
        .map(|(at, _)| at)
}

/// The place of what closes the bracket at `open`.
pub fn closing(text: &str, open: usize, (opens, closes): (char, char)) -> Option<usize> {
    let mut depth = 0;
    for (at, c) in text[open..].char_indices().take(LONGEST) {
        if c == opens {
            depth += 1;
        } else if c == closes {
            depth -= 1;
            if depth == 0 {
                return Some(open + at);
            }
        }
    }
    None
}

/// Where the command that `from` is in ends.
pub fn command_end(text: &str, from: usize) -> usize {
    let mut quoted = false;
    let mut before = ' ';
    let mut last = from;
    for (at, c) in text[from..].char_indices().take(LONGEST) {
        last = from + at + c.len_utf8();
        match c {
            '"' if before != '\\' => quoted = !quoted,
            '\n' | ';' | '&' | '|' if !quoted && before != '\\' => return from + at,
            _ => {}
        }
        before = c;
    }
    last
}

/// Without `$(…)` and backquotes: a command's output isn't the value.
pub fn without_commands(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        let rest = &text[at..];
        if rest.starts_with("$(") && !rest.starts_with("$((") {
            at = closing(text, at + 1, ('(', ')')).map_or(at + 2, |end| end + 1);
        } else if c == '`' {
            at = rest[1..].find('`').map_or(at + 1, |end| at + end + 2);
        } else {
            out.push(c);
            at += c.len_utf8();
        }
    }
    out
}
