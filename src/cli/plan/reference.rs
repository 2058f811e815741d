//! `{{steps.N.path}}` in an argument: what an earlier step gave.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::text::clip_chars;

/// Levels of nested values that are looked into.
const DEEPEST: usize = 64;
/// Characters of a mistake that are shown.
const LONGEST_SHOWN: usize = 80;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    /// From 0.
    pub step: usize,
    path: Vec<String>,
    /// As it is written.
    pub text: String,
}

/// The references in a value, in its strings and in those of its members.
pub fn in_value(value: &Value) -> Result<Vec<Reference>, String> {
    let mut found = Vec::new();
    collect(value, DEEPEST, &mut found)?;
    Ok(found)
}

fn collect(value: &Value, depth: usize, found: &mut Vec<Reference>) -> Result<(), String> {
    if depth == 0 {
        return Err("it is nested too deep".to_owned());
    }
    match value {
        Value::String(text) => {
            for part in parts(text) {
                match part {
                    Part::Reference(text) => found.push(Reference::parse(text)?),
                    Part::Text(text) => check_text(text)?,
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                collect(item, depth - 1, found)?;
            }
        }
        Value::Object(members) => {
            for member in members.values() {
                collect(member, depth - 1, found)?;
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
    Ok(())
}

/// The value with the results in place of the references. A string that is one reference becomes
/// what it refers to; in a longer string, the text of it.
pub fn resolve(value: &Value, results: &BTreeMap<usize, Value>) -> Result<Value, String> {
    Ok(match value {
        Value::String(text) => {
            let parts: Vec<Part<'_>> = parts(text).collect();
            if let [Part::Reference(text)] = parts.as_slice() {
                return Ok(Reference::parse(text)?.find(results)?.into_value());
            }
            let mut whole = String::new();
            for part in parts {
                match part {
                    Part::Text(text) => whole += text,
                    Part::Reference(text) => match Reference::parse(text)?.find(results)? {
                        Found::Borrowed(Value::String(text)) => whole += text,
                        Found::Owned(Value::String(text)) => whole += &text,
                        other => whole += &other.into_value().to_string(),
                    },
                }
            }
            Value::String(whole)
        }
        Value::Array(items) => {
            let items = items.iter().map(|item| resolve(item, results));
            Value::Array(items.collect::<Result<_, _>>()?)
        }
        Value::Object(members) => {
            let members = members.iter();
            let members = members.map(|(name, value)| Ok((name.clone(), resolve(value, results)?)));
            Value::Object(members.collect::<Result<_, String>>()?)
        }
        other => other.clone(),
    })
}

enum Part<'a> {
    Text(&'a str),
    /// With its braces.
    Reference(&'a str),
}

/// A string, cut at its references. Other texts in double braces stay as they are.
fn parts(text: &str) -> impl Iterator<Item = Part<'_>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let Some((start, end)) = next_reference(rest) else {
            return Some(Part::Text(std::mem::take(&mut rest)));
        };
        let taken = if start > 0 { start } else { end };
        let (part, after) = rest.split_at(taken);
        rest = after;
        Some(match start {
            0 => Part::Reference(part),
            _ => Part::Text(part),
        })
    })
}

fn next_reference(text: &str) -> Option<(usize, usize)> {
    text.match_indices("{{").find_map(|(start, _)| {
        let inside = &text[start + 2..];
        let length = inside.find("}}")?;
        let is_one = inside[..length].trim_start().starts_with("steps.");
        is_one.then_some((start, start + 2 + length + 2))
    })
}

/// A text that begins like a reference and is none is a mistake, and would be sent as it is.
fn check_text(text: &str) -> Result<(), String> {
    for (start, _) in text.match_indices("{{") {
        let written = &text[start..];
        let inside = written.trim_start_matches(|c: char| c == '{' || c.is_whitespace());
        let word = inside.get(..4).unwrap_or_default();
        if word.eq_ignore_ascii_case("step") {
            let end = written.find("}}").map_or(written.len(), |end| end + 2);
            let shown = clip_chars(&written[..end], LONGEST_SHOWN);
            return Err(format!(
                "{shown}: what an earlier step gave is written {{{{steps.N.path}}}}, such as \
                 {{{{steps.1.data.0.id}}}}"
            ));
        }
    }
    Ok(())
}

impl Reference {
    fn parse(text: &str) -> Result<Self, String> {
        let inside = text.trim_start_matches("{{").trim_end_matches("}}").trim();
        let inside = inside.strip_prefix("steps.").unwrap_or_default();
        if inside.contains(['{', '}']) {
            let shown = clip_chars(text, LONGEST_SHOWN);
            return Err(format!("{shown}: a reference ends with }}}}"));
        }
        // `data[0].id` is `data.0.id`.
        let dotted = inside.replace('[', ".").replace(']', "");
        let mut path = dotted.split('.').map(str::to_owned);
        let number = path.next().and_then(|number| number.parse::<usize>().ok());
        let Some(step) = number.and_then(|number| number.checked_sub(1)) else {
            return Err(format!(
                "{text}: after 'steps.' comes the number of a step, from 1"
            ));
        };
        let path: Vec<String> = path.collect();
        if path.iter().any(String::is_empty) {
            return Err(format!("{text}: a part of the path is empty"));
        }
        Ok(Reference {
            step,
            path,
            text: text.to_owned(),
        })
    }

    fn find<'r>(&self, results: &'r BTreeMap<usize, Value>) -> Result<Found<'r>, String> {
        let Some(result) = results.get(&self.step) else {
            let n = self.step + 1;
            return Err(format!("{}: there is no result of step {n}", self.text));
        };
        let mut found = Found::Borrowed(result);
        for part in &self.path {
            let next = found.member(part);
            found = next.ok_or_else(|| {
                let n = self.step + 1;
                format!(
                    "{}: the result of step {n} has no '{part}' there",
                    self.text
                )
            })?;
        }
        Ok(found)
    }
}

