//! Patterns that name tools: `gh:repo_*`, a provider, or the words of a command: `gh repo delete`.

use crate::pattern;

/// What a pattern is compared with.
#[derive(Debug, Clone, Copy)]
pub struct Named<'a> {
    /// The tool: `gh:repo_delete`.
    pub tool: &'a str,
    pub provider: &'a str,
    /// The name of the program behind the tool, where there is one.
    pub program: Option<&'a str>,
    /// The words that the program is always given: `repo delete`.
    pub command: &'a str,
    /// The caller's own words, of a tool that is a program.
    pub words: &'a [String],
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandPattern(String);

impl CommandPattern {
    /// None for a text without any word.
    pub fn new(text: &str) -> Option<Self> {
        let words: Vec<&str> = text.split_whitespace().collect();
        (!words.is_empty()).then(|| CommandPattern(words.join(" ")))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the call may be one that the pattern denies. Options of a program may stand between
    /// the words of its command, so that they are found in any distance.
    pub fn denies(&self, named: &Named<'_>) -> bool {
        self.names(named) || self.names_in_parts(named) || {
            let words = named.words.iter().map(String::as_str);
            let mut wanted = self.0.split(' ');
            self.begins_with_program(named, wanted.next())
                && !named.words.is_empty()
                && is_subsequence(wanted, words)
        }
    }

    /// Whether the call certainly is one that the pattern allows: the words of a program begin with
    /// the pattern's.
    pub fn allows(&self, named: &Named<'_>) -> bool {
        self.names(named) || {
            let mut wanted = self.0.split(' ');
            self.begins_with_program(named, wanted.next())
                && begin(wanted, named.words.iter().map(String::as_str))
        }
    }

    /// Whether it names the tool, whatever the caller's words are.
    fn names(&self, named: &Named<'_>) -> bool {
        let mut wanted = self.0.split(' ');
        let (first, second) = (wanted.next().unwrap_or_default(), wanted.next());
        if second.is_none() {
            let is = |text: &str| pattern::matches(first, text);
            // A tool's name says whose it is, also where another provider has it.
            let owner = named.tool.split_once(':').map(|(owner, _)| owner);
            let names = [Some(named.tool), Some(named.provider), owner, named.program];
            return names.into_iter().flatten().any(is);
        }
        let rest = || self.0.split(' ').skip(1);
        let of_program = named.program.is_some_and(|it| pattern::matches(first, it));
        if of_program && !named.command.is_empty() && begin(rest(), named.command.split(' ')) {
            return true;
        }
        // A tool of any handler, by the words of its name.
        let lower = || rest().map(str::to_lowercase).collect::<Vec<_>>();
        names_of(named).any(|(owner, own)| pattern::matches(first, owner) && begins(own, &lower()))
    }

    /// Whether it names the tool where words of its own are taken apart, too: `gh repo-delete` is
    /// `gh repo delete`. For denials only: an allowed word stays one, so that [`Self::covers`]
    /// holds.
    fn names_in_parts(&self, named: &Named<'_>) -> bool {
        let Some((first, rest)) = self.0.split_once(' ') else {
            return false;
        };
        let parts = || rest.split(' ').flat_map(humps).collect::<Vec<_>>();
        names_of(named).any(|(owner, own)| pattern::matches(first, owner) && begins(own, &parts()))
    }

    fn begins_with_program(&self, named: &Named<'_>, first: Option<&str>) -> bool {
        let first = first.unwrap_or_default();
        let is = |text: &str| pattern::matches(first, text);
        named.program.is_some_and(is) || is(named.provider) || is(named.tool)
    }

    /// Whether this allows every call that `other` allows. Where that isn't certain, the answer is
    /// no.
    pub fn covers(&self, other: &CommandPattern) -> bool {
        if self.0.contains(' ') {
            return begin(self.0.split(' '), other.0.split(' '));
        }
        let head = other.0.split(' ').next().unwrap_or_default();
        // A star of the other is matched by a star of this one only: whatever fits the other fits
        // this one.
        let of_provider = |name: &str| match name.split_once(':') {
            Some((provider, _)) => !provider.contains('*') && pattern::matches(&self.0, provider),
            None => false,
        };
        pattern::matches(&self.0, head) || of_provider(head)
    }
}

/// Whose the tool is, and its name without that: by its provider, and by its own prefix, which is
/// another one where a manifest says so.
fn names_of<'a>(named: &Named<'a>) -> impl Iterator<Item = (&'a str, &'a str)> {
    let own = named.tool.strip_prefix(named.provider);
    let own = own.and_then(|own| own.strip_prefix(':'));
    let by_provider = (named.provider, own.unwrap_or(named.tool));
    [Some(by_provider), named.tool.split_once(':')]
        .into_iter()
        .flatten()
}

