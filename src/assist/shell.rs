//! A line of a shell, split into the commands that it would run: enough to check what a language
//! model suggests, and no more. What could run something else is refused.

/// A word of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    pub text: String,
    /// It has a `$NAME` or a `<placeholder>` in it, so its value isn't known.
    pub is_open: bool,
}

/// Why a line isn't split.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// A quote has no end: the command may go on in the next line.
    Unclosed,
    Because(&'static str),
}

/// Names of variables that hold what no command should pass on.
const CONFIDENTIAL: [&str; 5] = ["TOKEN", "SECRET", "KEY", "PASSW", "ATI_"];

/// The commands of a line: those between `|`, `&&`, `||` and `;`.
pub fn commands(line: &str) -> Result<Vec<Vec<Word>>, Refused> {
    let mut reader = Reader {
        rest: line.chars().peekable(),
        commands: vec![Vec::new()],
        word: None,
    };
    reader.read()?;
    reader.commands.retain(|command| !command.is_empty());
    Ok(reader.commands)
}

struct Reader<'a> {
    rest: std::iter::Peekable<std::str::Chars<'a>>,
    commands: Vec<Vec<Word>>,
    word: Option<Word>,
}

impl Reader<'_> {
    fn read(&mut self) -> Result<(), Refused> {
        while let Some(c) = self.rest.next() {
            match c {
                c if c.is_whitespace() => self.end_word(),
                '#' if self.word.is_none() => break,
                '\'' => self.single_quoted()?,
                '"' => self.double_quoted()?,
                '\\' => {
                    let escaped = self.rest.next().ok_or(Refused::Unclosed)?;
                    self.push(escaped);
                }
                '$' => self.variable()?,
                '`' | '(' | ')' => {
                    return Err(Refused::Because("it runs a command inside of it"));
                }
                '|' | ';' | '&' => {
                    let is_background = c == '&' && self.rest.peek() != Some(&'&');
                    if is_background {
                        return Err(Refused::Because("it goes on in the background"));
                    }
                    self.rest.next_if_eq(&c);
                    self.end_word();
                    self.commands.push(Vec::new());
                }
                '<' => self.placeholder()?,
                '>' => return Err(Refused::Because("it writes to a file")),
                c => self.push(c),
            }
        }
        self.end_word();
        Ok(())
    }

    fn push(&mut self, c: char) {
        self.word().text.push(c);
    }

    fn word(&mut self) -> &mut Word {
        self.word.get_or_insert(Word {
            text: String::new(),
            is_open: false,
        })
    }

    fn end_word(&mut self) {
        if let (Some(word), Some(command)) = (self.word.take(), self.commands.last_mut()) {
            command.push(word);
        }
    }

    fn single_quoted(&mut self) -> Result<(), Refused> {
        self.word();
        loop {
            match self.rest.next().ok_or(Refused::Unclosed)? {
                '\'' => return Ok(()),
                c => self.push(c),
            }
        }
    }

    fn double_quoted(&mut self) -> Result<(), Refused> {
        self.word();
        loop {
            match self.rest.next().ok_or(Refused::Unclosed)? {
                '"' => return Ok(()),
                '\\' => {
                    let escaped = self.rest.next().ok_or(Refused::Unclosed)?;
                    if !matches!(escaped, '"' | '\\' | '$' | '`') {
                        self.push('\\');
                    }
                    self.push(escaped);
                }
                '$' => self.variable()?,
                '`' => return Err(Refused::Because("it runs a command inside of it")),
                c => self.push(c),
            }
        }
    }

    fn variable(&mut self) -> Result<(), Refused> {
        if self.rest.peek() == Some(&'(') {
            return Err(Refused::Because("it runs a command inside of it"));
        }
        let braced = self.rest.next_if_eq(&'{').is_some();
        let mut name = String::new();
        while let Some(c) = self
            .rest
            .next_if(|c| c.is_ascii_alphanumeric() || *c == '_')
        {
            name.push(c);
        }
        if braced {
            // `${NAME:-value}` and the like.
            while self.rest.next().is_some_and(|c| c != '}') {}
        } else if name.is_empty() {
            self.push('$');
            return Ok(());
        }
        let upper = name.to_uppercase();
        if CONFIDENTIAL.iter().any(|part| upper.contains(part)) {
            return Err(Refused::Because(
                "it passes on a variable that may be secret",
            ));
        }
        let word = self.word();
        word.is_open = true;
        word.text.push_str(&format!("${name}"));
        Ok(())
    }

    /// `<symbol>`: a value that the reader fills in.
    fn placeholder(&mut self) -> Result<(), Refused> {
        let mut name = String::new();
        for c in self.rest.by_ref() {
            let fits = c.is_alphanumeric() || " _-./:|,'".contains(c);
            match c {
                '>' if !name.trim().is_empty() && !name.starts_with(' ') => {
                    let word = self.word();
                    word.is_open = true;
                    word.text.push_str(&format!("<{name}>"));
                    return Ok(());
                }
                c if fits && name.len() < 60 => name.push(c),
                _ => break,
            }
        }
        Err(Refused::Because("it reads from a file"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(line: &str) -> Vec<Vec<String>> {
        let commands = commands(line).unwrap();
        let texts = |command: Vec<Word>| command.into_iter().map(|word| word.text).collect();
        commands.into_iter().map(texts).collect()
    }

    #[test]
    fn line_is_split_as_a_shell_would() {
        assert_eq!(
            texts(r#"ati run t --q 'a "b"' --n "x \"y\" z"\ w --e '' # why"#),
            [[
                "ati",
                "run",
                "t",
                "--q",
                "a \"b\"",
                "--n",
                "x \"y\" z w",
                "--e",
                ""
            ]]
        );
        assert_eq!(
            texts("ati run a | jq .c && ati run b; ati run c"),
            [
                &["ati", "run", "a"][..],
                &["jq", ".c"],
                &["ati", "run", "b"],
                &["ati", "run", "c"]
            ]
        );
        assert_eq!(texts("# only a comment"), Vec::<Vec<String>>::new());
    }

    #[test]
    fn values_that_are_not_known_are_marked() {
        let words = commands("ati run t --s \"$SYMBOL\" --u <user name> --p $5").unwrap();
        let open: Vec<&str> = words[0]
            .iter()
            .filter(|word| word.is_open)
            .map(|word| word.text.as_str())
            .collect();
        assert_eq!(open, ["$SYMBOL", "<user name>", "$5"]);
    }

    #[test]
    fn line_that_could_run_something_else_is_refused() {
        for bad in [
            "ati run t --q $(cat /etc/passwd)",
            "ati run t --q \"`id`\"",
            "ati run t > file",
            "ati run t < file",
            "ati run t &",
            "(ati run t)",
            "ati run t --q $ATI_SESSION_TOKEN",
            "ati run t --q \"${OPENAI_API_KEY:-x}\"",
        ] {
            assert!(matches!(commands(bad), Err(Refused::Because(_))), "{bad}");
        }
        for open in ["ati run t --q 'a", "ati run t --q \"a", "ati run t \\"] {
            assert_eq!(commands(open), Err(Refused::Unclosed), "{open}");
        }
    }
}
