//! Commands that a language model suggests, checked against the tools that the caller may use.

use std::collections::HashSet;

use super::places::{enclosed, listed, places, without_prompt};
use super::shell::{self, Refused, Word};
use super::{checked, filters, known_commands};
use crate::auth::Scopes;
use crate::catalog::{Catalog, Tool};

/// Words of a command in a sentence.
const MOST_WORDS: usize = 64;
/// What may stand behind a name in a sentence.
const AFTER_A_NAME: [char; 8] = ['.', ',', ')', ':', ';', '!', '?', '*'];
/// Places of a command in a line that are looked at: no honest answer has more.
const MOST_IN_LINE: usize = 8;

/// What the checks are made with.
#[derive(Clone, Copy)]
pub struct Checker<'a> {
    pub catalog: &'a Catalog,
    pub scopes: &'a Scopes,
}

/// What a line is read as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// Of a block that is marked as a shell's: every line is a command.
    Shell,
    /// Of another block, or a code span: it may be a command, or anything else.
    Code,
    /// Words of a sentence that begin with a command, and may go on after it.
    Sentence,
}

impl<'a> Checker<'a> {
    /// The commands of a line: it may be one, and it may have others in it. None: it has none.
    pub fn line(&self, text: &str, reading: Reading) -> Option<Result<(), Wrong>> {
        let begins = self.check(text, reading);
        match begins {
            Some(Err(_)) => begins,
            // It was read to its end.
            Some(Ok(())) if is_ati(without_prompt(text.trim())) => begins,
            begins => self.within(text).or(begins),
        }
    }

    /// The commands that stand somewhere in a text.
    pub fn within(&self, text: &str) -> Option<Result<(), Wrong>> {
        let mut found = None;
        for (n, at) in places(text).enumerate() {
            if n == MOST_IN_LINE {
                return Some(Err(Wrong::because("the line has many commands")));
            }
            let outcome = match listed(&text[at..]).as_slice() {
                // A list of arguments, as programs have it.
                ["ati", "run", name] if !is_ati(&text[at..]) => Some(self.tool(name).map(|_| ())),
                _ => self.check(enclosed(text, at), Reading::Sentence),
            };
            match outcome {
                None => {}
                Some(Ok(())) => found = Some(Ok(())),
                wrong => return wrong,
            }
        }
        found
    }

    /// None: the text is no command. An error says why the command wouldn't run.
    pub fn check(&self, text: &str, reading: Reading) -> Option<Result<(), Wrong>> {
        let line = text.trim();
        let text = without_prompt(line);
        let first = text.split_whitespace().next()?;
        // What follows a shell's prompt was typed.
        let is_typed = line.starts_with("$ ") && first.starts_with(char::is_alphabetic);
        let is_foreign = known_commands::is_foreign(first) && text.len() > first.len();
        let is_known = first == "ati"
            || match reading {
                Reading::Shell => true,
                Reading::Code => is_typed || is_foreign,
                Reading::Sentence => false,
            };
        if !is_known || first.starts_with('#') {
            return None;
        }
        let text = match reading {
            Reading::Sentence => beginning(text),
            Reading::Shell | Reading::Code => text,
        };
        let commands = match shell::commands(text) {
            Ok(commands) => commands,
            Err(Refused::Unclosed) => return Some(Err(Wrong::Unclosed)),
            Err(Refused::Because(why)) => return Some(Err(Wrong::because(why))),
        };
        // In a sentence `ati` may be a word like others.
        let is_call = |words: &Vec<Word>| {
            words.iter().any(|word| word.text == "run") || known_commands::is_changing(&words[1..])
        };
        if !commands
            .first()
            .is_some_and(|first| reading != Reading::Sentence || is_call(first))
        {
            return None;
        }
        let mut each = commands.iter().enumerate();
        Some(each.try_for_each(|(at, words)| self.part(at, words, reading)))
    }

    /// One command of a line.
    fn part(&self, at: usize, words: &[Word], reading: Reading) -> Result<(), Wrong> {
        let first = words.first().map_or("", |word| word.text.as_str());
        let is_assignment = first.split_once('=').is_some_and(|(name, _)| {
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        });
        if at > 0
            && let Some(filtered) = filters::check(words)
        {
            return filtered.map_err(Wrong::because);
        }
        match first {
            "ati" => self.command(words, reading),
            "echo" | "printf" => Ok(()),
            _ if is_assignment && words.len() == 1 => Ok(()),
            first => Err(Wrong::because(format!(
                "it runs '{first}', which is not ati"
            ))),
        }
    }

