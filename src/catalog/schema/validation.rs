//! The JSON Schema validator of a tool's arguments, and what it refuses in words.

use jsonschema::Validator;
use jsonschema::error::ValidationErrorKind;
use serde_json::Value;

use super::Unfit;

/// Bytes of a compiled pattern: `\pL{40}` is five characters and a megabyte.
const LARGEST_PATTERN: usize = 128 << 10;

/// Patterns in the wild are written for other engines. One that this engine can't compile must not
/// disable the rest of the validation.
pub(super) fn build(schema: &Value) -> Result<Validator, String> {
    let patterns = || {
        let patterns = jsonschema::PatternOptions::fancy_regex();
        patterns
            .size_limit(LARGEST_PATTERN)
            .dfa_size_limit(LARGEST_PATTERN)
            .backtrack_limit(100_000)
    };
    let build = |schema: &Value| {
        let options = jsonschema::options().with_pattern_options(patterns());
        options.build(schema)
    };
    build(schema).or_else(|error| {
        let mut plain = schema.clone();
        strip_patterns(&mut plain);
        build(&plain).map_err(|_| error.masked().to_string())
    })
}

fn strip_patterns(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            // A property may be named `pattern`; its value is a schema, not a string.
            if map.get("pattern").is_some_and(Value::is_string) {
                map.shift_remove("pattern");
            }
            map.values_mut().for_each(strip_patterns);
        }
        Value::Array(list) => list.iter_mut().for_each(strip_patterns),
        _ => {}
    }
}

pub(super) fn unfit(error: &jsonschema::ValidationError<'_>) -> Unfit {
    let path = error.instance_path().to_string();
    let path = path.trim_start_matches('/').replace('/', ".");
    let below = |name: &str| match path.as_str() {
        "" => name.to_owned(),
        path => format!("{path}.{name}"),
    };
    match error.kind() {
        ValidationErrorKind::Required { property } => Unfit {
            name: below(property.as_str().unwrap_or_default()),
            what: "is required".to_owned(),
            missing: true,
            unknown: false,
        },
        ValidationErrorKind::AdditionalProperties { unexpected } => Unfit {
            name: below(unexpected.first().map_or("", String::as_str)),
            what: "is not known to this tool".to_owned(),
            missing: false,
            unknown: path.is_empty(),
        },
        _ => Unfit {
            name: if path.is_empty() {
                "arguments".to_owned()
            } else {
                path
            },
            what: error.masked().to_string(),
            missing: false,
            unknown: false,
        },
    }
}
