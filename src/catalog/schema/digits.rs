//! The digits of numbers. A JSON number is parsed to 64 bits, so `1.10` and long numbers lose some.

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::{Schema, Types, Unfit};
use crate::catalog::words::Words;
use crate::json::{LongIntegers, Members};

/// Why a number is refused.
pub(super) const TOO_MANY: &str = "has more digits than can be sent exactly";
/// Integers below it fit in 64 bits.
const LEAST_LONG: f64 = 9_223_372_036_854_775_808.0;

impl Schema {
    /// Puts back the digits of numbers that have to be strings, and refuses integers that lost
    /// some. `text` is what `args` were parsed from; what `words` have was typed, and
    /// [`Schema::prepare`] sees to it.
    pub fn keep_digits(
        &self,
        args: &mut Map<String, Value>,
        text: &RawValue,
        words: &[String],
    ) -> Result<(), Unfit> {
        let is_changed = |name: &str, value: &Value| self.is_changed_text(name, value);
        let is_suspect = |(name, value): (&String, &Value)| {
            is_changed(name, value) || may_be_long_integer(value)
        };
        if !args.iter().any(is_suspect) {
            return Ok(());
        }
        let Ok(members) = serde_json::from_str::<Members<'_>>(text.get()) else {
            return Ok(());
        };
        let words = Words::parse(words);
        // Of a name that is given twice, the last value counts.
        for (name, literal) in members.0.into_iter().rev() {
            let Some(value) = args.get_mut(&*name) else {
                continue;
            };
            if words.typed(&name, value).is_some() && self.has_types(&name) {
                continue;
            }
            if is_changed(&name, value) {
                *value = Value::String(literal.get().to_owned());
            } else if may_be_long_integer(value) && LongIntegers::are_in(literal.get()) {
                return Err(too_many(&name));
            }
        }
        Ok(())
    }

    /// As [`Schema::keep_digits`], where the text is too big to be looked through by name.
    /// `has_long_integers` says whether it has any.
    pub fn refuse_lost_digits(
        &self,
        args: &Map<String, Value>,
        has_long_integers: impl FnOnce() -> bool,
    ) -> Result<(), Unfit> {
        match args.iter().find(|(_, value)| may_be_long_integer(value)) {
            Some((name, _)) if has_long_integers() => Err(too_many(name)),
            _ => Ok(()),
        }
    }

    /// Whether the schema wants a string, and the value was written as a number.
    fn is_changed_text(&self, name: &str, value: &Value) -> bool {
        value.is_f64()
            && self.meant(name).is_some_and(|place| {
                let types = self.properties[place].wanted.types;
                types.has(Types::STRING) && !types.allow(value)
            })
    }

    fn has_types(&self, name: &str) -> bool {
        let place = self.meant(name);
        place.is_some_and(|place| !self.properties[place].wanted.types.is_any())
    }
}

/// Whether a number in it may have been an integer of more than 64 bits.
fn may_be_long_integer(value: &Value) -> bool {
    match value {
        Value::Number(number) => {
            number.is_f64() && number.as_f64().is_some_and(|n| n.abs() >= LEAST_LONG)
        }
        Value::Array(items) => items.iter().any(may_be_long_integer),
        Value::Object(members) => members.values().any(may_be_long_integer),
        Value::Null | Value::Bool(_) | Value::String(_) => false,
    }
}

fn too_many(name: &str) -> Unfit {
    Unfit {
        name: name.to_owned(),
        what: TOO_MANY.to_owned(),
        missing: false,
        unknown: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn kept(text: &str) -> Result<Value, String> {
        let schema = Schema::new(json!({"properties": {
            "text": {"type": "string"}, "number": {"type": "number"}, "list": {"type": "array"},
            "either": {"type": ["string", "integer"]}, "any": {},
        }}));
        let raw = RawValue::from_string(text.to_owned()).unwrap();
        let mut args: Map<String, Value> = serde_json::from_str(text).unwrap();
        let kept = schema.keep_digits(&mut args, &raw, &[]);
        kept.map(|()| args.into()).map_err(|unfit| unfit.name)
    }

    #[test]
    fn number_for_a_string_keeps_its_digits() {
        let text = r#"{"TEXT": 123456789012345678901, "number": 7.0, "either": 1.10}"#;
        let expected = json!({"TEXT": "123456789012345678901", "number": 7.0, "either": "1.10"});
        assert_eq!(kept(text), Ok(expected));
    }

    #[test]
    fn integer_that_lost_digits_is_refused_at_any_depth() {
        for name in ["number", "list", "any", "unknown"] {
            for value in [
                "123456789012345678901",
                "-9223372036854775809",
                "18446744073709551616",
                "[1, 123456789012345678901]",
                r#"{"a": {"b": 123456789012345678901}}"#,
            ] {
                let text = format!(r#"{{"text": "x", "{name}": {value}}}"#);
                assert_eq!(kept(&text), Err(name.to_owned()), "{text}");
            }
            for value in [
                "18446744073709551615",
                "-9223372036854775808",
                "1e300",
                "123456789012345678901.5",
                r#""123456789012345678901""#,
                r#"["123456789012345678901", 1e20]"#,
            ] {
                let text = format!(r#"{{"{name}": {value}}}"#);
                let same = serde_json::from_str::<Value>(&text).unwrap();
                assert_eq!(kept(&text), Ok(same), "{text}");
            }
        }
        // The last value of a name counts.
        let twice = r#"{"number": 123456789012345678901, "number": 5}"#;
        assert_eq!(kept(twice), Ok(json!({"number": 5})));
    }
}
