//! The comments above a function: `# @desc text`, `# @arg 1:name integer text` and the like.

use super::function::{Interpreter, Kind};

/// What the comment block above a function says.
#[derive(Debug, Default, PartialEq)]
pub struct Attributes {
    pub description: Option<String>,
    pub args: Vec<ArgTag>,
    pub interpreter: Option<Interpreter>,
    pub os: Vec<String>,
    pub cd: Option<String>,
    pub depends: Vec<String>,
    pub no_errexit: bool,
    pub is_safe: bool,
}

/// `@arg`.
#[derive(Debug, Clone, PartialEq)]
pub struct ArgTag {
    /// Without one, it describes a parameter of the function's head.
    pub position: Option<usize>,
    pub name: String,
    pub kind: Option<Kind>,
    pub is_optional: bool,
    pub description: Option<String>,
    pub line: u32,
}

/// The highest position: no function has so many parameters.
const LAST_POSITION: usize = 100;

impl Attributes {
    /// One line of the block, without its `#`. An error is a text for people.
    pub fn add(&mut self, comment: &str, line: u32) -> Result<(), String> {
        let Some(tag) = comment.trim_start().strip_prefix('@') else {
            return Ok(());
        };
        let (name, text) = tag.split_once(char::is_whitespace).unwrap_or((tag, ""));
        let text = text.trim();
        match name {
            "desc" if text.is_empty() => return Err("@desc has no text".to_owned()),
            "desc" => match &mut self.description {
                Some(known) => *known = format!("{known} {text}"),
                None => self.description = Some(text.to_owned()),
            },
            "arg" => self.args.push(ArgTag::read(text, line)?),
            "shell" => {
                let word = text.split_whitespace().next().unwrap_or_default();
                let name = word.rsplit('/').next().unwrap_or(word);
                let known = Interpreter::named(name);
                self.interpreter = Some(known.ok_or_else(|| unknown_interpreter(word))?);
            }
            "os" => {
                let names = text.split([',', ' ', '|']).filter(|name| !name.is_empty());
                self.os.extend(names.map(str::to_lowercase));
            }
            "cd" if text.is_empty() => return Err("@cd names no folder".to_owned()),
            "cd" => self.cd = Some(text.trim_matches(['"', '\'']).to_owned()),
            "depends" => {
                let names = text.split([',', ' ']).filter(|name| !name.is_empty());
                self.depends.extend(names.map(str::to_owned));
            }
            "noerrexit" => self.no_errexit = true,
            "safe" => self.is_safe = true,
            // Others are comments: tools of the reader's own, and of versions to come.
            _ => {}
        }
        Ok(())
    }
}

pub(super) fn unknown_interpreter(name: &str) -> String {
    let known = Interpreter::NAMES.join(", ");
    format!("unknown interpreter '{name}'; known are {known}")
}

impl ArgTag {
    fn read(text: &str, line: u32) -> Result<Self, String> {
        let malformed = || "@arg is written '@arg 1:name [type] text'".to_owned();
        let (name, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let (position, name) = match name.split_once(':') {
            Some((number, name)) => {
                let number: usize = number.parse().map_err(|_| malformed())?;
                if number == 0 || number > LAST_POSITION {
                    return Err(format!("the positions of @arg are 1 to {LAST_POSITION}"));
                }
                (Some(number), name)
            }
            None => (None, name),
        };
        let (name, is_optional) = match name.strip_suffix('?') {
            Some(name) => (name, true),
            None => (name, false),
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        if name.is_empty() || !name.chars().all(plain) {
            return Err(malformed());
        }
        let rest = rest.trim();
        let (word, after) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        let (kind, description) = match Kind::named(word) {
            Some(kind) => (Some(kind), after.trim()),
            None => (None, rest),
        };
        Ok(ArgTag {
            position,
            name: name.to_owned(),
            kind,
            is_optional,
            description: (!description.is_empty()).then(|| description.to_owned()),
            line,
        })
    }
}

/// Whether a function with this `@os` exists on this system.
pub fn os_allows(names: &[String]) -> bool {
    let fits = |name: &String| match name.as_str() {
        "linux" => cfg!(target_os = "linux"),
        "macos" | "darwin" => cfg!(target_os = "macos"),
        "unix" => cfg!(unix),
        "windows" => cfg!(windows),
        _ => false,
    };
    names.is_empty() || names.iter().any(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arg(text: &str) -> Result<ArgTag, String> {
        ArgTag::read(text, 1)
    }

    #[test]
    fn type_of_an_argument_may_be_left_out() {
        let full = arg("2:replicas integer The number of instances").unwrap();
        assert_eq!((full.position, full.kind), (Some(2), Some(Kind::Integer)));
        assert_eq!(full.description.as_deref(), Some("The number of instances"));
        let short = arg("1:env The target").unwrap();
        assert_eq!((short.kind, short.is_optional), (None, false));
        assert_eq!(short.description.as_deref(), Some("The target"));
        let named = arg("env? Target").unwrap();
        assert_eq!((named.position, named.is_optional), (None, true));
        assert_eq!(arg("1:x string").unwrap().description, None);
        for wrong in ["", "x:y text", "0:a", "101:a", "1:", "1:a b:c", "1:é text"] {
            let outcome = arg(wrong);
            assert_eq!(outcome.is_err(), wrong != "1:a b:c", "{wrong}: {outcome:?}");
        }
    }

    #[test]
    fn unknown_tags_are_comments_and_unknown_interpreters_are_mistakes() {
        let mut attributes = Attributes::default();
        for line in [
            "@desc One",
            "@desc two",
            "plain",
            "@since 3",
            "@shell /usr/bin/python3",
        ] {
            attributes.add(line, 1).unwrap();
        }
        assert_eq!(attributes.description.as_deref(), Some("One two"));
        assert_eq!(attributes.interpreter, Some(Interpreter::Python));
        assert!(
            attributes
                .add("@shell cobol", 1)
                .unwrap_err()
                .contains("known are bash")
        );
    }
}