/// Whether the words of a name begin with those that are wanted, which are in lower case.
/// `repoDelete` is one word or two.
fn begins(name: &str, wanted: &[String]) -> bool {
    let whole = separated(name).map(str::to_lowercase).collect();
    [whole, humps(name)].iter().any(|words: &Vec<String>| {
        let wanted = wanted.iter().map(String::as_str);
        begin(wanted, words.iter().map(String::as_str))
    })
}

fn separated(name: &str) -> impl Iterator<Item = &str> {
    name.split(['_', ':', '-', '.', '/'])
}

/// The words of `repo_delete`, `repo-delete`, `repoDelete` and `HTTPDelete`, in lower case.
fn humps(name: &str) -> Vec<String> {
    let mut words = Vec::new();
    for part in separated(name) {
        let mut word = String::new();
        let mut before: Option<char> = None;
        let mut chars = part.chars().peekable();
        while let Some(c) = chars.next() {
            let after_small = before.is_some_and(|b| b.is_lowercase() || b.is_ascii_digit());
            let before_small = chars.peek().is_some_and(|next| next.is_lowercase());
            let after_capital = before.is_some_and(char::is_uppercase);
            if c.is_uppercase() && (after_small || (after_capital && before_small)) {
                words.push(std::mem::take(&mut word));
            }
            word.extend(c.to_lowercase());
            before = Some(c);
        }
        words.push(word);
    }
    words
}

/// Whether `words` begin with those that are wanted.
fn begin<'a, 'b>(
    wanted: impl Iterator<Item = &'a str>,
    mut words: impl Iterator<Item = &'b str>,
) -> bool {
    let mut wanted = wanted;
    wanted.all(|pattern| {
        words
            .next()
            .is_some_and(|word| pattern::matches(pattern, word))
    })
}

