//! Answers of the generated exchanges.

use super::generate::Rng;
use super::scripted::{Answer, Then, When};

#[derive(Clone)]
pub struct Made {
    pub what: String,
    pub answer: Answer,
    /// The answer ends in the middle, so what arrives of it is a matter of timing.
    pub breaks_off: bool,
}

const HEADERS: &[&str] = &[
    "Content-Type: text/plain",
    "content-type: application/json; charset=utf-8",
    "Date: Tue, 15 Nov 1994 08:12:31 GMT",
    "Server: scripted",
    "Set-Cookie: a=1; Path=/",
    "set-cookie: b=2",
    "ETag: \"x\"",
    "Cache-Control: no-store",
    "X-Request-Id: of-the-upstream",
    "X-Echo: Bearer planted-upstream-key-0001",
    "x-echo-coded: planted%2Dupstream%2Dkey%2D0001",
    "Keep-Alive: timeout=5, max=100",
    "Proxy-Authenticate: Basic",
    "Proxy-Connection: keep-alive",
    "Connection: keep-alive",
    "Connection: x-hop\r\nX-Hop: 1",
    "Upgrade: h2",
    "Trailer: x-later",
    "Content-Encoding: gzip",
    "Accept-Ranges: bytes",
    "Location: http://other.test/x",
    "WWW-Authenticate: Bearer",
    "X-Empty:",
    "X-UPPER: YES",
    "X-High: caf\u{e9}",
    "X-Blanks:   a  b  ",
    "x_under: 1",
    "X-Signature-Status: forged",
    "Retry-After: 1",
    "Via: 1.1 other",
    "Alt-Svc: h3=\":443\"",
    "Strict-Transport-Security: max-age=1",
];

fn made(what: String, bytes: Vec<u8>, then: Then, breaks_off: bool) -> Made {
    Made {
        what,
        answer: Answer {
            when: When::Whole,
            pieces: vec![bytes],
            then,
            is_cut_for_head: true,
        },
        breaks_off,
    }
}

fn body(rng: &mut Rng) -> Vec<u8> {
    let size = *[0, 1, 7, 100, 3_000, 40_000].get(rng.below(6)).unwrap();
    (0..size).map(|n| b'a' + (n % 26) as u8).collect()
}

fn chunks(rng: &mut Rng, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let step = 1 + rng.below(body.len() + 1).max(body.len() / 20);
    for piece in body.chunks(step) {
        let size = match rng.below(4) {
            0 => format!("{:X}", piece.len()),
            1 => format!("00{:x}", piece.len()),
            2 => format!("{:x};ext=\"1\"", piece.len()),
            _ => format!("{:x}", piece.len()),
        };
        bytes.extend(format!("{size}\r\n").bytes());
        bytes.extend_from_slice(piece);
        bytes.extend(b"\r\n");
    }
    bytes.extend_from_slice(rng.pick(&[
        b"0\r\n\r\n" as &[u8],
        b"0\r\n\r\n",
        b"000\r\n\r\n",
        b"0;last\r\n\r\n",
        b"0\r\nX-Trailer: 1\r\n\r\n",
    ]));
    bytes
}

fn head(rng: &mut Rng, line: &str) -> String {
    let mut head = format!("{line}\r\n");
    for _ in 0..rng.below(5) {
        head += &format!("{}\r\n", rng.pick(HEADERS));
    }
    head
}

/// Framed exactly, and the connection is kept.
pub fn keeping(rng: &mut Rng) -> Made {
    framed(rng, "", Then::Keep)
}

/// Says that it closes the connection, and does.
pub fn closing(rng: &mut Rng) -> Made {
    framed(rng, "Connection: close\r\n", Then::Close)
}

fn framed(rng: &mut Rng, more: &str, then: Then) -> Made {
    let status = rng.pick(&[
        "200 OK",
        "200 OK",
        "200 OK",
        "201 Created",
        "301 Moved",
        "400 Bad",
        "401 No",
        "404 Not Found",
        "429 Slow",
        "500 Oops",
        "503 Busy",
        "299 Odd",
        "599 Odd",
        "204 No Content",
        "304 Not Modified",
        "200",
        "200 ",
    ]);
    let mut text = String::new();
    if rng.chance(8) {
        for _ in 0..1 + rng.below(3) {
            text += rng.pick(&[
                "HTTP/1.1 100 Continue\r\n\r\n",
                "HTTP/1.1 102 Processing\r\n\r\n",
                "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n",
            ]);
        }
    }
    let head = head(rng, &format!("HTTP/1.1 {status}"));
    for line in head.split_inclusive("\r\n") {
        // Two answers to whether the connection is kept would be none.
        if more.is_empty() || !line.starts_with("Connection") {
            text += line;
        }
    }
    text += more;
    let mut bytes = text.into_bytes();
    let bare = status.starts_with("204") || status.starts_with("304");
    let body = body(rng);
    let framing = if bare {
        "none"
    } else {
        rng.pick(&["length", "chunked"])
    };
    match framing {
        "none" => bytes.extend(b"\r\n"),
        "length" => {
            bytes.extend(format!("Content-Length: {}\r\n\r\n", body.len()).bytes());
            bytes.extend(&body);
        }
        _ => {
            bytes.extend(b"Transfer-Encoding: chunked\r\n\r\n");
            bytes.extend(chunks(rng, &body));
        }
    }
    let what = format!("{status} {framing} {} bytes, {then:?}", body.len());
    made(what, bytes, then, false)
}

