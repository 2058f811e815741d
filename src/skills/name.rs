//! Names of skills. They become names of folders, so they must not contain a path.

pub const LONGEST_NAME: usize = 64;

/// Lower-case letters, digits and single hyphens inside, as the format of skills has it.
pub fn is_skill_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (1..=LONGEST_NAME).contains(&name.len())
        && name.chars().all(allowed)
        && !name.starts_with('-')
        && !name.ends_with('-')
        && !name.contains("--")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_with_a_path_or_odd_characters_is_none() {
        for good in ["a", "7", "google-workspace", "a-1-b", &"x".repeat(64)] {
            assert!(is_skill_name(good), "{good}");
        }
        for bad in [
            "",
            "-",
            "-a",
            "a-",
            "a--b",
            "A",
            "a_b",
            "a b",
            "a.b",
            "..",
            "../a",
            "a/b",
            "a\\b",
            "ü",
            "a%2fb",
            "a\0",
            &"x".repeat(65),
        ] {
            assert!(!is_skill_name(bad), "{bad}");
        }
    }
}
