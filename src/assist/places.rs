//! Where the name of `ati` stands in a text that isn't a command as a whole.

/// Places where a command may begin: the name as a word of its own, with white space behind it or,
/// as in a list of arguments, the end of its quotes.
pub fn places(text: &str) -> impl Iterator<Item = usize> {
    let found = text.match_indices("ati").map(|(at, _)| at);
    found.filter(|at| {
        let (before, after) = (&text[..*at], &text[at + 3..]);
        let is_inside = before
            .chars()
            .next_back()
            .is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | '-'));
        // The folder `~/.ati`.
        let is_word = !is_inside && !before.ends_with("/.");
        is_word && after.starts_with(|c: char| c.is_whitespace() || matches!(c, '"' | '\''))
    })
}

/// The text from a place on, up to what closes the mark right before it.
pub fn enclosed(text: &str, place: usize) -> &str {
    let rest = &text[place..];
    let closing = match text[..place].chars().next_back() {
        Some(c @ ('"' | '\'' | '*')) => c.to_string(),
        Some('(') => ")".to_owned(),
        Some('[') => "]".to_owned(),
        Some('{') => "}".to_owned(),
        Some('>') => "</".to_owned(),
        Some('“') => "”".to_owned(),
        Some('‘') => "’".to_owned(),
        Some('«') => "»".to_owned(),
        _ => return rest,
    };
    rest.split(&closing).next().unwrap_or(rest)
}

/// The words of a list of arguments: `"ati", "run", "tool"`.
pub fn listed(text: &str) -> Vec<&str> {
    let is_between = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ',');
    text.split(is_between)
        .filter(|word| !word.is_empty())
        .take(3)
        .collect()
}

/// What a terminal shows before a command that is typed.
pub fn without_prompt(line: &str) -> &str {
    let prompts = ["$ ", "% ", "> ", "# "].iter();
    let mut typed = prompts.filter_map(|prompt| Some(line.strip_prefix(prompt)?.trim_start()));
    // A comment and a quotation begin like a prompt.
    let typed = typed.find(|rest| line.starts_with('$') || places(rest).next() == Some(0));
    typed.unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_is_found_as_a_word() {
        let found = |text: &str| places(text).map(|at| enclosed(text, at).to_owned()).next();
        for (text, command) in [
            ("Run:ati run a", "ati run a"),
            ("[ati run a](x)", "ati run a"),
            ("<code>ati run a --s <S></code>", "ati run a --s <S>"),
            ("*ati run a*", "ati run a"),
            ("ati\trun\ta", "ati\trun\ta"),
            ("os.system(\"ati run a\")", "ati run a"),
            ("/usr/bin/ati run a", "ati run a"),
        ] {
            assert_eq!(found(text).as_deref(), Some(command), "{text}");
        }
        for text in [
            "information run a",
            "my-ati run",
            "~/.ati run",
            "ati",
            "ati: x",
        ] {
            assert_eq!(found(text), None, "{text}");
        }
        assert_eq!(listed("ati\", \"run\", \"a\"])"), ["ati", "run", "a"]);
    }

    #[test]
    fn prompt_is_no_part_of_a_command() {
        for line in ["$ ati run a", "% ati run a", "> ati run a", "# ati run a"] {
            assert_eq!(without_prompt(line), "ati run a");
        }
        assert_eq!(without_prompt("$ npm x"), "npm x");
        for line in ["# the price", "> quoted", "ati run a"] {
            assert_eq!(without_prompt(line), line);
        }
    }
}
