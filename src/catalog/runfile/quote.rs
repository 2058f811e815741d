//! Keeps values whole in the text of a shell function. A shell splits an unquoted `$1` at white
//! space, and takes `*` in it for names of files, so that more than the value would arrive. The
//! text of a function is the author's own; only expansions of parameters that stand in no quotes
//! are changed, and those that can't be told for certain stay as they are.

use super::block::here_document_end;

/// Commands within commands that are looked into.
const DEEPEST: usize = 50;
/// Characters of an expansion with braces: many that never end must not take long.
const LONGEST: usize = 4096;

/// The text with `$1`, `${name}`, `${1:-x}` and `$@` in quotes where they have none. `names` are
/// variables that hold one value, `rest` is the one that holds all values from a position on.
pub fn keep_whole(text: &str, names: &[&str], rest: Option<(&str, usize)>) -> String {
    let mut quoter = Quoter {
        text,
        at: 0,
        out: String::with_capacity(text.len() + 64),
        names,
        rest,
        here: Vec::new(),
        depth: 0,
    };
    quoter.code(None);
    // What a parenthesis too many has left over.
    let left = &text[quoter.at..];
    quoter.out + left
}

struct Quoter<'a> {
    text: &'a str,
    at: usize,
    out: String,
    names: &'a [&'a str],
    rest: Option<(&'a str, usize)>,
    /// Here documents that begin with the next line: their last lines.
    here: Vec<(String, bool)>,
    depth: usize,
}

