//! JSON from untrusted sources. A text of a few megabytes can stand for gigabytes of parsed
//! values, so the values are counted before the text is parsed.

use serde::de::DeserializeOwned;

/// Why a text wasn't parsed.
#[derive(Debug, thiserror::Error)]
pub enum Unparsed {
    #[error("it has more than {0} values")]
    TooMany(usize),
    #[error("{0}")]
    Malformed(#[from] serde_json::Error),
}

/// Parses the text, unless it has more values than `most`.
pub fn parse<T: DeserializeOwned>(text: &str, most: usize) -> Result<T, Unparsed> {
    if has_more_values_than(text.as_bytes(), most) {
        return Err(Unparsed::TooMany(most));
    }
    Ok(serde_json::from_str(text)?)
}

pub fn has_more_values_than(text: &[u8], most: usize) -> bool {
    // Each value takes a byte at least.
    text.len() > most && count_values(text) > most
}

/// Counts the values in one pass, without parsing them. Of malformed text it may count too many.
fn count_values(text: &[u8]) -> usize {
    let (mut count, mut quoted, mut escaped) = (1, false, false);
    for byte in text {
        if quoted {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => quoted = false,
                _ => {}
            }
        } else {
            match byte {
                b'"' => quoted = true,
                b',' | b'[' | b'{' => count += 1,
                _ => {}
            }
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn values_outside_of_strings_are_counted() {
        assert_eq!(count_values(br#"{"a": [1, "x,[{\",", {}], "b": 2}"#), 7);
        let quoted = format!(r#"{{"a":["{}\",", 1]}}"#, ",[{".repeat(100_000));
        assert_eq!(count_values(quoted.as_bytes()), 4);
    }

    #[test]
    fn text_with_too_many_values_is_not_parsed() {
        assert!(parse::<Value>("[1,2,3]", 4).is_ok());
        assert!(matches!(
            parse::<Value>("[1,2,3,4]", 4),
            Err(Unparsed::TooMany(4))
        ));
        assert!(matches!(
            parse::<Value>("[1", 4),
            Err(Unparsed::Malformed(_))
        ));
        let bomb = format!("[{}[]]", "[],".repeat(1_000_000));
        assert!(parse::<Value>(&bomb, 100_000).is_err());
    }
}
