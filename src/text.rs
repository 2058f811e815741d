//! Cutting texts of unknown length for logs and error messages.

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
