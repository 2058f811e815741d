use super::*;

fn parse(bytes: &[u8], to_head: bool) -> Result<Option<Head>, Doubt> {
    let mut parser = Parser::default();
    parser.parse(bytes, to_head).map(Option::<&Head>::cloned)
}

fn head(headers: &str) -> Result<Head, Doubt> {
    let bytes = format!("HTTP/1.1 200 OK\r\n{headers}\r\n");
    parse(bytes.as_bytes(), false).map(Option::unwrap)
}

#[test]
fn head_is_parsed_into_spans() {
    let bytes = b"HTTP/1.1 404 Not Found\r\nA:  b \r\nContent-Length: 3\r\nEmpty:\r\n\r\nbody";
    let head = parse(bytes, false).unwrap().unwrap();
    assert_eq!((head.status, head.minor_version), (404, 1));
    assert_eq!(head.reason.get(bytes), b"Not Found");
    assert_eq!(&bytes[head.length..], b"body");
    let fields: Vec<_> = head.fields.iter().collect();
    assert_eq!(fields[0].name.get(bytes), b"A");
    assert_eq!(fields[0].value.get(bytes), b"b");
    assert_eq!(fields[2].name.get(bytes), b"Empty");
    assert!(fields[2].value.is_empty());
    assert_eq!((head.framing, head.may_reuse), (Framing::Length(3), true));
    let lengths: Vec<_> = head.values(bytes, "content-length").collect();
    assert_eq!(lengths, [b"3"]);
}

#[test]
fn head_in_pieces_is_complete_with_its_last_byte() {
    let bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    let mut parser = Parser::default();
    for end in 0..bytes.len() {
        assert!(parser.parse(&bytes[..end], false).unwrap().is_none());
    }
    assert_eq!(parser.parse(bytes, false).unwrap().unwrap().status, 200);
    // The next answer on the same connection.
    let next = b"HTTP/1.0 500\r\n\r\n";
    let head = parser.parse(next, false).unwrap().unwrap();
    assert_eq!((head.status, head.minor_version), (500, 0));
    assert!(head.fields.is_empty() && head.reason.is_empty());
    assert_eq!((head.framing, head.may_reuse), (Framing::UntilClose, false));
}

#[test]
fn head_with_a_bare_lf_is_parsed_once_its_empty_line_came() {
    for end in ["\n", "\r\n"] {
        let bytes = format!("HTTP/1.1 200 OK\r\nA: b\nno header\r\nC: d\r\n{end}");
        let bytes = bytes.as_bytes();
        let mut parser = Parser::of_proxy();
        for end in 0..bytes.len() {
            assert!(parser.parse(&bytes[..end], false).unwrap().is_none());
        }
        assert_eq!(parser.parse(bytes, false).unwrap_err(), Doubt::HeaderName);
        let next = format!("HTTP/1.1 200 OK\nA: b\r\n c\n{end}");
        let next = next.as_bytes();
        for end in 0..next.len() {
            assert!(parser.parse(&next[..end], false).unwrap().is_none());
        }
        let head = parser.parse(next, false).unwrap().unwrap();
        assert_eq!((head.length, head.fields.len()), (next.len(), 1));
        assert!(!head.may_reuse);
    }
}

/// The framing of an answer to a GET or a HEAD, and whether its connection may be used again.
fn framing(line: &str, headers: &[&str], to_head: bool) -> (Framing, bool) {
    let headers: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
    let answer = format!("HTTP/{line}\r\n{headers}\r\n");
    let head = parse(answer.as_bytes(), to_head).unwrap().unwrap();
    assert_eq!(head.is_interim(), head.status == 100, "{answer}");
    (head.framing, head.may_reuse)
}

const SEVEN: &str = "Content-Length: 7";
const CHUNKED: &str = "Transfer-Encoding: Chunked";

