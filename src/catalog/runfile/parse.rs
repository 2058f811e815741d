//! The text of a Runfile, read into functions, assignments and `source` lines. Whatever is wrong is
//! told with its line, and doesn't keep the other functions from being read.

use std::path::Path;

use super::attributes::{Attributes, os_allows, unknown_interpreter};
use super::block::Braces;
use super::function::{Evaluated, Function, Interpreter, Kind};
use super::{evaluated, signature};

/// Bytes of a function's name.
const LONGEST_NAME: usize = 100;
/// Lines over which a head may be spread.
const LONGEST_HEAD: usize = 50;
/// Functions of one file. More are a mistake, or an attack.
const MOST_FUNCTIONS: usize = 2000;

/// Problems of one file after which an unclosed function ends the reading.
const MOST_UNCLOSED: usize = 20;
/// Lines outside of functions that are told one by one.
const MOST_STRAY: usize = 3;

/// A part of a file, in its order.
#[derive(Debug, PartialEq)]
pub enum Item {
    Function(Function),
    /// As it is written.
    Assignment(String),
    /// Another file, and the line that names it.
    Source {
        path: String,
        line: u32,
    },
    /// `@instructions`.
    Instructions(String),
}

#[derive(Debug, Default, PartialEq)]
pub struct Parsed {
    pub items: Vec<Item>,
    /// With the line that each is about.
    pub problems: Vec<(u32, String)>,
    pub warnings: Vec<(u32, String)>,
}

/// `folder` is the one of the file.
pub fn parse(text: &str, folder: &Path) -> Parsed {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut parser = Parser {
        lines: text.lines().collect(),
        folder,
        next: 0,
        functions: 0,
        parsed: Parsed::default(),
    };
    parser.run();
    parser.parsed
}

struct Parser<'a> {
    lines: Vec<&'a str>,
    folder: &'a Path,
    /// The line that is read next.
    next: usize,
    functions: usize,
    parsed: Parsed,
}

/// What stands before a body.
struct Head<'a> {
    name: &'a str,
    parameters: String,
    /// What follows on the last line of the head.
    rest: &'a str,
    /// Lines that it takes.
    lines: usize,
}

impl<'a> Parser<'a> {
    fn run(&mut self) {
        // The comments directly above, each with its line.
        let mut comments: Vec<(u32, &str)> = Vec::new();
        let mut stray = 0;
        while let Some(&line) = self.lines.get(self.next) {
            let at = self.next;
            let number = number_of(at);
            self.next += 1;
            let trimmed = line.trim();
            if let Some(comment) = trimmed.strip_prefix('#') {
                match tag(comment, "instructions") {
                    Some(text) if !text.is_empty() => {
                        self.parsed.items.push(Item::Instructions(text.to_owned()));
                    }
                    _ => comments.push((number, comment)),
                }
                continue;
            }
            let block = std::mem::take(&mut comments);
            if trimmed.is_empty() {
                continue;
            }
            if let Some(head) = self.head(at) {
                self.next = at + head.lines;
                self.functions += 1;
                if self.functions > MOST_FUNCTIONS {
                    let message = format!("a Runfile has at most {MOST_FUNCTIONS} functions");
                    return self.parsed.problems.push((number, message));
                }
                self.function(&head, number, &block);
            } else if is_assignment(trimmed) {
                self.assignment(at);
            } else if let Some(path) = sourced(trimmed) {
                self.parsed.items.push(Item::Source { path, line: number });
            } else if trimmed == "}" {
                let message = "a '}' that closes nothing; the function above may end too early";
                self.parsed.problems.push((number, message.to_owned()));
            } else {
                stray += 1;
                let message = match stray {
                    1..=MOST_STRAY => "it belongs to no function, and is never run",
                    _ => "it and maybe more lines belong to no function, and are never run",
                };
                if stray <= MOST_STRAY + 1 {
                    self.parsed.warnings.push((number, message.to_owned()));
                }
            }
        }
    }

