//! Where the body of a function ends: at the `}` that closes it. Braces in texts, comments and here
//! documents don't count, and what those are depends on the language.

use super::function::Interpreter;

/// What a scan is in the middle of.
#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Code,
    /// Until this closes it. Triple quotes are one mark.
    Text {
        close: &'static str,
        escapes: bool,
    },
    /// `/* … */`.
    Comment,
    /// The lines up to this one.
    Here {
        end: String,
        indented: bool,
    },
}

/// Counts braces, line by line.
pub struct Braces {
    language: Interpreter,
    state: State,
    /// A here document that begins with the next line.
    pending: Option<State>,
    depth: i64,
}

impl Braces {
    /// Behind the brace that opens the body.
    pub fn new(language: Interpreter) -> Self {
        Braces {
            language,
            state: State::Code,
            pending: None,
            depth: 1,
        }
    }

    /// Whether the last line has left no text, comment or here document open.
    pub fn is_in_code(&self) -> bool {
        self.state == State::Code
    }

    /// One line. Gives the place of the brace that closes the body, where it is in this line.
    pub fn line(&mut self, line: &str) -> Option<usize> {
        if let State::Here { end, indented } = &self.state {
            let text = if *indented {
                line.trim_start_matches('\t')
            } else {
                line
            };
            if text == end {
                self.state = State::Code;
            }
            return None;
        }
        let mut at = 0;
        while let Some(c) = line[at..].chars().next() {
            let rest = &line[at..];
            at += match self.state.clone() {
                State::Code => match self.code(line, at, c) {
                    Step::Closed => return Some(at),
                    Step::Forward(length) => length,
                    Step::EndOfLine => break,
                },
                State::Text { close, .. } if rest.starts_with(close) => {
                    self.state = State::Code;
                    close.len()
                }
                State::Text { escapes: true, .. } if c == self.escape() => {
                    1 + rest[1..].chars().next().map_or(0, char::len_utf8)
                }
                State::Comment if rest.starts_with("*/") => {
                    self.state = State::Code;
                    2
                }
                State::Text { .. } | State::Comment | State::Here { .. } => c.len_utf8(),
            };
        }
        self.end_of_line();
        None
    }

    fn end_of_line(&mut self) {
        // A text in one pair of quotes ends with its line, but for a shell's and for templates.
        if let State::Text { close, .. } = &self.state
            && !self.spans_lines(close)
        {
            self.state = State::Code;
        }
        if self.state == State::Code
            && let Some(here) = self.pending.take()
        {
            self.state = here;
        }
    }

    fn spans_lines(&self, close: &str) -> bool {
        match self.language {
            Interpreter::Bash | Interpreter::Sh | Interpreter::Ruby | Interpreter::Pwsh => true,
            Interpreter::Python => close.len() == 3,
            Interpreter::Node => close == "`",
        }
    }

    fn escape(&self) -> char {
        match self.language {
            Interpreter::Pwsh => '`',
            _ => '\\',
        }
    }

    fn code(&mut self, line: &str, at: usize, c: char) -> Step {
        let rest = &line[at..];
        let language = self.language;
        let text = |close, escapes| State::Text { close, escapes };
        if language == Interpreter::Python
            && let Some(close) = ["\"\"\"", "'''"]
                .into_iter()
                .find(|it| rest.starts_with(it))
        {
            self.state = text(close, true);
            return Step::Forward(3);
        }
        if language == Interpreter::Node && rest.starts_with("/*") {
            self.state = State::Comment;
            return Step::Forward(2);
        }
        if self.begins_comment(line, at) {
            return Step::EndOfLine;
        }
        match c {
            '{' => self.depth += 1,
            '}' => {
                self.depth -= 1;
                if self.depth == 0 {
                    return Step::Closed;
                }
            }
            '"' => self.state = text("\"", true),
            '\'' => self.state = text("'", !language.is_shell() || line[..at].ends_with('$')),
            '`' if language == Interpreter::Node => self.state = text("`", true),
            c if c == self.escape() => {
                return Step::Forward(1 + rest[1..].chars().next().map_or(0, char::len_utf8));
            }
            '<' if language.is_shell() && rest.starts_with("<<<") => return Step::Forward(3),
            '<' if language.is_shell() && rest.starts_with("<<") => {
                self.pending = here_document(&rest[2..]).or(self.pending.take());
                return Step::Forward(2);
            }
            _ => {}
        }
        Step::Forward(c.len_utf8())
    }

