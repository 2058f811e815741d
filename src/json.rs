//! JSON from strangers. A text of a few megabytes can stand for gigabytes of values, so values are counted before they are made.

use serde::de::DeserializeOwned;

/// Why a text didn't become values.
#[derive(Debug, thiserror::Error)]
pub enum Unparsed {
    #[error("it has more than {0} values")]
    TooMany(usize),
    #[error("{0}")]
    Malformed(#[from] serde_json::Error),
}

/// Parse it, if it has no more than so many values.
pub fn parse<T: DeserializeOwned>(text: &str, most: usize) -> Result<T, Unparsed> {
    if count(text) > most {
        return Err(Unparsed::TooMany(most));
    }
    Ok(serde_json::from_str(text)?)
}

/// At least as many values as the text has, in one look at it.
fn count(text: &str) -> usize {
    let (mut count, mut quoted, mut escaped) = (1, false, false);
    for byte in text.bytes() {
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
    fn values_are_counted_before_they_are_made() {
        assert_eq!(count(r#"{"a": [1, "x,[{\",", {}], "b": 2}"#), 7);
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
