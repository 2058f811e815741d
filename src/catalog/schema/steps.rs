//! How many steps the validation of one value takes. A subschema counts as often as it is applied:
//! `items` once for each item, a reference each time it is followed.

use serde_json::Value;

/// Steps of a validation that a worker does itself: about a millisecond.
pub(super) const CHEAP: u64 = 50_000;
/// Steps of a validation that is done at all: about half a second. A validation can't be
/// interrupted.
pub(super) const MOST: u64 = 20_000_000;
/// How often a pattern with look-around or back-references may go back before it gives up.
pub(super) const MOST_BACKTRACKS: u64 = 10_000;
/// Levels of nested subschemas. A schema that refers to itself without looking deeper into the
/// value has no end.
const DEEPEST: usize = 600;
/// States of a compiled pattern, which its size limit allows.
const MOST_STATES: u64 = 4096;

/// Whether validation takes more steps than that. Looking takes about as long, and ends there.
pub(super) fn exceed(schema: &Value, value: &Value, most: u64) -> bool {
    let mut count = Count {
        root: schema,
        left: most,
        whole: None,
    };
    count.apply(schema, value, 1, 0).is_err()
}

/// Values in a value, itself included.
pub(super) fn nodes(value: &Value) -> u64 {
    match value {
        Value::Array(items) => 1 + items.iter().map(nodes).sum::<u64>(),
        Value::Object(map) => 1 + map.values().map(nodes).sum::<u64>(),
        _ => 1,
    }
}

struct TooMuch;

struct Count<'a> {
    root: &'a Value,
    left: u64,
    /// Nodes of the whole schema, once they were counted.
    whole: Option<u64>,
}

impl<'a> Count<'a> {
    fn spend(&mut self, times: u64, steps: u64) -> Result<(), TooMuch> {
        let left = self.left.checked_sub(times.saturating_mul(steps));
        self.left = left.ok_or(TooMuch)?;
        Ok(())
    }

    /// `times` is how often the validator applies it.
    fn apply(
        &mut self,
        schema: &'a Value,
        value: &Value,
        times: u64,
        depth: usize,
    ) -> Result<(), TooMuch> {
        self.spend(times, 1)?;
        if depth > DEEPEST {
            return Err(TooMuch);
        }
        let Value::Object(keywords) = schema else {
            return Ok(());
        };
        let unevaluated = ["unevaluatedProperties", "unevaluatedItems"];
        let times = if unevaluated.iter().any(|key| keywords.contains_key(*key)) {
            // The other keywords are asked about each child again.
            times.saturating_mul(1 + children(value))
        } else {
            times
        };
        for (keyword, sub) in keywords {
            self.spend(times, 1)?;
            self.keyword(keyword, sub, value, times, depth + 1)?;
        }
        if let Some(more) = keywords.get("additionalProperties")
            && let Value::Object(map) = value
        {
            let own = keywords.get("properties").and_then(Value::as_object);
            for (name, value) in map {
                self.spend(times, 1)?;
                if own.is_none_or(|own| !own.contains_key(name)) {
                    self.apply(more, value, times, depth + 1)?;
                }
            }
        }
        Ok(())
    }

