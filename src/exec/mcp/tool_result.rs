//! The result of a call, read from its text: only as far as its caller needs it.

use std::borrow::Cow;
use std::fmt;

use rmcp::model::{CallToolResult, InputRequiredResult, ServerResult};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};

/// The result of a tool.
#[derive(Debug, Clone, PartialEq)]
pub enum ToolResult {
    /// One text and no error: all that callers of `/call` get of it. The text that it was read
    /// from is small.
    Text(String),
    Whole(Box<CallToolResult>),
}

/// What an answer to a call is.
#[derive(Debug)]
pub enum Answered {
    Result(ToolResult),
    /// The server asks for the same call again, or for input.
    InputRequired(InputRequiredResult),
    /// The answer to another question.
    Other,
}

impl From<ServerResult> for Answered {
    fn from(result: ServerResult) -> Self {
        match result {
            ServerResult::CallToolResult(result) => {
                Answered::Result(ToolResult::Whole(Box::new(result)))
            }
            ServerResult::InputRequiredResult(wanted) => Answered::InputRequired(wanted),
            _ => Answered::Other,
        }
    }
}

/// Reads the text of a result. With `native`, the caller wants all of it. None: it can't be
/// understood.
pub fn read(text: &str, native: bool) -> Option<Answered> {
    if !native && let Some(text) = one_text(text) {
        return Some(Answered::Result(ToolResult::Text(text)));
    }
    if is_tool_result(text)
        && let Ok(result) = serde_json::from_str(text)
    {
        return Some(Answered::Result(ToolResult::Whole(Box::new(result))));
    }
    // rmcp's types know every kind of result, and try one after the other.
    serde_json::from_str::<ServerResult>(text)
        .ok()
        .map(Answered::from)
}

/// The text of a result whose content is one text, and which has nothing that has to be looked at.
/// `structuredContent` says the same for programs, and isn't read.
fn one_text(text: &str) -> Option<String> {
    // serde would read an array as the members of the result.
    if !text.starts_with('{') {
        return None;
    }
    let result: OneText<'_> = serde_json::from_str(text).ok()?;
    let is_complete = result.result_type.is_none_or(|kind| kind == "complete");
    let [block] = result.content;
    (is_complete && result.is_error != Some(true)).then(|| block.0.into_owned())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct OneText<'a> {
    #[serde(borrow)]
    content: [TextBlock<'a>; 1],
    is_error: Option<bool>,
    #[serde(rename = "structuredContent")]
    _structured: Option<IgnoredAny>,
    result_type: Option<&'a str>,
}

/// A block of text without annotations and metadata.
struct TextBlock<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for TextBlock<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(field_identifier, rename_all = "lowercase")]
        enum Member {
            Type,
            Text,
        }
        #[derive(Deserialize)]
        struct Borrowed<'a>(#[serde(borrow)] Cow<'a, str>);
        struct BlockVisitor;
        impl<'de> Visitor<'de> for BlockVisitor {
            type Value = TextBlock<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a block of text")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let (mut is_text, mut text) = (false, None);
                while let Some(member) = map.next_key()? {
                    match member {
                        Member::Type if !is_text => {
                            let Borrowed(kind) = map.next_value()?;
                            is_text = kind == "text";
                            if !is_text {
                                return Err(A::Error::custom("another kind of block"));
                            }
                        }
                        Member::Text if text.is_none() => {
                            let Borrowed(value) = map.next_value()?;
                            text = Some(value);
                        }
                        Member::Type | Member::Text => {
                            return Err(A::Error::custom("a member twice"));
                        }
                    }
                }
                match text {
                    Some(text) if is_text => Ok(TextBlock(text)),
                    _ => Err(A::Error::custom("no block of text")),
                }
            }
        }
        deserializer.deserialize_map(BlockVisitor)
    }
}

/// Whether the members of a result are those of a tool's, so that no other kind of result fits.
fn is_tool_result(text: &str) -> bool {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields, rename_all = "camelCase")]
    struct Members {
        #[serde(rename = "content")]
        _content: IgnoredAny,
        #[serde(rename = "structuredContent")]
        _structured: Option<IgnoredAny>,
        #[serde(rename = "isError")]
        _is_error: Option<IgnoredAny>,
        #[serde(rename = "_meta")]
        _meta: Option<IgnoredAny>,
        #[serde(rename = "resultType")]
        _result_type: Option<IgnoredAny>,
    }
    text.starts_with('{')
        // The end of a subscription is told by its metadata.
        && !text.contains("subscriptionId")
        && serde_json::from_str::<Members>(text).is_ok()
}

#[cfg(test)]
mod tests;
