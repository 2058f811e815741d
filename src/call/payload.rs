//! The file of a call. It comes as base64 inside of the call's JSON, and is taken out while the
//! text comes in, so that neither stands in memory. Or it came before, and the call has its id.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::{Call, Context, authorize};
use crate::auth::Identity;
use crate::catalog::files::FileOperation;
use crate::catalog::{Catalog, Invocation, Tool};
use crate::derived_key::{Key, KeyBuilder};
use crate::error::{CallError, ExecError, FileFault, Shortage};
use crate::exec::files::{Content, Downloaded, FilesError, Incoming, StoredFile};
use crate::exec::{Answer, SharedState};
use crate::json_scan::{Event, ScanError, Scanner};
use crate::runtime::NotStored;

/// The argument that holds a file.
pub const CONTENT: &str = "content_base64";
/// The argument that holds the id of one.
pub(super) const ID: &str = "file";
/// The argument of a download that says how its file is answered.
const DELIVERY: &str = "delivery";
/// Arguments for programs that speak with `/files`.
pub const NAMES: [&str; 2] = [ID, DELIVERY];
/// What the text of a call with a file may have besides the file.
const MOST_TEXT: usize = 64 << 10;

/// Whether callers send this tool a file.
pub fn takes_file(tool: &Tool) -> bool {
    matches!(tool.invocation, Invocation::Files(FileOperation::Upload))
}

/// A tool that takes files, and that this caller may use.
pub fn uploader<'a>(catalog: &'a Catalog, identity: &Identity) -> Option<&'a Arc<Tool>> {
    let mut tools = catalog.tools().iter();
    tools.find(|tool| takes_file(tool) && authorize(tool, identity, catalog).is_ok())
}

/// Refuses where the file tools are offered to no caller.
pub fn check_offered(catalog: &Catalog) -> Result<(), CallError> {
    let mut tools = catalog.tools().iter();
    match tools.find(|tool| catalog.is_withheld(tool) && takes_file(tool)) {
        Some(tool) => Err(CallError::Withheld(tool.name.clone())),
        None => Ok(()),
    }
}

/// A file of a caller, while it comes in.
pub fn incoming(context: &Context<'_>) -> Incoming {
    let most = context.file_limits.max_bytes;
    Incoming::new(most, context.runtime)
}

/// The body of a `/call` that has a file, while it comes in.
pub struct IncomingCall {
    scanner: Scanner,
    file: Option<Incoming>,
}

/// What was learned from a piece of the body.
#[derive(Debug, PartialEq, Eq)]
pub enum Learned {
    ToolName(String),
    /// Its file begins. Nothing of it is kept yet.
    File,
}

/// Such a body, complete.
pub struct CallWithFile {
    /// The JSON text, with `null` in the place of the file.
    pub text: Vec<u8>,
    pub file: Option<Content>,
}

impl Default for IncomingCall {
    fn default() -> Self {
        let scanner = Scanner::new(MOST_TEXT);
        IncomingCall {
            scanner: scanner.divert("args.content_base64").tell("tool_name"),
            file: None,
        }
    }
}

impl IncomingCall {
    /// `allow` is asked before anything that follows is kept. `Err(None)`: there is too much text
    /// besides the file.
    pub async fn push(
        &mut self,
        piece: &[u8],
        context: &Context<'_>,
        mut allow: impl FnMut(Learned) -> Result<(), CallError>,
    ) -> Result<(), Option<CallError>> {
        let events = self.scanner.push(piece).map_err(unscanned)?;
        for event in events {
            match event {
                Event::Found { text, .. } => allow(Learned::ToolName(text))?,
                Event::Begin { .. } => {
                    allow(Learned::File)?;
                    self.file = Some(incoming(context));
                }
                Event::Bytes(bytes) => {
                    if let Some(file) = &mut self.file {
                        file.write(&bytes).await.map_err(failed)?;
                    }
                }
                Event::End => {}
            }
        }
        Ok(())
    }

    /// `Err(None)` as with `push`.
    pub async fn finish(self) -> Result<CallWithFile, Option<CallError>> {
        let text = self.scanner.finish().map_err(unscanned)?;
        let file = match self.file {
            Some(file) => Some(file.finish().await.map_err(failed)?),
            None => None,
        };
        Ok(CallWithFile { text, file })
    }
}

