//! Scope grammar: space-separated words; a trailing `*` is a prefix match, a lone `*` is
//! everything.

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scopes(Vec<String>);

impl Scopes {
    pub fn parse(claim: &str) -> Self {
        Scopes(claim.split_ascii_whitespace().map(str::to_owned).collect())
    }

    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// Whether a tool of this scope may be used. A tool without a scope needs none.
    pub fn allow(&self, required: &str) -> bool {
        if required.is_empty() {
            return true;
        }
        let legacy = legacy_form(required);
        self.iter().any(|granted| {
            covers(granted, required) || legacy.as_deref().is_some_and(|old| covers(granted, old))
        })
    }
}

/// Whether a word of a token covers a name, in its present or its old spelling.
pub fn grants(granted: &str, name: &str) -> bool {
    covers(granted, name) || legacy_form(name).is_some_and(|old| covers(granted, &old))
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

/// Whether a granted word covers a name, as both are written.
fn covers(granted: &str, name: &str) -> bool {
    match granted.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => granted == name,
    }
}

/// Tokens from before tools had namespaces say `tool:github_search` for `tool:github:search`.
fn legacy_form(required: &str) -> Option<String> {
    let (provider, rest) = required.strip_prefix("tool:")?.split_once(':')?;
    Some(format!("tool:{provider}_{rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

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
