//! HTTP/1 as bytes: where a head ends, what it says, where the body behind it ends. Nothing here
//! reads or writes a connection.
//!
//! What two readers could understand differently is an error, never a guess: a connection on which
//! ati and an upstream disagree about the end of an answer would give one caller's bytes to the
//! next.

pub mod answer;
pub mod body;
mod doubt;
pub mod request;

pub use doubt::Doubt;

use std::borrow::Cow;

use memchr::memchr_iter;

/// A part of the bytes that a head was parsed from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Span {
    start: u32,
    end: u32,
}

impl Span {
    /// Where `part` lies in `whole`. Empty, if it lies outside.
    fn of(part: &[u8], whole: &[u8]) -> Self {
        let start = (part.as_ptr() as usize).wrapping_sub(whole.as_ptr() as usize);
        let end = start.wrapping_add(part.len());
        match (u32::try_from(start), u32::try_from(end)) {
            (Ok(start), Ok(end)) if end as usize <= whole.len() => Span { start, end },
            _ => Span::default(),
        }
    }

    pub fn len(self) -> usize {
        (self.end - self.start) as usize
    }

    pub fn is_empty(self) -> bool {
        self.start == self.end
    }

    /// The bytes: of the same buffer that was parsed, or of one that begins with the same bytes.
    pub fn get(self, whole: &[u8]) -> &[u8] {
        whole
            .get(self.start as usize..self.end as usize)
            .unwrap_or_default()
    }
}

/// A header's value in one line: what was folded is joined with a blank, as RFC 9112 (5.2) asks of
/// a proxy.
pub fn unfolded(value: &[u8]) -> Cow<'_, [u8]> {
    let breaks = |byte: &u8| matches!(byte, b'\r' | b'\n' | b'\0');
    if !value.iter().any(breaks) {
        return Cow::Borrowed(value);
    }
    let lines = value.split(breaks).map(<[u8]>::trim_ascii);
    let lines: Vec<&[u8]> = lines.filter(|line| !line.is_empty()).collect();
    Cow::Owned(lines.join(&b' '))
}

/// One header. The value has no white space around it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Field {
    pub name: Span,
    pub value: Span,
}

/// A line that doesn't end with CR and LF.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BareLf;

/// Searches the empty line at the end of a head. It continues where it stopped, so a head that
/// arrives in many pieces is looked through once.
#[derive(Debug, Clone, Copy, Default)]
pub struct EndOfHead {
    searched: usize,
    /// Ends of lines so far.
    lines: usize,
    has_bare_lf: bool,
}

impl EndOfHead {
    /// The length of the head with its empty line. `bytes` are all that have come so far.
    pub fn find(&mut self, bytes: &[u8]) -> Result<Option<usize>, BareLf> {
        if self.has_bare_lf {
            return Err(BareLf);
        }
        for at in memchr_iter(b'\n', &bytes[self.searched..]) {
            let line_end = self.searched + at;
            self.lines += 1;
            if line_end == 0 || bytes[line_end - 1] != b'\r' {
                self.has_bare_lf = true;
                return Err(BareLf);
            }
            if line_end == 1 || (line_end >= 3 && bytes[line_end - 2] == b'\n') {
                return Ok(Some(line_end + 1));
            }
        }
        self.searched = bytes.len();
        Ok(None)
    }

    /// The lines of the head that was found, its empty one included.
    fn lines(&self) -> usize {
        self.lines
    }

    /// Whether the empty line has come, after [`BareLf`]: lines may end with LF alone.
    fn has_come(&mut self, bytes: &[u8]) -> bool {
        for at in memchr_iter(b'\n', &bytes[self.searched..]) {
            let before = &bytes[..self.searched + at];
            let before = before.strip_suffix(b"\r").unwrap_or(before);
            if before.is_empty() || before.ends_with(b"\n") {
                return true;
            }
        }
        self.searched = bytes.len();
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_of_head_is_found_however_the_bytes_are_split() {
        let head = b"GET / HTTP/1.1\r\nA: b\r\n\r\nrest";
        for step in 1..head.len() {
            let mut search = EndOfHead::default();
            let mut found = None;
            let mut end = 0;
            while found.is_none() && end < head.len() {
                end = (end + step).min(head.len());
                found = search.find(&head[..end]).unwrap();
            }
            assert_eq!(found, Some(head.len() - 4), "{step}");
        }
        assert_eq!(EndOfHead::default().find(b"\r\nA: b"), Ok(Some(2)));
    }

    #[test]
    fn line_without_cr_is_found_before_the_head_is_complete() {
        for bytes in [&b"\n"[..], b"GET / HTTP/1.1\n", b"A: b\r\nC: d\ne"] {
            assert_eq!(EndOfHead::default().find(bytes), Err(BareLf));
        }
        let mut search = EndOfHead::default();
        assert_eq!(search.find(b"A: b\r"), Ok(None));
        assert_eq!(search.find(b"A: b\r\n"), Ok(None));
        assert_eq!(search.find(b"A: b\r\n\r"), Ok(None));
        assert_eq!(search.find(b"A: b\r\n\r\n"), Ok(Some(8)));
    }
}
