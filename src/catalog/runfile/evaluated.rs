//! Parameters whose values a shell evaluates. In arithmetic, in the index of a list and behind `-v`
//! a shell runs what a value like `x[$(id)]` has in it, in quotes or not. The text of a function is
//! searched for such places, rather too often than too seldom, and values of these parameters have
//! to be plain. A value that goes there by another way, through a command's output or another
//! function, isn't followed.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Range;

use super::evaluated_text::{blanked, closing, command_end, is_name_char, without_commands};
use super::function::{Evaluated, Function, Parameter};

/// Comparisons of numbers, which `[[ ]]` computes.
const COMPARISONS: [&str; 6] = ["-eq", "-ne", "-lt", "-le", "-gt", "-ge"];
/// They take `-i` for variables that hold numbers, and `-n` for names of others.
const DECLARATIONS: [&str; 5] = ["declare", "local", "typeset", "readonly", "export"];
/// What `-v` and the name of a variable follow.
const BEFORE_NAME: [&str; 7] = ["[[", "[", "test", "printf", "!", "&&", "||"];
/// Assignments in a row that are followed.
const MOST_STEPS: usize = 20;

/// Notes for each parameter of a shell function how the shell evaluates its values.
pub fn mark(function: &mut Function) {
    if !function.interpreter.is_shell() {
        return;
    }
    let text = blanked(&function.body);
    let places = Places::of(&text, &function.body);
    let numbers: HashSet<String> = places
        .numbers
        .iter()
        .flat_map(|it| tokens(it, true))
        .collect();
    let names: HashSet<String> = places
        .names
        .iter()
        .flat_map(|it| tokens(it, false))
        .collect();
    let is_shifted = text.split(|c| !is_name_char(c)).any(|it| it == "shift");
    let parameters = function.parameters.clone();
    let origins = origins(&places.assignments, &parameters, is_shifted);
    for (at, parameter) in function.parameters.iter_mut().enumerate() {
        let is_in = |tokens: &HashSet<String>| {
            tokens.iter().any(|token| {
                let from = origins.get(token.as_str());
                from.is_some_and(|from| from.contains(&at)) || means(token, parameter, is_shifted)
            })
        };
        parameter.evaluated = match (is_in(&numbers), is_in(&names)) {
            (true, _) => Some(Evaluated::Number),
            (false, true) => Some(Evaluated::Name),
            (false, false) => None,
        };
    }
}

/// Parts of a text that are evaluated, and all assignments.
#[derive(Default)]
struct Places {
    numbers: Vec<String>,
    names: Vec<String>,
    assignments: Vec<(String, String)>,
}

impl Places {
    /// `text` is the code of `body`, with all else blanked.
    fn of(text: &str, body: &str) -> Self {
        let mut places = Places::default();
        places.parentheses(text);
        places.tests(text, body);
        let declared = places.commands(text, body);
        places.brackets(text, &declared);
        places.braces(text);
        places.assigned(text);
        let of_numbers = places.assignments.iter();
        let of_numbers = of_numbers.filter(|(name, _)| declared.numbers.contains(name));
        let values: Vec<String> = of_numbers.map(|(_, value)| value.clone()).collect();
        places.numbers.extend(values);
        places
    }

    fn number(&mut self, text: &str) {
        self.numbers.push(without_commands(text));
    }

    fn name(&mut self, text: &str) {
        self.names.push(without_commands(text));
    }

    /// `((…))`, `$((…))` and `$[…]`.
    fn parentheses(&mut self, text: &str) {
        for (open, pair) in [("((", ('(', ')')), ("$[", ('[', ']'))] {
            let mut at = 0;
            while let Some(found) = text[at..].find(open) {
                let begin = at + found + open.len() - 1;
                let end = closing(text, begin, pair).unwrap_or(text.len());
                self.number(&text[begin..end]);
                at = end.max(begin + 1);
            }
        }
    }

