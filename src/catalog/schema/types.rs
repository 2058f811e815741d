//! The JSON types that a schema allows, as far as it says so in a way that is cheap to read.

use serde_json::Value;

/// A set of JSON types. The empty set: the schema doesn't say, so any.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Types(u8);

/// Parts of one schema that are looked at. A server's schema may refer to itself.
const MOST_PARTS: usize = 64;

const NAMES: [(&str, Types); 7] = [
    ("string", Types::STRING),
    ("integer", Types::INTEGER),
    ("number", Types::NUMBER),
    ("boolean", Types::BOOLEAN),
    ("array", Types::ARRAY),
    ("object", Types::OBJECT),
    ("null", Types::NULL),
];

impl Types {
    pub const STRING: Types = Types(1);
    pub const INTEGER: Types = Types(2);
    pub const NUMBER: Types = Types(4);
    pub const BOOLEAN: Types = Types(8);
    pub const ARRAY: Types = Types(16);
    pub const OBJECT: Types = Types(32);
    pub const NULL: Types = Types(64);

    /// `root` is the document that `$ref` points into.
    pub fn of(schema: &Value, root: &Value) -> Self {
        read(schema, root, &mut MOST_PARTS.clone())
    }

    pub fn is_any(self) -> bool {
        self == Types::default()
    }

    pub fn has(self, one: Types) -> bool {
        self.0 & one.0 != 0
    }

    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let known = NAMES.iter().filter(move |(_, one)| self.has(*one));
        known.map(|(name, _)| *name)
    }

    pub fn allow(self, value: &Value) -> bool {
        self.is_any()
            || match value {
                Value::Number(number) => {
                    let whole = !number.is_f64()
                        || number.as_f64().is_some_and(|number| number.fract() == 0.0);
                    self.has(Types::NUMBER) || (whole && self.has(Types::INTEGER))
                }
                value => self.has(Types::of_value(value)),
            }
    }

    fn of_value(value: &Value) -> Self {
        match value {
            Value::Null => Types::NULL,
            Value::Bool(_) => Types::BOOLEAN,
            Value::Number(_) => Types::NUMBER,
            Value::String(_) => Types::STRING,
            Value::Array(_) => Types::ARRAY,
            Value::Object(_) => Types::OBJECT,
        }
    }

    fn named(name: &str) -> Self {
        let known = NAMES.iter().find(|(known, _)| *known == name);
        known.map_or_else(Types::default, |(_, one)| *one)
    }

    pub(super) fn and(self, other: Types) -> Self {
        Types(self.0 | other.0)
    }
}

/// The schema of a list's items.
pub(super) fn items<'a>(schema: &'a Value, root: &'a Value) -> Option<&'a Value> {
    find_items(schema, root, &mut MOST_PARTS.clone())
}

fn read(schema: &Value, root: &Value, parts: &mut usize) -> Types {
    if !spend(parts) {
        return Types::default();
    }
    let own = match &schema["type"] {
        Value::String(one) => Types::named(one),
        Value::Array(several) => union(several.iter().filter_map(Value::as_str).map(Types::named)),
        _ => Types::default(),
    };
    if !own.is_any() {
        return own;
    }
    if let Some(target) = target(schema, root) {
        return read(target, root, parts);
    }
    for key in ["anyOf", "oneOf"] {
        if let Some(choices) = schema[key].as_array() {
            let each: Vec<Types> = choices.iter().map(|one| read(one, root, parts)).collect();
            // One choice that allows anything makes all of them allow it.
            let open = each.iter().any(|types| types.is_any());
            return if open {
                Types::default()
            } else {
                union(each.into_iter())
            };
        }
    }
    if let Some(all) = schema["allOf"].as_array() {
        let mut each = all.iter().map(|one| read(one, root, parts));
        return each.find(|types| !types.is_any()).unwrap_or_default();
    }
    match (&schema["enum"], schema.get("const")) {
        (Value::Array(values), _) => union(values.iter().map(Types::of_value)),
        (_, Some(value)) => Types::of_value(value),
        _ => Types::default(),
    }
}

fn find_items<'a>(schema: &'a Value, root: &'a Value, parts: &mut usize) -> Option<&'a Value> {
    if !spend(parts) {
        return None;
    }
    if let Some(items) = schema.get("items") {
        return Some(items);
    }
    if let Some(target) = target(schema, root) {
        return find_items(target, root, parts);
    }
    ["anyOf", "oneOf", "allOf"].iter().find_map(|key| {
        let choices = schema[*key].as_array()?;
        choices.iter().find_map(|one| find_items(one, root, parts))
    })
}

/// What a `$ref` into the same document points at.
fn target<'a>(schema: &Value, root: &'a Value) -> Option<&'a Value> {
    let pointer = schema.get("$ref")?.as_str()?.strip_prefix('#')?;
    root.pointer(pointer)
}

fn spend(parts: &mut usize) -> bool {
    let left = parts.checked_sub(1);
    *parts = left.unwrap_or(0);
    left.is_some()
}

fn union(types: impl Iterator<Item = Types>) -> Types {
    types.fold(Types::default(), Types::and)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn names(schema: Value) -> Vec<&'static str> {
        let root = json!({"$defs": {
            "Id": {"type": "string"},
            "Loop": {"$ref": "#/$defs/Loop"},
        }});
        Types::of(&schema, &root).names().collect()
    }

    #[test]
    fn types_are_read_through_references_and_choices() {
        assert_eq!(names(json!({"type": "string"})), ["string"]);
        assert_eq!(
            names(json!({"type": ["null", "integer"]})),
            ["integer", "null"]
        );
        // What pydantic writes for `Optional[str]`.
        assert_eq!(
            names(json!({"anyOf": [{"type": "string"}, {"type": "null"}]})),
            ["string", "null"]
        );
        assert_eq!(names(json!({"$ref": "#/$defs/Id"})), ["string"]);
        assert_eq!(
            names(json!({"allOf": [{"$ref": "#/$defs/Id"}], "default": "x"})),
            ["string"]
        );
        assert_eq!(names(json!({"enum": ["a", "1.10"]})), ["string"]);
        for open in [
            json!({}),
            json!(true),
            json!({"oneOf": [{"type": "string"}, {}]}),
            json!({"$ref": "#/$defs/Loop"}),
            json!({"$ref": "http://else.example/x"}),
        ] {
            assert!(names(open.clone()).is_empty(), "{open}");
        }
    }

    #[test]
    fn items_are_found_within_a_choice() {
        let optional = json!({"anyOf": [
            {"type": "array", "items": {"type": "string"}}, {"type": "null"},
        ]});
        let items = items(&optional, &optional).unwrap();
        assert_eq!(items, &json!({"type": "string"}));
    }
}
