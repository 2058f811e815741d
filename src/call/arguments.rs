//! The arguments of a call, as callers give them.

use std::borrow::Cow;
use std::sync::Arc;

use futures::StreamExt as _;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::Context;
use super::payload::{self, CallWithFile, IncomingCall};
use super::work::{SMALL_TEXT, Work};
use crate::catalog::files::COMMAND_LINE_ONLY;
use crate::catalog::schema::{Prepared, Unfit};
use crate::catalog::words::Words;
use crate::catalog::{Invocation, Tool};
use crate::error::CallError;
use crate::exec::files::{self, Content};
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
    /// Arguments, and the file that came with them.
    WithFile(Box<Args<'a>>, Content),
}

/// Arguments, parsed.
pub struct Given {
    pub args: Map<String, Value>,
    pub words: Vec<String>,
    /// Bytes of the text that they were parsed from.
    pub size: usize,
    /// As the audit keeps them. Made where they are parsed: of many, that takes its time, too.
    pub audited: Box<RawValue>,
    /// The file that the call brings, where it was taken out of its arguments on the way in.
    pub content: Option<Content>,
}

impl Given {
    fn new(tool: &Tool, args: Map<String, Value>, words: Vec<String>, size: usize) -> Self {
        Given {
            audited: audit::redact(&for_audit(Some(tool), &args)),
            args,
            words,
            size,
            content: None,
        }
    }

    /// With the file that was among the arguments. The audit shows its length in its place.
    fn with_file(mut self, tool: &Tool, file: Option<Content>) -> Self {
        let Some(file) = file else {
            return self;
        };
        let mut shown = for_audit(Some(tool), &self.args).into_owned();
        if let Some(place) = shown.get_mut(payload::CONTENT) {
            let letters = file.len().div_ceil(3) * 4;
            *place = format!("[{letters} letters of base64]").into();
            self.audited = audit::redact(&shown);
        }
        self.content = Some(file);
        self
    }
}

impl Args<'_> {
    /// The tool's schema says which numbers have to keep their digits.
    pub async fn parse(
        self,
        tool: &Arc<Tool>,
        work: &Work<'_>,
        context: &Context<'_>,
    ) -> Result<Given, CallError> {
        let size = self.size();
        let (args, words) = match self {
            Args::Text { args, words } => (args, words),
            Args::Mcp(args) => (args, Vec::new()),
            Args::WithFile(args, file) => {
                let given = Box::pin(args.parse(tool, work, context)).await?;
                return Ok(given.with_file(tool, Some(file)));
            }
            Args::Spooled(body) if payload::takes_file(tool) => {
                let call = without_file(body, context).await?;
                let (args, words) = parse_body(&call.text.into(), tool)?;
                let given = Given::new(tool, args, words, size.min(SMALL_TEXT));
                return Ok(given.with_file(tool, call.file));
            }
            Args::Spooled(body) => {
                let tool = tool.clone();
                let parse = move || {
                    let (args, words) = parse_body(&body, &tool)?;
                    Ok(Given::new(&tool, args, words, size))
                };
                return work.run(parse).await?;
            }
        };
        let Some(text) = args.filter(is_object) else {
            return Ok(Given::new(tool, Map::new(), words, size));
        };
        if size <= SMALL_TEXT {
            let args = parse_text(text, &words, tool)?;
            return Ok(Given::new(tool, args, words, size));
        }
        let (text, tool) = (text.to_owned(), tool.clone());
        let parse = move || {
            let args = parse_text(&text, &words, &tool)?;
            Ok(Given::new(&tool, args, words, size))
        };
        work.run(parse).await?
    }

    /// The arguments of a call that is refused before they are parsed, as the audit keeps them.
    /// Small ones are told; others aren't worth the time.
    pub fn audited_unparsed(&self, tool: Option<&Tool>) -> Box<RawValue> {
        let args = match self {
            Args::Text { args, .. } | Args::Mcp(args) => args,
            Args::WithFile(args, _) => return args.audited_unparsed(tool),
            Args::Spooled(_) => return audit::not_parsed(),
        };
        let text = args.filter(is_object).map_or("{}", RawValue::get);
        if self.size() > SMALL_TEXT {
            return audit::not_parsed();
        }
        match json::parse(text, MOST_VALUES) {
            Ok(args) => audit::redact(&for_audit(tool, &args)),
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
            Args::WithFile(args, _) => args.size(),
            Args::Spooled(body) => usize::try_from(body.len()).unwrap_or(usize::MAX),
        }
    }
}

/// The arguments as the audit may show them, before it redacts them.
fn for_audit<'a>(tool: Option<&Tool>, args: &'a Map<String, Value>) -> Cow<'a, Map<String, Value>> {
    match tool.map(|tool| &tool.invocation) {
        Some(Invocation::Files(_)) => Cow::Owned(files::for_audit(args)),
        Some(
            Invocation::Http(_)
            | Invocation::Mcp(_)
            | Invocation::Cli
            | Invocation::Atip(_)
            | Invocation::Cmp(_)
            | Invocation::Runfile(_),
        )
        | None => Cow::Borrowed(args),
    }
}

/// Takes the file out of a body that is too big to be parsed as it is.
async fn without_file(body: Spooled, context: &Context<'_>) -> Result<CallWithFile, CallError> {
    let mut call = IncomingCall::default();
    let mut body = std::pin::pin!(body.into_stream());
    while let Some(piece) = body.next().await {
        let piece = piece.map_err(|e| invalid(&e))?;
        let pushed = call.push(&piece, context, |_| Ok(())).await;
        pushed.map_err(|error| error.unwrap_or_else(payload::too_much_text))?;
    }
    let finished = call.finish().await;
    finished.map_err(|error| error.unwrap_or_else(payload::too_much_text))
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
    if tool.invocation.reads_arguments_itself() {
        checked_words(tool, &given.words)?;
        let mut args = given.args;
        args.retain(|name, _| !COMMAND_LINE_ONLY.contains(&name.as_str()));
        // Those aren't for agents, so the schema doesn't have them.
        let kept: Vec<_> = payload::NAMES
            .iter()
            .filter_map(|name| args.shift_remove_entry(*name))
            .collect();
        let mut prepared = schema.resolve_names(args);
        prepared.args.extend(kept);
        return Ok(prepared);
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
