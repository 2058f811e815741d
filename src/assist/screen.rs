//! The way of an answer to its reader. Lines with a command that wouldn't run are left out, and so
//! is what a terminal would act on. It works on whole lines, so that an answer can be shown while
//! it comes.

use super::commands::{Checker, Reading, Wrong, is_ati};
use super::llm::Answer;
use super::places::{enclosed, places};
use crate::auth::Scopes;
use crate::catalog::{Catalog, Tool};
use crate::text::is_hidden;

/// Lines that one command may go on for.
const LONGEST_COMMAND: usize = 60;
/// Bytes of a line that are looked at: no honest answer has more.
const LONGEST_LINE: usize = 8 << 10;

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

/// What a block of code begins and ends with.
const FENCES: [&str; 2] = ["```", "~~~"];

/// A block of code.
struct Fence {
    mark: &'static str,
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
    pub fn whole(&mut self, answer: &Answer) -> String {
        let mut shown = self.push(&answer.text);
        shown += &self.end(answer.is_cut);
        shown.trim_end().to_owned()
    }

    /// What is left at the end of an answer.
    pub fn end(&mut self, is_cut: bool) -> String {
        match is_cut {
            true => self.finish_cut(),
            false => self.finish(),
        }
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
                c if is_hidden(c) => {}
                c => self.line.push(c),
            }
        }
        shown
    }

    /// What is left at the end of an answer that isn't complete: a last command may be half of one.
    fn finish_cut(&mut self) -> String {
        let is_half = |line: &str| places(&format!("{line} ")).next().is_some();
        if self.fence.is_some() || !self.held.is_empty() || is_half(&self.line) {
            self.held.clear();
            self.line.clear();
        }
        let mut shown = self.finish();
        if let Some(Fence {
            opening: None,
            mark,
            ..
        }) = self.fence.take()
        {
            show(mark, &mut shown);
        }
        shown
    }

    /// What is left at the end.
    fn finish(&mut self) -> String {
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
        let begins = |mark: &&str| line.trim_start().starts_with(*mark);
        let mark = FENCES.into_iter().find(begins);
        let mark = mark.filter(|mark| self.fence.as_ref().is_none_or(|fence| fence.mark == *mark));
        if let Some(mark) = mark {
            if !self.held.is_empty() {
                let held = std::mem::take(&mut self.held);
                self.judge(held, true, shown);
            }
            return self.end_fence(line, mark, shown);
        }
        self.held.push(line);
        let goes_on = self.held.last().is_some_and(|line| continues(line));
        if goes_on && self.held.len() < LONGEST_COMMAND {
            return;
        }
        let lines = std::mem::take(&mut self.held);
        let is_long = lines.len() >= LONGEST_COMMAND;
        self.judge(lines, is_long, shown);
    }

    fn end_fence(&mut self, line: String, mark: &'static str, shown: &mut String) {
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
                let language = line.trim_start().trim_start_matches(['`', '~']).trim();
                let reading = match language.to_ascii_lowercase().as_str() {
                    "bash" | "sh" | "shell" | "zsh" | "console" => Reading::Shell,
                    _ => Reading::Code,
                };
                self.fence = Some(Fence {
                    mark,
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
        let is_long = joined.len() > LONGEST_LINE && places(&joined).next().is_some();
        let outcome = match &self.fence {
            _ if is_long => Some(Err(Wrong::Because("the line is too long".to_owned()))),
            Some(fence) => self.checker.line(&joined, fence.reading),
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
                1 => self.checker.line(part, Reading::Code),
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
        if is_first && is_ati(start) && start.split_whitespace().any(|word| word == "run") {
            let command = enclosed(text, text.len() - start.len());
            return self.checker.check(command, Reading::Code);
        }
        self.checker.within(text)
    }
}

/// Whether a shell reads the next line as a part of this one. An escaped backslash continues
/// nothing, and a comment ends with its line; what only looks like one is judged line by line.
fn continues(line: &str) -> bool {
    let backslashes = line.len() - line.trim_end_matches('\\').len();
    let may_be_comment = line.starts_with('#') || line.contains(" #") || line.contains("\t#");
    backslashes % 2 == 1 && !may_be_comment
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
