//! Keeps values whole in the text of a shell function. A shell splits an unquoted `$1` at white
//! space, and takes `*` in it for names of files, so that more than the value would arrive. The
//! text of a function is the author's own; only expansions of parameters that stand in no quotes
//! are changed, and those that can't be told for certain stay as they are.

use super::block::here_document_end;

/// The text with `$1`, `${name}` and `$@` in quotes where they have none. `names` are variables
/// that hold one value, `rest` is the one that holds all values from a position on.
pub fn keep_whole(text: &str, names: &[&str], rest: Option<(&str, usize)>) -> String {
    let mut quoter = Quoter {
        text,
        at: 0,
        out: String::with_capacity(text.len() + 64),
        names,
        rest,
        here: Vec::new(),
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
                    self.code(Some(')'));
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
            return self.code(Some(')'));
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
        let (name, length) = match left.strip_prefix("${") {
            Some(inner) => match inner.split_once('}') {
                Some((name, _)) => (name, name.len() + 3),
                None => return self.copy(2),
            },
            None => {
                let inner = &left[1..];
                let special = inner.starts_with(|c: char| c.is_ascii_digit() || "@*".contains(c));
                let word = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
                let length = match special {
                    true => 1,
                    false => inner.find(word).unwrap_or(inner.len()),
                };
                (&inner[..length], length + 1)
            }
        };
        match self.quoted(name) {
            Some(quoted) => {
                self.out.push_str(&quoted);
                self.at += length;
            }
            None if left.starts_with("${") => self.braced(),
            None => self.copy(length),
        }
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
            "cat <<-'E'\n\t$1\n\tE\necho `x $1` ${1:-a} ${#1} $environment $0 $? $# $$",
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
