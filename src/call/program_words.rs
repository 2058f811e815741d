//! The words that a program gets, out of every form in which callers give arguments.

use std::io::Read as _;

use serde_json::value::RawValue;

use super::arguments::{Args, MOST_VALUES};
use super::work::{SMALL_TEXT, Work};
use crate::error::CallError;
use crate::json::{self, Members};
use crate::spool::Spooled;
use crate::telemetry::audit;

/// The name of a list of words among the arguments.
const POSITIONAL: &str = "_positional";
/// A body with more than this holds more words than any system gives to a program.
const LONGEST_BODY: u64 = 40 << 20;

/// How an object becomes words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Convention {
    /// Of `/call`: `true` is a flag without a value, `false` and `null` are none.
    Flags,
    /// Of MCP: `true` and `false` are values.
    Values,
}

impl Args<'_> {
    /// The words of a program. The first of these that is given counts: words of a command line, a
    /// list, a text that is split at white space, a list under `_positional`, an object as
    /// `--key value`.
    pub async fn into_words(self, work: &Work<'_>) -> Result<Vec<String>, CallError> {
        let size = self.size();
        let words = match self {
            Args::Text { words, .. } if !words.is_empty() => words,
            Args::Text { args, .. } => match args {
                None => Vec::new(),
                Some(args) if size <= SMALL_TEXT => read(args, Convention::Flags)?,
                Some(args) => {
                    let args = args.to_owned();
                    work.run(move || read(&args, Convention::Flags)).await??
                }
            },
            Args::Mcp(args) => match args {
                None => Vec::new(),
                Some(args) if size <= SMALL_TEXT => read(args, Convention::Values)?,
                Some(args) => {
                    let args = args.to_owned();
                    work.run(move || read(&args, Convention::Values)).await??
                }
            },
            Args::Spooled(body) => work.run(move || words_of_body(&body)).await??,
        };
        match words.iter().position(|word| word.contains('\0')) {
            None => Ok(words),
            Some(place) => Err(CallError::InvalidArgument {
                name: format!("word {}", place + 1),
                what: "it has a NUL byte, which no word of a program can have".to_owned(),
                missing: false,
            }),
        }
    }
}

impl Args<'_> {
    /// The words of a call that is refused before they are read, as the audit keeps them. Small
    /// ones are told; others aren't worth the time.
    pub fn audited_words_unparsed(&self) -> Box<RawValue> {
        if self.size() > SMALL_TEXT {
            return audit::not_parsed();
        }
        let words = match self {
            Args::Text { words, .. } if !words.is_empty() => return audit::redact_words(words),
            Args::Text { args, .. } => args.map(|args| read(args, Convention::Flags)),
            Args::Mcp(args) => args.map(|args| read(args, Convention::Values)),
            Args::Spooled(_) => return audit::not_parsed(),
        };
        match words.unwrap_or_else(|| Ok(Vec::new())) {
            Ok(words) => audit::redact_words(&words),
            Err(_) => audit::not_parsed(),
        }
    }
}

fn words_of_body(body: &Spooled) -> Result<Vec<String>, CallError> {
    #[derive(serde::Deserialize)]
    struct Body<'a> {
        #[serde(default, borrow)]
        args: Option<&'a RawValue>,
        raw_args: Option<Vec<String>>,
    }
    let mut whole = Vec::new();
    let text = match body.in_memory() {
        Some(text) => text,
        None if body.len() > LONGEST_BODY => {
            let most = LONGEST_BODY >> 20;
            return Err(invalid(&format!("more than {most} MiB are too many words")));
        }
        None => {
            let read = body.blocking_reader().read_to_end(&mut whole);
            read.map_err(|_| CallError::Internal("the body of a call can't be read again"))?;
            &whole
        }
    };
    let body: Body<'_> = serde_json::from_slice(text).map_err(|e| invalid(&e))?;
    match (body.raw_args, body.args) {
        (Some(words), _) if !words.is_empty() => Ok(words),
        (_, Some(args)) => read(args, Convention::Flags),
        (_, None) => Ok(Vec::new()),
    }
}

fn invalid(error: &dyn std::fmt::Display) -> CallError {
    CallError::InvalidRequest(format!("args: {error}"))
}

/// Values are read as the texts that they are: every digit of a number counts.
fn read(args: &RawValue, convention: Convention) -> Result<Vec<String>, CallError> {
    let text = args.get();
    if json::has_more_values_than(text.as_bytes(), MOST_VALUES) {
        let what = format!("it has more than {MOST_VALUES} values");
        return Err(invalid(&what));
    }
    let parsed = match text.as_bytes().first() {
        Some(b'[') => list(text),
        Some(b'"') => serde_json::from_str::<String>(text)
            .map(|line| line.split_whitespace().map(str::to_owned).collect()),
        Some(b'{') => object(text, convention),
        _ => Ok(Vec::new()),
    };
    parsed.map_err(|e| invalid(&e))
}

