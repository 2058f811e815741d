//! The arguments of a call, as callers give them.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::work::{SMALL_TEXT, Work};
use crate::catalog::Tool;
use crate::catalog::schema::{Prepared, Unfit};
use crate::catalog::words::Words;
use crate::error::CallError;
use crate::json::{self, LongIntegers};
use crate::spool::Spooled;
use crate::telemetry::audit;

/// Arguments with more values than this are refused: a few megabytes of text can stand for
/// gigabytes.
pub const MOST_VALUES: usize = 200_000;

/// The arguments of a call.
pub enum Args<'a> {
    /// Parsed only once the caller may call the tool.
    Text {
        /// JSON text. Anything but an object counts as `{}`, except for a program.
        args: Option<&'a RawValue>,
        /// The words of a command line, where the arguments come from one.
        words: Vec<String>,
    },
    /// The `arguments` of MCP's `tools/call`, a JSON object. A program gets each as `--key value`,
    /// `true` and `false` included.
    Mcp(Option<&'a RawValue>),
    /// A whole `/call` body that is too big to be parsed on a worker, in memory or on disk. Its
    /// arguments are parsed once the caller may call the tool.
    Spooled(Spooled),
}

/// Arguments, parsed.
pub struct Given {
    pub args: Map<String, Value>,
    pub words: Vec<String>,
    /// Bytes of the text that they were parsed from.
    pub size: usize,
    /// As the audit keeps them. Made where they are parsed: of many, that takes its time, too.
    pub audited: Box<RawValue>,
}

impl Given {
    fn new(args: Map<String, Value>, words: Vec<String>, size: usize) -> Self {
        Given {
            audited: audit::redact(&args),
            args,
            words,
            size,
        }
    }
}

impl Args<'_> {
    /// The tool's schema says which numbers have to keep their digits.
    pub async fn parse(self, tool: &Arc<Tool>, work: &Work<'_>) -> Result<Given, CallError> {
        let size = self.size();
        let (args, words) = match self {
            Args::Text { args, words } => (args, words),
            Args::Mcp(args) => (args, Vec::new()),
            Args::Spooled(body) => {
                let tool = tool.clone();
                let parse = move || {
                    let (args, words) = parse_body(&body, &tool)?;
                    Ok(Given::new(args, words, size))
                };
                return work.run(parse).await?;
            }
        };
        let Some(text) = args.filter(is_object) else {
            return Ok(Given::new(Map::new(), words, size));
        };
        if size <= SMALL_TEXT {
            let args = parse_text(text, &words, tool)?;
            return Ok(Given::new(args, words, size));
        }
        let (text, tool) = (text.to_owned(), tool.clone());
        let parse = move || {
            let args = parse_text(&text, &words, &tool)?;
            Ok(Given::new(args, words, size))
        };
        work.run(parse).await?
    }

    /// The arguments of a call that is refused before they are parsed, as the audit keeps them.
    /// Small ones are told; others aren't worth the time.
    pub fn audited_unparsed(&self) -> Box<RawValue> {
        let (Args::Text { args, .. } | Args::Mcp(args)) = self else {
            return audit::not_parsed();
        };
        let text = args.filter(is_object).map_or("{}", RawValue::get);
        if self.size() > SMALL_TEXT {
            return audit::not_parsed();
        }
        match json::parse(text, MOST_VALUES) {
            Ok(args) => audit::redact(&args),
            Err(_) => audit::not_parsed(),
        }
    }

    /// Bytes of the text.
    pub(super) fn size(&self) -> usize {
        let length = |args: &Option<&RawValue>| args.map_or(0, |text| text.get().len());
        match self {
            Args::Text { args, words } => {
                let words = words.iter().map(|word| word.len() + 1);
                length(args) + words.sum::<usize>()
            }
            Args::Mcp(args) => length(args),
            Args::Spooled(body) => usize::try_from(body.len()).unwrap_or(usize::MAX),
        }
    }
}

fn is_object(text: &&RawValue) -> bool {
    text.get().starts_with('{')
}

fn invalid(error: &dyn std::fmt::Display) -> CallError {
    CallError::InvalidRequest(format!("args: {error}"))
}

fn parse_text(
    text: &RawValue,
    words: &[String],
    tool: &Tool,
) -> Result<Map<String, Value>, CallError> {
    let mut args = json::parse(text.get(), MOST_VALUES).map_err(|e| invalid(&e))?;
    let kept = tool.schema.keep_digits(&mut args, text, words);
    kept.map_err(unfit)?;
    Ok(args)
}

fn parse_body(body: &Spooled, tool: &Tool) -> Result<(Map<String, Value>, Vec<String>), CallError> {
    if let Some(text) = body.in_memory() {
        let whole: ArgsInText<'_> = serde_json::from_slice(text).map_err(|e| invalid(&e))?;
        let words = whole.raw_args.unwrap_or_default();
        let args = match whole.args.filter(is_object) {
            Some(args) => parse_text(args, &words, tool)?,
            None => Map::new(),
        };
        return Ok((args, words));
    }
    let whole: ArgsOfBody =
        json::parse_from(|| body.blocking_reader(), MOST_VALUES).map_err(|e| invalid(&e))?;
    let args = match whole.args {
        Value::Object(map) => map,
        _ => Map::new(),
    };
    let has_long_integers = || LongIntegers::are_in_all_of(body.blocking_reader()).unwrap_or(true);
    let kept = tool.schema.refuse_lost_digits(&args, has_long_integers);
    kept.map_err(unfit)?;
    Ok((args, whole.raw_args.unwrap_or_default()))
}

/// The part of a `/call` body in memory that holds the arguments.
#[derive(Deserialize)]
struct ArgsInText<'a> {
    #[serde(default, borrow)]
    args: Option<&'a RawValue>,
    raw_args: Option<Vec<String>>,
}

/// The same of one on disk.
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
