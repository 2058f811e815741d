//! The arguments of a call, as callers give them.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::catalog::schema::Prepared;
use crate::catalog::words::Words;
use crate::catalog::{Tool, schema::Schema};
use crate::error::CallError;
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
}

impl Args<'_> {
    /// The schema says which numbers have to keep their digits.
    pub async fn parse(self, schema: &Schema) -> Result<Given, CallError> {
        let invalid = |e: &dyn std::fmt::Display| CallError::InvalidRequest(format!("args: {e}"));
        match self {
            Args::Text { args, words } => {
                let text = args.filter(|text| text.get().starts_with('{'));
                let Some(text) = text else {
                    let args = Map::new();
                    return Ok(Given { args, words });
                };
                let parsed = json::parse(text.get(), MOST_VALUES);
                let mut args = parsed.map_err(|e| invalid(&e))?;
                schema.restore_digits(&mut args, text, &words);
                Ok(Given { args, words })
            }
            Args::Spooled(body) => {
                let parse = move || json::parse_from(|| body.blocking_reader(), MOST_VALUES);
                let parsed = tokio::task::spawn_blocking(parse).await;
                let body: ArgsOfBody = parsed.map_err(|e| invalid(&e))?.map_err(|e| invalid(&e))?;
                Ok(Given {
                    args: match body.args {
                        Value::Object(map) => map,
                        _ => Map::new(),
                    },
                    words: body.raw_args.unwrap_or_default(),
                })
            }
        }
    }
}

/// The part of a `/call` body that holds the arguments.
#[derive(Deserialize)]
struct ArgsOfBody {
    #[serde(default)]
    args: Value,
    raw_args: Option<Vec<String>>,
}

/// Checks the arguments of a call and gives them the types of the tool's schema.
pub fn validate(tool: &Tool, given: Given) -> Result<Prepared, CallError> {
    let words = Words::parse(&given.words);
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
    let prepared = tool.schema.prepare(given.args, &words);
    prepared.map_err(|unfit| CallError::InvalidArgument {
        name: unfit.name,
        what: unfit.what,
        missing: unfit.missing,
    })
}