/// Whether `words` have those that are wanted, in their order.
fn is_subsequence<'a, 'b>(
    wanted: impl Iterator<Item = &'a str>,
    mut words: impl Iterator<Item = &'b str>,
) -> bool {
    let mut wanted = wanted;
    wanted.all(|pattern| words.any(|word| pattern::matches(pattern, word)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &'static str) -> Named<'static> {
        Named {
            tool: name,
            provider: name.split(':').next().unwrap(),
            program: None,
            command: "",
            words: &[],
        }
    }

    fn denies(pattern: &str, named: &Named<'_>) -> bool {
        CommandPattern::new(pattern).unwrap().denies(named)
    }

    fn allows(pattern: &str, named: &Named<'_>) -> bool {
        CommandPattern::new(pattern).unwrap().allows(named)
    }

    #[test]
    fn pattern_names_a_tool_a_provider_or_a_command() {
        let delete = Named {
            program: Some("gh"),
            command: "repo delete",
            ..tool("github:repo_delete")
        };
        for hit in [
            "github:repo_delete",
            "github:*",
            "github",
            "gh",
            "gh repo delete",
            " gh  repo delete ",
            "gh repo",
            "gh * delete",
            "github repo delete",
            "*",
        ] {
            assert!(denies(hit, &delete) && allows(hit, &delete), "{hit}");
        }
        for miss in [
            "gh repo create",
            "repo_delete",
            "gh repo delete now",
            "git",
            "delete",
            "github:repo",
        ] {
            assert!(!denies(miss, &delete) && !allows(miss, &delete), "{miss}");
        }
        assert!(denies("gh repo delete", &tool("gh:repo_delete")));
        assert!(!denies("gh repo delete", &tool("gh:repo_deleted")));
        let plain = Named {
            provider: "gh",
            ..tool("repo_delete")
        };
        assert!(denies("gh repo delete", &plain) && !denies("gh repo view", &plain));
    }

    #[test]
    fn option_of_a_program_is_denied_where_the_pattern_names_it() {
        let words = ["push", "origin", "--force"].map(str::to_owned);
        let git = Named {
            program: Some("git"),
            words: &words,
            ..tool("git")
        };
        assert!(denies("git push --force", &git) && denies("git push", &git));
        assert!(!denies("git push --tags", &git));
    }

    #[test]
    fn words_are_found_in_a_name_of_any_provider_and_spelling() {
        for name in [
            "gh:repo_delete",
            "gh:repo-delete",
            "gh:repoDelete",
            "gh:RepoDelete",
            "gh:REPO_DELETE",
            "gh:repo.delete",
            "gh:repoDELETENow",
        ] {
            for provider in ["gh", "shop"] {
                let tool = Named {
                    provider,
                    ..tool(name)
                };
                for hit in ["gh repo delete", "gh repo", "gh Repo d*"] {
                    assert!(denies(hit, &tool) && allows(hit, &tool), "{hit}: {name}");
                }
                for miss in ["gh repo view", "gh repo deleted", "git repo delete"] {
                    assert!(
                        !denies(miss, &tool) && !allows(miss, &tool),
                        "{miss}: {name}"
                    );
                }
            }
        }
        let of_shop = Named {
            provider: "shop",
            ..tool("gh:repo_delete")
        };
        assert!(denies("shop gh repo", &of_shop) && !denies("shop repo delete", &of_shop));
        // One word, though it has a hump.
        assert!(denies("gh github list", &tool("gh:gitHub_list")));
        // Words of the pattern itself are taken apart to deny, and not to allow.
        for pattern in ["gh repo-delete", "gh repoDelete", "gh repo_delete"] {
            assert!(
                denies(pattern, &of_shop) && !allows(pattern, &of_shop),
                "{pattern}"
            );
        }
    }

    #[test]
    fn words_of_a_program_are_found_between_its_options_and_allowed_at_their_beginning() {
        let words = |line: &str| -> Vec<String> { line.split(' ').map(str::to_owned).collect() };
        for (line, is_denied, is_allowed) in [
            ("repo delete x", true, true),
            ("-R o/r repo --yes delete x", true, false),
            ("repo view x", false, false),
            ("issue list", false, false),
        ] {
            let words = words(line);
            let gh = Named {
                program: Some("gh"),
                words: &words,
                ..tool("gh")
            };
            assert!(!denies("gh repo --force", &gh), "{line}");
            assert_eq!(denies("gh repo delete", &gh), is_denied, "{line}");
            assert_eq!(allows("gh repo delete", &gh), is_allowed, "{line}");
        }
        let gh = Named {
            program: Some("gh"),
            ..tool("gh")
        };
        assert!(!denies("gh repo delete", &gh) && !allows("gh repo", &gh) && allows("gh", &gh));
    }

    #[test]
    fn pattern_covers_those_that_allow_no_more() {
        let covers = |one: &str, other: &str| {
            let new = |text| CommandPattern::new(text).unwrap();
            new(one).covers(&new(other))
        };
        for (one, other) in [
            ("*", "gh repo delete"),
            ("*", "*"),
            ("gh", "gh"),
            ("gh", "gh:pr_list"),
            ("gh", "gh:*"),
            ("gh:*", "gh:pr_*"),
            ("gh repo", "gh repo delete"),
            ("g*", "gh"),
            ("g*", "g*:x"),
            ("gh", "gh repo delete"),
        ] {
            assert!(covers(one, other), "{one} over {other}");
        }
        for (one, other) in [
            ("gh:pr_*", "gh:*"),
            ("gh:*", "gh"),
            ("gh", "git"),
            ("gh repo delete", "gh repo"),
            ("gh", "g*"),
            ("gh", "g*:x"),
            ("gh repo", "gh"),
        ] {
            assert!(!covers(one, other), "{one} over {other}");
        }
    }
}
