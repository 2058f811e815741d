//! Three tools in place of the catalogue: their list never changes, and has the same length however
//! many tools there are.

use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::annotations::{described, input_schema};
use super::{Exchange, ResultText, list, render};
use crate::catalog::search as ranking;
use crate::error::{CallError, RpcError};
use crate::exec::Watcher;
use crate::mcp::{ClientRequest, Era};

pub const INSTRUCTIONS: &str = "Find a tool with find_tools, read what it takes with \
     describe_tool, then run it with call_tool.";

const FIND: &str = "find_tools";
const DESCRIBE: &str = "describe_tool";
const CALL: &str = "call_tool";

/// Bytes of a description among the results of a search.
const LONGEST_DESCRIPTION: usize = 300;
/// The list is the same for the life of the process.
const TTL_MS: u64 = 3_600_000;

static TOOLS: LazyLock<String> = LazyLock::new(|| {
    let text = |description: &str| json!({"type": "string", "description": description});
    let read_only = json!({"readOnlyHint": true});
    json!([
        {
            "name": FIND,
            "description": "Search the tools that you may use, best match first. Returns their \
                names and descriptions.",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "query": text("What you want to do, in a few words"),
                    "limit": {
                        "type": "integer", "minimum": 1, "maximum": ranking::MOST,
                        "description": "Results at most",
                    },
                },
                "required": ["query"],
            },
            "annotations": read_only,
        },
        {
            "name": DESCRIBE,
            "description": "What a tool does and which arguments it takes, with examples.",
            "inputSchema": {
                "type": "object",
                "properties": {"name": text("A name that find_tools returned")},
                "required": ["name"],
            },
            "annotations": read_only,
        },
        {
            "name": CALL,
            "description": "Run a tool with arguments that fit its input schema.",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "name": text("A name that find_tools returned"),
                    "arguments": {"type": "object", "description": "The tool's arguments"},
                },
                "required": ["name"],
            },
        },
    ])
    .to_string()
});

pub fn list(era: Era) -> ResultText {
    let mut text = format!("{{\"tools\":{}", *TOOLS).into_bytes();
    text.extend_from_slice(&list::end(era, TTL_MS));
    ResultText::Whole(text)
}

#[derive(Default, Deserialize)]
struct Arguments<'a> {
    #[serde(default)]
    query: Option<String>,
    #[serde(default)]
    limit: Option<u64>,
    #[serde(default)]
    name: Option<String>,
    #[serde(default, borrow)]
    arguments: Option<&'a RawValue>,
}

/// None where `name` is none of the three.
pub async fn call(
    name: &str,
    request: &ClientRequest,
    exchange: &Exchange,
    watcher: Option<Watcher<'_>>,
) -> Option<Result<ResultText, RpcError>> {
    if ![FIND, DESCRIBE, CALL].contains(&name) {
        return None;
    }
    if name != CALL {
        exchange.trail.resolved(name);
    }
    let era = request.era;
    let text = request.arguments.as_deref().map_or("{}", RawValue::get);
    let args: Arguments<'_> = match serde_json::from_str(text) {
        Ok(args) => args,
        Err(_) => return Some(Ok(invalid("they don't fit the input schema", era))),
    };
    let wanted = args.name.as_deref().filter(|name| !name.is_empty());
    Some(match (name, wanted) {
        (FIND, _) => match &args.query {
            Some(query) => Ok(find(query, args.limit, exchange, era)),
            None => Ok(invalid("query: it is missing", era)),
        },
        (_, None) => Ok(invalid("name: it is missing", era)),
        (DESCRIBE, Some(wanted)) => Ok(describe(wanted, exchange, era)),
        (_, Some(wanted)) => {
            if request.is_declined {
                return Some(Ok(render::error_text(super::DECLINED, era)));
            }
            let confirm = request.confirm.as_deref();
            let called = exchange
                .call(wanted, args.arguments, confirm, watcher)
                .await;
            Ok(match called {
                Ok(finished) => render::finished(finished, era),
                // A result, whatever it is: the name is the model's, not the client's.
                Err(error) => render::failed(&error, request, &exchange.trail),
            })
        }
    })
}

fn invalid(what: &str, era: Era) -> ResultText {
    render::error_text(&format!("Invalid arguments: {what}"), era)
}

fn find(query: &str, limit: Option<u64>, exchange: &Exchange, era: Era) -> ResultText {
    let most = limit.map_or(ranking::MOST, |limit| {
        usize::try_from(limit)
            .unwrap_or(ranking::MOST)
            .clamp(1, ranking::MOST)
    });
    let catalog = &exchange.snapshot.catalog;
    let found = catalog.search(query, &exchange.identity.scopes, |_| true, most);
    let shown = found.into_iter().map(|tool| {
        let end = tool.description.floor_char_boundary(LONGEST_DESCRIPTION);
        json!({"name": tool.name, "description": tool.description[..end]})
    });
    let found: Vec<Value> = shown.collect();
    answer(&json!({"tools": found}), era)
}

fn describe(name: &str, exchange: &Exchange, era: Era) -> ResultText {
    let catalog = &exchange.snapshot.catalog;
    let tool = catalog
        .find(name)
        .filter(|tool| tool.is_allowed(&exchange.identity.scopes) && !catalog.is_withheld(tool));
    let Some(tool) = tool else {
        let discovery = exchange.services.discovery.as_ref();
        let outage = discovery.and_then(|discovery| discovery.outage(name, &exchange.identity));
        let unknown = || CallError::UnknownTool(name.chars().take(256).collect());
        return render::error_text(&outage.unwrap_or_else(unknown).to_string(), era);
    };
    let mut shown = match described(tool) {
        Value::Object(members) => members,
        _ => Map::new(),
    };
    shown.insert("inputSchema".to_owned(), input_schema(tool));
    if let Some(hint) = &tool.hint {
        shown.insert("hint".to_owned(), hint.as_str().into());
    }
    if !tool.examples.is_empty() {
        shown.insert("examples".to_owned(), tool.examples.clone().into());
    }
    answer(&Value::Object(shown), era)
}

/// Compact, because a model pays for white space.
fn answer(value: &Value, era: Era) -> ResultText {
    let content = json!([{"type": "text", "text": value.to_string()}]);
    super::complete(json!({"content": content, "isError": false}), era)
}