/// What an upstream may well answer.
pub fn good(rng: &mut Rng) -> Made {
    match rng.below(12) {
        0 => closing(rng),
        // Delimited by the end of the connection.
        1 => {
            let line = rng.pick(&["HTTP/1.0 200 OK", "HTTP/1.1 200 OK", "HTTP/1.1 200 OK"]);
            let mut text = head(rng, line);
            text += "\r\n";
            let mut bytes = text.into_bytes();
            let body = body(rng);
            bytes.extend(&body);
            let what = format!("{} bytes until the end", body.len());
            made(what, bytes, Then::Close, false)
        }
        2 => {
            let keep = rng.pick(&["", "Connection: keep-alive\r\n"]);
            let mut text = head(rng, "HTTP/1.0 200 OK");
            text += &format!("{keep}Content-Length: 3\r\n\r\n");
            text += "old";
            made(
                format!("HTTP/1.0 {keep:?}"),
                text.into_bytes(),
                Then::Close,
                false,
            )
        }
        _ => keeping(rng),
    }
}

/// The text, and whether bytes after the head may get through before the fault is found.
const ODD: &[(&str, bool)] = &[
    (
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
        false,
    ),
    (
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
        false,
    ),
    (
        "HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\nhello",
        false,
    ),
    ("HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\nhello", false),
    ("HTTP/1.1 200 OK\r\nContent-Length: 05\r\n\r\nhello", false),
    (
        "HTTP/1.1 200 OK\r\nContent-Length: 5 \t\r\n\r\nhello",
        false,
    ),
    ("HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello", false),
    ("HTTP/1.1 200 OK\r\nContent-Length: 0x5\r\n\r\nhello", false),
    (
        "HTTP/1.1 200 OK\r\nContent-Length: five\r\n\r\nhello",
        false,
    ),
    ("HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\nhello", false),
    (
        "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n\r\nhello",
        true,
    ),
    ("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello", true),
    (
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello, and more",
        false,
    ),
    (
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged",
        false,
    ),
    (
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        false,
    ),
    (
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        false,
    ),
    (
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        false,
    ),
    (
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        false,
    ),
    (
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        false,
    ),
    (
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        false,
    ),
    (
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\nhello",
        false,
    ),
    (
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: xchunked\r\n\r\nhello",
        false,
    ),
    (
        "HTTP/1.1 200 OK\r\nTransfer-Encoding : chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        false,
    ),
    (
        "HTTP/1.1 200 OK\r\nTransfer-Encoding:\r\n chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        false,
    ),
    (
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        false,
    ),
    (
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        true,
    ),
    (
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloX\r\n0\r\n\r\n",
        true,
    ),
    (
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nZ\r\nhello\r\n0\r\n\r\n",
        true,
    ),
    (
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n",
        true,
    ),
    (
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n+5\r\nhello\r\n0\r\n\r\n",
        true,
    ),
    (
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5 \r\nhello\r\n0\r\n\r\n",
        true,
    ),
    (
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n 5\r\nhello\r\n0\r\n\r\n",
        true,
    ),
    (
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\nhello\n0\n\n",
        true,
    ),
    (
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff1\r\nhello\r\n0\r\n\r\n",
        true,
    ),
    (
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged",
        false,
    ),
    (
        "HTTP/1.1 200 OK\r\nX-Fold: a\r\n b\r\nContent-Length: 5\r\n\r\nhello",
        false,
    ),
    ("HTTP/1.1 200 OK\nContent-Length: 5\n\nhello", false),
    (
        "HTTP/1.1 200 OK\r\nX-Lf: a\nContent-Length: 5\r\n\r\nhello",
        false,
    ),
    (
        "HTTP/1.1 200 OK\r\nX-Cr: a\rb\r\nContent-Length: 5\r\n\r\nhello",
        false,
    ),
    (
        "HTTP/1.1 200 OK\r\nX-Nul: a\0b\r\nContent-Length: 5\r\n\r\nhello",
        false,
    ),
    (
        "HTTP/1.1 200 OK\r\nX Space: 1\r\nContent-Length: 5\r\n\r\nhello",
        false,
    ),
    (
        "HTTP/1.1 200 OK\r\nX-Space : 1\r\nContent-Length: 5\r\n\r\nhello",
        false,
    ),
    (
        "HTTP/1.1 200 OK\r\nno colon\r\nContent-Length: 5\r\n\r\nhello",
        false,
    ),
    (
        "HTTP/1.1 200 OK\r\n: no name\r\nContent-Length: 5\r\n\r\nhello",
        false,
    ),
    ("HTTP/1.1 200 OK\r\nContent-Length : 5\r\n\r\nhello", false),
    (
        "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nhello",
        false,
    ),
    (
        "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        false,
    ),
    (
        "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n",
        false,
    ),
    (
        "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\nhello",
        false,
    ),
    (
        "HTTP/1.1 205 Reset\r\nContent-Length: 5\r\n\r\nhello",
        false,
    ),
    (
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nraw",
        false,
    ),
    (
        "HTTP/1.1 100 Continue\r\nContent-Length: 5\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        false,
    ),
    (
        "HTTP/1.1 199 Odd\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        false,
    ),
    ("HTTP/1.1 099 Odd\r\nContent-Length: 2\r\n\r\nok", false),
    ("HTTP/1.1 600 Odd\r\nContent-Length: 2\r\n\r\nok", false),
    ("HTTP/1.1 999 Odd\r\nContent-Length: 2\r\n\r\nok", false),
    ("HTTP/1.1 1000 Odd\r\nContent-Length: 2\r\n\r\nok", false),
    ("HTTP/1.1 20 Odd\r\nContent-Length: 2\r\n\r\nok", false),
    ("HTTP/1.1 abc\r\nContent-Length: 2\r\n\r\nok", false),
    ("HTTP/2.0 200 OK\r\nContent-Length: 2\r\n\r\nok", false),
    ("HTTP/1.2 200 OK\r\nContent-Length: 2\r\n\r\nok", false),
    ("http/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", false),
    ("HTTP/1.1  200 OK\r\nContent-Length: 2\r\n\r\nok", false),
    ("HTTP/1.1\t200 OK\r\nContent-Length: 2\r\n\r\nok", false),
    (
        "HTTP/1.1 200 caf\u{e9}\r\nContent-Length: 2\r\n\r\nok",
        false,
    ),
    ("HTTP/1.1 200 a\0b\r\nContent-Length: 2\r\n\r\nok", false),
    ("SSH-2.0-OpenSSH_9.2\r\n\r\n", false),
    ("", true),
    ("\0\0\0", false),
    (
        "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello",
        false,
    ),
    (
        "HTTP/1.1 200 OK\r\nConnection: content-length\r\nContent-Length: 5\r\n\r\nhello",
        false,
    ),
    (
        "HTTP/1.1 200 OK\r\nConnection: transfer-encoding\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        false,
    ),
    (
        "HTTP/1.1 200 OK\r\nConnection: x-request-id, x-a\r\nX-A: 1\r\nContent-Length: 5\r\n\r\nhello",
        false,
    ),
];

