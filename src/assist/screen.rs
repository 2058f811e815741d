//! The way of an answer to its reader. Lines with a command that wouldn't run are left out, and so
//! is what a terminal would act on. It works on whole lines, so that an answer can be shown while
//! it comes.

use super::commands::{Checker, Reading, Wrong};
use crate::auth::Scopes;
use crate::catalog::{Catalog, Tool};

/// Lines that one command may go on for.
const LONGEST_COMMAND: usize = 60;
/// Bytes of a line, and places of a command in it, that are looked at: no honest answer has more.
const LONGEST_LINE: usize = 8 << 10;
const MOST_IN_LINE: usize = 8;

/// A command that wasn't shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    pub why: String,
}

pub struct Screen<'a> {
    checker: Checker<'a>,
    /// The line that isn't complete yet.
    line: String,
    /// Lines of a command that goes on.
    held: Vec<String>,
    fence: Option<Fence>,
    pub left_out: Vec<LeftOut>,
    /// Commands that were shown.
    pub commands: usize,
}

/// A block of code.
struct Fence {
    reading: Reading,
    /// Its first line, until something of the block is shown.
    opening: Option<String>,
    /// Whether a line of it was left out.
    is_cut: bool,
}

impl<'a> Screen<'a> {
    pub fn new(catalog: &'a Catalog, scopes: &'a Scopes) -> Self {
        Screen {
            checker: Checker { catalog, scopes },
            line: String::new(),
            held: Vec::new(),
            fence: None,
            left_out: Vec::new(),
            commands: 0,
        }
    }

    /// What of a whole answer is shown.
    pub fn whole(&mut self, text: &str) -> String {
        let mut shown = self.push(text);
        shown += &self.finish();
        shown.trim_end().to_owned()
    }

    /// What can be shown after this piece.
    pub fn push(&mut self, text: &str) -> String {
        let mut shown = String::new();
        for c in text.chars() {
            match c {
                '\n' => {
                    let line = std::mem::take(&mut self.line);
                    self.end_line(line, &mut shown);
                }
                '\t' => self.line.push(c),
                c if c.is_control() => {}
                c => self.line.push(c),
            }
        }
        shown
    }

    /// What is left at the end.
    pub fn finish(&mut self) -> String {
        let mut shown = String::new();
        let line = std::mem::take(&mut self.line);
        if !line.is_empty() {
            self.end_line(line, &mut shown);
        }
        if !self.held.is_empty() {
            let held = std::mem::take(&mut self.held);
            self.judge(held, true, &mut shown);
        }
        shown
    }

    fn end_line(&mut self, line: String, shown: &mut String) {
        if line.trim_start().starts_with("```") {
            if !self.held.is_empty() {
                let held = std::mem::take(&mut self.held);
                self.judge(held, true, shown);
            }
            return self.end_fence(line, shown);
        }
        self.held.push(line);
        let goes_on = self.held.last().is_some_and(|line| line.ends_with('\\'));
        if goes_on && self.held.len() < LONGEST_COMMAND {
            return;
        }
        let lines = std::mem::take(&mut self.held);
        let is_long = lines.len() >= LONGEST_COMMAND;
        self.judge(lines, is_long, shown);
    }

    fn end_fence(&mut self, line: String, shown: &mut String) {
        match self.fence.take() {
            // A block of which nothing is left isn't shown.
            Some(Fence {
                opening: Some(_),
                is_cut: true,
                ..
            }) => {}
            Some(fence) => {
                for line in fence.opening.iter().chain([&line]) {
                    show(line, shown);
                }
            }
            None => {
                let language = line.trim_start().trim_start_matches('`').trim();
                let reading = match language.to_ascii_lowercase().as_str() {
                    "bash" | "sh" | "shell" | "zsh" | "console" => Reading::Shell,
                    _ => Reading::Code,
                };
                self.fence = Some(Fence {
                    reading,
                    opening: Some(line),
                    is_cut: false,
                });
            }
        }
    }

