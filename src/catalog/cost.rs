//! What a schema of a stranger costs to check against. References are followed as a validator does, each time anew: forty short definitions that each refer
//! twice to the next are a trillion steps.

use std::collections::HashMap;

use serde_json::Value;

/// Steps that one check may take.
const MOST: u64 = 100_000;
/// Nobody nests deeper.
const DEEPEST: usize = 64;

/// Whether checking takes a reasonable time, whatever is checked. A schema that refers to itself doesn't: how long that takes is up to whoever calls.
pub fn is_reasonable(schema: &Value) -> bool {
    let mut walk = Walk {
        root: schema,
        known: HashMap::new(),
    };
    walk.steps(schema, 0) <= MOST
}

struct Walk<'a> {
    root: &'a Value,
    /// What a reference costs; none while that is being found out.
    known: HashMap<&'a str, Option<u64>>,
}

impl<'a> Walk<'a> {
    fn steps(&mut self, value: &'a Value, depth: usize) -> u64 {
        const TOO_MUCH: u64 = MOST + 1;
        if depth > DEEPEST {
            return TOO_MUCH;
        }
        let mut steps: u64 = 1;
        match value {
            Value::Array(items) => {
                for item in items {
                    steps = steps.saturating_add(self.steps(item, depth + 1));
                }
            }
            Value::Object(map) => {
                for (key, value) in map {
                    let more = match (key.as_str(), value) {
                        ("$ref" | "$dynamicRef" | "$recursiveRef", Value::String(to)) => {
                            self.reference(to, depth)
                        }
                        // What is only defined costs nothing until somebody refers to it.
                        ("$defs" | "definitions", _) => 0,
                        (_, value) => self.steps(value, depth + 1),
                    };
                    steps = steps.saturating_add(more);
                }
            }
            _ => {}
        }
        steps.min(TOO_MUCH)
    }

    fn reference(&mut self, to: &'a str, depth: usize) -> u64 {
        match self.known.get(to) {
            Some(Some(steps)) => return *steps,
            Some(None) => return MOST + 1,
            None => {}
        }
        self.known.insert(to, None);
        let root = self.root;
        let found = to
            .strip_prefix('#')
            .and_then(|pointer| root.pointer(pointer));
        // One that leads nowhere we know of is not followed by a validator either: it can't be compiled.
        let steps = found.map_or(1, |value| self.steps(value, depth + 1));
        self.known.insert(to, Some(steps));
        steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn bombs_are_told_from_schemas() {
        let good = json!({
            "type": "object",
            "properties": {"a": {"$ref": "#/$defs/x"}, "b": {"anyOf": [{"$ref": "#/$defs/x"}, {"type": "null"}]}},
            "$defs": {"x": {"type": "object", "properties": {"n": {"type": "integer"}}}},
        });
        assert!(is_reasonable(&good));
        assert!(is_reasonable(&json!({})) && is_reasonable(&Value::Null));
        let mut definitions = serde_json::Map::new();
        for n in 0..40 {
            let next = format!("#/$defs/d{}", n + 1);
            definitions.insert(
                format!("d{n}"),
                json!({"allOf": [{"$ref": next}, {"$ref": next}]}),
            );
        }
        definitions.insert("d40".to_owned(), json!({"type": "object"}));
        assert!(!is_reasonable(
            &json!({"$ref": "#/$defs/d0", "$defs": definitions})
        ));
        let itself = json!({"properties": {"child": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}}});
        assert!(!is_reasonable(&itself));
        let mut deep = json!({});
        for _ in 0..100 {
            deep = json!({"items": deep});
        }
        assert!(!is_reasonable(&deep));
    }
}
