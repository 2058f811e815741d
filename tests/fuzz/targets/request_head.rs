//! Input: the bytes of a connection. If a request at their beginning is taken for plain, the most
//! lenient and the strictest reader agree with it: on its words, on each header, on where it ends,
//! and on the length of its body. Splitting the bytes changes nothing.
#![no_main]

use ati::http1::request::{Head, Parser, Reading};
use libfuzzer_sys::fuzz_target;

fn check(head: &Head, data: &[u8]) {
    let raw = &data[..head.length];
    assert!(raw.ends_with(b"\r\n\r\n"));
    let text = std::str::from_utf8(raw).expect("a plain head is ASCII");
    // Every CR and LF ends a line, and the only empty line is the last.
    let body = text.strip_suffix("\r\n\r\n").unwrap();
    let mut lines = body.split("\r\n");
    let line = lines.next().unwrap();
    let words: Vec<&str> = line.split(' ').collect();
    assert_eq!(words.len(), 3, "{line:?}");
    assert_eq!(words[0].as_bytes(), head.method.get(data));
    assert_eq!(words[1].as_bytes(), head.target.get(data));
    assert_eq!(words[2], "HTTP/1.1");
    assert!(words[1].starts_with('/') && !words[1].contains('#'));
    let mut lengths = Vec::new();
    let mut hosts = 0;
    let mut fields = head.fields.iter();
    for line in lines {
        assert!(!line.is_empty() && !line.contains(['\r', '\n']));
        let (name, value) = line.split_once(':').expect("a header has a colon");
        let value = value.trim_matches([' ', '\t']);
        assert_eq!(name, name.trim());
        let field = fields.next().expect("no header is left out");
        assert_eq!(field.name.get(data), name.as_bytes());
        assert_eq!(field.value.get(data), value.as_bytes());
        match name.to_ascii_lowercase().as_str() {
            "host" => hosts += 1,
            "content-length" => lengths.push(value.parse::<u64>().expect("a number")),
            "transfer-encoding" | "upgrade" | "expect" | "te" | "trailer" => {
                panic!("{name} in a plain request")
            }
            "connection" => {
                let closes = value.eq_ignore_ascii_case("close");
                assert!(closes || value.eq_ignore_ascii_case("keep-alive"));
                assert_eq!(closes, head.closes);
            }
            _ => {}
        }
    }
    assert!(fields.next().is_none());
    assert_eq!(hosts, 1);
    assert_eq!(lengths, head.content_length.into_iter().collect::<Vec<_>>());
}

/// What is found when the bytes come in pieces: the length of a plain head, or nothing.
fn in_pieces(data: &[u8], step: usize) -> Option<usize> {
    let mut parser = Parser::default();
    let mut end = 0;
    while end < data.len() {
        end = (end + step).min(data.len());
        match parser.parse(&data[..end]) {
            Reading::Incomplete => {}
            Reading::Plain(head) => return Some(head.length),
            Reading::NotPlain => return None,
        }
    }
    None
}

fuzz_target!(|data: &[u8]| {
    let mut parser = Parser::default();
    let whole = match parser.parse(data) {
        Reading::Plain(head) => {
            check(head, data);
            Some(head.length)
        }
        Reading::Incomplete | Reading::NotPlain => None,
    };
    for step in [1, 2, 7, 64] {
        assert_eq!(in_pieces(data, step), whole, "{step}");
    }
});
