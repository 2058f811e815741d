use super::*;
use ::base64::Engine as _;
use ::base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// A diverted member: where, and its bytes.
type File = (Vec<String>, Vec<u8>);

fn scanner(limit: usize) -> Scanner {
    Scanner::new(limit)
        .divert("args.content_base64")
        .divert("result.outputs.*.content_base64")
        .tell("tool_name")
}

/// What was kept, the files, and what was told.
type Scanned = (Vec<u8>, Vec<File>, Vec<String>);

fn scan(text: &[u8], size: usize) -> Result<Scanned, ScanError> {
    let mut scanner = scanner(10_000);
    let (mut files, mut told): (Vec<File>, _) = (Vec::new(), Vec::new());
    for piece in text.chunks(size) {
        for event in scanner.push(piece)? {
            match event {
                Event::Found { text, .. } => told.push(text),
                Event::Begin { path } => files.push((path, Vec::new())),
                Event::Bytes(bytes) => {
                    assert!(!bytes.is_empty() && bytes.len() <= piece.len() + 3);
                    files.last_mut().unwrap().1.extend(bytes);
                }
                Event::End => {}
            }
        }
    }
    Ok((scanner.finish()?, files, told))
}

/// The same with serde_json, of the whole text.
fn expected(text: &str) -> (Value, Vec<File>) {
    let mut value: Value = serde_json::from_str(text).unwrap();
    let mut files = Vec::new();
    let mut take = |place: Option<&mut Value>, path: &[&str]| {
        if let Some(Value::String(letters)) = place.as_deref() {
            let bytes = STANDARD.decode(letters).unwrap();
            files.push((path.iter().map(|step| (*step).to_owned()).collect(), bytes));
            *place.unwrap() = Value::Null;
        }
    };
    let args = value.get_mut("args").and_then(Value::as_object_mut);
    let content = args.and_then(|args| args.get_mut("content_base64"));
    take(content, &["args", "content_base64"]);
    match value.pointer_mut("/result/outputs") {
        Some(Value::Object(outputs)) => {
            for (name, output) in outputs {
                let path = ["result", "outputs", name, "content_base64"];
                take(output.get_mut("content_base64"), &path);
            }
        }
        Some(Value::Array(outputs)) => {
            for (index, output) in outputs.iter_mut().enumerate() {
                let path = ["result", "outputs", &index.to_string(), "content_base64"];
                take(output.get_mut("content_base64"), &path);
            }
        }
        _ => {}
    }
    (value, files)
}

#[test]
fn text_in_pieces_of_any_size_gives_what_serde_json_gives() {
    let long = STANDARD.encode([7; 500]);
    let texts = [
        json!({"tool_name": "t", "args": {"content_base64": long, "filename": "a"}}).to_string(),
        json!({"args": {"content_base64": long}, "tool_name": "t"}).to_string(),
        r#" { "args" : { "content\u005fbase64" : "\u002b\/8=" , "x":[1,{"content_base64":"no"}]}}"#
            .to_owned(),
        r#"{"args":{"content_base64":null,"a":{"args":{"content_base64":"no"}}}}"#.to_owned(),
        r#"{"args":[{"content_base64":"no"}],"content_base64":"no","tool_name":5}"#.to_owned(),
        r#"{"args":{"content_base64":""},"tool_name":"a\"b\\","k\"":-1.5e3}"#.to_owned(),
        r#"{"result":{"outputs":{"/tmp/a.b":{"content_base64":"QQ==","n":1},"c":{"x":{}}}}}"#
            .to_owned(),
        r#"{"result":{"outputs":[{"content_base64":"QQ=="},[],{"content_base64":"QUI="},3]}}"#
            .to_owned(),
        r#"{"outputs":{"a":{"content_base64":"no"}},"result":{"outputs":"QQ=="}}"#.to_owned(),
        "[]".to_owned(),
        "  \"text\" ".to_owned(),
        "12".to_owned(),
        "[[[{}]],{\"args\":{\"content_base64\":\"no\"}}]".to_owned(),
    ];
    for text in &texts {
        let (value, files) = expected(text);
        for size in 1..=text.len().min(300) {
            let (kept, diverted, told) = scan(text.as_bytes(), size).unwrap();
            assert_eq!(diverted, files, "{text} {size}");
            let kept: Value = serde_json::from_slice(&kept).unwrap();
            assert_eq!(kept, value, "{text} {size}");
            let name = value["tool_name"].as_str();
            assert_eq!(told.first().map(String::as_str), name, "{text} {size}");
        }
    }
}