enum Found<'r> {
    Borrowed(&'r Value),
    Owned(Value),
}

impl<'r> Found<'r> {
    fn into_value(self) -> Value {
        match self {
            Found::Borrowed(value) => value.clone(),
            Found::Owned(value) => value,
        }
    }

    fn member(self, name: &str) -> Option<Found<'r>> {
        match self {
            Found::Borrowed(Value::String(text)) => {
                member(&inside(text)?, name).cloned().map(Found::Owned)
            }
            Found::Borrowed(value) => member(value, name).map(Found::Borrowed),
            Found::Owned(Value::String(text)) => {
                member(&inside(&text)?, name).cloned().map(Found::Owned)
            }
            Found::Owned(value) => member(&value, name).cloned().map(Found::Owned),
        }
    }
}

fn member<'v>(value: &'v Value, name: &str) -> Option<&'v Value> {
    match value {
        Value::Object(members) => members.get(name),
        Value::Array(items) => items.get(name.parse::<usize>().ok()?),
        _ => None,
    }
}

/// Many tools answer with a text that is JSON.
fn inside(text: &str) -> Option<Value> {
    let value: Value = serde_json::from_str(text).ok()?;
    (value.is_object() || value.is_array()).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn references_become_what_earlier_steps_gave() {
        let results = BTreeMap::from([
            (
                0,
                json!({"data": [{"id": 7, "name": "x y"}], "text": "{\"inner\": [true]}"}),
            ),
            (1, json!("plain")),
        ]);
        for (written, becomes) in [
            (json!("{{steps.1.data.0.id}}"), json!(7)),
            (json!("{{ steps.1.data[0].name }}"), json!("x y")),
            (
                json!("id-{{steps.1.data.0.id}}/{{steps.2}}"),
                json!("id-7/plain"),
            ),
            (
                json!({"a": ["{{steps.1.text.inner.0}}", 5]}),
                json!({"a": [true, 5]}),
            ),
            (json!("{{steps.1.data.0}}"), json!({"id": 7, "name": "x y"})),
            (json!("{{other}} {{"), json!("{{other}} {{")),
        ] {
            assert_eq!(resolve(&written, &results).unwrap(), becomes, "{written}");
        }
        for (written, why) in [
            (
                "{{steps.1.nope}}",
                "the result of step 1 has no 'nope' there",
            ),
            ("{{steps.1.data.9}}", "has no '9' there"),
            ("{{steps.2.x}}", "has no 'x' there"),
            ("{{steps.3.x}}", "there is no result of step 3"),
        ] {
            let error = resolve(&json!(written), &results).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn references_that_are_none_are_mistakes() {
        assert_eq!(in_value(&json!("{{steps.2.a}} {{x}}")).unwrap()[0].step, 1);
        for bad in [
            "{{steps.0.x}}",
            "{{steps.one}}",
            "{{steps.}}",
            "{{steps.1..x}}",
            "{{steps[1].id}}",
            "{{step.1.id}}",
            "{{STEPS.1.id}}",
            "{{ Steps.1.id }}",
            "{{steps.1.id",
            "{{steps.1.id and {{steps.1.id}}",
            "{{{steps.1.id}}}",
            "{{steps.1.id}} {{\tstep",
        ] {
            assert!(in_value(&json!([bad])).is_err(), "{bad}");
        }
        assert!(
            in_value(&json!({"a": [1, null, "{{ }}", "{{st", "{steps.1}", "{{é}} steps.1"]}))
                .unwrap()
                .is_empty()
        );
    }
}
