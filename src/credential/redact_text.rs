//! Redaction of texts that are cut: errors and lines of a log.

use super::Attachment;

/// How much of a very long error text is searched for secrets, before the rest is dropped.
const SEARCHED_BEGINNING: usize = 64 << 10;

impl Attachment {
    /// Redacts a text, then cuts it at this length. In a text that was cut first, half a secret
    /// would not be found.
    pub fn redact_text(&self, text: impl Into<Vec<u8>>, longest: usize) -> String {
        let mut bytes = text.into();
        self.redact(&mut bytes);
        let mut text = String::from_utf8_lossy(&bytes).into_owned();
        text.truncate(text.floor_char_boundary(longest));
        text
    }

    /// As [`Attachment::redact_text`], of a text that was cut: a beginning of a secret at its end
    /// is dropped.
    pub fn redact_cut_text(&self, text: &[u8], longest: usize) -> String {
        let clean = self.redactor().push(text);
        let clean = String::from_utf8_lossy(&clean);
        crate::text::clip(&clean, longest).to_owned()
    }

    /// As [`Attachment::redact_text`], of a text that may be very long: no more of it is searched
    /// than the cut text can need.
    pub fn redact_beginning(&self, text: &str, longest: usize) -> String {
        if text.len() <= SEARCHED_BEGINNING {
            return self.redact_text(text, longest);
        }
        self.redact_cut_text(&text.as_bytes()[..SEARCHED_BEGINNING], longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_after_its_secrets_are_redacted() {
        let secret = b"planted-secret-value";
        let attachment = Attachment::default().with_redacted([&secret[..]].into_iter());
        let text = "sent planted-secret-value, and more";
        assert_eq!(attachment.redact_text(text, 10), "sent [REDA");
        assert_eq!(
            attachment.redact_text(text, 1000),
            "sent [REDACTED], and more"
        );
        assert_eq!(attachment.redact_text("äöü", 3), "ä");
    }

    #[test]
    fn secret_at_the_cut_of_a_long_text_is_redacted() {
        let secret = "planted-secret-value";
        let attachment = Attachment::default().with_redacted([secret.as_bytes()].into_iter());
        for before in [4090, 16_370, SEARCHED_BEGINNING - 10, SEARCHED_BEGINNING] {
            for longest in [4096, 16 << 10, usize::MAX] {
                let text = format!("{}{secret}{}", "x".repeat(before), "y".repeat(100_000));
                let shown = attachment.redact_beginning(&text, longest);
                assert!(!shown.contains("plan"), "{before} {longest}");
                assert!(shown.len() <= longest && shown.len() >= longest.min(before));
            }
        }
    }
}