#[test]
fn member_is_told_before_the_text_ends() {
    let mut scanner = scanner(100);
    let events = scanner.push(br#"{"tool_name":"a:b","args":{"#).unwrap();
    let (path, text) = (vec!["tool_name".to_owned()], "a:b".to_owned());
    assert_eq!(events, [Event::Found { path, text }]);
}

#[test]
fn broken_text_is_refused_whatever_its_pieces_are() {
    let cases = [
        (r#"{"args":{"content_base64""QQ=="}}"#, "a colon expected"),
        (
            r#"{"args":{"content_base64":"QQ=="]}"#,
            "a comma or a closing",
        ),
        (r#"{"args":{"content_base64":"QQ=="}}x"#, "the end expected"),
        (r#"{"args":{"content_base64":"QQ==""#, "ends too early"),
        (r#"{"args":{"content_base64":"QQ=="#, "ends too early"),
        (r#"{"args":{,}}"#, "a quote expected"),
        (r#"{"args":}"#, "a value expected"),
        (r#"{"args":{"content_base64":"Q\x"}}"#, "an escape of JSON"),
        (
            r#"{"args":{"content_base64":"Q\u00g0"}}"#,
            "an escape of JSON",
        ),
        ("{\"args\":{\"content_base64\":\"QQ\n==\"}}", "no control"),
        (r#"{"args":{"content_base64":"QQ==QQ=="}}"#, "offset 2"),
        (r#"{"args":{"content_base64":"QQQQ Q=="}}"#, "offset 4"),
        (r#"{"args":{"content_base64":"QQQ"}}"#, "adding"),
        (
            r#"{"args":{"content_base64":"QQ==","content_base64":"QQ=="}}"#,
            "duplicate field `content_base64`",
        ),
        (
            r#"{"args":{},"args":{"content_base64":"QQ=="}}"#,
            "duplicate field `args`",
        ),
        ("", "ends too early"),
        ("nul]", "the end expected"),
    ];
    for (text, why) in cases {
        for size in 1..=text.len().max(1) {
            let refused = scan(text.as_bytes(), size).unwrap_err().to_string();
            assert!(refused.contains(why), "{text} {size}: {refused}");
        }
    }
}

#[test]
fn memory_is_bounded_by_the_limit_on_what_is_kept() {
    let mut big = scanner(100);
    big.push(br#"{"args":{"content_base64":""#).unwrap();
    for _ in 0..1000 {
        let events = big.push(&[b'A'; 1000]).unwrap();
        assert!(matches!(&events[..], [Event::Bytes(bytes)] if bytes.len() <= 752));
    }
    big.push(br#""}}"#).unwrap();
    assert!(big.finish().unwrap().len() < 40);

    let mut white = scanner(100);
    let refused = white.push(&[b' '; 101]);
    assert_eq!(refused, Err(ScanError::TooLong(100)));
    let mut name = scanner(100);
    name.push(b"{\"").unwrap();
    assert_eq!(name.push(&[b'a'; 100]), Err(ScanError::TooLong(100)));
    let mut deep = scanner(1 << 20);
    assert_eq!(deep.push(&[b'['; DEEPEST + 1]), Err(ScanError::TooDeep));
}

/// Random texts, well formed and not: where serde_json refuses the whole, the scan or a parse of
/// what it kept does too.
#[test]
fn random_text_is_refused_where_serde_json_refuses_it() {
    const PARTS: &[&str] = &[
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\"args\"",
        "\"content_base64\"",
        "\"QQ==\"",
        "\"\\/w==\"",
        "null",
        "1",
        "\"result\"",
        "\"outputs\"",
        " ",
        "\"a\"",
        "{\"args\":{\"content_base64\":",
        "\"tool_name\"",
        "tru",
        "\\",
        "\"",
    ];
    let mut seed = 1_u64;
    let mut random = move |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) as usize % below
    };
    for _ in 0..20_000 {
        let count = random(12);
        let text: String = (0..count).map(|_| PARTS[random(PARTS.len())]).collect();
        let whole = serde_json::from_str::<Value>(&text);
        let parsed = |size| {
            let (kept, files, _) = scan(text.as_bytes(), size).ok()?;
            let kept: Value = serde_json::from_slice(&kept).ok()?;
            Some((kept, files))
        };
        let (one, many) = (parsed(1), parsed(text.len().max(1)));
        assert_eq!(one, many, "{text}");
        if let Some((kept, files)) = &one {
            assert!(whole.is_ok(), "{text}");
            assert_eq!(
                (kept, files),
                (&expected(&text).0, &expected(&text).1),
                "{text}"
            );
        }
    }
}