    fn begins_comment(&self, line: &str, at: usize) -> bool {
        let rest = &line[at..];
        match self.language {
            Interpreter::Node => rest.starts_with("//"),
            Interpreter::Python | Interpreter::Ruby | Interpreter::Pwsh => rest.starts_with('#'),
            // Only at the begin of a word: `$#` and `${#a}` are none.
            Interpreter::Bash | Interpreter::Sh => {
                let before = line[..at].chars().next_back();
                rest.starts_with('#')
                    && before
                        .is_none_or(|c| c.is_whitespace() || matches!(c, ';' | '(' | '&' | '|'))
            }
        }
    }
}

enum Step {
    /// The brace that closes the body.
    Closed,
    /// So many bytes.
    Forward(usize),
    EndOfLine,
}

fn here_document(rest: &str) -> Option<State> {
    let (end, indented) = here_document_end(rest)?;
    Some(State::Here { end, indented })
}

/// What stands behind `<<`: the word that ends the document, and whether a dash is before it, so
/// that tabs before the word don't count.
pub(super) fn here_document_end(rest: &str) -> Option<(String, bool)> {
    let (rest, indented) = match rest.strip_prefix('-') {
        Some(rest) => (rest, true),
        None => (rest, false),
    };
    let rest = rest.trim_start();
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '!');
    let end: String = match rest.chars().next()? {
        quote @ ('\'' | '"') => rest[1..].split(quote).next()?.to_owned(),
        '\\' => rest[1..].chars().take_while(|c| plain(*c)).collect(),
        _ => rest.chars().take_while(|c| plain(*c)).collect(),
    };
    // `$((1 << 2))` is a shift.
    let is_word = end.chars().next().is_some_and(|c| !c.is_ascii_digit());
    is_word.then_some((end, indented))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many lines the body has until it is closed.
    fn closed_at(language: Interpreter, body: &str) -> Option<usize> {
        let mut braces = Braces::new(language);
        body.lines().position(|line| braces.line(line).is_some())
    }

    #[test]
    fn braces_in_texts_comments_and_here_documents_do_not_count() {
        for (language, body) in [
            (Interpreter::Bash, "echo '}' \"}\" \\} # }\n}"),
            (Interpreter::Bash, "cat <<EOF\n} \"\nEOF\n}"),
            (Interpreter::Bash, "cat <<-'E F'\n\t}\n\tE F\n}"),
            (
                Interpreter::Bash,
                "echo ${a#\\}} ${#b} $(( 1 << 2 )) <<<x\n}",
            ),
            (Interpreter::Bash, "echo 'a\n}\n' $'\\'}'\n}"),
            (
                Interpreter::Python,
                "x = {'a': \"}\"} # }\ny = '''\n}\n'''\n}",
            ),
            (Interpreter::Python, "print('it\\'s }')\n}"),
            (Interpreter::Node, "const a = `}\n${b}` // }\n/* } */\n}"),
            (Interpreter::Ruby, "puts \"#{a} }\" # }\n}"),
            (Interpreter::Pwsh, "\"`\"}\" # }\n}"),
        ] {
            let last = body.lines().count() - 1;
            assert_eq!(closed_at(language, body), Some(last), "{body}");
        }
        assert_eq!(closed_at(Interpreter::Bash, "a { \n }"), None);
        assert_eq!(
            closed_at(Interpreter::Node, "const a = {\nb: 1\n}\n}"),
            Some(3)
        );
    }
}
