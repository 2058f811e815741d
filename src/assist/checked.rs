//! Whether a call that a language model or a plan suggests would run: its arguments against the
//! tool's schema, before anything is shown or sent.

use std::collections::HashSet;

use serde_json::{Map, Value};

use crate::catalog::schema::{Schema, Unfit};
use crate::catalog::words::Words;
use crate::catalog::{Invocation, Tool};

/// How a tool takes its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    /// As its schema says.
    Arguments,
    /// As words of a program, which only that program understands.
    Words,
    /// It reads them itself: the file tools.
    Anything,
}

impl Takes {
    pub fn of(invocation: &Invocation) -> Self {
        if invocation.is_program() {
            Takes::Words
        } else if invocation.reads_arguments_itself() {
            Takes::Anything
        } else {
            Takes::Arguments
        }
    }
}

/// Why arguments don't fit, and whether that is because one isn't there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misfit {
    pub why: String,
    pub is_missing: bool,
}

/// Checks the words behind a tool's name. `open` has those words whose value isn't known.
pub fn words(tool: &Tool, words: &[String], open: &HashSet<&str>) -> Result<(), String> {
    let takes = Takes::of(&tool.invocation);
    if takes != Takes::Arguments {
        return Ok(());
    }
    let parsed = Words::parse(words);
    if let Some(stray) = parsed.stray_text() {
        return Err(stray);
    }
    if let Some(fault) = parsed.output_fault() {
        return Err(format!("--output: {fault}"));
    }
    if parsed.help {
        return Ok(());
    }
    let (mut args, mut unknown_values) = (Map::new(), HashSet::new());
    for (name, text) in parsed.arguments() {
        let value: Value = serde_json::from_str(&text).unwrap_or_default();
        if is_open(&value, open) {
            unknown_values.insert(name.to_owned());
        } else {
            args.insert(name.to_owned(), value);
        }
    }
    let checked = arguments(&tool.schema, takes, args, &parsed, &unknown_values);
    let unknown = checked.map_err(|misfit| misfit.why)?;
    unknown.into_iter().next().map_or(Ok(()), Err)
}

fn is_open(value: &Value, open: &HashSet<&str>) -> bool {
    match value {
        Value::String(text) => open.contains(text.as_str()),
        Value::Array(items) => items.iter().any(|item| is_open(item, open)),
        // The word was JSON.
        other => {
            let is_same =
                |word: &str| serde_json::from_str(word).is_ok_and(|it: Value| it == *other);
            open.iter().any(|word| is_same(word))
        }
    }
}

/// Checks arguments. Those of `unknown_values` are given, too, with values that aren't known yet.
/// Gives what is to be said about arguments that the schema doesn't have, and doesn't forbid.
pub fn arguments(
    schema: &Schema,
    takes: Takes,
    args: Map<String, Value>,
    words: &Words<'_>,
    unknown_values: &HashSet<String>,
) -> Result<Vec<String>, Misfit> {
    if takes != Takes::Arguments || schema.value.is_null() {
        return Ok(Vec::new());
    }
    match schema.prepare_partly(args, words, unknown_values) {
        Ok(prepared) => Ok(prepared.unknown.iter().map(ToString::to_string).collect()),
        Err(Unfit {
            name,
            what,
            missing,
            ..
        }) => Err(Misfit {
            why: format!("{name}: {what}"),
            is_missing: missing,
        }),
    }
}