    fn command(&self, words: &[Word], reading: Reading) -> Result<(), Wrong> {
        let mut rest = words.iter().skip(1).peekable();
        while let Some(word) = rest.next_if(|word| word.text.starts_with('-')) {
            if matches!(word.text.as_str(), "--output" | "--format" | "--args-file") {
                rest.next();
            }
        }
        if rest.next_if(|word| word.text == "run").is_none() {
            let rest: Vec<Word> = rest.cloned().collect();
            // In a sentence it may be anything: "ati has a tool for it".
            if reading == Reading::Sentence && !known_commands::is_changing(&rest) {
                return Ok(());
            }
            return known_commands::check(&rest).map_err(Wrong::because);
        }
        let mut has_file = false;
        while let Some(word) = rest.next_if(|word| word.text.starts_with('-')) {
            has_file |= word.text.starts_with("--args-file");
            if matches!(word.text.as_str(), "--args-file" | "--output" | "--format") {
                rest.next();
            }
        }
        let Some(name) = rest.next() else {
            return Ok(());
        };
        if name.is_open {
            return Ok(());
        }
        let tool = self.tool(match reading {
            Reading::Sentence => name.text.trim_end_matches(AFTER_A_NAME),
            Reading::Shell | Reading::Code => &name.text,
        })?;
        let mut words: Vec<&Word> = rest.collect();
        // Arguments that come from a file can't be looked at.
        if has_file || words.iter().any(|word| word.text == "-") {
            return Ok(());
        }
        if let Some(end) = words.iter().position(|word| is_dash(&word.text)) {
            words.truncate(end);
        }
        if reading == Reading::Sentence {
            words.truncate(end_of_arguments(&words));
        }
        let open = words.iter().filter(|word| word.is_open);
        let open: HashSet<&str> = open.map(|word| word.text.as_str()).collect();
        let texts: Vec<String> = words.iter().map(|word| word.text.clone()).collect();
        checked::words(tool, &texts, &open)
            .map_err(|why| Wrong::because(format!("'{}': {why}", tool.name)))
    }

    fn tool(&self, name: &str) -> Result<&'a Tool, Wrong> {
        let name = name.trim_end_matches(['.', ',', ')']);
        let known = self.catalog.find(name);
        let known = known.filter(|tool| tool.is_allowed(self.scopes));
        let known = known.filter(|tool| !self.catalog.is_withheld(tool));
        let known = known.map(AsRef::as_ref);
        known.ok_or_else(|| Wrong::because(format!("unknown tool '{name}'")))
    }
}

/// Why a command isn't shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wrong {
    /// It may go on in the next line.
    Unclosed,
    Because(String),
}

impl Wrong {
    fn because(why: impl Into<String>) -> Self {
        Wrong::Because(why.into())
    }
}

/// The beginning of a sentence that a shell would read: what follows a command may be anything. A
/// word that would run something is a part of it, so that it is refused.
fn beginning(sentence: &str) -> &str {
    let mut end = 0;
    for word in sentence
        .split_inclusive(char::is_whitespace)
        .take(MOST_WORDS)
    {
        let longer = end + word.len();
        if shell::commands(&sentence[..longer]).is_err() {
            return match word.contains("$(") || word.contains("$ATI") {
                true => sentence,
                false => &sentence[..end],
            };
        }
        end = longer;
    }
    &sentence[..end]
}

/// Whether a text begins with the name and white space.
pub fn is_ati(text: &str) -> bool {
    let rest = text.strip_prefix("ati");
    rest.is_some_and(|rest| rest.starts_with(char::is_whitespace))
}

/// Between a command and a sentence about it.
fn is_dash(word: &str) -> bool {
    matches!(word, "—" | "–" | "->" | "→" | "=>")
}

/// Where the words of a sentence are no arguments any more: at the first word that is neither a
/// flag nor the value of one.
fn end_of_arguments(words: &[&Word]) -> usize {
    let is_flag = |at: usize| words[at].text.starts_with("--");
    (0..words.len())
        .find(|at| !is_flag(*at) && !at.checked_sub(1).is_some_and(is_flag))
        .unwrap_or(words.len())
}