impl Quoter<'_> {
    fn left(&self) -> &str {
        &self.text[self.at..]
    }

    fn copy(&mut self, bytes: usize) {
        let mut end = (self.at + bytes).min(self.text.len());
        while !self.text.is_char_boundary(end) {
            end += 1;
        }
        self.out.push_str(&self.text[self.at..end]);
        self.at = end;
    }

    /// Up to and with this text, or all that is left.
    fn copy_through(&mut self, end: &str) {
        let length = self
            .left()
            .find(end)
            .map_or(usize::MAX - self.at, |at| at + end.len());
        self.copy(length);
    }

    /// Commands in a `$(`, where they aren't too deep.
    fn commands(&mut self) {
        if self.depth < DEEPEST {
            self.depth += 1;
            self.code(Some(')'));
            self.depth -= 1;
        }
    }

    /// Commands, until the `)` that ends them, where one does.
    fn code(&mut self, close: Option<char>) {
        let mut depth = 0;
        while let Some(c) = self.left().chars().next() {
            let before = self.out.chars().next_back();
            let at_word = before.is_none_or(|c| c.is_whitespace() || ";&|(".contains(c));
            match c {
                ')' if depth == 0 && close == Some(')') => return self.copy(1),
                '(' if self.left().starts_with("((") && at_word => self.copy_through("))"),
                '(' => {
                    depth += 1;
                    self.copy(1);
                }
                ')' => {
                    depth -= 1;
                    self.copy(1);
                }
                '#' if at_word => {
                    let length = self.left().find('\n').unwrap_or(self.left().len());
                    self.copy(length);
                }
                '[' if at_word && self.left().starts_with("[[ ") => self.copy_through(" ]]"),
                '\'' => {
                    self.copy(1);
                    self.copy_through("'");
                }
                '"' => self.double_quoted(),
                '`' => {
                    self.copy(1);
                    self.copy_through("`");
                }
                '\\' => self.copy(2),
                '<' if self.left().starts_with("<<<") => self.copy(3),
                '<' if self.left().starts_with("<<") => {
                    self.here.extend(here_document_end(&self.left()[2..]));
                    self.copy(2);
                }
                '\n' => {
                    self.copy(1);
                    self.here_documents();
                }
                '$' => self.expansion(),
                _ => self.copy(c.len_utf8()),
            }
        }
    }

    fn here_documents(&mut self) {
        for (end, indented) in std::mem::take(&mut self.here) {
            loop {
                let left = self.left();
                if left.is_empty() {
                    break;
                }
                let length = left.find('\n').map_or(left.len(), |at| at + 1);
                let line = left[..length].trim_end_matches('\n');
                let line = if indented {
                    line.trim_start_matches('\t')
                } else {
                    line
                };
                let is_last = line == end;
                self.copy(length);
                if is_last {
                    break;
                }
            }
        }
    }

    fn double_quoted(&mut self) {
        self.copy(1);
        while let Some(c) = self.left().chars().next() {
            match c {
                '"' => return self.copy(1),
                '\\' => self.copy(2),
                '`' => {
                    self.copy(1);
                    self.copy_through("`");
                }
                '$' if self.left().starts_with("$((") => self.copy_through("))"),
                '$' if self.left().starts_with("$(") => {
                    self.copy(2);
                    self.commands();
                }
                '$' if self.left().starts_with("${") => self.braced(),
                _ => self.copy(c.len_utf8()),
            }
        }
    }

    /// `${…}` as it is, with all braces in it.
    fn braced(&mut self) {
        let mut depth = 0;
        while let Some(c) = self.left().chars().next() {
            self.copy(if c == '\\' { 2 } else { c.len_utf8() });
            match c {
                '{' => depth += 1,
                '}' => {
                    depth -= 1;
                    if depth == 0 {
                        return;
                    }
                }
                _ => {}
            }
        }
    }

    /// What follows a `$` that stands in no quotes.
    fn expansion(&mut self) {
        let left = self.left();
        if left.starts_with("$((") {
            return self.copy_through("))");
        }
        if left.starts_with("$(") {
            self.copy(2);
            return self.commands();
        }
        if left.starts_with("$'") {
            self.copy(2);
            while let Some(c) = self.left().chars().next() {
                self.copy(if c == '\\' { 2 } else { c.len_utf8() });
                if c == '\'' {
                    return;
                }
            }
            return;
        }
        if left.starts_with("${") {
            return self.in_braces();
        }
        let inner = &left[1..];
        let special = inner.starts_with(|c: char| c.is_ascii_digit() || "@*".contains(c));
        let length = match special {
            true => 1,
            false => inner.find(is_no_name).unwrap_or(inner.len()),
        };
        match self.quoted(&inner[..length]) {
            Some(quoted) => {
                self.out.push_str(&quoted);
                self.at += length + 1;
            }
            None => self.copy(length + 1),
        }
    }

    /// `${name}`, `${name:-word}` and the like, in no quotes.
    fn in_braces(&mut self) {
        let left = self.left();
        let Some(end) = closing_brace(left) else {
            return self.copy(2);
        };
        let inner = &left[2..end];
        let length = match inner.starts_with(['@', '*']) {
            true => 1,
            false => inner.find(is_no_name).unwrap_or(inner.len()),
        };
        let (name, operation) = inner.split_at(length);
        let quoted = self.quoted(name);
        let is_value = quoted.is_some();
        let plain = operation.trim_start_matches(':');
        let changed = match plain.chars().next() {
            None => quoted,
            // The value itself isn't there: only what the word has.
            Some('+') => Some(format!("${{{name}{}}}", self.word(operation))),
            Some('-' | '=' | '?') if !is_value => {
                Some(format!("${{{name}{}}}", self.word(operation)))
            }
            Some('-') if plain.len() == 1 => quoted,
            Some('-' | '=' | '?') => {
                let name = if name == "*" { "@" } else { name };
                Some(format!("\"${{{name}{}}}\"", without_quotes(operation)))
            }
            _ if matches!(name, "@" | "*") => Some(format!("\"${{@{operation}}}\"")),
            _ if is_value => Some(format!("${{{name}:+\"${{{name}{operation}}}\"}}")),
            _ => None,
        };
        match changed {
            Some(changed) => {
                self.out.push_str(&changed);
                self.at += end + 1;
            }
            None => self.copy(end + 1),
        }
    }

    /// A word that stands in no quotes within braces.
    fn word(&self, text: &str) -> String {
        if self.depth >= DEEPEST {
            return text.to_owned();
        }
        let mut inner = Quoter {
            text,
            at: 0,
            out: String::with_capacity(text.len()),
            names: self.names,
            rest: self.rest,
            here: Vec::new(),
            depth: self.depth + 1,
        };
        inner.code(None);
        inner.out
    }

    /// The expansion in quotes. An empty value still is no word at all, as without quotes.
    fn quoted(&self, name: &str) -> Option<String> {
        let is_position = !name.is_empty() && name.chars().all(|c| c.is_ascii_digit());
        if matches!(name, "@" | "*") {
            return Some("\"$@\"".to_owned());
        }
        if let Some((rest, position)) = self.rest
            && name == rest
        {
            return Some(format!("\"${{@:{position}}}\""));
        }
        (is_position && name != "0" || self.names.contains(&name))
            .then(|| format!("${{{name}:+\"${{{name}}}\"}}"))
    }
}

fn is_no_name(c: char) -> bool {
    !(c.is_ascii_alphanumeric() || c == '_')
}

