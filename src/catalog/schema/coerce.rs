//! Gives the value of an argument the type that the schema has for it, without changing what it
//! says.

use serde_json::Value;
use serde_json::value::RawValue;

use super::digits;
use super::types::Types;
use crate::catalog::words;
use crate::json::LongIntegers;

/// What the schema says about the type of a value.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Wanted {
    pub types: Types,
    /// Of a list.
    pub items: Types,
}

impl Wanted {
    /// Of a flag of a command line: its values, in order; a flag without a value stands for true.
    pub fn of_words(self, values: &[Option<&str>]) -> Result<Value, String> {
        let one = |wanted: Wanted, value: &Option<&str>| match value {
            Some(text) => wanted.of_word(text),
            None => wanted.of_json(Value::Bool(true), None),
        };
        if let [only] = values {
            return one(self, only);
        }
        if !self.types.has(Types::ARRAY) {
            let times = values.len();
            return Err(format!("is given {times} times, and takes one value"));
        }
        let items = values.iter().map(|value| one(self.item(), value));
        items.collect::<Result<_, _>>().map(Value::Array)
    }

    /// One word. Where the schema says string it is the text as typed, quotes included, unless it
    /// reads as another type that the schema allows too.
    fn of_word(self, text: &str) -> Result<Value, String> {
        match words::read(text) {
            Value::Array(_) if self.types.has(Types::ARRAY) => self.list(text),
            read @ (Value::Array(_) | Value::Object(_)) if self.types.allow(&read) => {
                exact(read, text)
            }
            Value::String(_) if self.types.has(Types::STRING) => Ok(Value::String(text.to_owned())),
            read if self.types.allow(&read) => Ok(read),
            _ if self.types.has(Types::STRING) => Ok(Value::String(text.to_owned())),
            _ => self.of_text(text, |item| item.of_word(text)),
        }
    }

    /// A value of a JSON text. `literal` is how that text writes it, where it is known.
    pub fn of_json(self, value: Value, literal: Option<&str>) -> Result<Value, String> {
        match value {
            Value::String(text) if !self.types.is_any() && !self.types.has(Types::STRING) => {
                // A plain text for an object is of the wrong type, not broken JSON.
                if !self.types.has(Types::ARRAY) && !is_json_like(&text) {
                    return Ok(Value::String(text));
                }
                let as_item = |item: Wanted| item.of_json(Value::String(text.clone()), None);
                self.of_text(&text, as_item)
            }
            Value::Array(list) if self.types.has(Types::ARRAY) && !self.items.is_any() => {
                let items = list.into_iter().map(|one| self.item().of_json(one, None));
                items.collect::<Result<_, _>>().map(Value::Array)
            }
            value if self.types.allow(&value) => exact(value, literal.unwrap_or_default()),
            Value::Number(_) | Value::Bool(_) if self.types.has(Types::STRING) => Ok(
                Value::String(literal.map_or_else(|| value.to_string(), str::to_owned)),
            ),
            // No value is not a list of one.
            Value::Null => Ok(Value::Null),
            value if self.types.has(Types::ARRAY) => {
                Ok(Value::Array(vec![self.item().of_json(value, literal)?]))
            }
            value => Ok(value),
        }
    }

    /// A text where the schema has other types than string. What can't be converted is left to the
    /// validator.
    fn of_text(
        self,
        text: &str,
        as_item: impl FnOnce(Wanted) -> Result<Value, String>,
    ) -> Result<Value, String> {
        let trimmed = text.trim();
        let not_json = |e: serde_json::Error| format!("isn't JSON: {e}");
        match serde_json::from_str::<Value>(trimmed) {
            Ok(Value::Array(_)) if self.types.has(Types::ARRAY) => self.list(trimmed),
            Ok(Value::String(_)) => self.wrapped(text, as_item),
            Ok(value) if self.types.allow(&value) => exact(value, trimmed),
            Err(e) if self.types.has(Types::ARRAY) && trimmed.starts_with('[') => Err(not_json(e)),
            Err(e) if self.types.has(Types::OBJECT) && !self.types.has(Types::ARRAY) => {
                Err(not_json(e))
            }
            _ => self.wrapped(text, as_item),
        }
    }

    fn wrapped(
        self,
        text: &str,
        as_item: impl FnOnce(Wanted) -> Result<Value, String>,
    ) -> Result<Value, String> {
        if self.types.has(Types::ARRAY) {
            Ok(Value::Array(vec![as_item(self.item())?]))
        } else {
            Ok(Value::String(text.to_owned()))
        }
    }

    /// A JSON list. An item that has to be a string keeps the digits that were typed.
    fn list(self, text: &str) -> Result<Value, String> {
        let not_json = |e: serde_json::Error| format!("isn't JSON: {e}");
        if self.items.is_any() {
            return exact(serde_json::from_str(text).map_err(not_json)?, text);
        }
        let items: Vec<&RawValue> = serde_json::from_str(text).map_err(not_json)?;
        let each = items.into_iter().map(|raw| {
            let value = serde_json::from_str(raw.get()).map_err(not_json)?;
            self.item().of_json(value, Some(raw.get()))
        });
        each.collect::<Result<_, _>>().map(Value::Array)
    }

    fn item(self) -> Wanted {
        Wanted {
            types: self.items,
            items: Types::default(),
        }
    }
}

/// Whether a text can be JSON other than a string.
fn is_json_like(text: &str) -> bool {
    let first = text.trim_start().chars().next();
    first.is_some_and(|first| matches!(first, '{' | '[' | '-' | '0'..='9' | 't' | 'f' | 'n'))
}

