//! The words of a command line after a tool's name, read as arguments. The command line reads them
//! without knowing the tool's schema; the pipeline reads them again with the schema at hand.

use std::collections::HashMap;

use serde_json::Value;

/// Values of `--output`.
pub const OUTPUTS: [&str; 3] = ["json", "table", "text"];

/// How much of a stray word an error repeats, and of how many.
const LONGEST_SHOWN: usize = 60;
const MOST_SHOWN: usize = 5;

#[derive(Debug, Default)]
pub struct Words<'a> {
    /// In the order in which they appear first.
    flags: Vec<Flag<'a>>,
    places: HashMap<&'a str, usize>,
    /// Neither a flag nor the value of one.
    pub stray: Vec<&'a str>,
    /// `-J` or `--json`.
    pub json: bool,
    pub verbose: bool,
    /// The last value of `--output` or `--format`; the inner None where it has no value.
    pub output: Option<Option<&'a str>>,
    /// `--help`, or a stray `-h`.
    pub help: bool,
    /// The place of a `-` that is the only stray word: the arguments come from standard input.
    pub stdin: Option<usize>,
}

#[derive(Debug)]
struct Flag<'a> {
    name: &'a str,
    /// None where a flag has no value.
    values: Vec<Option<&'a str>>,
}

impl<'a> Words<'a> {
    /// `--name value`, `--name=value`, `--flag`. A word that begins with `--` is never a value; a
    /// word with a single dash may be one, a negative number.
    pub fn parse(words: &'a [String]) -> Self {
        let mut given = Words::default();
        let mut words = words.iter().map(String::as_str).enumerate().peekable();
        while let Some((place, word)) = words.next() {
            let Some(option) = word.strip_prefix("--") else {
                match word {
                    "-J" => given.json = true,
                    "-" if given.stdin.is_none() => given.stdin = Some(place),
                    word => {
                        given.help |= word == "-h";
                        given.stray.push(word);
                    }
                }
                continue;
            };
            let (name, attached) = match option.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (option, None),
            };
            let is_value = |word: &str| !word.starts_with("--") && word != "-J";
            let mut value = || {
                let mut next = || words.next_if(|(_, next)| is_value(next));
                attached.or_else(|| next().map(|(_, word)| word))
            };
            match name {
                // The end of options, of no use here; but nothing has an empty name.
                "" if attached.is_none() => {}
                "" => given.stray.push(word),
                "json" => given.json = true,
                "verbose" => given.verbose = true,
                "output" | "format" => given.output = Some(value()),
                name => {
                    given.help |= word == "--help";
                    let value = value();
                    given.add(name, value);
                }
            }
        }
        // Among other words it is one of them: `apply -f -` is the command line of a program.
        if given.stdin.is_some() && !given.stray.is_empty() {
            given.stdin = None;
            given.stray.push("-");
        }
        given
    }

    fn add(&mut self, name: &'a str, value: Option<&'a str>) {
        match self.places.get(name) {
            Some(place) => self.flags[*place].values.push(value),
            None => {
                self.places.insert(name, self.flags.len());
                let values = vec![value];
                self.flags.push(Flag { name, values });
            }
        }
    }

    /// Names and values as JSON text, read without a schema.
    pub fn arguments(&self) -> impl Iterator<Item = (&'a str, String)> {
        let flags = self.flags.iter();
        flags.map(|flag| match flag.values.as_slice() {
            [only] => (flag.name, json_text(*only)),
            several => {
                let items: Vec<String> = several.iter().map(|value| json_text(*value)).collect();
                (flag.name, format!("[{}]", items.join(",")))
            }
        })
    }

    /// The values that were typed for an argument, where `value` is what a command line makes of
    /// them. The caller's `args` count, and words that say something else are ignored.
    pub fn typed(&self, name: &str, value: &Value) -> Option<&[Option<&'a str>]> {
        let flag = &self.flags[*self.places.get(name)?];
        let agree = match flag.values.as_slice() {
            [only] => read_value(*only) == *value,
            several => {
                let items: Option<&Vec<Value>> = value.as_array();
                items.is_some_and(|items| {
                    items.len() == several.len()
                        && several
                            .iter()
                            .zip(items)
                            .all(|(typed, item)| read_value(*typed) == *item)
                })
            }
        };
        let last = flag.values.last().copied().flatten();
        (agree || last.is_some_and(|last| read_by_older_clients(last) == *value))
            .then_some(&flag.values)
    }

    /// Why a value of `--output` can't be used.
    pub fn output_fault(&self) -> Option<String> {
        let expected = || format!("expected {}", OUTPUTS.join(", "));
        match self.output? {
            None => Some(expected()),
            Some(value) => (!OUTPUTS.contains(&value)).then(expected),
        }
    }

    /// What is wrong with stray words, and how an argument is written.
    pub fn stray_text(&self) -> Option<String> {
        let first = self.stray.first()?;
        let shown: Vec<String> = self
            .stray
            .iter()
            .take(MOST_SHOWN)
            .map(|word| {
                let clean = word.replace(char::is_control, " ");
                let kept = crate::text::clip_chars(&clean, LONGEST_SHOWN);
                let cut = if kept.len() < clean.len() { "…" } else { "" };
                format!("'{kept}{cut}'")
            })
            .collect();
        let more = if self.stray.len() > shown.len() {
            ", …"
        } else {
            ""
        };
        let name = first.trim_start_matches('-');
        let how = if first.starts_with('-') && !name.is_empty() && name.len() < LONGEST_SHOWN {
            let name = name.replace(char::is_control, " ");
            format!("write --{name} value")
        } else {
            "write --name value, and quotes around a text with spaces".to_owned()
        };
        let belong = if self.stray.len() == 1 {
            "belongs"
        } else {
            "belong"
        };
        let shown = shown.join(", ");
        Some(format!("{shown}{more} {belong} to no argument; {how}"))
    }
}

