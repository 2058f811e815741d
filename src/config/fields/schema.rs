use serde_json::{Map, Value, json};

use super::tools::METHODS;
use super::{FieldKind, fields_of};

/// A JSON Schema of manifests.
pub fn json_schema() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "ATI manifest",
        "type": "object",
        "required": ["provider"],
        "properties": {
            "provider": table_schema("provider", &["name"]),
            "tools": {"type": "array", "items": table_schema("tools", &["name"])},
        },
        "additionalProperties": false,
    })
}

fn table_schema(table: &str, required: &[&str]) -> Value {
    let mut properties = Map::new();
    for field in fields_of(table) {
        let mut schema = kind_schema(field.kind);
        schema["description"] = json!(field.meaning);
        properties.insert(field.name.to_owned(), schema);
    }
    let mut schema =
        json!({"type": "object", "properties": properties, "additionalProperties": false});
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

fn kind_schema(kind: FieldKind) -> Value {
    match kind {
        FieldKind::Text => json!({"type": "string"}),
        FieldKind::Flag => json!({"type": "boolean"}),
        FieldKind::Number => json!({"type": "integer", "minimum": 0}),
        FieldKind::TextList => json!({"type": "array", "items": {"type": "string"}}),
        FieldKind::TextMap => {
            json!({"type": "object", "additionalProperties": {"type": "string"}})
        }
        FieldKind::NumberMap => {
            json!({"type": "object", "additionalProperties": {"type": "integer", "minimum": 0}})
        }
        // Methods are case-insensitive, which `enum` can't say.
        FieldKind::Word(words) if words == METHODS => json!({"type": "string"}),
        FieldKind::Word(words) => json!({"enum": words}),
        FieldKind::Free => json!({}),
        FieldKind::Table(name) => table_schema(name, &[]),
        FieldKind::TableMap(name) => {
            json!({"type": "object", "additionalProperties": table_schema(name, &[])})
        }
    }
}
