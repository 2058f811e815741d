//! Path patterns: a `*` stands for any run of characters, slashes included; `**` means the same.

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern(String);

impl Pattern {
    pub fn new(text: &str) -> Self {
        Pattern(text.to_owned())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Linear in pattern and path: on a mismatch only the last star is tried again.
    pub fn matches(&self, path: &str) -> bool {
        let (pattern, path) = (self.0.as_bytes(), path.as_bytes());
        let (mut p, mut s) = (0, 0);
        let mut star = None;
        while s < path.len() {
            if pattern.get(p) == Some(&b'*') {
                star = Some((p, s));
                p += 1;
            } else if pattern.get(p) == Some(&path[s]) {
                p += 1;
                s += 1;
            } else if let Some((star_p, star_s)) = star {
                p = star_p + 1;
                s = star_s + 1;
                star = Some((star_p, star_s + 1));
            } else {
                return false;
            }
        }
        pattern[p..].iter().all(|b| *b == b'*')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_cross_slashes() {
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
    fn a_hostile_path_costs_no_more_than_its_length_times_the_pattern() {
        let pattern = Pattern::new(&"*a".repeat(50));
        let path = "a".repeat(20_000) + "b";
        let start = std::time::Instant::now();
        assert!(!pattern.matches(&path));
        assert!(start.elapsed() < std::time::Duration::from_secs(5));
    }
}
