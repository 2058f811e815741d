//! What a JSON schema allows, as far as types of programming languages can say it.

use serde_json::Value;

/// A schema may refer to itself. Deeper than this, anything is allowed.
const DEEPEST: usize = 6;
/// Choices that are written out. A longer list is of no use to a reader.
const MOST_CHOICES: usize = 64;

#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    Any,
    Null,
    Boolean,
    Integer,
    Number,
    Text,
    List(Box<Kind>),
    Object(Vec<Field>),
    /// An object whose members aren't known.
    Map,
    /// Texts, integers, booleans and null.
    Choice(Vec<Value>),
    OneOf(Vec<Kind>),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    pub name: String,
    pub kind: Kind,
    pub is_required: bool,
    pub description: String,
}

/// The arguments of a tool: those that it needs first.
pub fn fields(schema: &Value) -> Vec<Field> {
    let mut fields = members(schema, schema, 0);
    fields.sort_by_key(|field| !field.is_required);
    fields
}

fn members(schema: &Value, root: &Value, depth: usize) -> Vec<Field> {
    let required = schema["required"].as_array();
    let is_required = |name: &str| required.is_some_and(|list| list.iter().any(|one| one == name));
    let properties = schema["properties"].as_object().into_iter().flatten();
    properties
        .map(|(name, property)| Field {
            name: name.clone(),
            kind: kind(property, root, depth + 1),
            is_required: is_required(name),
            description: property["description"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
        })
        .collect()
}

fn kind(schema: &Value, root: &Value, depth: usize) -> Kind {
    if depth > DEEPEST {
        return Kind::Any;
    }
    let of = |schema: &Value| kind(schema, root, depth + 1);
    if let Some(target) = schema["$ref"].as_str() {
        let found = target.strip_prefix('#').and_then(|at| root.pointer(at));
        return found.map_or(Kind::Any, of);
    }
    let choices = match &schema["enum"] {
        Value::Array(list) => list.clone(),
        _ => schema.get("const").cloned().into_iter().collect(),
    };
    let is_plain = |value: &Value| {
        value.is_string() || value.is_i64() || value.is_boolean() || value.is_null()
    };
    if (1..=MOST_CHOICES).contains(&choices.len()) && choices.iter().all(is_plain) {
        return Kind::Choice(choices);
    }
    for word in ["anyOf", "oneOf"] {
        if let Some(list) = schema[word].as_array() {
            return one_of(list.iter().map(of).collect());
        }
    }
    if let Some([only]) = schema["allOf"].as_array().map(Vec::as_slice) {
        return of(only);
    }
    match &schema["type"] {
        Value::String(name) => named(name, schema, root, depth),
        Value::Array(names) => {
            let names = names.iter().filter_map(Value::as_str);
            one_of(names.map(|name| named(name, schema, root, depth)).collect())
        }
        _ if schema["properties"].is_object() => named("object", schema, root, depth),
        _ => Kind::Any,
    }
}

fn named(name: &str, schema: &Value, root: &Value, depth: usize) -> Kind {
    match name {
        "null" => Kind::Null,
        "boolean" => Kind::Boolean,
        "integer" => Kind::Integer,
        "number" => Kind::Number,
        "string" => Kind::Text,
        "array" => Kind::List(Box::new(kind(&schema["items"], root, depth + 1))),
        "object" => match members(schema, root, depth) {
            members if members.is_empty() => Kind::Map,
            members => Kind::Object(members),
        },
        _ => Kind::Any,
    }
}

fn one_of(kinds: Vec<Kind>) -> Kind {
    let mut each: Vec<Kind> = Vec::new();
    for kind in kinds {
        if kind == Kind::Any {
            return Kind::Any;
        }
        if !each.contains(&kind) {
            each.push(kind);
        }
    }
    match each.len() {
        0 => Kind::Any,
        1 => each.remove(0),
        _ => Kind::OneOf(each),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(schema: Value) -> Kind {
        kind(&schema, &schema, 0)
    }

    #[test]
    fn schema_becomes_the_nearest_type() {
        assert_eq!(of(json!({"type": "string"})), Kind::Text);
        assert_eq!(
            of(json!({"enum": ["a", 1]})),
            Kind::Choice(vec![json!("a"), json!(1)])
        );
        assert_eq!(of(json!({"enum": [1.5], "type": "number"})), Kind::Number);
        assert_eq!(
            of(json!({"type": ["integer", "null"]})),
            Kind::OneOf(vec![Kind::Integer, Kind::Null])
        );
        assert_eq!(
            of(
                json!({"type": "array", "items": {"anyOf": [{"type": "number"}, {"type": "number"}]}})
            ),
            Kind::List(Box::new(Kind::Number))
        );
        assert_eq!(of(json!({"type": "object"})), Kind::Map);
        for any in [
            json!({}),
            json!(true),
            json!({"anyOf": [{}, {"type": "null"}]}),
            json!({"$ref": "http://x"}),
        ] {
            assert_eq!(of(any), Kind::Any);
        }
    }

    #[test]
    fn schema_that_refers_to_itself_ends() {
        let schema = json!({
            "properties": {"tree": {"$ref": "#/$defs/node"}},
            "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}},
        });
        let fields = fields(&schema);
        assert!(matches!(fields[0].kind, Kind::Object(_)));
    }
}