/// The place of the brace that ends the expansion that a text begins with.
fn closing_brace(text: &str) -> Option<usize> {
    let (mut depth, mut quote, mut skipped) = (0, None, false);
    for (at, c) in text.char_indices().take(LONGEST) {
        if std::mem::take(&mut skipped) {
            continue;
        }
        match (quote, c) {
            (Some('\''), '\'') | (Some('"'), '"') => quote = None,
            (Some('\''), _) => {}
            (_, '\\') => skipped = true,
            (None, '\'' | '"') => quote = Some(c),
            (_, '{') => depth += 1,
            (_, '}') => {
                depth -= 1;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

/// A word that had no quotes around it, for a place within double quotes: what it has in quotes
/// stays what it is.
fn without_quotes(word: &str) -> String {
    let mut out = String::with_capacity(word.len());
    let (mut in_single, mut in_double) = (false, false);
    let mut chars = word.chars();
    while let Some(c) = chars.next() {
        match c {
            '\'' if !in_double => in_single = !in_single,
            '"' if !in_single => in_double = !in_double,
            '"' | '\\' | '$' | '`' if in_single => out.extend(['\\', c]),
            '\\' if in_double => out.extend(std::iter::once(c).chain(chars.next())),
            // In double quotes, a backslash stays before what needs none.
            '\\' => match chars.next() {
                Some(next @ ('"' | '\\' | '$' | '`' | '}')) => out.extend([c, next]),
                next => out.extend(next),
            },
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> String {
        keep_whole(text, &["env"], Some(("more", 3)))
    }

    #[test]
    fn only_expansions_without_quotes_are_changed() {
        for same in [
            "echo \"$1 ${env}\" '$1' \\$1 $'$1' # $1",
            "[[ $1 == $env ]] && (( $1 > 2 )) && echo $(( $1 + 1 ))",
            "cat <<EOF\n$1 $env\nEOF\n",
            "cat <<-'E'\n\t$1\n\tE\necho `x $1` ${#1} ${!1} ${x:2} $environment $0 $? $# $$",
            "echo \"`a $1`\" \"$((1 + $1))\" \"${1:-$env}\"",
            "echo 'open $1",
            "echo ) $(",
        ] {
            assert_eq!(of(same), same);
        }
        assert_eq!(of("./d.sh $1"), "./d.sh ${1:+\"${1}\"}");
        assert_eq!(
            of("a $1=${env} \"$(b $env)\" $@ $12 $more"),
            "a ${1:+\"${1}\"}=${env:+\"${env}\"} \"$(b ${env:+\"${env}\"})\" \"$@\" \
             ${1:+\"${1}\"}2 \"${@:3}\""
        );
        assert_eq!(
            of("f() { x $1; }\n# $1\ny $1"),
            "f() { x ${1:+\"${1}\"}; }\n# $1\ny ${1:+\"${1}\"}"
        );
    }

    #[test]
    fn expansions_with_braces_are_whole_too() {
        for (text, expected) in [
            ("x ${1:-staging}", "x \"${1:-staging}\""),
            ("x ${env-}", "x ${env:+\"${env}\"}"),
            ("x ${env%.}", "x ${env:+\"${env%.}\"}"),
            ("x ${1//\\}/b}", "x ${1:+\"${1//\\}/b}\"}"),
            ("x ${1:-${2:-}} $2", "x \"${1:-${2:-}}\" ${2:+\"${2}\"}"),
            ("x ${1:-'a }\"$'\"b\"}", "x \"${1:-a }\\\"\\$b}\""),
            ("x ${1:+--env $1}", "x ${1:+--env ${1:+\"${1}\"}}"),
            ("x ${1:+--env \"$1\"}", "x ${1:+--env \"$1\"}"),
            ("x ${HOME:-$1}", "x ${HOME:-${1:+\"${1}\"}}"),
            ("x ${@:2} ${*}", "x \"${@:2}\" \"$@\""),
            ("x ${more:-y}", "x \"${more:-y}\""),
        ] {
            assert_eq!(of(text), expected);
        }
        let deep = "$(".repeat(100_000) + &"${a:-".repeat(1000) + "$1";
        assert!(of(&deep).len() >= deep.len());
    }

    /// Whatever the text is, nothing of it is lost.
    #[test]
    fn awkward_texts_keep_all_of_their_characters() {
        let text = "é$1\"`'\\$(( ((  [[ ]] ${${} <<E\n$env)) $'é\\'\n<<\n)(\"$(\"";
        for (at, _) in text.char_indices() {
            let text = &text[..at];
            let back = of(text)
                .replace("${1:+\"${1}\"}", "$1")
                .replace("${env:+\"${env}\"}", "$env");
            assert_eq!(back, text);
        }
    }
}