/// What HTTP doesn't allow, or what two readers could read differently.
pub fn odd(rng: &mut Rng) -> Made {
    let (text, breaks_off) = &ODD[rng.below(ODD.len())];
    let (text, breaks_off) = match rng.below(40) {
        0 => {
            let count = *[90, 110, 250, 270].get(rng.below(4)).unwrap();
            let many: String = (0..count).map(|n| format!("X-Many-{n}: {n}\r\n")).collect();
            (
                format!("HTTP/1.1 200 OK\r\n{many}Content-Length: 2\r\n\r\nok"),
                false,
            )
        }
        1 => {
            let hints = "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(99);
            (
                format!("{hints}HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"),
                false,
            )
        }
        2 => {
            let long = "l".repeat(*[5_000, 70_000, 300_000].get(rng.below(3)).unwrap());
            (
                format!("HTTP/1.1 200 OK\r\nX-Long: {long}\r\nContent-Length: 2\r\n\r\nok"),
                false,
            )
        }
        _ => ((*text).to_owned(), *breaks_off),
    };
    let clipped: String = text.chars().take(120).collect();
    let mut made = made(
        format!("odd {clipped:?}"),
        text.into_bytes(),
        Then::Close,
        breaks_off,
    );
    made.answer.is_cut_for_head = rng.chance(50);
    made
}
