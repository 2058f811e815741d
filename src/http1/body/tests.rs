use super::*;

/// The content, how many bytes belong to the body, and whether it is complete; fed in pieces of
/// `step` bytes.
fn feed(framing: Framing, bytes: &[u8], step: usize) -> Result<(Vec<u8>, usize, bool), Doubt> {
    let mut body = Body::new(framing);
    let (mut content, mut taken) = (Vec::new(), 0);
    for piece in bytes.chunks(step) {
        if body.is_done() {
            break;
        }
        let fed = body.feed(piece, |bytes| content.extend_from_slice(bytes))?;
        taken += fed.taken;
        assert!(fed.done || fed.taken == piece.len());
    }
    Ok((content, taken, body.is_done()))
}

/// The same result, however the bytes are split.
fn every_split(framing: Framing, bytes: &[u8]) -> Result<(Vec<u8>, usize, bool), Doubt> {
    let whole = feed(framing, bytes, bytes.len().max(1));
    for step in 1..bytes.len() {
        assert_eq!(feed(framing, bytes, step), whole, "{step}");
    }
    whole
}

#[test]
fn body_of_a_length_ends_there() {
    let fed = every_split(Framing::Length(5), b"helloHTTP/1.1").unwrap();
    assert_eq!(fed, (b"hello".to_vec(), 5, true));
    let fed = every_split(Framing::Length(50), b"hello").unwrap();
    assert_eq!(fed, (b"hello".to_vec(), 5, false));
    for framing in [Framing::None, Framing::Length(0)] {
        let mut body = Body::new(framing);
        assert!(body.is_done());
        let fed = body.pass(b"left over").unwrap();
        assert_eq!((fed.taken, fed.done), (0, true));
    }
}

#[test]
fn body_until_close_takes_everything() {
    let fed = every_split(Framing::UntilClose, b"hello").unwrap();
    assert_eq!(fed, (b"hello".to_vec(), 5, false));
    let mut body = Body::new(Framing::UntilClose);
    body.pass(b"hello").unwrap();
    assert_eq!(body.end(), Ok(()));
    assert!(body.is_done());
}

#[test]
fn body_that_ends_early_is_truncated() {
    for (framing, bytes) in [
        (Framing::Length(5), &b"hell"[..]),
        (Framing::Chunked, b""),
        (Framing::Chunked, b"5\r\nhel"),
        (Framing::Chunked, b"5\r\nhello\r\n0\r\n"),
        (Framing::Chunked, b"5\r\nhello\r\n0\r\n\r"),
    ] {
        let mut body = Body::new(framing);
        assert!(!body.pass(bytes).unwrap().done);
        assert_eq!(body.end(), Err(Doubt::Truncated));
    }
}

#[test]
fn chunks_end_behind_the_last_one_and_its_trailers() {
    for (bytes, content) in [
        (&b"0\r\n\r\n"[..], &b""[..]),
        (b"5\r\nhello\r\n0\r\n\r\n", b"hello"),
        (b"5\r\nhello\r\n1\r\n!\r\n000\r\n\r\n", b"hello!"),
        (b"00005\r\nhello\r\n0\r\n\r\n", b"hello"),
        (b"a\r\n0123456789\r\n0\r\n\r\n", b"0123456789"),
        (b"A\r\n0123456789\r\n0\r\n\r\n", b"0123456789"),
        (b"5  \r\nhello\r\n0 \r\n\r\n", b"hello"),
        (b"5;a=b\r\nhello\r\n0;c=\"d\"\r\n\r\n", b"hello"),
        (b"5 ; a\r\n\r\n0\r\n\r\n0\r\n\r\n", b"\r\n0\r\n"),
        (b"1\r\nx\r\n0\r\nA: b\r\nC:\r\n\r\n", b"x"),
    ] {
        let mut with_rest = bytes.to_vec();
        with_rest.extend_from_slice(b"HTTP/1.1 200 OK");
        let fed = every_split(Framing::Chunked, &with_rest).unwrap();
        assert_eq!(fed, (content.to_vec(), bytes.len(), true));
    }
    let mut body = Body::new(Framing::Chunked);
    body.pass(b"0\r\n").unwrap();
    assert!(!body.has_trailers());
    body.pass(b"A: b\r\n").unwrap();
    assert!(body.has_trailers());
}

