//! The rules of CONTRIBUTING.md about words, columns and sizes.

use std::path::Path;

use crate::support::sources::{files_below, has_word, root};

const LONGEST_FILE: usize = 500;
const MOST_COLUMNS: usize = 100;

/// Where the words are checked.
const FOLDERS: &[&str] = &[
    "src",
    "tests",
    "docs",
    "conf",
    "manifests",
    "deploy",
    "keyrings",
    "caddy",
    "bench",
    "ati-client",
    "examples",
];
const PAGES: &[&str] = &[
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "Makefile",
    "Cargo.toml",
];
/// Other people's texts: documents of public APIs, and figures of runs.
const FOREIGN: &[&str] = &["tests/it/specs", "manifests/specs", "bench/results"];

/// The lists of CONTRIBUTING.md: words, then names.
fn retired() -> (Vec<String>, Vec<String>) {
    let page = std::fs::read_to_string(root().join("CONTRIBUTING.md")).unwrap();
    let section = page.split("### Retired words").nth(1).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let lists: Vec<Vec<String>> = section
        .split("```")
        .skip(1)
        .step_by(2)
        .map(|list| list.split_whitespace().skip(1).map(str::to_owned).collect())
        .collect();
    let [words, names] = lists.try_into().expect("two lists");
    assert!(words.len() > 5 && names.len() > 5);
    (words, names)
}

fn texts() -> Vec<(String, String)> {
    let pages = PAGES.iter().map(|page| root().join(page));
    let mut found = Vec::new();
    for path in files_below(FOLDERS).into_iter().chain(pages) {
        let name = path
            .strip_prefix(root())
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned();
        if FOREIGN.iter().any(|foreign| name.starts_with(foreign)) {
            continue;
        }
        // Binary files have no words.
        if let Ok(text) = std::fs::read_to_string(&path) {
            found.push((name, text));
        }
    }
    assert!(found.len() > 200);
    found
}

#[test]
fn retired_words_are_not_used() {
    let (words, names) = retired();
    let mut found = Vec::new();
    for (name, text) in texts() {
        // The page that lists them.
        let text = match name.as_str() {
            "CONTRIBUTING.md" => text.split("### Retired words").next().unwrap().to_owned(),
            _ => text,
        };
        let is_rust = name.ends_with(".rs");
        for (number, line) in (1..).zip(text.lines()) {
            // An option of systemctl's.
            let plain = line.to_lowercase().replace("--kill-whom", "");
            for word in &words {
                // In identifiers, too: `_` separates words.
                if plain
                    .split(|c: char| !c.is_alphanumeric())
                    .any(|part| part == word)
                {
                    found.push(format!("{name}:{number}: {word}"));
                }
            }
            let code = line.split("//").next().unwrap_or_default();
            for word in names.iter().filter(|word| is_rust && has_word(code, word)) {
                found.push(format!("{name}:{number}: {word}"));
            }
        }
    }
    assert!(found.is_empty(), "{} places: {found:#?}", found.len());
}

#[test]
fn lines_of_comments_and_documents_fit() {
    let mut found = Vec::new();
    for (name, text) in texts() {
        let kind = Path::new(&name).extension().and_then(|ext| ext.to_str());
        // docs/reference is made by `ati reference`, whose tables and help texts have any width.
        let is_checked = match kind {
            Some("rs") => name.starts_with("src/") || name.starts_with("tests/"),
            Some("md") => !name.starts_with("docs/reference/"),
            _ => false,
        };
        if !is_checked {
            continue;
        }
        let mut in_code = false;
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim_end();
            let start = line.trim_start();
            in_code ^= start.starts_with("```");
            let counts = match kind {
                Some("rs") => start.starts_with("//"),
                _ => !in_code && !start.starts_with('|'),
            };
            // A URL can't be broken.
            if counts && line.chars().count() > MOST_COLUMNS && !start.contains("://") {
                found.push(format!("{name}:{number}"));
            }
        }
    }
    assert!(found.is_empty(), "{} lines: {found:#?}", found.len());
}

#[test]
fn files_are_short() {
    let mut found = Vec::new();
    for (name, text) in texts() {
        let lines = text.lines().count();
        if name.ends_with(".rs") && lines > LONGEST_FILE {
            found.push(format!("{name}: {lines} lines"));
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn long_functions_are_warned_about() {
    let cargo = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
    assert!(cargo.contains("too_many_lines = \"warn\""));
    let clippy = std::fs::read_to_string(root().join("clippy.toml")).unwrap();
    assert!(clippy.contains("too-many-lines-threshold = 100"));
}