    fn keyword(
        &mut self,
        keyword: &str,
        sub: &'a Value,
        value: &Value,
        times: u64,
        depth: usize,
    ) -> Result<(), TooMuch> {
        match (keyword, sub, value) {
            ("$ref" | "$dynamicRef" | "$recursiveRef", Value::String(to), _) => {
                self.reference(to, value, times, depth)
            }
            ("allOf", Value::Array(parts), _) => self.all(parts, value, times, depth),
            // Where no part fits, all are applied again for the reason.
            ("anyOf" | "oneOf", Value::Array(parts), _) => {
                self.all(parts, value, times.saturating_mul(3), depth)
            }
            ("not" | "if" | "then" | "else", _, _) => self.apply(sub, value, times, depth),
            ("properties", Value::Object(own), Value::Object(map)) => {
                self.spend(times, own.len() as u64)?;
                for (name, sub) in own {
                    if let Some(value) = map.get(name) {
                        self.apply(sub, value, times, depth)?;
                    }
                }
                Ok(())
            }
            ("dependentSchemas" | "dependencies", Value::Object(own), Value::Object(map)) => {
                for (name, sub) in own {
                    self.spend(times, 1)?;
                    if map.contains_key(name) {
                        self.apply(sub, value, times, depth)?;
                    }
                }
                Ok(())
            }
            ("patternProperties", Value::Object(own), Value::Object(map)) => {
                for (pattern, sub) in own {
                    for (name, value) in map {
                        self.spend(times, matching(pattern, name))?;
                        self.apply(sub, value, times, depth)?;
                    }
                }
                Ok(())
            }
            ("unevaluatedProperties", _, Value::Object(map)) => map
                .values()
                .try_for_each(|v| self.apply(sub, v, times, depth)),
            ("propertyNames", _, Value::Object(map)) => map
                .keys()
                .try_for_each(|name| self.apply(sub, &Value::String(name.clone()), times, depth)),
            ("prefixItems" | "items", Value::Array(parts), Value::Array(items)) => {
                let mut pairs = parts.iter().zip(items);
                pairs.try_for_each(|(sub, item)| self.apply(sub, item, times, depth))
            }
            (
                "items" | "additionalItems" | "unevaluatedItems" | "contains",
                _,
                Value::Array(items),
            ) => items
                .iter()
                .try_for_each(|item| self.apply(sub, item, times, depth)),
            ("pattern", Value::String(pattern), Value::String(text)) => {
                self.spend(times, matching(pattern, text))
            }
            ("format" | "minLength" | "maxLength", _, Value::String(text)) => {
                self.spend(times, text.len() as u64 / 8)
            }
            ("enum", Value::Array(options), Value::Array(_) | Value::Object(_)) => options
                .iter()
                .try_for_each(|option| self.visit(option, times)),
            ("enum" | "required" | "type", Value::Array(options), _) => {
                self.spend(times, options.len() as u64)
            }
            ("const", _, Value::Array(_) | Value::Object(_)) => self.visit(sub, times),
            ("uniqueItems", Value::Bool(true), Value::Array(items)) => {
                let times = times.saturating_mul(4);
                items.iter().try_for_each(|item| self.visit(item, times))
            }
            _ => Ok(()),
        }
    }

    fn all(
        &mut self,
        parts: &'a [Value],
        value: &Value,
        times: u64,
        depth: usize,
    ) -> Result<(), TooMuch> {
        parts
            .iter()
            .try_for_each(|part| self.apply(part, value, times, depth))
    }

    fn reference(
        &mut self,
        to: &'a str,
        value: &Value,
        times: u64,
        depth: usize,
    ) -> Result<(), TooMuch> {
        let root = self.root;
        let found = to.strip_prefix('#').and_then(|to| root.pointer(to));
        if let Some(schema) = found {
            return self.apply(schema, value, times, depth);
        }
        // A form that only the validator resolves: an anchor, a whole URL. Everything that the
        // schema has may be applied to everything that the value has.
        let whole = *self.whole.get_or_insert_with(|| nodes(root));
        self.visit(value, times.saturating_mul(whole))
    }

    /// Every value in a value, once.
    fn visit(&mut self, value: &Value, times: u64) -> Result<(), TooMuch> {
        self.spend(times, 1)?;
        match value {
            Value::Array(items) => items.iter().try_for_each(|item| self.visit(item, times)),
            Value::Object(map) => map.values().try_for_each(|value| self.visit(value, times)),
            Value::String(text) => self.spend(times, text.len() as u64 / 64),
            _ => Ok(()),
        }
    }
}

fn children(value: &Value) -> u64 {
    match value {
        Value::Array(items) => items.len() as u64,
        Value::Object(map) => map.len() as u64,
        _ => 0,
    }
}

