//! The sources of `src/`, as tests of the architecture look at them.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// One file of `src/`.
pub struct Source {
    /// Below `src/`, like `call/mod.rs`.
    pub name: String,
    code: String,
    code_with_texts: String,
}

impl Source {
    /// The folder, or the file's name without its ending.
    pub fn room(&self) -> &str {
        let first = self.name.split('/').next().unwrap_or_default();
        first.trim_end_matches(".rs")
    }

    /// Whether it is this file, or in this folder, which ends with a slash.
    pub fn is_in(&self, place: &str) -> bool {
        self.name == place || (place.ends_with('/') && self.name.starts_with(place))
    }

    /// Without comments, without the content of texts, and without tests.
    pub fn code(&self) -> &str {
        &self.code
    }

    /// Without comments and without tests.
    pub fn code_with_texts(&self) -> &str {
        &self.code_with_texts
    }

    pub fn has_word(&self, word: &str) -> bool {
        has_word(&self.code, word)
    }
}

/// Whether `word` stands in `text`, and not only as a part of a longer one.
pub fn has_word(text: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        !before.is_some_and(is_part) && !after.is_some_and(is_part)
    })
}

pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every file below these folders of the repository.
pub fn files_below(folders: &[&str]) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = folders.iter().map(|name| root().join(name)).collect();
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Every file of `src/` but `lib.rs`, `main.rs` and those that hold only tests.
pub fn sources() -> &'static [Source] {
    static SOURCES: LazyLock<Vec<Source>> = LazyLock::new(read_sources);
    &SOURCES
}

fn read_sources() -> Vec<Source> {
    let mut found = Vec::new();
    for path in files_below(&["src"]) {
        let name = path
            .strip_prefix(root().join("src"))
            .unwrap()
            .to_str()
            .unwrap();
        let is_test = name.ends_with("tests.rs") || name.contains("/tests/");
        if is_test || ["lib.rs", "main.rs"].contains(&name) {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        found.push(Source {
            name: name.to_owned(),
            code: strip(text, false),
            code_with_texts: strip(text, true),
        });
    }
    assert!(found.len() > 100);
    found
}

/// Takes out comments and, unless they are kept, the content of texts and characters.
fn strip(source: &str, keep_texts: bool) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(c) = rest.chars().next() {
        let length = if rest.starts_with("//") {
            let length = rest.find('\n').unwrap_or(rest.len());
            rest = &rest[length..];
            continue;
        } else if let Some(length) = text_length(rest) {
            length
        } else {
            out.push(c);
            rest = &rest[c.len_utf8()..];
            continue;
        };
        match keep_texts {
            true => out.push_str(&rest[..length]),
            false => out.push_str("\"\""),
        }
        rest = &rest[length..];
    }
    out
}

/// The length of the text or character literal that `rest` begins with.
fn text_length(rest: &str) -> Option<usize> {
    if let Some(hashes) = rest.strip_prefix('r') {
        let count = hashes.len() - hashes.trim_start_matches('#').len();
        let quoted = hashes[count..].strip_prefix('"')?;
        let end = format!("\"{}", "#".repeat(count));
        return Some(2 + count + quoted.find(&end)? + end.len());
    }
    if let Some(quoted) = rest.strip_prefix('"') {
        let mut escaped = false;
        let end = quoted.char_indices().find(|(_, c)| {
            let ends = *c == '"' && !escaped;
            escaped = *c == '\\' && !escaped;
            ends
        });
        return Some(1 + end?.0 + 1);
    }
    // A lifetime has no second quote after one character.
    let quoted = rest.strip_prefix('\'')?;
    let mut chars = quoted.char_indices();
    match chars.next()?.1 {
        '\\' => {
            chars.next()?;
            let (at, _) = chars.find(|(_, c)| *c == '\'')?;
            Some(1 + at + 1)
        }
        _ => {
            let (at, c) = chars.next()?;
            (c == '\'').then_some(1 + at + 1)
        }
    }
}

#[test]
fn comments_and_texts_are_taken_out_of_code() {
    for (source, code) in [
        ("a(\"b // \\\" c\") // d\ne", "a(\"\") \ne"),
        (
            "x(r#\"b\"c\"#, 'd', '\\'', b'\\n')",
            "x(\"\", \"\", \"\", b\"\")",
        ),
        ("fn f<'a>(x: &'a str) {}", "fn f<'a>(x: &'a str) {}"),
    ] {
        assert_eq!(strip(source, false), code);
    }
    assert_eq!(strip("a(\"b\") // c", true), "a(\"b\") ");
    assert!(has_word("a word.", "word") && !has_word("words", "word"));
}
