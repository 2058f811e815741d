//! Estimates what an MCP server's schema costs to compile, and to apply once. References are
//! followed each time anew, as a validator does: forty short definitions that each refer twice to
//! the next are a trillion steps. What validation of a given value costs is counted in
//! `schema/steps.rs`.

use std::collections::HashMap;

use serde_json::Value;

/// Steps that one validation may take.
const MOST: u64 = 100_000;
const TOO_MUCH: u64 = MOST + 1;
/// Steps for each pattern: a compiled one takes up to 128 KiB, and a few milliseconds to make.
const PATTERN: u64 = 200;
/// Levels of nesting; a deeper schema counts as too costly.
const DEEPEST: usize = 64;

/// Whether validation takes a bounded time for every argument. It does not for a schema that refers
/// to itself: there the argument's depth decides.
pub fn is_reasonable(schema: &Value) -> bool {
    let mut walk = Walk {
        root: schema,
        known: HashMap::new(),
    };
    walk.steps(schema, 0) <= MOST
}

struct Walk<'a> {
    root: &'a Value,
    /// The cost of each reference; None while it is being computed.
    known: HashMap<&'a str, Option<u64>>,
}

impl<'a> Walk<'a> {
    fn steps(&mut self, value: &'a Value, depth: usize) -> u64 {
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
                        ("pattern", Value::String(_)) => PATTERN,
                        ("patternProperties", Value::Object(patterns)) => {
                            let patterns = PATTERN.saturating_mul(patterns.len() as u64);
                            patterns.saturating_add(self.steps(value, depth + 1))
                        }
                        // An `$id` changes the base that references resolve against.
                        ("$id", Value::String(_)) if depth > 0 => TOO_MUCH,
                        // Definitions cost nothing until they are referred to.
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
            Some(None) => return TOO_MUCH,
            None => {}
        }
        self.known.insert(to, None);
        let root = self.root;
        let found = to
            .strip_prefix('#')
            .and_then(|pointer| root.pointer(pointer));
        // A validator resolves more forms of references: anchors, percent signs, whole URLs.
        let steps = found.map_or(TOO_MUCH, |value| self.steps(value, depth + 1));
        self.known.insert(to, Some(steps));
        steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn exponential_schema_is_too_costly_and_ordinary_ones_are_not() {
        let good = json!({
            "type": "object",
            "properties": {"a": {"$ref": "#/$defs/x"}, "b": {"anyOf": [{"$ref": "#/$defs/x"}, {"type": "null"}]}},
            "$defs": {"x": {"type": "object", "properties": {"n": {"type": "integer"}}}},
        });
        assert!(is_reasonable(&good));
        assert!(is_reasonable(&json!({})) && is_reasonable(&Value::Null));
        // In every form of a reference.
        let ways = [
            ("#/$defs/d", ""),
            ("#/%24defs/d", ""),
            ("#d", ""),
            ("https://x.test/a#/$defs/d", "https://x.test/a"),
        ];
        for (way, id) in ways {
            let mut definitions = serde_json::Map::new();
            for n in 0..40 {
                let next = json!({"$ref": format!("{way}{}", n + 1)});
                let both = json!({"$anchor": format!("d{n}"), "allOf": [next, next]});
                definitions.insert(format!("d{n}"), both);
            }
            definitions.insert("d40".to_owned(), json!({"$anchor": "d40"}));
            let bomb = json!({"$id": id, "$ref": format!("{way}0"), "$defs": definitions});
            assert!(!is_reasonable(&bomb), "{way}");
        }
        // With an `$id` inside, a reference resolves against another base.
        let inside =
            json!({"properties": {"a": {"$id": "b", "$ref": "#/$defs/x", "$defs": {"x": {}}}}});
        assert!(!is_reasonable(&inside));
        assert!(is_reasonable(
            &json!({"properties": {"$id": {"type": "string"}}})
        ));
        let patterns = |count: usize| json!({"allOf": vec![json!({"pattern": "\\pL{30}"}); count]});
        assert!(is_reasonable(&patterns(100)) && !is_reasonable(&patterns(1000)));
        let itself = json!({"properties": {"child": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}}});
        assert!(!is_reasonable(&itself));
        let mut deep = json!({});
        for _ in 0..100 {
            deep = json!({"items": deep});
        }
        assert!(!is_reasonable(&deep));
    }
}