    /// Comparisons in `[[ … ]]`, and `-v`.
    fn tests(&mut self, text: &str, body: &str) {
        let mut at = 0;
        while let Some(found) = text[at..].find("[[") {
            let begin = at + found + 2;
            let length = text[begin..].find("]]").unwrap_or(text.len() - begin);
            // A text in quotes is computed, too.
            let conditions = body[begin..begin + length].split("&&");
            for one in conditions.flat_map(|part| part.split("||")) {
                if one
                    .split_whitespace()
                    .any(|word| COMPARISONS.contains(&word))
                {
                    self.number(one);
                }
            }
            at = begin + length;
        }
        let words: Vec<&str> = text.split_whitespace().collect();
        for three in words.windows(3) {
            if three[1] == "-v" && BEFORE_NAME.contains(&three[0]) {
                self.name(three[2]);
            }
        }
    }

    /// `let`, `declare -i`, `declare -n` and `unset`.
    fn commands(&mut self, text: &str, body: &str) -> Declared {
        let mut declared = Declared::default();
        for Range { start, end } in words(text) {
            let word = &text[start..end];
            let rest = &text[end..command_end(text, end)];
            if word == "let" {
                self.number(&body[end..end + rest.len()]);
            } else if word == "unset" {
                self.name(rest);
            } else if DECLARATIONS.contains(&word) {
                let flags = rest.split_whitespace().take_while(|it| it.starts_with('-'));
                let flags: String = flags.collect();
                let plain = rest.split(|c| !is_name_char(c)).map(str::to_owned);
                if flags.contains('i') {
                    self.number(rest);
                    declared.numbers.extend(plain);
                } else if flags.contains('A') {
                    declared.maps.extend(plain);
                }
                if flags.contains('n') {
                    self.name(rest);
                }
            }
        }
        declared
    }

    /// `list[…]` and `([…]=…)`. The index of a map is a text.
    fn brackets(&mut self, text: &str, declared: &Declared) {
        let mut at = 0;
        while let Some(found) = text[at..].find('[') {
            let open = at + found;
            at = open + 1;
            let before = &text[..open];
            let name = before
                .rsplit(|c| !is_name_char(c))
                .next()
                .unwrap_or_default();
            let Some(close) = closing(text, open, ('[', ']')) else {
                continue;
            };
            let is_item = text[close + 1..].starts_with('=') && declared.maps.is_empty();
            if !name.is_empty() && !declared.maps.contains(name) || name.is_empty() && is_item {
                self.number(&text[open..close]);
            }
        }
    }

    /// `${x:offset:length}`, `${!name}` and `${x@P}`.
    fn braces(&mut self, text: &str) {
        let mut at = 0;
        while let Some(found) = text[at..].find("${") {
            let open = at + found + 1;
            at = open + 1;
            let Some(close) = closing(text, open, ('{', '}')) else {
                continue;
            };
            let inner = &text[open + 1..close];
            if let Some(named) = inner.strip_prefix('!') {
                self.name(&format!("${named}"));
            }
            if inner.ends_with("@P") {
                self.name(&format!("${inner}"));
            }
            let is_name = |c: char| is_name_char(c) || "@*".contains(c);
            let behind = inner.trim_start_matches(is_name);
            let behind = match behind.starts_with('[') {
                true => behind.split_once(']').map_or("", |(_, behind)| behind),
                false => behind,
            };
            let offset = behind.strip_prefix(':');
            if let Some(offset) = offset.filter(|it| !it.starts_with(['-', '+', '=', '?'])) {
                self.number(offset);
            }
        }
    }