    /// `name(…)`, `function name(…)` or `function name {`.
    fn head(&self, at: usize) -> Option<Head<'a>> {
        let line = self.lines[at].trim();
        let (after, is_marked) = match line.strip_prefix("function") {
            Some(rest) if rest.starts_with(char::is_whitespace) => (rest.trim_start(), true),
            _ => (line, false),
        };
        let end = after
            .find(|c: char| !is_name_char(c))
            .unwrap_or(after.len());
        let (name, rest) = after.split_at(end);
        if !name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
            return None;
        }
        let spaced = rest.trim_start();
        if is_marked && spaced.starts_with('{') {
            return Some(Head {
                name,
                parameters: String::new(),
                rest: spaced,
                lines: 1,
            });
        }
        let may_follow = is_marked || rest.starts_with('(') || spaced.starts_with("()");
        let inner = spaced.strip_prefix('(').filter(|_| may_follow)?;
        let mut parameters = String::new();
        let following = self.lines[at + 1..].iter().copied();
        let lines = std::iter::once(inner).chain(following).take(LONGEST_HEAD);
        for (count, line) in lines.enumerate() {
            match closing_parenthesis(line) {
                Some(end) => {
                    parameters += &line[..end];
                    return Some(Head {
                        name,
                        parameters,
                        rest: line[end + 1..].trim_start(),
                        lines: count + 1,
                    });
                }
                None => {
                    parameters += line;
                    parameters.push(' ');
                }
            }
        }
        None
    }

    fn function(&mut self, head: &Head<'a>, line: u32, comments: &[(u32, &str)]) {
        let mut attributes = Attributes::default();
        let before = self.parsed.problems.len();
        for (line, comment) in comments {
            if let Err(message) = attributes.add(comment, *line) {
                self.parsed.problems.push((*line, message));
            }
        }
        let Some((interpreter, body)) = self.body(head, line, attributes.interpreter) else {
            return;
        };
        if head.name.len() > LONGEST_NAME {
            let message = format!("the name is longer than {LONGEST_NAME} characters");
            self.parsed.problems.push((line, message));
        }
        let parameters = signature::parse(&head.parameters)
            .map_err(|message| (line, message))
            .and_then(|mut parameters| {
                signature::describe(&mut parameters, &attributes.args)?;
                Ok(parameters)
            });
        let parameters = match parameters {
            Ok(parameters) => parameters,
            Err((line, message)) => {
                let message = format!("{}: {message}", head.name);
                return self.parsed.problems.push((line, message));
            }
        };
        if self.parsed.problems.len() > before || !os_allows(&attributes.os) {
            return;
        }
        let cd = attributes
            .cd
            .map(|cd| self.folder.join(crate::config::with_home(&cd)));
        let mut function = Function {
            name: head.name.to_owned(),
            line,
            folder: self.folder.to_owned(),
            description: attributes.description,
            parameters,
            interpreter,
            body,
            cd,
            depends: attributes.depends,
            stops_at_errors: !attributes.no_errexit,
            is_safe: attributes.is_safe,
        };
        evaluated::mark(&mut function);
        self.warn_of_evaluated(&function);
        self.parsed.items.push(Item::Function(function));
    }

    fn warn_of_evaluated(&mut self, function: &Function) {
        let texts = function.parameters.iter();
        let texts = texts.filter(|one| matches!(one.kind, Kind::String | Kind::Object));
        for one in texts {
            let Some(evaluated) = one.evaluated else {
                continue;
            };
            let (name, wanted) = (&one.name, evaluated.wanted());
            let mut message = format!("{}: '{name}' has to be {wanted}", function.name);
            if evaluated == Evaluated::Number {
                message += "; declare it as an integer";
            }
            self.parsed.warnings.push((function.line, message));
        }
    }

    /// The body, from behind the head on; None where there is none, which is noted.
    fn body(
        &mut self,
        head: &Head<'a>,
        line: u32,
        named: Option<Interpreter>,
    ) -> Option<(Interpreter, String)> {
        let mut rest = head.rest;
        if rest.is_empty() {
            // The brace may stand on the next line.
            let following = self.lines.get(self.next).map_or("", |line| line.trim());
            if following.starts_with('{') {
                rest = following;
                self.next += 1;
            }
        }
        let Some(opened) = rest.strip_prefix('{') else {
            let text = self.inline(rest);
            if text.is_empty() {
                let message = format!("the function '{}' has no body", head.name);
                self.parsed.problems.push((line, message));
                return None;
            }
            return Some((named.unwrap_or_default(), text));
        };
        let shebang = match opened.trim() {
            "" => self
                .lines
                .get(self.next)
                .and_then(|line| line.trim().strip_prefix("#!")),
            _ => None,
        };
        let mut interpreter = named.unwrap_or_default();
        if let Some(shebang) = shebang {
            self.next += 1;
            if named.is_none() {
                let words = shebang.split_whitespace();
                let program = words.map(|word| word.rsplit('/').next().unwrap_or(word));
                let program = program.filter(|word| *word != "env" && !word.starts_with('-'));
                let program = program.take(1).collect::<String>();
                interpreter = Interpreter::named(&program)
                    .or_else(|| {
                        let message = unknown_interpreter(&program);
                        self.parsed
                            .problems
                            .push((number_of(self.next - 1), message));
                        None
                    })
                    .unwrap_or_default();
            }
        }
        let lines = self.block(opened, interpreter);
        let Some(lines) = lines else {
            let message = format!("the body of '{}' has no closing brace", head.name);
            self.parsed.problems.push((line, message));
            self.next = self.next_function();
            return None;
        };
        let body = match interpreter {
            Interpreter::Python => dedented(&lines),
            _ => lines.join("\n"),
        };
        Some((interpreter, body))
    }

    /// The next line that begins a function for certain, with the comments above it. All before it
    /// may belong to a function that never ends.
    fn next_function(&self) -> usize {
        let is_head = |at: &usize| {
            let line = self.lines[*at];
            !line.starts_with(char::is_whitespace)
                && self
                    .head(*at)
                    .is_some_and(|head| head.rest.starts_with('{'))
        };
        let mut following = self.next..self.lines.len();
        let found = following.find(is_head);
        // Each that never ends is read to the end of the file.
        let Some(mut at) = found.filter(|_| self.parsed.problems.len() < MOST_UNCLOSED) else {
            return self.lines.len();
        };
        while at > self.next && self.lines[at - 1].starts_with('#') {
            at -= 1;
        }
        at
    }

    /// A command on the line of the head, and on lines that a backslash continues.
    fn inline(&mut self, rest: &str) -> String {
        let mut text = rest.trim_end().to_owned();
        while text.ends_with('\\') {
            let Some(line) = self.lines.get(self.next) else {
                break;
            };
            self.next += 1;
            text.push('\n');
            text += line.trim_end();
        }
        text
    }

    /// The lines up to the brace that closes the body; reading goes on behind it.
    fn block(&mut self, opened: &'a str, interpreter: Interpreter) -> Option<Vec<&'a str>> {
        let mut braces = Braces::new(interpreter);
        if let Some(end) = braces.line(opened) {
            return Some(vec![opened[..end].trim()]);
        }
        let begin = self.next;
        let mut body: Vec<&str> = Some(opened.trim())
            .filter(|text| !text.is_empty())
            .into_iter()
            .collect();
        let extra = body.len();
        // Lines that are a brace alone. Where a scan goes astray, one of them is the end.
        let mut candidate = None;
        for at in begin..self.lines.len() {
            let line = self.lines[at];
            let closed = braces.line(line);
            if let Some(end) = closed {
                let last = line[..end].trim_end();
                body.extend(Some(last).filter(|text| !text.trim().is_empty()));
                self.next = at + 1;
                return Some(body);
            }
            if line.trim_end() == "}" {
                candidate = Some(at);
            }
            let is_head = !line.starts_with(char::is_whitespace) && self.head(at).is_some();
            if is_head && interpreter.is_shell() && candidate.is_some() {
                break;
            }
            body.push(line);
        }
        let end = candidate?;
        body.truncate(extra + (end - begin));
        self.next = end + 1;
        Some(body)
    }

    /// An assignment, with all lines of its value.
    fn assignment(&mut self, at: usize) {
        let mut quotes = Braces::new(Interpreter::Bash);
        let mut text = String::new();
        for (count, line) in self.lines[at..].iter().enumerate() {
            quotes.line(line);
            text += line;
            if quotes.is_in_code() && !line.ends_with('\\') {
                self.next = at + count + 1;
                self.parsed.items.push(Item::Assignment(text));
                return;
            }
            text.push('\n');
        }
        let message = "a quotation mark has no end".to_owned();
        self.parsed.problems.push((number_of(at), message));
        self.next = self.lines.len();
    }
}

