//! Arguments of which some values aren't known yet: what can be said about the others.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use super::{Prepared, Schema, Unfit};
use crate::catalog::words::Words;

impl Schema {
    /// As [`Schema::prepare`], where the arguments of `given` are there, too, with values that
    /// aren't known yet.
    pub fn prepare_partly(
        &self,
        mut args: Map<String, Value>,
        words: &Words<'_>,
        given: &HashSet<String>,
    ) -> Result<Prepared, Unfit> {
        if given.is_empty() {
            return self.prepare(args, words);
        }
        let mut names = HashSet::new();
        let names_all = self.complete || self.value["additionalProperties"] == false;
        for name in given {
            match self.meant(name) {
                Some(place) => names.insert(self.properties[place].name.as_str()),
                None => names.insert(name),
            };
            if names_all && !self.has(name) {
                args.insert(name.clone(), Value::Null);
            }
        }
        let mut value = self.value.clone();
        assume(&mut value, &names);
        match Schema::untrusted(value).prepare(args, words) {
            // Some part of the schema asks for it that wasn't changed, so no more can be said.
            Err(unfit) if unfit.missing && names.contains(unfit.name.as_str()) => Ok(Prepared {
                args: Map::new(),
                unknown: Vec::new(),
            }),
            prepared => prepared,
        }
    }
}

/// Changes a schema to what it says where these arguments are given and fit. What depends on their
/// values is left out.
fn assume(schema: &mut Value, names: &HashSet<&str>) {
    let Value::Object(keywords) = schema else {
        return;
    };
    for unclear in ["minProperties", "if", "then", "else", "not"] {
        keywords.shift_remove(unclear);
    }
    let mut wanted = Vec::new();
    if let Some(Value::Object(dependent)) = keywords.shift_remove("dependentRequired") {
        let given = dependent
            .into_iter()
            .filter(|(name, _)| names.contains(name.as_str()));
        wanted.extend(given.filter_map(|(_, list)| match list {
            Value::Array(list) => Some(list),
            _ => None,
        }));
    }
    if let Some(Value::Array(required)) = keywords.shift_remove("required") {
        wanted.push(required);
    }
    let is_open = |name: &Value| name.as_str().is_some_and(|name| names.contains(name));
    let mut wanted: Vec<Value> = wanted.into_iter().flatten().collect();
    wanted.retain(|name| !is_open(name));
    wanted.dedup();
    if !wanted.is_empty() {
        keywords.insert("required".to_owned(), Value::Array(wanted));
    }
    if let Some(Value::Object(properties)) = keywords.get_mut("properties") {
        for (name, property) in properties.iter_mut() {
            if names.contains(name.as_str()) {
                *property = json!({});
            }
        }
    }
    // More than one may fit, as long as a value isn't known.
    if let Some(one_of) = keywords.shift_remove("oneOf") {
        let any_of = json!({"anyOf": one_of});
        match keywords.get_mut("allOf") {
            Some(Value::Array(all)) => all.push(any_of),
            _ => {
                keywords.insert("allOf".to_owned(), json!([any_of]));
            }
        }
    }
    for several in ["allOf", "anyOf"] {
        let parts = keywords.get_mut(several).and_then(Value::as_array_mut);
        for part in parts.into_iter().flatten() {
            assume(part, names);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partly(schema: &Value, args: Value, given: &[&str]) -> Result<usize, String> {
        let Value::Object(args) = args else {
            unreachable!()
        };
        let given = given.iter().map(|name| (*name).to_owned()).collect();
        let schema = Schema::new(schema.clone());
        let prepared = schema.prepare_partly(args, &Words::default(), &given);
        let prepared = prepared.map_err(|unfit| unfit.name)?;
        Ok(prepared.unknown.len())
    }

    #[test]
    fn value_that_is_not_known_does_not_hide_what_is_wrong_with_the_others() {
        let order = json!({
            "type": "object",
            "required": ["part", "from"],
            "properties": {
                "part": {"type": "string", "default": "x"},
                "from": {"type": "string"},
                "n": {"type": "integer"},
            },
        });
        let fits = |args: Value, given: &[&str]| partly(&order, args, given);
        assert_eq!(fits(json!({"from": "a", "n": 1}), &["part"]), Ok(0));
        assert_eq!(fits(json!({}), &["PART", "from"]), Ok(0));
        assert_eq!(fits(json!({}), &["part"]), Err("from".to_owned()));
        let wrong = json!({"from": "a", "n": "abc"});
        assert_eq!(fits(wrong, &["part"]), Err("n".to_owned()));
        // Names that the schema doesn't have, with a value and without.
        assert_eq!(fits(json!({"from": "a", "bogus": 1}), &["part"]), Ok(1));
        assert_eq!(fits(json!({"from": "a"}), &["part", "bogus"]), Ok(1));
        let mut strict = order.clone();
        strict["additionalProperties"] = json!(false);
        let strict = |args: Value, given: &[&str]| partly(&strict, args, given);
        assert_eq!(strict(json!({"from": "a"}), &["part"]), Ok(0));
        let refused = Err("bogus".to_owned());
        assert_eq!(strict(json!({"from": "a"}), &["part", "bogus"]), refused);
    }

    #[test]
    fn parts_of_a_schema_know_what_is_given() {
        let either = json!({
            "properties": {"a": {}, "b": {}, "c": {"type": "integer"}},
            "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
            "dependentRequired": {"a": ["c"]},
            "minProperties": 2,
        });
        let fits = |args: Value, given: &[&str]| partly(&either, args, given);
        assert_eq!(fits(json!({"c": 1}), &["a"]), Ok(0));
        assert_eq!(fits(json!({}), &["b"]), Ok(0));
        assert_eq!(fits(json!({}), &["a"]), Err("c".to_owned()));
        assert!(fits(json!({}), &["c"]).is_err());
        let named = json!({
            "properties": {"kind": {"enum": ["x", "y"]}, "x": {}, "y": {}},
            "oneOf": [
                {"properties": {"kind": {"const": "x"}}, "required": ["kind", "x"]},
                {"properties": {"kind": {"const": "y"}}, "required": ["kind", "y"]},
            ],
        });
        assert_eq!(partly(&named, json!({"x": 1}), &["kind"]), Ok(0));
        assert!(partly(&named, json!({}), &["kind"]).is_err());
        // A part that isn't looked into doesn't refuse what may well run.
        let referred = json!({
            "$ref": "#/$defs/all",
            "$defs": {"all": {"required": ["a"], "properties": {"a": {"type": "string"}}}},
        });
        assert_eq!(partly(&referred, json!({}), &["a"]), Ok(0));
    }
}