    /// `x=…`, `for x in …` and `read x <<< …`.
    fn assigned(&mut self, text: &str) {
        for Range { start, end } in words(text) {
            let word = &text[start..end];
            if word.starts_with(|c: char| c.is_ascii_digit()) {
                continue;
            }
            let behind = &text[end..];
            let behind = match (behind.starts_with('['), closing(text, end, ('[', ']'))) {
                (true, Some(close)) => &text[close + 1..],
                _ => behind,
            };
            let value = behind.strip_prefix('+').unwrap_or(behind).strip_prefix('=');
            let command = || &text[end..command_end(text, end)];
            if let Some(value) = value {
                let value = match value.starts_with('(') {
                    true => &value[..closing(value, 0, ('(', ')')).unwrap_or(value.len())],
                    false => &value[..value_end(value)],
                };
                self.assignments
                    .push((word.to_owned(), without_commands(value)));
            } else if word == "for" || word == "select" {
                if let Some((name, list)) = command().split_once(" in ") {
                    let name = name.trim().to_owned();
                    self.assignments.push((name, without_commands(list)));
                }
            } else if matches!(word, "read" | "mapfile" | "readarray")
                && let Some((names, from)) = command().split_once("<<<")
            {
                for name in names.split_whitespace().filter(|it| !it.starts_with('-')) {
                    self.assignments
                        .push((name.to_owned(), without_commands(from)));
                }
            }
        }
    }
}

/// Variables with attributes.
#[derive(Default)]
struct Declared {
    numbers: HashSet<String>,
    maps: HashSet<String>,
}

/// Names and plain words.
fn words(text: &str) -> impl Iterator<Item = Range<usize>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = at + text[at..].find(is_name_char)?;
        let length = text[start..].find(|c| !is_name_char(c));
        at = length.map_or(text.len(), |length| start + length);
        Some(start..at)
    })
}

/// Where the value of an assignment ends.
fn value_end(text: &str) -> usize {
    let (mut quoted, mut depth) = (false, 0_usize);
    for (at, c) in text.char_indices() {
        match c {
            '"' => quoted = !quoted,
            '(' | '{' => depth += 1,
            ')' | '}' if depth > 0 => depth -= 1,
            c if !quoted && depth == 0 && (c.is_whitespace() || ";&|)".contains(c)) => return at,
            _ => {}
        }
    }
    text.len()
}

/// What a part of a text mentions: names, positions, and `@` for all values. `bare`: also names
/// without a `$`.
fn tokens(text: &str, bare: bool) -> Vec<String> {
    let mut found = Vec::new();
    for Range { start, end } in words(text) {
        let before = text[..start].trim_end_matches(['{', '!', '#']);
        let is_expanded = before.ends_with('$');
        let word = &text[start..end];
        let is_number = word.starts_with(|c: char| c.is_ascii_digit());
        if is_number && is_expanded {
            // `$12` is `$1` and a 2.
            let digits = if text[..start].ends_with('$') {
                &word[..1]
            } else {
                word
            };
            found.push(digits.to_owned());
        } else if !is_number && (bare || is_expanded) {
            found.push(word.to_owned());
        }
    }
    if ["$@", "$*", "${@", "${*"]
        .iter()
        .any(|all| text.contains(all))
    {
        found.push("@".to_owned());
    }
    found
}

/// Whether a token stands for a value of this parameter.
fn means(token: &str, parameter: &Parameter, is_shifted: bool) -> bool {
    let at = parameter.position;
    match token.parse::<usize>() {
        Ok(number) => number == at || number > at && parameter.is_rest || number < at && is_shifted,
        Err(_) => token == "@" || parameter.is_variable && token == parameter.name,
    }
}

/// The parameters, by place, whose values variables may hold.
fn origins(
    assignments: &[(String, String)],
    parameters: &[Parameter],
    is_shifted: bool,
) -> HashMap<String, BTreeSet<usize>> {
    let mut all: HashMap<String, BTreeSet<usize>> = HashMap::new();
    for _ in 0..MOST_STEPS {
        let mut changed = false;
        for (name, value) in assignments {
            let mut from = BTreeSet::new();
            for token in tokens(value, false) {
                from.extend(all.get(&token).into_iter().flatten());
                let direct = parameters.iter().enumerate();
                let direct = direct.filter(|(_, one)| means(&token, one, is_shifted));
                from.extend(direct.map(|(at, _)| at));
            }
            let known = all.entry(name.clone()).or_default();
            changed |= !from.is_subset(known);
            known.extend(from);
        }
        if !changed {
            break;
        }
    }
    all
}

#[cfg(test)]
#[path = "evaluated_tests.rs"]
mod tests;