#[test]
fn body_is_framed_by_length_chunks_or_the_end_of_the_connection() {
    let ok = |headers: &[&str]| framing("1.1 200 OK", headers, false);
    let old = |headers: &[&str]| framing("1.0 200 OK", headers, false);
    let seven = Framing::Length(7);
    assert_eq!(ok(&[]), (Framing::UntilClose, false));
    assert_eq!(ok(&[SEVEN]), (seven, true));
    assert_eq!(ok(&["Content-Length: 7, 7", SEVEN]), (seven, true));
    assert_eq!(ok(&[CHUNKED]), (Framing::Chunked, true));
    assert_eq!(
        ok(&[CHUNKED, "Connection: close"]),
        (Framing::Chunked, false)
    );
    assert_eq!(ok(&[SEVEN, "Connection: x, CLOSE"]), (seven, false));
    assert_eq!(
        ok(&[SEVEN, "Connection: x", "Connection: close"]),
        (seven, false)
    );
    assert_eq!(ok(&[SEVEN, "Connection: closed"]), (seven, true));
    assert_eq!(old(&[SEVEN]), (seven, false));
    assert_eq!(old(&[SEVEN, "Connection: keep-alive"]), (seven, true));
    assert_eq!(
        old(&[SEVEN, "Connection: keep-alive, close"]),
        (seven, false)
    );
}

#[test]
fn answer_without_a_body_frees_its_connection_unless_it_announces_one() {
    let none = |may_reuse| (Framing::None, may_reuse);
    assert_eq!(framing("1.1 200 OK", &[SEVEN], true), none(true));
    assert_eq!(framing("1.1 200 OK", &[CHUNKED], true), none(true));
    assert_eq!(framing("1.1 304 Not Modified", &[SEVEN], false), none(true));
    for (headers, may_reuse) in [
        (&[][..], true),
        (&["Content-Length: 0"], true),
        (&[SEVEN], false),
        (&[CHUNKED], false),
    ] {
        assert_eq!(
            framing("1.1 204 No Content", headers, false),
            none(may_reuse)
        );
        assert_eq!(framing("1.1 100 Continue", headers, false), none(may_reuse));
    }
    let switched = framing("1.1 101 Switching Protocols", &[], false);
    assert_eq!(switched, none(false));
}

#[test]
fn headers_that_two_readers_could_understand_differently_are_refused() {
    for (headers, doubt) in [
        (
            "Content-Length: 5\r\nContent-Length: 6\r\n",
            Doubt::TwoLengths,
        ),
        ("Content-Length: 5, 6\r\n", Doubt::TwoLengths),
        ("Content-Length: \r\n", Doubt::BadLength),
        ("Content-Length: +5\r\n", Doubt::BadLength),
        ("Content-Length: -5\r\n", Doubt::BadLength),
        ("Content-Length: 0x5\r\n", Doubt::BadLength),
        ("Content-Length: 5 5\r\n", Doubt::BadLength),
        ("Content-Length: 5,\r\n", Doubt::BadLength),
        ("Content-Length: 18446744073709551616\r\n", Doubt::BadLength),
        (
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
            Doubt::LengthAndChunks,
        ),
        (
            "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n",
            Doubt::LengthAndChunks,
        ),
        (
            "Transfer-Encoding: gzip, chunked\r\n",
            Doubt::TransferCoding,
        ),
        (
            "Transfer-Encoding: chunked, chunked\r\n",
            Doubt::TransferCoding,
        ),
        (
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            Doubt::TransferCoding,
        ),
        (
            "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n",
            Doubt::TransferCoding,
        ),
        ("Transfer-Encoding: xchunked\r\n", Doubt::TransferCoding),
        ("Transfer-Encoding:\r\n", Doubt::TransferCoding),
        ("Transfer-Encoding: identity\r\n", Doubt::TransferCoding),
        ("Content-Length : 5\r\n", Doubt::HeaderName),
        (" Content-Length: 5\r\n", Doubt::HeaderName),
        ("A: b\r\n c\r\n", Doubt::HeaderName),
        ("A: b\r\n\tc\r\n", Doubt::HeaderName),
        ("A b: c\r\n", Doubt::HeaderName),
        ("A\0: c\r\n", Doubt::HeaderName),
        ("\u{e4}: c\r\n", Doubt::HeaderName),
        (": c\r\n", Doubt::HeaderName),
        ("No-Colon\r\n", Doubt::HeaderName),
        ("A: b\0c\r\n", Doubt::HeaderValue),
        ("A: b\x7fc\r\n", Doubt::HeaderValue),
        ("A: b\rc\r\n", Doubt::HeaderValue),
        ("A: b\nContent-Length: 5\r\n", Doubt::BareLf),
        ("A: b\r\n\n", Doubt::BareLf),
    ] {
        assert_eq!(
            head(headers).map(|head| head.framing),
            Err(doubt),
            "{headers:?}"
        );
    }
    let old = b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(parse(old, false).map(|_| ()), Err(Doubt::ChunksInHttp10));
}

