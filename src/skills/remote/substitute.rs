//! Rewrites paths in the text of a skill to `skillati://` URIs, so that skills which were written
//! for a folder work where there is none.

use crate::skills::is_skill_name;

const DIRECTORY_VARIABLES: [&str; 2] = ["${ATI_SKILL_DIR}", "${CLAUDE_SKILL_DIR}"];
const CLAUDE_FOLDER: &str = ".claude/skills/";
const LONGEST_FOLDERS: usize = 1024;
const FOLDERS: [&str; 3] = ["references/", "scripts/", "assets/"];

/// The text of `skill` with its rewritten paths. `is_known` tells the names of the catalogue.
pub fn substitute(text: &str, skill: &str, is_known: impl Fn(&str) -> bool) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 16);
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let before = out.chars().next_back();
        let rewritten = match next {
            '$' => variable(rest).map(|length| (length, skill)),
            '.' if !before.is_some_and(is_word) => claude_folder(rest).filter(|_| !in_url(&out)),
            _ if next.is_ascii_alphanumeric() && !before.is_some_and(is_path) => {
                sibling(rest, skill, &is_known)
            }
            _ => None,
        };
        let Some((length, name)) = rewritten else {
            out.push(next);
            rest = &rest[next.len_utf8()..];
            continue;
        };
        if next == '.' {
            out.truncate(without_folders(&out).len());
        }
        out.push_str("skillati://");
        out.push_str(name);
        rest = &rest[length..];
    }
    out
}

/// The variable that stands for the folder of this skill.
fn variable(text: &str) -> Option<usize> {
    let found = DIRECTORY_VARIABLES
        .iter()
        .find(|name| text.starts_with(**name));
    found.map(|name| name.len())
}

/// `.claude/skills/<name>`, where a name of a skill follows and ends there.
fn claude_folder(text: &str) -> Option<(usize, &str)> {
    let name = leading_name(text.strip_prefix(CLAUDE_FOLDER)?);
    let length = CLAUDE_FOLDER.len() + name.len();
    let rest = &text[length..];
    (is_skill_name(name) && (rest.starts_with('/') || ends(rest))).then_some((length, name))
}

/// `<name>/references/` and the like, where the name is that of another skill.
fn sibling<'t>(
    text: &'t str,
    own: &str,
    is_known: impl Fn(&str) -> bool,
) -> Option<(usize, &'t str)> {
    let name = leading_name(text);
    let below = text[name.len()..].strip_prefix('/')?;
    let is_folder = FOLDERS.iter().any(|folder| below.starts_with(folder));
    (is_folder && name != own && is_skill_name(name) && is_known(name))
        .then_some((name.len(), name))
}

fn leading_name(text: &str) -> &str {
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let end = text.find(|c| !is_part(c)).unwrap_or(text.len());
    &text[..end]
}

/// Whether a path ends here: the text does, or what follows belongs to no file name. A dot or colon
/// ends it only as punctuation.
fn ends(rest: &str) -> bool {
    let mut rest = rest.chars();
    match rest.next() {
        None => true,
        Some('.' | ':') => rest.next().is_none_or(char::is_whitespace),
        Some(c) => c.is_whitespace() || "`'\")]}>,;!?|*".contains(c),
    }
}

/// The text without the folders at its end: `~/` and the like, in front of `.claude`.
fn without_folders(text: &str) -> &str {
    if !text.ends_with('/') {
        return text;
    }
    let is_folder = |c: char| is_path(c) || matches!(c, '~' | '$' | '{' | '}');
    // No further back, so that a text of nothing but slashes costs what others cost.
    let start = text.floor_char_boundary(text.len().saturating_sub(LONGEST_FOLDERS));
    let kept = text[start..].trim_end_matches(is_folder);
    &text[..start + kept.len()]
}

/// Whether the text ends within a URL.
fn in_url(text: &str) -> bool {
    text.ends_with('/') && without_folders(text).ends_with(':')
}

/// A character that a longer word could go on with.
fn is_word(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.')
}

