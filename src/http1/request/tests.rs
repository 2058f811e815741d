use super::*;

fn is_plain(text: &str) -> bool {
    matches!(Parser::default().parse(text.as_bytes()), Reading::Plain(_))
}

fn with(header: &str) -> String {
    format!("POST /a HTTP/1.1\r\nHost: h\r\n{header}\r\n\r\n")
}

#[test]
fn plain_head_is_taken_apart_into_spans() {
    let text =
        b"POST /a/b?c=d HTTP/1.1\r\nHost: h:80\r\nX-One:  1 \r\ncontent-length: 12\r\n\r\nbody";
    let mut parser = Parser::default();
    let Reading::Plain(head) = parser.parse(text) else {
        panic!("not plain");
    };
    assert_eq!(head.length, text.len() - 4);
    assert_eq!(head.method.get(text), b"POST");
    assert_eq!(head.target.get(text), b"/a/b?c=d");
    assert_eq!((head.body(), head.closes), (12, false));
    let fields: Vec<(&[u8], &[u8])> = head
        .fields
        .iter()
        .map(|field| (field.name.get(text), field.value.get(text)))
        .collect();
    assert_eq!(
        fields,
        [
            (&b"Host"[..], &b"h:80"[..]),
            (b"X-One", b"1"),
            (b"content-length", b"12")
        ]
    );
}

#[test]
fn head_is_the_same_however_its_bytes_are_split() {
    let text = with("content-length: 3\r\nconnection: close");
    for step in 1..text.len() {
        let mut parser = Parser::default();
        let mut end = 0;
        loop {
            end = (end + step).min(text.len());
            match parser.parse(&text.as_bytes()[..end]) {
                Reading::Incomplete => assert!(end < text.len()),
                Reading::Plain(head) => {
                    assert_eq!((head.length, head.body()), (text.len(), 3));
                    assert!(head.closes);
                    break;
                }
                Reading::NotPlain => panic!("{step}"),
            }
        }
    }
}

#[test]
fn request_in_doubt_is_not_plain() {
    for line in [
        "GET /a HTTP/1.0",
        "GET  /a HTTP/1.1",
        "GET /a  HTTP/1.1",
        "GET /a HTTP/1.1 ",
        " GET /a HTTP/1.1",
        "\r\nGET /a HTTP/1.1",
        "get /a HTTP/1.1",
        "GET a HTTP/1.1",
        "GET * HTTP/1.1",
        "GET //h/a HTTP/1.1",
        "GET http://h/a HTTP/1.1",
        "CONNECT h:80 HTTP/1.1",
        "CONNECT /a HTTP/1.1",
        "GET /a#b HTTP/1.1",
        "GET /a\\b HTTP/1.1",
        "GET /a\tb HTTP/1.1",
        "GET /\u{e4} HTTP/1.1",
        "GET /a<b HTTP/1.1",
        "ABCDEFGHIJKLMNOPQ /a HTTP/1.1",
        "GET /a",
        "PRI * HTTP/2.0",
    ] {
        assert!(!is_plain(&format!("{line}\r\nHost: h\r\n\r\n")), "{line}");
    }
    for header in [
        "Transfer-Encoding: chunked",
        "Transfer-Encoding: identity\r\nContent-Length: 1",
        "Upgrade: websocket",
        "Expect: 100-continue",
        "TE: trailers",
        "Trailer: x",
        "HTTP2-Settings: x",
        "Proxy-Connection: close",
        "Connection: x-a",
        "Connection: close, x-a",
        "Connection: close\r\nConnection: close",
        "Connection:",
        "Content-Length: 1\r\nContent-Length: 1",
        "Content-Length: 1, 1",
        "Content-Length: +1",
        "Content-Length: 01",
        "Content-Length:",
        "Content-Length: 1 1",
        "Content-Length: 9999999999999999999",
        "Host: h",
        "Cookie: a\r\nCookie: b",
        "X-A: b\r\n c",
        "X-A: b\nX-B: c",
        "X-A: b\rX-B: c",
        "X-A : b",
        "X A: b",
        "X!A: b",
        "X-A: \u{e4}",
        "X-A: \u{1}",
        ": b",
        "X-A",
    ] {
        assert!(!is_plain(&with(header)), "{header}");
    }
    assert!(!is_plain("GET / HTTP/1.1\r\n\r\n"));
    assert!(!is_plain("GET / HTTP/1.1\r\nHost:\r\n\r\n"));
    assert!(!is_plain("GET / HTTP/1.1\r\nHost: a@b\r\n\r\n"));
    assert!(!is_plain(&with(&format!("{}: b", "x".repeat(65)))));
    assert!(!is_plain(&with(&"X-A: b\r\n".repeat(100))));
    assert!(!is_plain(&with(&format!(
        "X-A: {}",
        "b".repeat(LONGEST_HEAD)
    ))));
    for header in [
        "Content-Length: 0",
        "Connection: Keep-Alive",
        "connection: CLOSE",
        "X_A: b\tc",
        "Keep-Alive: 5",
        "X-A:",
    ] {
        assert!(is_plain(&with(header)), "{header}");
    }
}

#[test]
fn what_is_no_http_is_known_by_its_first_bytes() {
    for bytes in [
        &b"\x16\x03\x01"[..],
        b"\r",
        b"SSH-2.0-x\r\n",
        b"GET \x00",
        b"GET / HTTP/2",
        b"GET / HTTP/1.1\r\nA B",
    ] {
        let mut parser = Parser::default();
        let reading = parser.parse(bytes);
        assert!(matches!(reading, Reading::NotPlain), "{bytes:?}");
    }
    for bytes in [&b""[..], b"G", b"GET /", b"GET / HTTP/1.1\r\nA"] {
        let mut parser = Parser::default();
        let reading = parser.parse(bytes);
        assert!(matches!(reading, Reading::Incomplete), "{bytes:?}");
    }
}

#[test]
fn value_with_other_bytes_than_visible_ascii_blanks_and_tabs_is_not_plain() {
    // Long values are looked at many bytes at a time.
    for (before, after) in [(1, 1), (7, 9), (40, 1), (3, 70)] {
        for byte in 0..=u8::MAX {
            let mut text = b"GET /a HTTP/1.1\r\nHost: h\r\nX: ".to_vec();
            text.extend_from_slice(&vec![b'a'; before]);
            text.push(byte);
            text.extend_from_slice(&vec![b'b'; after]);
            text.extend_from_slice(b"\r\n\r\n");
            let is_plain = matches!(Parser::default().parse(&text), Reading::Plain(_));
            assert_eq!(is_plain, matches!(byte, b'\t' | b' '..=b'~'), "{byte}");
        }
    }
}
