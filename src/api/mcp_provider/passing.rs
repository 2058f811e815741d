//! Messages of a server on their way to a client: lists without what the caller's scopes don't
//! allow, and the record of the request that they answer.

use std::borrow::Cow;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::super::Services;
use crate::auth::Identity;
use crate::call::RelayRecord;
use crate::catalog::Provider;
use crate::error::{CallError, ExecError};
use crate::exec::mcp::McpError;
use crate::exec::mcp::relay::{Held, UpstreamMessage, with_member};
use crate::mcp::Era;
use crate::snapshot::Snapshot;
use crate::telemetry::trail::{CallFailure, CallTrail};

/// Characters of a tool's own error that are recorded.
const LONGEST_ERROR: usize = 4096;

/// A request that waits for its answer.
pub struct Passing {
    /// The client's id, as it wrote it.
    pub id: Box<str>,
    pub method: String,
    pub era: Era,
    pub provider: Arc<Provider>,
    pub identity: Arc<Identity>,
    pub snapshot: Arc<Snapshot>,
    pub services: Arc<Services>,
    pub trail: Arc<CallTrail>,
    /// None where requests of this method aren't recorded.
    pub record: Option<RelayRecord>,
    /// The server speaks the handshake era, and the client the stateless one.
    pub is_bridged: bool,
}

#[derive(Deserialize)]
struct ResultMembers<'a> {
    #[serde(default, rename = "isError")]
    is_error: bool,
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct TextBlock<'a> {
    #[serde(borrow, default)]
    text: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct ListedTools<'a> {
    #[serde(borrow)]
    tools: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct ListedName<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
}

impl Passing {
    /// The message as the client gets it, and whether it is the answer.
    pub fn pass(&mut self, held: Held) -> (Held, bool) {
        let Held { text, memory } = held;
        let (text, is_answer) = self.pass_text(text);
        (Held { text, memory }, is_answer)
    }

    fn pass_text(&mut self, text: Vec<u8>) -> (Vec<u8>, bool) {
        let Some(message) = UpstreamMessage::read(&text) else {
            return (text, false);
        };
        if !message.answers(&self.id) {
            // The answer to another request, on a stream that the client resumed.
            let replayed = message.result.filter(|_| message.method.is_none());
            let changed = replayed.and_then(|result| self.allowed_tools(result.get()));
            let changed = changed.and_then(|result| with_member(&text, "result", &result));
            return (changed.unwrap_or(text), false);
        }
        match (message.result, message.error()) {
            (Some(result), _) => {
                let failed = self.failed(result);
                let changed = self.change(result.get());
                self.end(failed.as_ref());
                match changed {
                    Some(result) => (with_member(&text, "result", &result).unwrap_or(text), true),
                    None => (text, true),
                }
            }
            (None, error) => {
                let (code, message) = error.unwrap_or_default();
                let failed = McpError::Protocol { code, message };
                self.end(Some(&CallError::Exec(ExecError::from(failed))));
                (text, true)
            }
        }
    }

    /// What is wrong, where a tool says so in its result.
    fn failed(&self, result: &RawValue) -> Option<CallError> {
        if self.method != "tools/call" {
            return None;
        }
        let result: ResultMembers<'_> = serde_json::from_str(result.get()).ok()?;
        if !result.is_error {
            return None;
        }
        let blocks = result.content.map_or("[]", RawValue::get);
        let blocks: Vec<TextBlock<'_>> = serde_json::from_str(blocks).unwrap_or_default();
        let texts: Vec<_> = blocks.into_iter().filter_map(|block| block.text).collect();
        let text = crate::text::clip_chars(&texts.join("\n"), LONGEST_ERROR).to_owned();
        let native = None;
        Some(CallError::Exec(ExecError::from(McpError::Tool {
            text,
            native,
        })))
    }

    /// The result where it differs from the server's.
    fn change(&self, result: &str) -> Option<String> {
        let mut changed = None;
        if self.method == "tools/list" {
            changed = self.allowed_tools(result);
        }
        let set = |changed: &mut Option<String>, name: &str, value: &str| {
            let text = changed.as_deref().unwrap_or(result);
            let text = with_member(text.as_bytes(), name, value);
            *changed = text.and_then(|text| String::from_utf8(text).ok());
        };
        if self.era == Era::Stateless {
            if self.is_bridged {
                set(&mut changed, "resultType", "\"complete\"");
            }
            let is_cacheable = self.method.ends_with("/list") || self.method == "resources/read";
            if self.is_bridged && is_cacheable {
                set(&mut changed, "ttlMs", "0");
                set(&mut changed, "cacheScope", "\"private\"");
            } else if self.method == "tools/list" {
                // It depends on the caller's scopes.
                set(&mut changed, "cacheScope", "\"private\"");
            }
        }
        changed
    }

    /// None where all of them are allowed.
    fn allowed_tools(&self, result: &str) -> Option<String> {
        let listed: ListedTools<'_> = serde_json::from_str(result).ok()?;
        let (catalog, scopes) = (&self.snapshot.catalog, &self.identity.scopes);
        let is_allowed = |tool: &&&RawValue| {
            let listed: Option<ListedName<'_>> = serde_json::from_str(tool.get()).ok();
            listed.is_some_and(|listed| {
                let tool = catalog.relayed_tool(&self.provider, &listed.name, scopes);
                tool.is_allowed()
            })
        };
        let allowed: Vec<&str> = listed
            .tools
            .iter()
            .filter(is_allowed)
            .map(|tool| tool.get())
            .collect();
        if allowed.len() == listed.tools.len() {
            return None;
        }
        let tools = format!("[{}]", allowed.join(","));
        let changed = with_member(result.as_bytes(), "tools", &tools)?;
        String::from_utf8(changed).ok()
    }

    /// The request has ended without an answer of the server's, or with an error.
    pub fn end(&mut self, error: Option<&CallError>) {
        if let Some(error) = error {
            self.trail.failed(CallFailure {
                label: error.outcome(),
                upstream: error.upstream_failure(),
            });
        }
        if let Some(record) = self.record.take() {
            let outcome = match error {
                Some(error) => Err(error),
                None => Ok(()),
            };
            record.write(Some(outcome), &self.services.audit, &self.trail);
        }
    }
}

impl Drop for Passing {
    fn drop(&mut self) {
        if let Some(record) = self.record.take() {
            record.write(None, &self.services.audit, &self.trail);
        }
    }
}