#[test]
fn chunks_that_two_readers_could_understand_differently_are_refused() {
    for (bytes, doubt) in [
        (&b"\r\n"[..], Doubt::ChunkSize),
        (b" 5\r\nhello", Doubt::ChunkSize),
        (b"0x5\r\nhello", Doubt::ChunkSize),
        (b"+5\r\nhello", Doubt::ChunkSize),
        (b"-1\r\nhello", Doubt::ChunkSize),
        (b"5\nhello", Doubt::ChunkSize),
        (b"5\rhello", Doubt::ChunkSize),
        (b"5 5\r\nhello", Doubt::ChunkSize),
        (b"g\r\n", Doubt::ChunkSize),
        (b";a\r\n", Doubt::ChunkSize),
        (b"10000000000000000\r\n", Doubt::ChunkSize),
        (b"00000000000000005\r\nhello", Doubt::ChunkSize),
        (b"5;a\nhello", Doubt::ChunkExtension),
        (b"5;\0\r\nhello", Doubt::ChunkExtension),
        (b"5;a\rb", Doubt::ChunkSize),
        (b"5\r\nhelloX", Doubt::ChunkEnd),
        (b"5\r\nhello\n", Doubt::ChunkEnd),
        (b"5\r\nhello\r0", Doubt::ChunkEnd),
        (b"0\r\n\n", Doubt::Trailer),
        (b"0\r\n\rx", Doubt::Trailer),
        (b"0\r\n A: b\r\n", Doubt::Trailer),
        (b"0\r\nA: b\r\n c\r\n\r\n", Doubt::Trailer),
        (b"0\r\nA : b\r\n", Doubt::Trailer),
        (b"0\r\nA\r\n", Doubt::Trailer),
        (b"0\r\n: b\r\n", Doubt::Trailer),
        (b"0\r\nA: b\n", Doubt::Trailer),
        (b"0\r\nA: \0\r\n", Doubt::Trailer),
    ] {
        let shown = String::from_utf8_lossy(bytes);
        let result = every_split(Framing::Chunked, bytes);
        assert_eq!(result, Err(doubt), "{shown:?}");
    }
}

#[test]
fn greatest_size_is_no_overflow() {
    let mut body = Body::new(Framing::Chunked);
    let fed = body.pass(b"ffffffffffffffff\r\nabc").unwrap();
    assert_eq!((fed.taken, fed.done), (21, false));
    assert_eq!(body.state, State::Data(u64::MAX - 3));
}

#[test]
fn extensions_and_trailers_are_bounded_over_the_whole_body() {
    let chunk = format!("1;{}\r\nx\r\n", "e".repeat(1000));
    let mut body = Body::new(Framing::Chunked);
    let fed = (0..17).try_for_each(|_| body.pass(chunk.as_bytes()).map(drop));
    assert_eq!(fed, Err(Doubt::ChunkExtension));
    let padded = format!("1{}", " ".repeat(LONGEST_EXTENSIONS as usize + 1));
    let mut body = Body::new(Framing::Chunked);
    assert_eq!(body.pass(padded.as_bytes()), Err(Doubt::ChunkExtension));
    let trailer = format!("T: {}\r\n", "v".repeat(1000));
    let mut body = Body::new(Framing::Chunked);
    body.pass(b"0\r\n").unwrap();
    let fed = (0..17).try_for_each(|_| body.pass(trailer.as_bytes()).map(drop));
    assert_eq!(fed, Err(Doubt::LongTrailers));
}