fn list(text: &str) -> serde_json::Result<Vec<String>> {
    let items: Vec<&RawValue> = serde_json::from_str(text)?;
    items.into_iter().map(word).collect()
}

/// A string as it is, anything else as its JSON text.
fn word(value: &RawValue) -> serde_json::Result<String> {
    match value.get().starts_with('"') {
        true => serde_json::from_str(value.get()),
        false => Ok(value.get().to_owned()),
    }
}

fn object(text: &str, convention: Convention) -> serde_json::Result<Vec<String>> {
    let Members(members) = serde_json::from_str(text)?;
    if convention == Convention::Flags {
        let mut lists = members.iter().filter(|(name, _)| name == POSITIONAL);
        if let Some((_, value)) = lists.rfind(|(_, value)| value.get().starts_with('[')) {
            return list(value.get());
        }
    }
    let mut words = Vec::new();
    for (name, value) in members {
        match (value.get(), convention) {
            ("true", Convention::Flags) => words.push(flag(&name)),
            ("false", Convention::Flags) | ("null", _) => {}
            _ => words.extend([flag(&name), word(value)?]),
        }
    }
    Ok(words)
}

/// A name that has its dashes already keeps them.
fn flag(name: &str) -> String {
    match name.starts_with('-') {
        true => name.to_owned(),
        false => format!("--{name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::ComputePool;
    use crate::spool::{Quota, Spool};
    use std::time::Duration;

    async fn words(args: Args<'_>) -> Result<Vec<String>, CallError> {
        let pool = ComputePool::new(1);
        let work = Work::new(&pool, "a", Duration::from_secs(60));
        args.into_words(&work).await
    }

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    async fn of(args: &str, raw_args: &[&str]) -> Vec<String> {
        let (args, owned) = (raw(args), raw_args.iter().map(|it| (*it).to_owned()));
        let args = Args::Text {
            args: Some(&args),
            words: owned.collect(),
        };
        words(args).await.unwrap()
    }

    #[tokio::test]
    async fn every_form_of_arguments_becomes_words() {
        for (args, expected) in [
            (
                r#"["pr", "list", 5, 1.10, true, null, {"a": [1]}]"#,
                &["pr", "list", "5", "1.10", "true", "null", r#"{"a": [1]}"#][..],
            ),
            (r#""pr  list\t--limit 5 ""#, &["pr", "list", "--limit", "5"]),
            (r#"{"_positional": ["pr", 7], "other": 1}"#, &["pr", "7"]),
            (
                r#"{"state": "open me", "limit": 12345678901234567890123, "draft": true, "web": false, "q": null}"#,
                &[
                    "--state",
                    "open me",
                    "--limit",
                    "12345678901234567890123",
                    "--draft",
                ],
            ),
            (
                r#"{"_positional": "no list", "-x": "$(id)"}"#,
                &["--_positional", "no list", "-x", "$(id)"],
            ),
            (
                r#"{"labels": ["a", "b"], "empty": ""}"#,
                &["--labels", r#"["a", "b"]"#, "--empty", ""],
            ),
            ("{}", &[]),
            ("5", &[]),
            ("null", &[]),
        ] {
            assert_eq!(of(args, &[]).await, expected, "{args}");
            assert_eq!(of(args, &["raw", "--flag"]).await, ["raw", "--flag"]);
        }
    }

    #[tokio::test]
    async fn arguments_of_mcp_are_values_even_where_they_are_true() {
        let args = raw(r#"{"name": "x", "draft": true, "web": false, "none": null, "n": 1.10}"#);
        let got = words(Args::Mcp(Some(&args))).await.unwrap();
        assert_eq!(
            got,
            [
                "--name", "x", "--draft", "true", "--web", "false", "--n", "1.10"
            ]
        );
        assert!(words(Args::Mcp(None)).await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn word_with_a_nul_byte_is_refused() {
        let args = raw(r#"["a", "b\u0000c"]"#);
        let args = Args::Text {
            args: Some(&args),
            words: Vec::new(),
        };
        let refused = words(args).await.unwrap_err();
        assert_eq!(
            refused.to_string(),
            "Invalid arguments: word 2: it has a NUL byte, which no word of a program can have"
        );
    }

    #[tokio::test]
    async fn big_bodies_give_the_same_words() {
        let many: Vec<String> = (0..100_000).map(|n| n.to_string()).collect();
        let body = |name: &str| serde_json::json!({"tool_name": "t", name: many}).to_string();
        for limit in [0, usize::MAX] {
            for name in ["args", "raw_args"] {
                let mut spool = Spool::new(limit, Quota::new(1 << 30));
                spool.write(body(name).as_bytes()).await.unwrap();
                let body = spool.finish().await.unwrap();
                assert_eq!(words(Args::Spooled(body)).await.unwrap(), many);
            }
        }
    }
}
