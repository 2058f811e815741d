//! Star patterns: a `*` stands for any number of characters, or for none. It crosses slashes
//! and dots alike; where it must not, match segment by segment.

/// A star pattern over paths. `**` means the same as `*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern(String);

impl Pattern {
    pub fn new(text: &str) -> Self {
        Pattern(text.to_owned())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn matches(&self, path: &str) -> bool {
        matches(&self.0, path)
    }
}

/// Whether the whole of `text` fits `pattern`. On a mismatch only the last star takes one more
/// character, so the time is at most the product of both lengths, and never exponential.
pub fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut p, mut t) = (0, 0);
    let mut star = None;
    while t < text.len() {
        if pattern.get(p) == Some(&b'*') {
            star = Some((p, t));
            p += 1;
        } else if pattern.get(p) == Some(&text[t]) {
            p += 1;
            t += 1;
        } else if let Some((star_p, star_t)) = star {
            p = star_p + 1;
            t = star_t + 1;
            star = Some((star_p, star_t + 1));
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|b| *b == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn star_matches_any_characters_including_slashes() {
        let cases = [
            ("/npm/*", "/npm/a/b", true),
            ("/npm/**", "/npm/a/b", true),
            ("/npm/*", "/npm/", true),
            ("/npm/*", "/npm", false),
            ("/npm/*", "/npmx/a", false),
            ("/health", "/health", true),
            ("/health", "/health/x", false),
            ("*", "", true),
            ("/a*c*e", "/abcde", true),
            ("/a*c*e", "/abcd", false),
            ("", "/", false),
            ("/caf*é", "/cafXé", true),
            ("*-é", "é-é", true),
        ];
        for (pattern, path, expected) in cases {
            assert_eq!(
                Pattern::new(pattern).matches(path),
                expected,
                "{pattern} {path}"
            );
        }
    }

    #[test]
    fn hostile_path_costs_at_most_its_length_times_the_patterns() {
        let pattern = Pattern::new(&"*a".repeat(50));
        let path = "a".repeat(20_000) + "b";
        let start = std::time::Instant::now();
        assert!(!pattern.matches(&path));
        assert!(start.elapsed() < std::time::Duration::from_secs(5));
    }
}