/// A word as a value, without a schema. It is a number only where writing the number again gives
/// the same text, so that nothing is lost: `1.10`, `1e3` and `007` are texts.
pub fn read(text: &str) -> Value {
    match serde_json::from_str(text) {
        Ok(Value::Number(number)) if number.to_string() == text => Value::Number(number),
        Ok(Value::Bool(truth)) if text == "true" || text == "false" => Value::Bool(truth),
        Ok(Value::Null) if text == "null" => Value::Null,
        // A whole JSON string literal is that string.
        Ok(Value::String(string)) if text.starts_with('"') && text.ends_with('"') => {
            Value::String(string)
        }
        Ok(value @ (Value::Array(_) | Value::Object(_))) => value,
        _ => Value::String(text.to_owned()),
    }
}

fn read_value(value: Option<&str>) -> Value {
    value.map_or(Value::Bool(true), read)
}

/// Clients of existing deployments read every word that parses as JSON.
fn read_by_older_clients(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

/// The JSON text of a value. A list or an object stays as it was typed, digits included.
fn json_text(value: Option<&str>) -> String {
    match value {
        None => "true".to_owned(),
        Some(text) => match read(text) {
            Value::Array(_) | Value::Object(_) => text.trim().to_owned(),
            value => value.to_string(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn owned(line: &[&str]) -> Vec<String> {
        line.iter().map(|word| (*word).to_owned()).collect()
    }

    fn args(line: &[&str]) -> Value {
        let words = owned(line);
        let parsed = Words::parse(&words);
        let pairs = parsed.arguments().map(|(name, text)| {
            let value = serde_json::from_str(&text).unwrap();
            (name.to_owned(), value)
        });
        Value::Object(pairs.collect())
    }

    #[test]
    fn words_become_arguments() {
        assert_eq!(
            args(&[
                "--q",
                "a b",
                "--n",
                "-5",
                "--flag",
                "--list",
                "[1,2]",
                "--zip",
                "007",
                "--x=y=z",
                "--e=",
                "--f",
                "1.5",
                "--big",
                "18446744073709551615"
            ]),
            json!({"q": "a b", "n": -5, "flag": true, "list": [1, 2], "zip": "007", "x": "y=z",
                "e": "", "f": 1.5, "big": u64::MAX})
        );
        assert_eq!(
            args(&["--a", "--b", "--", "--c", "-1"]),
            json!({"a": true, "b": true, "c": -1})
        );
        assert_eq!(
            args(&["--tag", "x", "--n", "1", "--tag", "1.10", "--tag"]),
            json!({"tag": ["x", "1.10", true], "n": 1})
        );
    }

    #[test]
    fn number_that_would_be_written_differently_is_a_text() {
        for text in [
            "1.10",
            "1234e56",
            "123456789012345678901",
            "1e3",
            "-0",
            " 5",
            "1.0e1",
            "1E5",
        ] {
            assert_eq!(read(text), json!(text), "{text}");
        }
        for (text, value) in [
            ("0", json!(0)),
            ("-7", json!(-7)),
            ("1.0", json!(1.0)),
            ("0.1", json!(0.1)),
            ("true", json!(true)),
            ("null", Value::Null),
            (" {\"a\": 1}\n", json!({"a": 1})),
            ("\"1.10\"", json!("1.10")),
            ("\"\\u00e4\"", json!("\u{e4}")),
        ] {
            assert_eq!(read(text), value, "{text}");
        }
        for text in [" true", "[1,", "{", "\"half", " \"x\"", ""] {
            assert_eq!(read(text), json!(text), "{text}");
        }
    }

    #[test]
    fn options_of_ati_are_no_arguments() {
        let words = owned(&[
            "--q",
            "x",
            "-J",
            "--verbose",
            "--output",
            "table",
            "-h",
            "--help",
        ]);
        let parsed = Words::parse(&words);
        assert!(parsed.json && parsed.verbose && parsed.help && parsed.stdin.is_none());
        assert_eq!(parsed.output, Some(Some("table")));
        assert_eq!(parsed.output_fault(), None);
        assert_eq!(parsed.stray, ["-h"]);
        for bad in [&["--output", "yaml"][..], &["--format="], &["--output"]] {
            let words = owned(bad);
            let fault = Words::parse(&words).output_fault();
            assert_eq!(
                fault.as_deref(),
                Some("expected json, table, text"),
                "{bad:?}"
            );
        }
        let value = owned(&["--q", "-h", "--help=no", "--file", "-"]);
        let parsed = Words::parse(&value);
        assert!(!parsed.help && parsed.stdin.is_none() && parsed.stray.is_empty());
        assert_eq!(Words::parse(&owned(&["--q", "-", "-"])).stdin, Some(2));
        let program = owned(&["apply", "-f", "-"]);
        let parsed = Words::parse(&program);
        assert_eq!((parsed.stdin, parsed.stray.len()), (None, 3));
    }

    #[test]
    fn stray_words_are_named_with_the_way_to_write_them() {
        let text = |line: &[&str]| Words::parse(&owned(line)).stray_text();
        assert_eq!(text(&["--q", "red"]), None);
        assert_eq!(
            text(&["--q", "red", "hat"]).unwrap(),
            "'hat' belongs to no argument; write --name value, and quotes around a text with spaces"
        );
        assert_eq!(
            text(&["-q", "x\n"]).unwrap(),
            "'-q', 'x ' belong to no argument; write --q value"
        );
        let many = ["w"; 9];
        assert!(
            text(&many)
                .unwrap()
                .starts_with("'w', 'w', 'w', 'w', 'w', … belong")
        );
    }

    #[test]
    fn typed_words_count_only_where_they_agree_with_the_arguments() {
        let words = owned(&["--v", "1.10", "--l", "a", "--l", "2", "--f"]);
        let parsed = Words::parse(&words);
        assert_eq!(parsed.typed("v", &json!("1.10")), Some(&[Some("1.10")][..]));
        // Older clients send 1.1, and the last of several values.
        assert_eq!(parsed.typed("v", &json!(1.1)), Some(&[Some("1.10")][..]));
        assert_eq!(parsed.typed("v", &json!("1.1")), None);
        let both = &[Some("a"), Some("2")][..];
        assert_eq!(parsed.typed("l", &json!(["a", 2])), Some(both));
        assert_eq!(parsed.typed("l", &json!(2)), Some(both));
        assert_eq!(parsed.typed("l", &json!(["a"])), None);
        assert_eq!(parsed.typed("f", &json!(true)), Some(&[None][..]));
        assert_eq!(parsed.typed("absent", &json!(1)), None);
    }
}
