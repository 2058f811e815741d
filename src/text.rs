//! Cutting texts of unknown length for logs and error messages, and reading times.

use std::time::Duration;

/// The longest beginning of `text` that has at most `max_bytes` bytes and ends between two
/// characters.
pub fn clip(text: &str, max_bytes: usize) -> &str {
    &text[..text.floor_char_boundary(max_bytes)]
}

/// The first `max_chars` characters, for limits that a file format counts in characters.
pub fn clip_chars(text: &str, max_chars: usize) -> &str {
    match text.char_indices().nth(max_chars) {
        Some((end, _)) => &text[..end],
        None => text,
    }
}

/// Whether a character isn't seen, and changes what is: control characters, and those that turn the
/// direction of a text or take no room.
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}' | '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{feff}'
                | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{e0000}'..='\u{e007f}'
        )
}

/// `60s`, `500ms`, `1.5m`, `2h`, and a number of seconds.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.');
    let (number, unit) = text.split_at(digits.unwrap_or(text.len()));
    let milliseconds = match unit.trim() {
        "ms" => 1.0,
        "" | "s" | "sec" | "second" | "seconds" => 1e3,
        "m" | "min" | "minute" | "minutes" => 60e3,
        "h" | "hour" | "hours" => 3600e3,
        "d" | "day" | "days" => 86_400e3,
        _ => return None,
    };
    let number: f64 = number.parse().ok()?;
    let seconds = number * milliseconds / 1e3;
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|time| !time.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clip_never_splits_a_character() {
        assert_eq!(clip("aüb", 2), "a");
        assert_eq!(clip("aüb", 3), "aü");
        assert_eq!(clip("aüb", 4), "aüb");
        assert_eq!(clip("aüb", 100), "aüb");
        assert_eq!(clip("", 0), "");
    }

    #[test]
    fn clip_chars_counts_characters_instead_of_bytes() {
        assert_eq!(clip_chars("üüü", 2), "üü");
        assert_eq!(clip_chars("üüü", 3), "üüü");
        assert_eq!(clip_chars("üüü", 4), "üüü");
    }
}
