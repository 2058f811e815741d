//! What a client may know about a tool before it calls it.

use http::Method;
use serde_json::{Map, Value, json};

use crate::catalog::files::FileOperation;
use crate::catalog::{Invocation, Tool};

/// A tool as `tools/list` shows it.
pub fn described(tool: &Tool) -> Value {
    let mut shown = Map::new();
    shown.insert("name".to_owned(), tool.name.as_str().into());
    shown.insert("description".to_owned(), tool.description.as_str().into());
    shown.insert("inputSchema".to_owned(), input_schema(tool));
    if let Invocation::Mcp(remote) = &tool.invocation {
        let details = &remote.details;
        if let Some(title) = &details.title {
            shown.insert("title".to_owned(), title.as_str().into());
        }
        // With `extract` the result is another one.
        if let Some(schema) = details
            .output_schema
            .as_ref()
            .filter(|_| tool.extract.is_none())
        {
            shown.insert("outputSchema".to_owned(), schema.clone());
        }
    }
    if let Some(hints) = hints(tool) {
        shown.insert("annotations".to_owned(), hints);
    }
    Value::Object(shown)
}

/// Clients want an object schema: a tool without one takes anything.
pub fn input_schema(tool: &Tool) -> Value {
    match tool.input_schema() {
        Value::Object(members) if members.get("type") == Some(&json!("object")) => {
            Value::Object(members.clone())
        }
        Value::Object(members) if !members.contains_key("type") && !members.is_empty() => {
            let mut whole = Map::new();
            whole.insert("type".to_owned(), "object".into());
            whole.extend(members.clone());
            Value::Object(whole)
        }
        _ => json!({"type": "object", "properties": {}}),
    }
}

/// Only what is certain: the author's own word, or what HTTP says about a method.
fn hints(tool: &Tool) -> Option<Value> {
    if tool.effects.is_some() {
        return declared(tool);
    }
    match &tool.invocation {
        Invocation::Mcp(remote) => remote.details.annotations.clone(),
        Invocation::Http(http) => match http.method {
            Method::GET => Some(json!({"readOnlyHint": true})),
            Method::PUT => Some(json!({"readOnlyHint": false, "idempotentHint": true})),
            Method::DELETE => Some(json!({
                "readOnlyHint": false,
                "destructiveHint": true,
                "idempotentHint": true,
            })),
            _ => None,
        },
        Invocation::Files(FileOperation::Download) => Some(json!({"readOnlyHint": true})),
        Invocation::Files(FileOperation::Upload) => Some(json!({
            "readOnlyHint": false,
            "destructiveHint": false,
        })),
        // What a program does isn't known.
        Invocation::Cli | Invocation::Atip(_) | Invocation::Cmp(_) | Invocation::Runfile(_) => None,
    }
}

/// What is declared, and what is inferred about the rest, in MCP's words. A server's own
/// annotations are the rest of its tool.
fn declared(tool: &Tool) -> Option<Value> {
    let effects = tool.known_effects()?.effects;
    let mut hints = match &tool.invocation {
        Invocation::Mcp(remote) => match &remote.details.annotations {
            Some(Value::Object(own)) => own.clone(),
            _ => Map::new(),
        },
        _ => Map::new(),
    };
    for (name, hint) in [
        (
            "readOnlyHint",
            effects.is_read_only().or_else(|| tool.only_reads()),
        ),
        ("destructiveHint", effects.destructive),
        ("idempotentHint", effects.idempotent),
        ("openWorldHint", effects.network),
    ] {
        if let Some(hint) = hint {
            hints.insert(name.to_owned(), hint.into());
        }
    }
    (!hints.is_empty()).then_some(Value::Object(hints))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Catalog;

    #[test]
    fn tool_is_described_with_what_is_certain() {
        let catalog = Catalog::from_text(
            "[provider]\nname = 'p'\nbase_url = 'http://h'\n\
             [[tools]]\nname = 'read'\ndescription = 'Reads'\n\
             [[tools]]\nname = 'send'\nmethod = 'POST'\n[tools.input_schema.properties.a]\ntype = 'string'\n\
             [[tools]]\nname = 'wipe'\nmethod = 'DELETE'\ninput_schema = {type = 'object', required = ['id']}",
        );
        let shown: Vec<Value> = catalog.tools().iter().map(|tool| described(tool)).collect();
        let open = json!({"type": "object", "properties": {}});
        let read = json!({
            "name": "read", "description": "Reads", "inputSchema": open,
            "annotations": {"readOnlyHint": true},
        });
        assert_eq!(shown[0], read);
        let schema = json!({"type": "object", "properties": {"a": {"type": "string"}}});
        assert_eq!(shown[1]["inputSchema"], schema);
        assert!(shown[1].get("annotations").is_none());
        assert_eq!(shown[2]["annotations"]["destructiveHint"], true);
        let schema = json!({"type": "object", "required": ["id"]});
        assert_eq!(shown[2]["inputSchema"], schema);
    }

    #[test]
    fn declared_effects_are_told_in_the_words_of_mcp() {
        let catalog = Catalog::from_text(
            "[provider]\nname = 'p'\nhandler = 'cli'\ncli_command = 'x'\n\
             [[tools]]\nname = 'wipe'\neffects = {destructive = true, network = false}\n\
             [[tools]]\nname = 'look'\n[tools.effects]\nidempotent = true\ndestructive = false\n\
             filesystem = {write = false, delete = false}\n\
             [[tools]]\nname = 'plain'",
        );
        let hints: Vec<Option<Value>> = catalog.tools().iter().map(|tool| hints(tool)).collect();
        let wipe = json!({"readOnlyHint": false, "destructiveHint": true, "openWorldHint": false});
        assert_eq!(hints[0], Some(wipe));
        let look = json!({"readOnlyHint": true, "destructiveHint": false, "idempotentHint": true});
        assert_eq!(hints[1], Some(look));
        assert_eq!(hints[2], None);
    }
}
