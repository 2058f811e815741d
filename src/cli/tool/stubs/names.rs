//! Names of functions and parameters that a language takes, each once.

use std::collections::HashSet;

pub struct Names {
    taken: HashSet<String>,
}

impl Names {
    /// `reserved`: words of the language, and what the module defines itself.
    pub fn new(reserved: &[&str]) -> Self {
        Names {
            taken: reserved.iter().map(|&name| name.to_owned()).collect(),
        }
    }

    /// A name for this text, which no other one gets.
    pub fn give(&mut self, text: &str) -> String {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let mut name: String = text
            .chars()
            .map(|c| if plain(c) { c } else { '_' })
            .collect();
        // Python keeps names that begin with underscores to their module.
        name = name.trim_start_matches('_').to_owned();
        if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
            name.insert_str(0, "n_");
        }
        let mut free = name.clone();
        let mut number = 1;
        while !self.taken.insert(free.clone()) {
            number += 1;
            free = match number {
                // As Python's style guide has it: `class_`.
                2 => format!("{name}_"),
                _ => format!("{name}_{number}"),
            };
        }
        free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_gets_a_name_of_its_own() {
        let mut names = Names::new(&["class"]);
        for (text, name) in [
            ("github:search", "github_search"),
            ("github_search", "github_search_"),
            ("github.search", "github_search_3"),
            ("class", "class_"),
            ("2fa", "n_2fa"),
            ("__x", "x"),
            ("ü", "n_"),
            ("", "n__"),
        ] {
            assert_eq!(names.give(text), name, "{text}");
        }
    }
}