/// Steps for a pattern on a text.
fn matching(pattern: &str, text: &str) -> u64 {
    const BACKTRACKING: [&str; 9] = ["(?=", "(?!", "(?<", "(?>", "\\k", "++", "*+", "?+", "}+"];
    let length = text.len() as u64;
    let refers_back = || {
        let mut bytes = pattern.bytes();
        std::iter::from_fn(|| bytes.by_ref().find(|b| *b == b'\\').map(|_| bytes.next()))
            .any(|after| after.is_some_and(|b| matches!(b, b'1'..=b'9')))
    };
    if BACKTRACKING.iter().any(|form| pattern.contains(form)) || refers_back() {
        let tries = 1_u64.checked_shl(text.len().min(32) as u32);
        let tries = tries.unwrap_or(MOST_BACKTRACKS).min(MOST_BACKTRACKS);
        return tries.saturating_mul(1 + length / 32);
    }
    4 + length.saturating_mul(states(pattern)) / 32
}

/// About how many states a pattern has: `a{50}` has fifty.
fn states(pattern: &str) -> u64 {
    let repeats = pattern.split('{').skip(1).filter_map(|rest| {
        let counts = rest.split('}').next()?.split(',');
        counts.filter_map(|count| count.parse::<u64>().ok()).max()
    });
    let length = pattern.len() as u64;
    repeats.fold(length, |states, times| {
        states.saturating_mul(times.max(1)).min(MOST_STATES)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn subschema_counts_as_often_as_it_is_applied() {
        let part = json!({"not": {"const": 0}});
        let items = json!({"allOf": vec![part.clone(); 9000]});
        let list = |count: usize| json!(vec!["y"; count]);
        // Each way in which a schema can be applied to many values.
        for schema in [
            json!({"items": items}),
            json!({"contains": items}),
            json!({"$ref": "#/$defs/l", "$defs": {"l": {"items": items}}}),
            json!({"unevaluatedItems": items}),
        ] {
            assert!(!exceed(&schema, &list(10), MOST), "{}", schema["$ref"]);
            assert!(exceed(&schema, &list(190_000), MOST));
            assert!(exceed(&schema, &list(10), CHEAP));
        }
        let map: Value = (0..10_000)
            .map(|n| (format!("k{n}"), json!(1)))
            .collect::<serde_json::Map<_, _>>()
            .into();
        for keyword in [
            "additionalProperties",
            "propertyNames",
            "unevaluatedProperties",
        ] {
            assert!(exceed(&json!({keyword: items}), &map, MOST), "{keyword}");
            assert!(
                !exceed(&json!({keyword: part}), &json!({"a": 1}), CHEAP),
                "{keyword}"
            );
        }
        assert!(exceed(
            &json!({"patternProperties": {"^k": items}}),
            &map,
            MOST
        ));
    }

    #[test]
    fn references_without_end_are_too_costly() {
        assert!(exceed(&json!({"$ref": "#"}), &json!(1), MOST));
        let mut definitions = serde_json::Map::new();
        for n in 0..40 {
            let next = json!({"$ref": format!("#/$defs/d{}", n + 1)});
            definitions.insert(format!("d{n}"), json!({"allOf": [next, next]}));
        }
        definitions.insert("d40".to_owned(), json!({}));
        let bomb = json!({"$ref": "#/$defs/d0", "$defs": definitions});
        assert!(exceed(&bomb, &json!(1), MOST));
        // A tree that ends with the value is no bomb.
        let tree = json!({"properties": {"child": {"$ref": "#"}}});
        assert!(!exceed(&tree, &json!({"child": {"child": {}}}), CHEAP));
    }

    #[test]
    fn patterns_count_by_what_they_may_take() {
        let uuid = "123e4567-e89b-12d3-a456-426614174000";
        let plain = json!({"items": {"pattern": "^[0-9a-f-]{36}$"}});
        assert!(!exceed(&plain, &json!(vec![uuid; 10]), CHEAP));
        assert!(!exceed(&plain, &json!(vec![uuid; 5000]), MOST));
        let looking = json!({"items": {"pattern": "^(?!-)((a+)+)$"}});
        assert!(!exceed(&looking, &json!([uuid]), CHEAP));
        assert!(exceed(&looking, &json!(vec![uuid; 5000]), MOST));
        assert!(exceed(
            &json!({"items": {"pattern": "(a+)\\1"}}),
            &json!(vec![uuid; 5000]),
            MOST
        ));
    }
}