/// There is more text than a call with a file may have.
pub fn too_much_text() -> CallError {
    let most = MOST_TEXT >> 10;
    let message = format!("a call with a file has at most {most} KiB besides the file");
    CallError::InvalidRequest(message)
}

pub fn failed(error: FilesError) -> CallError {
    ExecError::from(error).into()
}

fn unscanned(error: ScanError) -> Option<CallError> {
    match error {
        ScanError::TooLong(_) => None,
        ScanError::Base64 { error, .. } => Some(failed(FilesError::Base64(error.to_string()))),
        error => Some(CallError::InvalidRequest(error.to_string())),
    }
}

/// Whose file it is. Not the token itself: sandboxes get new ones while they run.
pub fn owner(identity: &Identity) -> Key {
    KeyBuilder::new("file")
        .with(&identity.subject)
        .with(&identity.customer_id)
        .with(&identity.job_id)
        .with(&identity.sandbox_id)
        .finish()
}

/// Keeps a file for the caller's next request.
pub fn store(
    file: StoredFile,
    identity: &Identity,
    context: &Context<'_>,
) -> Result<String, CallError> {
    let (runtime, ttl): (&SharedState, _) = (context.runtime, context.file_limits.ttl);
    let stored = runtime.files.put(owner(identity), file, ttl);
    stored.map_err(|error| match error {
        NotStored::TooMany => CallError::Busy(Shortage::Files),
        NotStored::NoId => CallError::Internal("the system gives no random numbers"),
    })
}

/// The file that an upload names by its id, while it is there.
pub(super) fn stored_file(
    call: &Call<'_>,
    tool: &Tool,
    args: &Map<String, Value>,
) -> Option<StoredFile> {
    let id = args.get(ID).filter(|_| takes_file(tool))?.as_str()?;
    call.context.runtime.files.look(&owner(call.identity), id)
}

/// The id of a file that an upload names, while the file is there.
pub(super) struct StoredId(String);

impl StoredId {
    /// The file's own name and type are the defaults of the call's.
    pub(super) fn take(
        call: &Call<'_>,
        args: &mut Map<String, Value>,
        has_content: bool,
    ) -> Result<Option<Self>, CallError> {
        let id = match args.shift_remove(ID) {
            None | Some(Value::Null) => return Ok(None),
            Some(_) if has_content => return Err(FileFault::Twice.into()),
            Some(Value::String(id)) => id,
            Some(_) => return Err(FileFault::NoId.into()),
        };
        let files = &call.context.runtime.files;
        let file = files.look(&owner(call.identity), &id);
        let file = file.ok_or(FileFault::NotFound)?;
        let mut default = |name: &str, value: Option<String>| {
            let absent = args.get(name).is_none_or(Value::is_null);
            if let Some(value) = value.filter(|_| absent) {
                args.insert(name.to_owned(), value.into());
            }
        };
        default("filename", file.name);
        default("content_type", file.content_type);
        Ok(Some(StoredId(id)))
    }

    /// From here on it can't be used again.
    pub(super) fn claim(self, call: &Call<'_>) -> Result<Content, CallError> {
        let files = &call.context.runtime.files;
        let file = files.take(&owner(call.identity), &self.0);
        Ok(file.ok_or(FileFault::NotFound)?.content)
    }
}

/// How the file of a download is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Delivery {
    /// As base64 in the answer.
    Inline,
    /// As the id of a file that can be fetched once.
    File,
}

impl Delivery {
    pub(super) fn take(args: &mut Map<String, Value>) -> Result<Self, CallError> {
        match args.shift_remove(DELIVERY) {
            None | Some(Value::Null) => Ok(Delivery::Inline),
            Some(Value::String(text)) if text == "inline" => Ok(Delivery::Inline),
            Some(Value::String(text)) if text == "file" => Ok(Delivery::File),
            Some(_) => Err(FileFault::Delivery.into()),
        }
    }

    pub(super) fn answer(self, file: Downloaded, call: &Call<'_>) -> Result<Answer, CallError> {
        if self == Delivery::Inline {
            return Ok(file.into_answer());
        }
        let mut facts = file.facts();
        let stored = StoredFile {
            content_type: file.content_type,
            name: None,
            content: file.content,
        };
        let id = store(stored, call.identity, &call.context)?;
        facts[ID] = id.into();
        let text = serde_json::value::to_raw_value(&facts);
        let text = text.map_err(|_| CallError::Internal("an answer can't be written as JSON"))?;
        Ok(Answer::Memory(text))
    }
}
