//! Texts as the words that are compared: in lower case, identifiers taken apart.

/// Words of a sentence that say nothing about a tool. Those of a tool's name are kept.
const STOP_WORDS: [&str; 109] = [
    "a",
    "about",
    "actually",
    "after",
    "also",
    "am",
    "an",
    "and",
    "any",
    "are",
    "as",
    "at",
    "be",
    "been",
    "before",
    "being",
    "but",
    "by",
    "can",
    "could",
    "did",
    "do",
    "does",
    "doing",
    "down",
    "each",
    "for",
    "from",
    "given",
    "go",
    "had",
    "has",
    "have",
    "having",
    "help",
    "here",
    "how",
    "i",
    "if",
    "in",
    "into",
    "is",
    "it",
    "its",
    "just",
    "let",
    "like",
    "may",
    "me",
    "might",
    "my",
    "need",
    "needs",
    "no",
    "not",
    "of",
    "off",
    "on",
    "one",
    "onto",
    "or",
    "our",
    "out",
    "please",
    "s",
    "should",
    "so",
    "some",
    "something",
    "such",
    "t",
    "than",
    "that",
    "the",
    "their",
    "them",
    "then",
    "there",
    "these",
    "they",
    "this",
    "those",
    "to",
    "tool",
    "tools",
    "under",
    "up",
    "us",
    "use",
    "used",
    "using",
    "via",
    "want",
    "was",
    "way",
    "we",
    "were",
    "what",
    "when",
    "where",
    "which",
    "who",
    "whose",
    "will",
    "with",
    "within",
    "would",
    "you",
    "your",
];

/// Letters of a word that are kept: longer ones are keys and encoded data.
pub const LONGEST_WORD: usize = 40;

const LONGEST_TAG: usize = 300;

pub fn is_stop_word(word: &str) -> bool {
    STOP_WORDS.binary_search(&word).is_ok()
}

/// Each word of a text, in lower case: `createInvoice`, `create_invoice` and `create-invoice` are
/// the two words create and invoice, `HTTPServer` is http and server. Digits stay with the letters
/// before them: `oauth2`, `s3`.
pub fn words(text: &str, mut each: impl FnMut(&str)) {
    let mut word = String::new();
    let mut end = |word: &mut String| {
        if !word.is_empty() {
            each(word);
            word.clear();
        }
    };
    let mut chars = text.chars().peekable();
    let mut before = ' ';
    while let Some(c) = chars.next() {
        if c == '<' {
            end(&mut word);
            skip_tag(&mut chars);
        } else if !c.is_alphanumeric() {
            end(&mut word);
        } else {
            let next_is_lower = chars.peek().is_some_and(|next| next.is_lowercase());
            let begins = c.is_uppercase()
                && (before.is_lowercase()
                    || before.is_numeric()
                    // The last capital of `HTTPServer` begins a word; that of `IDs` doesn't.
                    || (before.is_uppercase() && next_is_lower && !is_plural(&chars)));
            if begins {
                end(&mut word);
            }
            if word.len() < LONGEST_WORD {
                word.extend(c.to_lowercase());
            }
        }
        before = c;
    }
    end(&mut word);
}

/// Descriptions have HTML in them, whose attributes say nothing about a tool.
fn skip_tag(rest: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    let begins = |c: &char| c.is_ascii_alphabetic() || *c == '/';
    let mut ahead = rest.clone();
    if ahead.peek().is_some_and(begins) && ahead.by_ref().take(LONGEST_TAG).any(|c| c == '>') {
        *rest = ahead;
    }
}

/// Whether what follows is the `s` of `IDs` and `URLs`.
fn is_plural(rest: &std::iter::Peekable<std::str::Chars<'_>>) -> bool {
    let mut rest = rest.clone();
    rest.next() == Some('s') && !rest.next().is_some_and(char::is_alphanumeric)
}

/// A name without its separators, in lower case: what different spellings have in common.
pub fn squeezed(text: &str) -> String {
    let letters = text.chars().filter(|c| c.is_alphanumeric());
    letters.flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str) -> Vec<String> {
        let mut found = Vec::new();
        words(text, |word| found.push(word.to_owned()));
        found
    }

    #[test]
    fn identifiers_are_taken_apart() {
        for (text, wanted) in [
            ("createInvoice", &["create", "invoice"][..]),
            ("create_invoice-item", &["create", "invoice", "item"]),
            (
                "stripe:PostV1Invoices",
                &["stripe", "post", "v1", "invoices"],
            ),
            ("HTTPServer getURL", &["http", "server", "get", "url"]),
            ("listUserIDs now", &["list", "user", "ids", "now"]),
            ("oauth2 S3Bucket", &["oauth2", "s3", "bucket"]),
            ("Größe: 12 %", &["größe", "12"]),
            ("/v1/{id}?x=y", &["v1", "id", "x", "y"]),
            ("<a href=\"/docs\">Connect</a> a<b", &["connect", "a", "b"]),
            ("", &[]),
        ] {
            assert_eq!(split(text), wanted, "{text}");
        }
        let long = "x".repeat(10_000);
        assert_eq!(split(&long)[0].len(), LONGEST_WORD);
    }

    #[test]
    fn stop_words_are_in_order() {
        assert!(STOP_WORDS.is_sorted());
        assert!(is_stop_word("the") && !is_stop_word("invoice"));
    }
}
