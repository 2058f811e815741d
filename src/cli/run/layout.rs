//! JSON text with line breaks and indentation. The text isn't parsed into values, so that every
//! number keeps its digits.

/// `json` has to be valid.
pub fn pretty(json: &str) -> String {
    let mut out = String::with_capacity(json.len() * 2);
    let mut depth = 0;
    let mut rest = json.trim_ascii();
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '"' => literal_length(rest),
            _ => first.len_utf8(),
        };
        let (token, behind) = rest.split_at(length);
        rest = behind;
        match first {
            '"' => out += &plain(token),
            '{' | '[' => {
                out.push(first);
                let next = rest.trim_ascii_start();
                if next.starts_with(['}', ']']) {
                    out += &next[..1];
                    rest = &next[1..];
                } else {
                    depth += 1;
                    new_line(&mut out, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                new_line(&mut out, depth);
                out.push(first);
            }
            ',' => {
                out.push(first);
                new_line(&mut out, depth);
            }
            ':' => out += ": ",
            first if first.is_ascii_whitespace() => {}
            first => out.push(first),
        }
    }
    out
}

fn new_line(out: &mut String, depth: usize) {
    out.push('\n');
    out.extend(std::iter::repeat_n("  ", depth));
}

/// Bytes of the string literal that the text begins with, quotes included.
fn literal_length(text: &str) -> usize {
    let mut escaped = false;
    let end = text.bytes().enumerate().skip(1).find(|(_, byte)| {
        let is_end = *byte == b'"' && !escaped;
        escaped = *byte == b'\\' && !escaped;
        is_end
    });
    end.map_or(text.len(), |(place, _)| place + 1)
}

/// A string literal without escapes that it doesn't need.
fn plain(literal: &str) -> String {
    match serde_json::from_str::<String>(literal) {
        Ok(text) => serde_json::Value::String(text).to_string(),
        Err(_) => literal.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn layout_is_that_of_serde_json() {
        for text in [
            r#"{"a":[1,2,{}],"b":{"c":[ ],"d":null}, "e" : "x\"y\\" ,"f":[[],[true]]}"#,
            r#" "a\u00e4\/b\n" "#,
            "[]",
            "{ }",
            "5",
            r#"{"q":"{[,:]}","":""}"#,
            "[\n1\n,\r\n\t2 ]",
        ] {
            let value: Value = serde_json::from_str(text).unwrap();
            let expected = serde_json::to_string_pretty(&value).unwrap();
            assert_eq!(pretty(text), expected);
        }
    }

    #[test]
    fn digits_are_kept() {
        assert_eq!(
            pretty(r#"{"id":123456789012345678901,"v":1.10}"#),
            "{\n  \"id\": 123456789012345678901,\n  \"v\": 1.10\n}"
        );
    }
}
