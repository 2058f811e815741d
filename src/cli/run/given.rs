//! The arguments of `ati run`: flags, and an object from a file or standard input.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use serde_json::value::RawValue;

use crate::call::{self, MOST_VALUES};
use crate::catalog::schema::fold;
use crate::catalog::words::Words;
use crate::error::{Code, Failure};
use crate::json::{self, Members};

/// Bytes of an object of arguments; a proxy takes as much unless its conf says otherwise.
const LARGEST: u64 = 16 << 20;

#[derive(Default)]
pub struct Given {
    /// An object. Its values are written as they were typed.
    pub args: Box<RawValue>,
    /// What the pipeline reads again, with the tool's schema at hand.
    pub words: Vec<String>,
}

impl Given {
    /// A flag replaces the member of the file's object that has the same name.
    pub fn read(
        file: Option<&Path>,
        words: &[String],
        parsed: &Words<'_>,
    ) -> Result<Self, Failure> {
        let text = match (file, parsed.stdin) {
            (None, None) => None,
            (Some(path), None) => Some(text_of_file(path)?),
            (None, Some(_)) => Some(text_of("standard input", io::stdin().lock())?),
            (Some(_), Some(_)) => {
                let message = "the arguments come from --args-file or from -, not from both";
                return Err(Failure::invalid(message));
            }
        };
        let mut members = match &text {
            Some((source, text)) => members(source, text)?,
            None => Vec::new(),
        };
        for (name, value) in parsed.arguments() {
            let exact = members.iter().position(|(known, _)| known == name);
            let alike = || {
                members
                    .iter()
                    .position(|(known, _)| fold(known) == fold(name))
            };
            let member = (Cow::Borrowed(name), Cow::Owned(value));
            match exact.or_else(alike) {
                Some(place) => members[place] = member,
                None => members.push(member),
            }
        }
        let mut words = words.to_vec();
        if let Some(place) = parsed.stdin {
            words.remove(place);
        }
        Ok(Given {
            args: object(&members),
            words,
        })
    }

    /// The words of a program are its own, and none of them is read. Without any, it gets the
    /// members of the file's object as `--name value`.
    pub fn of_program(file: Option<&Path>, words: &[String]) -> Result<Self, Failure> {
        match file {
            Some(_) if !words.is_empty() => Err(Failure::invalid(
                "the words of a program come from the command line or from --args-file, not from \
                 both",
            )),
            Some(_) => Given::read(file, &[], &Words::default()),
            None => Ok(Given {
                args: object(&[]),
                words: words.to_vec(),
            }),
        }
    }

    pub fn to_args(&self) -> call::Args<'_> {
        call::Args::Text {
            args: Some(&self.args),
            words: self.words.clone(),
        }
    }
}

type Member<'a> = (Cow<'a, str>, Cow<'a, str>);

fn members<'a>(source: &str, text: &'a str) -> Result<Vec<Member<'a>>, Failure> {
    let wrong = |why: String| {
        let message = format!("{source}: the arguments have to be one JSON object: {why}");
        Failure::invalid(message)
    };
    if !text.trim_start().starts_with('{') {
        return Err(wrong("it doesn't begin with {".to_owned()));
    }
    if json::has_more_values_than(text.as_bytes(), MOST_VALUES) {
        return Err(wrong(format!("it has more than {MOST_VALUES} values")));
    }
    let members: Members<'_> = serde_json::from_str(text).map_err(|e| wrong(e.to_string()))?;
    let each = members.0.into_iter();
    Ok(each
        .map(|(name, value)| (name, Cow::Borrowed(value.get())))
        .collect())
}

fn object(members: &[Member<'_>]) -> Box<RawValue> {
    let each: Vec<String> = members
        .iter()
        .map(|(name, value)| format!("{}:{value}", serde_json::json!(name)))
        .collect();
    RawValue::from_string(format!("{{{}}}", each.join(","))).unwrap_or_default()
}

fn text_of_file(path: &Path) -> Result<(String, String), Failure> {
    let source = path.display().to_string();
    let file = File::open(path)
        .map_err(|e| Failure::new(Code::InvalidValue, source.clone()).because(e))?;
    text_of(&source, file)
}

/// The source's name and its text.
fn text_of(source: &str, reader: impl Read) -> Result<(String, String), Failure> {
    let mut bytes = Vec::new();
    let read = reader.take(LARGEST + 1).read_to_end(&mut bytes);
    read.map_err(|e| Failure::invalid(source).because(e))?;
    if bytes.len() as u64 > LARGEST {
        let message = format!("{source}: more than {} MiB", LARGEST >> 20);
        return Err(Failure::invalid(message));
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok((source.to_owned(), text)),
        Err(_) => Err(Failure::invalid(format!("{source}: it is not UTF-8"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(object: Option<&str>, line: &[&str]) -> Result<Given, Failure> {
        let words: Vec<String> = line.iter().map(|word| (*word).to_owned()).collect();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("args.json");
        let path = object.map(|object| {
            std::fs::write(&path, object).unwrap();
            path.as_path()
        });
        Given::read(path, &words, &Words::parse(&words))
    }

    #[test]
    fn flags_replace_members_of_the_file_and_digits_are_kept() {
        let object = "\n{\"id\": 123456789012345678901, \"max_results\": 1,\n \"v\": [1.10]}";
        let given = read(
            Some(object),
            &["--max-results", "2", "--new", "{\"a\": 1.10}"],
        )
        .unwrap();
        assert_eq!(
            given.args.get(),
            r#"{"id":123456789012345678901,"max-results":2,"v":[1.10],"new":{"a": 1.10}}"#
        );
        assert_eq!(given.words.len(), 4);
        assert_eq!(read(None, &[]).unwrap().args.get(), "{}");
    }

    #[test]
    fn file_that_is_no_object_is_refused_without_quoting_it() {
        for bad in [
            "",
            "[1]",
            "\"planted\"",
            "planted",
            "{\"a\": planted}",
            "{\"a\": 1",
        ] {
            let refused = read(Some(bad), &[]).err().unwrap();
            assert_eq!(refused.code, Code::InvalidValue);
            let text = refused.one_line();
            assert!(
                text.contains("args.json: the arguments have to be one JSON object"),
                "{text}"
            );
            assert!(!text.contains("planted"), "{text}");
        }
        assert!(read(Some("{}"), &["-"]).is_err());
    }
}
