//! Input: a byte that says how the rest is split and whether the request was a HEAD, then an answer
//! and what follows it. However it is split, its head, its content and its end are the same. If it
//! is accepted, no reader finds another length in its head, and a decoder of another origin finds
//! the same chunks.
#![no_main]

use ati::http1::Doubt;
use ati::http1::answer::{Framing, Head, Parser};
use ati::http1::body::Body;
use libfuzzer_sys::fuzz_target;

/// What is kept of an answer that was read to its end, or as far as its bytes go.
#[derive(Debug, PartialEq)]
struct Read {
    status: u16,
    framing: Framing,
    may_reuse: bool,
    head: usize,
    content: Vec<u8>,
    /// Bytes of the body, with what frames it.
    taken: usize,
    done: bool,
}

fn parse(bytes: &[u8], to_head: bool, step: usize) -> Result<Option<Head>, Doubt> {
    let mut parser = Parser::default();
    let mut end = 0;
    loop {
        end = (end + step).min(bytes.len());
        if let Some(head) = parser.parse(&bytes[..end], to_head)? {
            return Ok(Some(head.clone()));
        }
        if end == bytes.len() {
            return Ok(None);
        }
    }
}

fn read(bytes: &[u8], to_head: bool, step: usize) -> Result<Option<Read>, Doubt> {
    let Some(head) = parse(bytes, to_head, step)? else {
        return Ok(None);
    };
    let mut read = Read {
        status: head.status,
        framing: head.framing,
        may_reuse: head.may_reuse,
        head: head.length,
        content: Vec::new(),
        taken: 0,
        done: false,
    };
    let mut body = Body::new(head.framing);
    for piece in bytes[head.length..].chunks(step) {
        if body.is_done() {
            break;
        }
        let fed = body.feed(piece, |content| read.content.extend_from_slice(content))?;
        assert!(fed.done || fed.taken == piece.len());
        read.taken += fed.taken;
    }
    read.done = body.is_done();
    Ok(Some(read))
}

/// All values of a header, for a reader who takes white space as it likes.
fn values(raw: &[u8], name: &str) -> Vec<String> {
    let lines = raw.split(|byte| matches!(byte, b'\n' | b'\r')).skip(1);
    lines
        .filter_map(|line| {
            let line = String::from_utf8_lossy(line).to_ascii_lowercase();
            let (key, value) = line.split_once(':')?;
            (key.trim() == name).then(|| value.trim().to_owned())
        })
        .collect()
}

/// The chunks, as httparse reads their sizes. None where they are not complete.
fn chunks(mut rest: &[u8]) -> Option<(Vec<u8>, usize)> {
    let whole = rest.len();
    let mut content = Vec::new();
    loop {
        let parsed = httparse::parse_chunk_size(rest).expect("ati accepted this size");
        let httparse::Status::Complete((line, size)) = parsed else {
            return None;
        };
        rest = &rest[line..];
        if size == 0 {
            break;
        }
        let size = usize::try_from(size).ok()?;
        content.extend_from_slice(rest.get(..size)?);
        rest = rest.get(size + 2..)?;
    }
    while !rest.starts_with(b"\r\n") {
        let line = rest.windows(2).position(|two| two == b"\r\n")?;
        rest = &rest[line + 2..];
    }
    Some((content, whole - rest.len() + 2))
}

fuzz_target!(|data: &[u8]| {
    let Some((&first, bytes)) = data.split_first() else {
        return;
    };
    let (to_head, step) = (first & 1 == 1, usize::from(first >> 1) + 1);
    let split = read(bytes, to_head, step);
    let whole = read(bytes, to_head, bytes.len().max(1));
    // Which doubt shows first may depend on the split.
    assert_eq!(split.is_err(), whole.is_err());
    let (Ok(Some(read)), Ok(Some(whole))) = (split, whole) else {
        return;
    };
    assert_eq!(read, whole);

    let (head, body) = bytes.split_at(read.head);
    assert!(head.starts_with(b"HTTP/1.") && head.ends_with(b"\r\n\r\n"));
    assert!(
        !head
            .windows(2)
            .any(|two| two[1] == b'\n' && two[0] != b'\r')
    );
    let mut lengths: Vec<String> = Vec::new();
    for value in values(head, "content-length") {
        lengths.extend(value.split(',').map(|length| length.trim().to_owned()));
    }
    let encodings = values(head, "transfer-encoding");
    lengths.dedup_by_key(|length| length.parse::<u64>().expect("ati accepted this length"));
    assert!(lengths.len() < 2 && encodings.len() < 2);
    assert!(lengths.is_empty() || encodings.is_empty());
    match read.framing {
        Framing::None => assert!(to_head || matches!(read.status, 100..200 | 204 | 304)),
        Framing::Length(length) => assert_eq!(lengths[0].parse(), Ok(length)),
        Framing::Chunked => assert_eq!(encodings, ["chunked"]),
        Framing::UntilClose => {
            assert!(lengths.is_empty() && encodings.is_empty() && !read.may_reuse);
        }
    }
    if read.framing == Framing::Chunked {
        if read.done {
            assert_eq!(chunks(body), Some((read.content, read.taken)));
        }
    } else {
        assert_eq!(read.content, body[..read.taken]);
    }
});
