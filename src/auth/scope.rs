//! Scope grammar: space-separated words; a trailing `*` is a prefix match, a lone `*` is
//! everything.

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Scopes(Vec<String>);

impl Scopes {
    pub fn parse(claim: &str) -> Self {
        Scopes(claim.split_ascii_whitespace().map(str::to_owned).collect())
    }

    /// Each is one word. What isn't one is left out: as two words, it would grant something else.
    pub fn of_words(words: impl Iterator<Item = String>) -> Self {
        Scopes(words.filter(|word| is_word(word)).collect())
    }

    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// Whether a tool of this scope may be used. A tool without a scope needs none.
    pub fn allow(&self, required: &str) -> bool {
        if required.is_empty() {
            return true;
        }
        self.iter().any(|granted| grants(granted, required))
    }

    /// Whether the tools of a category may be used: `category:<name>`.
    pub fn allow_category(&self, category: Option<&str>) -> bool {
        category.is_some_and(|category| {
            let mut granted = self
                .iter()
                .filter_map(|word| word.strip_prefix("category:"));
            granted.any(|granted| covers(granted, category))
        })
    }
}

/// The scope of questions at `/help`.
pub const HELP: &str = "help";

/// Whether a text can be a word of a token.
pub fn is_word(text: &str) -> bool {
    !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || c.is_control())
}

/// Whether a word of a token covers a name, in its present or its old spelling.
pub fn grants(granted: &str, name: &str) -> bool {
    covers(granted, name) || covers_legacy(granted, name)
}

/// Whether a word of a token can cover the name of any tool.
pub fn can_cover_a_tool(granted: &str) -> bool {
    const TOOL: &str = "tool:";
    match granted.strip_suffix('*') {
        Some(prefix) if prefix.contains('*') => false,
        Some(prefix) => prefix.starts_with(TOOL) || TOOL.starts_with(prefix),
        None => granted.len() > TOOL.len() && granted.starts_with(TOOL) && !granted.contains('*'),
    }
}

/// Whether a granted word covers all that another word would grant.
pub fn covers_word(granted: &str, word: &str) -> bool {
    match word.strip_suffix('*') {
        Some(prefix) => granted
            .strip_suffix('*')
            .is_some_and(|own| prefix.starts_with(own)),
        None => grants(granted, word),
    }
}

/// Whether a granted word covers a name, as both are written.
fn covers(granted: &str, name: &str) -> bool {
    match granted.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => granted == name,
    }
}

/// Tokens from before tools had namespaces say `tool:github_search` for `tool:github:search`: the
/// same text but for one byte. Compared in place, because a list asks this of every tool.
fn covers_legacy(granted: &str, name: &str) -> bool {
    const TOOL: &str = "tool:";
    let own = name.strip_prefix(TOOL);
    let Some(colon) = own.and_then(|own| own.find(':')) else {
        return false;
    };
    let (before, after) = name.split_at(TOOL.len() + colon);
    let after = &after[1..];
    let (granted, open) = match granted.strip_suffix('*') {
        Some(prefix) => (prefix, true),
        None => (granted, false),
    };
    match granted
        .strip_prefix(before)
        .and_then(|rest| rest.strip_prefix('_'))
    {
        Some(rest) => rest == after || (open && after.starts_with(rest)),
        None => open && before.starts_with(granted),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn word_covers_those_that_grant_no_more() {
        for (granted, word, covered) in [
            ("*", "tool:a:*", true),
            ("tool:a:*", "tool:a:b*", true),
            ("tool:a:*", "tool:a:b", true),
            ("tool:a_*", "tool:a:b", true),
            ("tool:a:b", "tool:a:b", true),
            ("tool:a:b*", "tool:a:*", false),
            ("tool:a:b", "tool:a:b*", false),
            ("tool:a:*", "*", false),
            ("tool:a:*", "help", false),
        ] {
            assert_eq!(covers_word(granted, word), covered, "{granted} {word}");
        }
    }

    #[test]
    fn word_that_can_cover_no_tool_is_known() {
        for good in ["*", "t*", "tool:*", "tool:a:*", "tool:a", "tool:a:b"] {
            assert!(can_cover_a_tool(good), "{good}");
        }
        for bad in [
            "", "t:get", "get", "a*", "tool:", "tool:a*b", "help", "Tool:a", "tool:a**",
        ] {
            assert!(!can_cover_a_tool(bad), "{bad}");
        }
    }

    #[test]
    fn scope_covers_a_tool_exactly_by_prefix_or_in_its_old_spelling() {
        let cases = [
            ("*", "tool:anything", true),
            ("tool:web_search", "tool:web_search", true),
            ("tool:web_search", "tool:web_search2", false),
            ("tool:github:*", "tool:github:search", true),
            ("tool:github:*", "tool:linear:list", false),
            ("tool:github:*", "tool:github", false),
            ("tool:github_search", "tool:github:search", true),
            ("tool:github_*", "tool:github:search", true),
            ("tool:github_search", "tool:github:search:more", false),
            ("tool:a:b", "tool:a_b", false),
            ("tool:git*hub", "tool:github", false),
            ("", "tool:x", false),
            ("help skill:x", "tool:x", false),
            ("help", "", true),
            ("help  tool:x\ttool:y", "tool:y", true),
        ];
        for (claim, required, expected) in cases {
            assert_eq!(
                Scopes::parse(claim).allow(required),
                expected,
                "{claim} against {required}"
            );
        }
    }
}