fn is_path(c: char) -> bool {
    is_word(c) || matches!(c, '/' | '\\')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a document says, and what the caller reads.
    const TABLE: &[(&str, &str)] = &[
        // The folder of the skill itself.
        (
            "run ${ATI_SKILL_DIR}/scripts/a.sh",
            "run skillati://own/scripts/a.sh",
        ),
        ("${CLAUDE_SKILL_DIR}", "skillati://own"),
        ("\"${CLAUDE_SKILL_DIR}\"/x", "\"skillati://own\"/x"),
        (
            "${ATI_SKILL_DIR}${ATI_SKILL_DIR}",
            "skillati://ownskillati://own",
        ),
        ("${CLAUDE_SESSION_ID}", "${CLAUDE_SESSION_ID}"),
        (
            "$ATI_SKILL_DIR/x ${ATI_SKILL_DIR /x",
            "$ATI_SKILL_DIR/x ${ATI_SKILL_DIR /x",
        ),
        // Skills of Claude's folder.
        (
            ".claude/skills/other/references/a.md",
            "skillati://other/references/a.md",
        ),
        ("see `.claude/skills/unknown`.", "see `skillati://unknown`."),
        ("in .claude/skills/other", "in skillati://other"),
        (
            "It is .claude/skills/other. Next",
            "It is skillati://other. Next",
        ),
        ("(.claude/skills/other/)", "(skillati://other/)"),
        ("cat ~/.claude/skills/other/x", "cat skillati://other/x"),
        ("cat $HOME/.claude/skills/other/x", "cat skillati://other/x"),
        (
            "cat /home/me/.claude/skills/other/x",
            "cat skillati://other/x",
        ),
        ("./.claude/skills/other/x", "skillati://other/x"),
        (".claude/skills/own/x", "skillati://own/x"),
        // What names no skill stays.
        (
            "the `.claude/skills/` directory",
            "the `.claude/skills/` directory",
        ),
        (
            ".claude/skills/<name>/SKILL.md",
            ".claude/skills/<name>/SKILL.md",
        ),
        (".claude/skills/other.md", ".claude/skills/other.md"),
        (".claude/skills/Other/x", ".claude/skills/Other/x"),
        (".claude/skills/a--b/x", ".claude/skills/a--b/x"),
        (".claude/skills/-a/x", ".claude/skills/-a/x"),
        (".claude/skills/other_x/y", ".claude/skills/other_x/y"),
        ("my.claude/skills/other/x", "my.claude/skills/other/x"),
        (".claude\\skills\\other\\x", ".claude\\skills\\other\\x"),
        (
            "file:///home/.claude/skills/other/x",
            "file:///home/.claude/skills/other/x",
        ),
        // Another skill of the catalogue.
        (
            "read other/references/a.md",
            "read skillati://other/references/a.md",
        ),
        ("`other/scripts/`", "`skillati://other/scripts/`"),
        (
            "[a](other/assets/a.png)",
            "[a](skillati://other/assets/a.png)",
        ),
        (
            "other/references/a other/scripts/b",
            "skillati://other/references/a skillati://other/scripts/b",
        ),
        ("own/references/a.md", "own/references/a.md"),
        ("unknown/references/a.md", "unknown/references/a.md"),
        (
            "other/src/a.md other/references",
            "other/src/a.md other/references",
        ),
        ("../other/references/a.md", "../other/references/a.md"),
        ("x/other/references/a.md", "x/other/references/a.md"),
        ("another/references/a.md", "another/references/a.md"),
        ("x-other/references/a.md", "x-other/references/a.md"),
        (
            "https://h/other/references/a.md",
            "https://h/other/references/a.md",
        ),
        (
            "skillati://other/references/a.md",
            "skillati://other/references/a.md",
        ),
        ("other\\references\\a.md", "other\\references\\a.md"),
        ("Other/references/a.md", "Other/references/a.md"),
        // Texts that aren't ASCII.
        (
            "→ other/scripts/é.sh …",
            "→ skillati://other/scripts/é.sh …",
        ),
        ("ü.claude/skills/other/x", "ü.claude/skills/other/x"),
        ("", ""),
    ];

    #[test]
    fn awkward_documents_are_rewritten_as_the_table_says() {
        for (text, expected) in TABLE {
            let found = substitute(text, "own", |name| matches!(name, "other" | "own"));
            assert_eq!(found, *expected, "{text}");
        }
    }

    #[test]
    fn whole_table_in_one_document_gives_every_line_of_it() {
        let join = |of: fn(&(&'static str, &'static str)) -> &'static str| {
            let lines: Vec<&str> = TABLE.iter().map(of).collect();
            lines.join("\n")
        };
        let found = substitute(&join(|row| row.0), "own", |name| name == "other");
        assert_eq!(found, join(|row| row.1));
    }
}
