use super::*;

#[test]
fn phases_of_a_connection_never_repeat() {
    let watch = HeaderWatch::default();
    assert!(watch.phase().is_reading() && watch.phase().is_first());
    let mut seen = vec![watch.phase()];
    for _ in 0..3 {
        watch.serving();
        assert!(!watch.phase().is_reading());
        seen.push(watch.phase());
        watch.reading();
        assert!(watch.phase().is_reading() && !watch.phase().is_first());
        seen.push(watch.phase());
    }
    let mut unique = seen.clone();
    unique.dedup();
    assert_eq!(seen, unique);
}

const CHUNKED: &str = "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n";

fn serve(watch: &HeaderWatch, header: &str, body: BodyLength) -> Result<Inspected, Refusal> {
    watch.serving();
    watch.inspect(header.len(), body)
}

#[test]
fn chunks_are_checked_wherever_they_are_cut() {
    let body = "5\r\nhello\r\n\r\n0\r\n\r\n";
    for cut in 0..body.len() {
        let watch = HeaderWatch::default();
        let first = format!("{CHUNKED}{}", &body[..cut]);
        watch.received(first.as_bytes()).unwrap();
        let early = serve(&watch, CHUNKED, BodyLength::Chunked);
        let late = watch.received(&body.as_bytes()[cut..]);
        assert!(
            early.is_err() || (late.is_err() && watch.has_bad_chunk()),
            "{cut}"
        );
    }
}

#[test]
fn requests_one_after_another_are_told_apart_from_pipelined_ones() {
    let watch = HeaderWatch::default();
    for body in ["0\r\n\r\n", "2\r\nab\r\n0\r\n\r\n"] {
        watch.received(CHUNKED.as_bytes()).unwrap();
        assert_eq!(
            serve(&watch, CHUNKED, BodyLength::Chunked),
            Ok(Inspected::Fine)
        );
        watch.received(body.as_bytes()).unwrap();
        watch.reading();
    }
    // In one read: seen, and told apart.
    let get = "GET / HTTP/1.1\r\nhost: h\r\n\r\n";
    let together = format!("{get}{CHUNKED}0\r\n\r\n{get}{CHUNKED}\r\n");
    watch.received(together.as_bytes()).unwrap();
    for _ in 0..2 {
        let seen = serve(&watch, get, BodyLength::Known(0));
        assert_eq!(seen, Ok(Inspected::Fine));
        watch.reading();
        let chunked = serve(&watch, CHUNKED, BodyLength::Chunked);
        if chunked == Err(Refusal::BadRequest) {
            return;
        }
        assert_eq!(chunked, Ok(Inspected::Fine));
        watch.reading();
    }
    panic!("the chunk without a size was not seen");
}

#[test]
fn chunks_that_were_read_with_an_earlier_body_are_checked() {
    let post = "POST / HTTP/1.1\r\ncontent-length: 3\r\n\r\n";
    let earlier = [
        (post, BodyLength::Known(3), "abc"),
        (CHUNKED, BodyLength::Chunked, "1\r\na\r\n0\r\n\r\n"),
    ];
    for (header, length, body) in earlier {
        // The next request, whole or cut anywhere, comes with the end of that body.
        let next = format!("{CHUNKED}\r\nhello\r\n");
        for cut in 0..=next.len() {
            for size in [usize::MAX, 1] {
                let watch = HeaderWatch::default();
                watch.received(header.as_bytes()).unwrap();
                serve(&watch, header, length).unwrap();
                let rest = format!("{body}{}", &next[..cut]);
                for piece in rest.as_bytes().chunks(size.min(rest.len())) {
                    watch.received(piece).unwrap();
                }
                watch.reading();
                let of_header = CHUNKED.len().max(cut);
                if cut < of_header {
                    watch.received(&next.as_bytes()[cut..of_header]).unwrap();
                }
                let early = serve(&watch, CHUNKED, BodyLength::Chunked);
                let late = watch.received(&next.as_bytes()[of_header..]);
                assert!(early.is_err() || late.is_err(), "{header} {cut} {early:?}");
            }
        }
    }
}

#[test]
fn chunks_behind_more_than_a_header_of_early_bytes_are_not_seen() {
    let watch = HeaderWatch::default();
    let post = "POST / HTTP/1.1\r\ncontent-length: 3\r\n\r\n";
    watch.received(post.as_bytes()).unwrap();
    serve(&watch, post, BodyLength::Known(3)).unwrap();
    let rest = format!("abc{CHUNKED}{}", "x".repeat(LARGEST_HEADER));
    watch.received(rest.as_bytes()).unwrap();
    watch.reading();
    let unseen = serve(&watch, CHUNKED, BodyLength::Chunked);
    assert_eq!(unseen, Ok(Inspected::UnseenChunks));
}

#[test]
fn requests_after_one_that_was_not_inspected_are_taken_as_they_are() {
    let get = "GET / HTTP/1.1\r\nuser-agent: a b c d\r\n\r\n";
    // Refused before it was looked at; or looked at, and the first byte of the next came early.
    for early in ["", "G"] {
        let watch = HeaderWatch::default();
        watch.received(get.as_bytes()).unwrap();
        watch.serving();
        if !early.is_empty() {
            watch.inspect(get.len(), BodyLength::Known(0)).unwrap();
        }
        watch.received(early.as_bytes()).unwrap();
        watch.reading();
        for from in [early.len(), 0] {
            watch.received(&get.as_bytes()[from..]).unwrap();
            let outcome = serve(&watch, get, BodyLength::Known(0));
            assert_eq!(outcome, Ok(Inspected::Fine));
            watch.reading();
        }
        watch
            .received(format!("{CHUNKED}0\r\n\r\n").as_bytes())
            .unwrap();
        let chunked = serve(&watch, CHUNKED, BodyLength::Chunked);
        // The connection ends after chunks that aren't seen.
        let expected = match early {
            "" => Inspected::UnseenChunks,
            _ => Inspected::Fine,
        };
        assert_eq!(chunked, Ok(expected));
    }
}

#[test]
fn blanks_in_the_target_and_headers_without_end_are_noticed() {
    for (line, odd) in [
        ("GET /a HTTP/1.1\r\n", false),
        ("\r\nGET /a HTTP/1.1\r\nx: a b c d\r\n", false),
        ("GET /a b HTTP/1.1\r\n", true),
        ("GET  /a HTTP/1.1\r\n", true),
        ("GET /a\tb HTTP/1.1\r\n", true),
        ("GET /a?\x01 HTTP/1.1\r\n", true),
        ("GET /a\rb HTTP/1.1\r\n", true),
        ("GET /a?\"b\" HTTP/1.1\r\n", false),
    ] {
        // In one read, and byte by byte.
        for size in [line.len(), 1] {
            let watch = HeaderWatch::default();
            for piece in line.as_bytes().chunks(size) {
                watch.received(piece).unwrap();
            }
            let outcome = serve(&watch, line, BodyLength::Known(0));
            assert_eq!(outcome == Err(ODD_LINE), odd, "{line}");
        }
    }
    let watch = HeaderWatch::default();
    watch.received(&[b'x'; LARGEST_HEADER - 1]).unwrap();
    assert!(!watch.is_too_large());
    watch.received(b"x").unwrap();
    assert!(watch.is_too_large());
}