#[test]
fn head_that_is_no_http1_is_refused_by_its_first_bytes() {
    for bytes in [
        &b"S"[..],
        b"HTTP/2",
        b"\r\nHTTP/1.1 200 OK\r\n\r\n",
        b"\n",
        b" HTTP/1.1",
        b"http/1.1",
    ] {
        assert_eq!(
            parse(bytes, false).map(|_| ()),
            Err(Doubt::NotHttp1),
            "{bytes:?}"
        );
    }
    for (line, doubt) in [
        ("HTTP/1.2 200 OK", Doubt::NotHttp1),
        ("HTTP/1.11 200 OK", Doubt::NotHttp1),
        ("HTTP/1.1  200 OK", Doubt::StatusLine),
        ("HTTP/1.1 20 OK", Doubt::StatusLine),
        ("HTTP/1.1 2000 OK", Doubt::StatusLine),
        ("HTTP/1.1 +20 OK", Doubt::StatusLine),
        ("HTTP/1.1 099 OK", Doubt::StatusLine),
        ("HTTP/1.1 200\tOK", Doubt::StatusLine),
        ("HTTP/1.1 200 O\0K", Doubt::StatusLine),
        ("HTTP/1.1", Doubt::NotHttp1),
    ] {
        let bytes = format!("{line}\r\n\r\n");
        assert_eq!(
            parse(bytes.as_bytes(), false).map(|_| ()),
            Err(doubt),
            "{line}"
        );
    }
}

#[test]
fn head_too_long_or_with_too_many_headers_is_refused() {
    let many = |count: usize| "A: b\r\n".repeat(count);
    assert_eq!(
        head(&many(MOST_HEADERS)).unwrap().fields.len(),
        MOST_HEADERS
    );
    let result = head(&many(MOST_HEADERS + 1)).map(|_| ());
    assert_eq!(result, Err(Doubt::TooManyHeaders));
    let endless = format!("HTTP/1.1 200 OK\r\nA: {}", "b".repeat(LONGEST_HEAD));
    assert_eq!(
        parse(endless.as_bytes(), false).map(|_| ()),
        Err(Doubt::LongHead)
    );
    let long = format!("A: {}\r\n", "b".repeat(LONGEST_HEAD));
    assert_eq!(head(&long).map(|_| ()), Err(Doubt::LongHead));
}

#[test]
fn value_of_several_lines_is_joined_and_any_other_is_as_it_came() {
    for (text, is_folded) in [
        (
            &b"HTTP/1.1 200 OK\r\nA: b\r\nContent-Length: 0\r\n\r\n"[..],
            false,
        ),
        (
            b"HTTP/1.1 200 OK\r\nA: b\r\n c\r\nContent-Length: 0\r\n\r\n",
            true,
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nA: b\r\n\tc\r\n\r\n",
            true,
        ),
        (b"HTTP/1.1 200 OK\nA: b\n c\nContent-Length: 0\n\n", true),
    ] {
        for step in [1, 7, text.len()] {
            let mut parser = Parser::of_proxy();
            let mut end = 0;
            let head = loop {
                end = (end + step).min(text.len());
                if let Some(head) = parser.parse(&text[..end], false).unwrap() {
                    break head.clone();
                }
            };
            let value = head.values(text, "a").next().unwrap();
            let expected: &[u8] = if is_folded { b"b c" } else { b"b" };
            assert_eq!(&*head.unfolded(value), expected);
            assert_eq!(
                (head.may_reuse, head.framing),
                (!is_folded, Framing::Length(0))
            );
        }
    }
}
