//! Names of skills and paths below them. What could lead out of a skill is refused, however it is
//! written: object stores and proxies decode names in ways of their own.

use crate::error::RemoteSkillError;
use crate::skills::is_skill_name;

const LONGEST_PATH: usize = 1024;
/// Percent signs that a server behind ati could decode to a dot, a separator or nothing.
const ENCODED: [&str; 5] = ["%2e", "%2f", "%5c", "%00", "%25"];

/// A file, by the skill that it is in and its path there.
#[derive(Debug, PartialEq, Eq)]
pub struct Place {
    pub skill: String,
    pub path: String,
}

/// What `path` means as seen from `skill`. It may begin with `../<sibling>/`.
pub fn resolve(skill: &str, path: &str) -> Result<Place, RemoteSkillError> {
    place(skill, path).ok_or_else(|| invalid(path))
}

pub fn invalid(path: &str) -> RemoteSkillError {
    let end = path.floor_char_boundary(256);
    RemoteSkillError::InvalidPath(path[..end].escape_default().to_string())
}

fn place(skill: &str, path: &str) -> Option<Place> {
    if !is_sane(path) {
        return None;
    }
    let mut parts = path.split('/').skip_while(|part| *part == ".").peekable();
    let mut skill = skill;
    if parts.next_if_eq(&"..").is_some() {
        skill = parts.next().filter(|name| is_skill_name(name))?;
    }
    let parts: Vec<&str> = parts.filter(|part| *part != ".").collect();
    // Hidden files aren't part of a skill.
    let is_name = |part: &&str| !part.is_empty() && !part.starts_with('.');
    if parts.is_empty() || !parts.iter().all(is_name) {
        return None;
    }
    Some(Place {
        skill: skill.to_owned(),
        path: parts.join("/"),
    })
}

/// Whether a text can be the beginning of a path in a skill.
pub fn is_prefix(prefix: &str) -> bool {
    let is_plain = |part: &str| !part.starts_with('.');
    prefix.is_empty() || (is_sane(prefix) && prefix.split('/').all(is_plain))
}

fn is_sane(path: &str) -> bool {
    let lower = path.to_ascii_lowercase();
    path.len() <= LONGEST_PATH
        && !path.starts_with('/')
        && !path.contains(|c: char| c == '\\' || c.is_control())
        && !ENCODED.iter().any(|encoded| lower.contains(encoded))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(path: &str) -> Option<(String, String)> {
        let place = resolve("foo", path).ok()?;
        Some((place.skill, place.path))
    }

    #[test]
    fn path_stays_in_its_skill_or_names_a_sibling() {
        for (path, skill, expected) in [
            ("SKILL.md", "foo", "SKILL.md"),
            ("./references/./a.md", "foo", "references/a.md"),
            ("../bar/SKILL.md", "bar", "SKILL.md"),
            ("./../bar/scripts/x y.sh", "bar", "scripts/x y.sh"),
            ("a..b/c..d", "foo", "a..b/c..d"),
            ("100%.md", "foo", "100%.md"),
        ] {
            let found = place(path);
            assert_eq!(found, Some((skill.into(), expected.into())), "{path}");
        }
    }

    #[test]
    fn path_that_leads_out_is_refused_in_every_spelling() {
        for path in [
            "",
            ".",
            "..",
            "../",
            "../bar",
            "../bar/",
            "/etc/passwd",
            "//etc/passwd",
            "../../etc/passwd",
            "../bar/../baz/SKILL.md",
            "../_skillati/catalog.v1.json",
            "../Bar/SKILL.md",
            "references/../../bar/SKILL.md",
            "references/..",
            "a//b",
            "a/",
            "%2e%2e/bar/SKILL.md",
            "..%2Fbar/SKILL.md",
            "%252e%252e/bar/SKILL.md",
            "..\\bar\\SKILL.md",
            "a\0b",
            "a\nb",
            ".env",
            "a/.git/config",
            &"a/".repeat(600),
        ] {
            assert_eq!(place(path), None, "{path}");
        }
        assert!(is_prefix("") && is_prefix("references/") && is_prefix("scripts/a"));
        for prefix in ["../bar", "/", "a/../b", "%2e%2e/", "..", "a\\b"] {
            assert!(!is_prefix(prefix), "{prefix}");
        }
    }
}