/// The value, unless an integer in its text lost digits when it was parsed.
fn exact(value: Value, literal: &str) -> Result<Value, String> {
    if LongIntegers::are_in(literal) {
        return Err(digits::TOO_MANY.to_owned());
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn list_of(items: Types) -> Wanted {
        Wanted {
            types: Types::ARRAY,
            items,
        }
    }

    fn one(types: Types) -> Wanted {
        Wanted {
            types,
            items: Types::default(),
        }
    }

    #[test]
    fn word_for_a_string_is_the_text_as_typed() {
        for text in [
            "1.10",
            "1234e56",
            "123456789012345678901",
            "007",
            "1e3",
            "true",
            "null",
            "[1,",
            "[1]",
            "{\"a\": 1}",
            "\u{1f600}",
            "",
            " 5 ",
            "-0",
            "\"half",
            "\"1.10\"",
            "\"; id; \"",
        ] {
            let word = one(Types::STRING).of_words(&[Some(text)]);
            assert_eq!(word, Ok(json!(text)), "{text}");
            // A text of a JSON caller is never read as anything else.
            assert_eq!(
                one(Types::STRING).of_json(json!(text), None),
                Ok(json!(text)),
                "{text}"
            );
        }
        let either = one(Types::STRING.and(Types::INTEGER));
        assert_eq!(either.of_words(&[Some("\"5\"")]), Ok(json!("\"5\"")));
        let items = list_of(Types::STRING).of_words(&[Some("\"a\""), Some("b")]);
        assert_eq!(items, Ok(json!(["\"a\"", "b"])));
        // Without a word of the schema it is JSON.
        assert_eq!(
            one(Types::default()).of_words(&[Some("\"5\"")]),
            Ok(json!("5"))
        );
    }

    #[test]
    fn word_becomes_the_other_type_that_the_schema_asks_for() {
        let number = one(Types::NUMBER);
        assert_eq!(number.of_words(&[Some("1.10")]), Ok(json!(1.1)));
        assert_eq!(number.of_words(&[Some("1e3")]), Ok(json!(1000.0)));
        assert_eq!(
            one(Types::BOOLEAN).of_words(&[Some("true")]),
            Ok(json!(true))
        );
        assert_eq!(number.of_words(&[Some("007")]), Ok(json!("007")));
        let long = one(Types::INTEGER).of_words(&[Some("123456789012345678901")]);
        assert!(long.unwrap_err().contains("more digits"));
        for items in [Types::NUMBER, Types::default()] {
            let long = list_of(items).of_words(&[Some("[123456789012345678901]")]);
            assert!(long.unwrap_err().contains("more digits"));
        }
        let texts = list_of(Types::STRING).of_words(&[Some("[123456789012345678901]")]);
        assert_eq!(texts, Ok(json!(["123456789012345678901"])));
        let nested = one(Types::OBJECT).of_words(&[Some("{\"a\": 123456789012345678901}")]);
        assert!(nested.unwrap_err().contains("more digits"));
        let either = one(Types::STRING.and(Types::INTEGER));
        assert_eq!(either.of_words(&[Some("5")]), Ok(json!(5)));
        assert_eq!(either.of_words(&[Some("1.10")]), Ok(json!("1.10")));
        assert_eq!(either.of_json(json!("5"), None), Ok(json!("5")));
        let nullable = one(Types::STRING.and(Types::NULL));
        assert_eq!(nullable.of_words(&[Some("null")]), Ok(Value::Null));
        assert_eq!(nullable.of_words(&[Some("true")]), Ok(json!("true")));
    }

    #[test]
    fn one_value_for_a_list_is_a_list_of_one() {
        let texts = list_of(Types::STRING);
        assert_eq!(texts.of_words(&[Some("1.10")]), Ok(json!(["1.10"])));
        assert_eq!(
            texts.of_words(&[Some("a"), Some("007"), Some("[x]")]),
            Ok(json!(["a", "007", "[x]"]))
        );
        assert_eq!(
            texts.of_words(&[Some("[\"a\", 1.10, true]")]),
            Ok(json!(["a", "1.10", "true"]))
        );
        assert_eq!(texts.of_json(json!("a"), None), Ok(json!(["a"])));
        assert_eq!(texts.of_json(json!([5]), None), Ok(json!(["5"])));
        let numbers = list_of(Types::INTEGER);
        assert_eq!(numbers.of_words(&[Some("5")]), Ok(json!([5])));
        assert_eq!(numbers.of_words(&[Some("[1,2]")]), Ok(json!([1, 2])));
        assert_eq!(numbers.of_json(json!(5), None), Ok(json!([5])));
        assert_eq!(numbers.of_json(Value::Null, None), Ok(Value::Null));
        let objects = list_of(Types::OBJECT);
        assert_eq!(
            objects.of_words(&[Some("{\"a\":1}")]),
            Ok(json!([{"a": 1}]))
        );
    }

    #[test]
    fn broken_json_is_said_to_be_no_json() {
        for (wanted, text) in [
            (list_of(Types::STRING), "[1,"),
            (list_of(Types::OBJECT), "[{\"a\": 1}"),
            (one(Types::OBJECT), "{\"a\": "),
            (one(Types::OBJECT), "words"),
        ] {
            let refused = wanted.of_words(&[Some(text)]).unwrap_err();
            assert!(refused.starts_with("isn't JSON: "), "{text}: {refused}");
        }
        let plain = one(Types::OBJECT).of_json(json!("words"), None);
        assert_eq!(plain, Ok(json!("words")));
        let twice = one(Types::STRING)
            .of_words(&[Some("a"), Some("b")])
            .unwrap_err();
        assert_eq!(twice, "is given 2 times, and takes one value");
    }
}