    /// Shows lines that are one command, or have none; or leaves them out. `is_last`: no more lines
    /// come.
    fn judge(&mut self, lines: Vec<String>, is_last: bool, shown: &mut String) {
        let joined = match lines.as_slice() {
            [one] => one.clone(),
            several => {
                let parts = several.iter();
                let parts = parts.map(|line| line.strip_suffix('\\').unwrap_or(line));
                parts.collect::<Vec<_>>().join("\n")
            }
        };
        let is_long = joined.len() > LONGEST_LINE && joined.contains("ati ");
        let outcome = match &self.fence {
            _ if is_long => Some(Err(Wrong::Because("the line is too long".to_owned()))),
            Some(fence) => self.checker.check(&joined, fence.reading),
            None => self.prose(&joined),
        };
        match outcome {
            Some(Err(Wrong::Unclosed)) if self.fence.is_some() && !is_last => {
                self.held = lines;
                return;
            }
            Some(Err(wrong)) => {
                let why = match wrong {
                    Wrong::Unclosed => "a quote is not closed".to_owned(),
                    Wrong::Because(why) => why,
                };
                self.left_out.push(LeftOut { why });
                if let Some(fence) = &mut self.fence {
                    fence.is_cut = true;
                }
                return;
            }
            Some(Ok(())) => self.commands += 1,
            None => {}
        }
        if let Some(opening) = self.fence.as_mut().and_then(|fence| fence.opening.take()) {
            show(&opening, shown);
        }
        for line in &lines {
            show(line, shown);
        }
    }

    /// The commands in a line of prose: in code spans, at its beginning, in a sentence.
    fn prose(&self, line: &str) -> Option<Result<(), Wrong>> {
        let mut found = None;
        for (at, part) in line.split('`').enumerate() {
            let outcome = match at % 2 {
                1 => self.checker.check(part, Reading::Code),
                _ => self.bare(part, at == 0),
            };
            match outcome {
                None => {}
                Some(Ok(())) => found = Some(Ok(())),
                wrong => return wrong,
            }
        }
        found
    }

    /// A command outside of code spans.
    fn bare(&self, text: &str, is_first: bool) -> Option<Result<(), Wrong>> {
        let start = text.trim_start_matches(|c: char| {
            c.is_whitespace() || c.is_ascii_digit() || ".)-*>$".contains(c)
        });
        if is_first && start.starts_with("ati ") && start.contains(" run ") {
            return self.checker.check(start, Reading::Code);
        }
        let mut found = None;
        for (n, (at, _)) in text.match_indices("ati ").enumerate() {
            if n == MOST_IN_LINE {
                return Some(Err(Wrong::Because("the line has many commands".to_owned())));
            }
            let before = text[..at].chars().next_back();
            let is_word = before.is_none_or(|c| c.is_whitespace() || "(\"'".contains(c));
            let outcome = is_word.then(|| self.checker.check(&text[at..], Reading::Sentence));
            match outcome.flatten() {
                None => {}
                Some(Ok(())) => found = Some(Ok(())),
                wrong => return wrong,
            }
        }
        found
    }
}

fn show(line: &str, shown: &mut String) {
    shown.push_str(line);
    shown.push('\n');
}

/// The tools that a text names, in their own order.
pub fn mentioned<'t, T: AsRef<Tool>>(text: &str, tools: &'t [T]) -> Vec<&'t Tool> {
    let is_letter = |c: char| c.is_alphanumeric() || c == '_';
    let is_named = |name: &str| {
        text.match_indices(name).any(|(at, name)| {
            let before = text[..at].chars().next_back();
            let is_inside = before.is_some_and(|c| is_letter(c) || matches!(c, '-' | ':'));
            // A colon or a hyphen behind a name ends it, unless more of a name follows.
            let mut after = text[at + name.len()..].chars();
            let after = after.find(|c| !matches!(c, ':' | '-'));
            !is_inside && !after.is_some_and(is_letter)
        })
    };
    let tools = tools.iter().map(AsRef::as_ref);
    tools.filter(|tool: &&Tool| is_named(&tool.name)).collect()
}

#[cfg(test)]
#[path = "screen_tests.rs"]
mod tests;
