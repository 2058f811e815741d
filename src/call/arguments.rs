//! The arguments of a call, as callers give them.

use std::borrow::Cow;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::work::{SMALL_TEXT, Work};
use crate::catalog::files::COMMAND_LINE_ONLY;
use crate::catalog::schema::{Prepared, Unfit};
use crate::catalog::words::Words;
use crate::catalog::{Invocation, Tool};
use crate::error::CallError;
use crate::exec::files::{self, Content};
use crate::json;
use crate::spool::Spooled;

/// Arguments with more values than this are refused: a few megabytes of text can stand for
/// gigabytes.
pub const MOST_VALUES: usize = 200_000;

/// The arguments of a call.
pub enum Args<'a> {
    /// Parsed only once the tool is known to exist.
    Text {
        /// JSON text. Anything but an object counts as `{}`.
        args: Option<&'a RawValue>,
        /// The words of a command line, where the arguments come from one.
        words: Vec<String>,
    },
    /// A whole `/call` body that is too big for memory. Its arguments are parsed once the tool is
    /// known to exist.
    Spooled(Spooled),
}

/// Arguments, parsed.
pub struct Given {
    pub args: Map<String, Value>,
    pub words: Vec<String>,
    /// Bytes of the text that they were parsed from.
    pub size: usize,
    /// The file that the call brings, where it was taken out of its arguments on the way in.
    pub content: Option<Content>,
}

impl Given {
    fn new(args: Map<String, Value>, words: Vec<String>, size: usize) -> Self {
        Given {
            args,
            words,
            size,
            content: None,
        }
    }

    /// The arguments as the audit may show them, before it redacts them.
    pub fn for_audit(&self, tool: &Tool) -> Cow<'_, Map<String, Value>> {
        match tool.invocation {
            Invocation::Files(_) => Cow::Owned(files::for_audit(&self.args)),
            Invocation::Http(_) | Invocation::Mcp(_) => Cow::Borrowed(&self.args),
        }
    }
}

impl Args<'_> {
    /// The tool's schema says which numbers have to keep their digits.
    pub async fn parse(
        self,
        tool: Option<&Arc<Tool>>,
        work: &Work<'_>,
    ) -> Result<Given, CallError> {
        match self {
            Args::Text { args, words } => {
                let text = args.filter(|text| text.get().starts_with('{'));
                let length = text.map_or(0, |text| text.get().len());
                let size = length + words.iter().map(String::len).sum::<usize>() + words.len();
                let Some(text) = text else {
                    return Ok(Given::new(Map::new(), words, size));
                };
                if size <= SMALL_TEXT {
                    let args = parse_text(text, &words, tool.map(|tool| &**tool))?;
                    return Ok(Given::new(args, words, size));
                }
                let (text, tool) = (text.to_owned(), tool.cloned());
                let parse = move || {
                    let args = parse_text(&text, &words, tool.as_deref())?;
                    Ok(Given::new(args, words, size))
                };
                work.run(parse).await?
            }
            Args::Spooled(body) => {
                let size = usize::try_from(body.len()).unwrap_or(usize::MAX);
                let parse = move || json::parse_from(|| body.blocking_reader(), MOST_VALUES);
                let body: ArgsOfBody = work.run(parse).await?.map_err(|e| invalid(&e))?;
                let args = match body.args {
                    Value::Object(map) => map,
                    _ => Map::new(),
                };
                Ok(Given::new(args, body.raw_args.unwrap_or_default(), size))
            }
        }
    }
}

fn invalid(error: &dyn std::fmt::Display) -> CallError {
    CallError::InvalidRequest(format!("args: {error}"))
}

fn parse_text(
    text: &RawValue,
    words: &[String],
    tool: Option<&Tool>,
) -> Result<Map<String, Value>, CallError> {
    let mut args = json::parse(text.get(), MOST_VALUES).map_err(|e| invalid(&e))?;
    if let Some(tool) = tool {
        tool.schema.restore_digits(&mut args, text, words);
    }
    Ok(args)
}

/// The part of a `/call` body that holds the arguments.
#[derive(Deserialize)]
struct ArgsOfBody {
    #[serde(default)]
    args: Value,
    raw_args: Option<Vec<String>>,
}

/// Checks the arguments of a call and gives them the types of the tool's schema. What may take long
/// is done on the threads for that.
pub async fn validate(
    tool: &Arc<Tool>,
    given: Given,
    work: &Work<'_>,
) -> Result<Prepared, CallError> {
    let schema = &tool.schema;
    if tool.invocation.reads_arguments_itself() {
        checked_words(tool, &given.words)?;
        let mut args = given.args;
        args.retain(|name, _| !COMMAND_LINE_ONLY.contains(&name.as_str()));
        return Ok(schema.resolve_names(args));
    }
    if given.size > SMALL_TEXT || !schema.is_small() {
        let tool = tool.clone();
        let prepare = move || {
            let words = checked_words(&tool, &given.words)?;
            tool.schema.prepare(given.args, &words).map_err(unfit)
        };
        return work.run(prepare).await?;
    }
    let words = checked_words(tool, &given.words)?;
    let converted = schema.convert(given.args, &words).map_err(unfit)?;
    if schema.is_cheap(&converted) {
        return schema.check(converted).map_err(unfit);
    }
    let tool = tool.clone();
    let check = move || tool.schema.check(converted).map_err(unfit);
    work.run(check).await?
}

fn checked_words<'a>(tool: &Tool, words: &'a [String]) -> Result<Words<'a>, CallError> {
    let words = Words::parse(words);
    if !tool.invocation.is_program() {
        if let Some(what) = words.stray_text() {
            return Err(CallError::StrayWords(what));
        }
        if let Some(what) = words.output_fault() {
            return Err(CallError::InvalidArgument {
                name: "--output".to_owned(),
                what,
                missing: false,
            });
        }
    }
    Ok(words)
}

fn unfit(unfit: Unfit) -> CallError {
    CallError::InvalidArgument {
        name: unfit.name,
        what: unfit.what,
        missing: unfit.missing,
    }
}