fn number_of(at: usize) -> u32 {
    u32::try_from(at + 1).unwrap_or(u32::MAX)
}

fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | ':' | '-')
}

fn tag<'t>(comment: &'t str, name: &str) -> Option<&'t str> {
    let rest = comment.trim_start().strip_prefix('@')?.strip_prefix(name)?;
    let ends = rest.is_empty() || rest.starts_with(char::is_whitespace);
    ends.then(|| rest.trim())
}

/// The place of the `)` that ends the parameters.
fn closing_parenthesis(line: &str) -> Option<usize> {
    let mut quote = None;
    for (at, c) in line.char_indices() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, ')') => return Some(at),
            _ => {}
        }
    }
    None
}

fn is_assignment(line: &str) -> bool {
    let line = line.strip_prefix("export ").unwrap_or(line).trim_start();
    let name = line.split_once('=').map(|(name, _)| name);
    name.is_some_and(signature::is_identifier)
}

fn sourced(line: &str) -> Option<String> {
    let rest = line
        .strip_prefix("source")
        .or_else(|| line.strip_prefix('.'))?;
    let path = rest.strip_prefix(char::is_whitespace)?.trim();
    let path = path.trim_matches(['"', '\'']);
    (!path.is_empty()).then(|| path.to_owned())
}

/// Without the indentation of the first line, which Python would refuse. A line that has less of
/// it, as in a text of several lines, stays as it is.
fn dedented(lines: &[&str]) -> String {
    let first = lines.iter().find(|line| !line.trim().is_empty());
    let indentation = first.map_or("", |line| &line[..line.len() - line.trim_start().len()]);
    let cut = lines
        .iter()
        .map(|line| line.strip_prefix(indentation).unwrap_or(line));
    cut.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
