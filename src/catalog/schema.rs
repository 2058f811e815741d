//! A tool's `input_schema`: the arguments' names, where each goes, and their validation.

use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;

use jsonschema::Validator;
use jsonschema::error::ValidationErrorKind;
use serde_json::{Map, Value};

#[derive(Debug, Default)]
pub struct Schema {
    /// As the manifest has it, for listings.
    pub value: Value,
    pub properties: Vec<Property>,
    by_name: HashMap<String, usize>,
    by_folded: HashMap<String, usize>,
    pub body: Body,
    /// Whether properties say where arguments go. Without that, all go to the query or to the body.
    pub located: bool,
    /// Compiled at its first use, once. None where the schema can't be compiled.
    validator: OnceLock<Option<Validator>>,
}

#[derive(Debug)]
pub struct Property {
    pub name: String,
    types: Vec<String>,
    default: Option<Value>,
    pub location: Option<Location>,
    pub style: Style,
    pub required: bool,
    /// `x-ati-name`: its name in the request, where it differs.
    wire_name: Option<String>,
    /// `x-ati-file`: a file part of a multipart form.
    pub file: bool,
    /// `x-ati-part-type`: the content type of its part.
    pub part_type: Option<String>,
}

/// `x-ati-param-location`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Location {
    Path,
    Query,
    Header,
    Cookie,
    Body,
}

/// How a value is written: `x-ati-style` and `x-ati-explode`, or `x-ati-collection-format`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Style {
    pub form: Form,
    /// Each item or key gets a pair of its own.
    pub explode: bool,
    /// `x-ati-allow-reserved`: reserved characters are not encoded.
    pub reserved: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Form {
    /// In a query, lists repeat the name; in other places they are joined by commas. Objects are
    /// JSON.
    #[default]
    Plain,
    Simple,
    Label,
    Matrix,
    Form,
    Space,
    Tab,
    Pipe,
    Deep,
    Json,
}

/// How the body is made: `x-ati-body-encoding`, `x-ati-body-type`, `x-ati-body-argument`.
#[derive(Debug, Default)]
pub struct Body {
    pub encoding: Encoding,
    pub media_type: Option<String>,
    /// The argument that is the whole body.
    pub argument: Option<String>,
    /// `x-ati-body-required`: without arguments an empty body is sent.
    pub required: bool,
    /// `x-ati-body-optional`: without arguments no body is sent.
    pub optional: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Encoding {
    #[default]
    Json,
    Form,
    Multipart,
    Raw,
}

/// Why arguments are refused. Never quotes a value.
#[derive(Debug, PartialEq, Eq)]
pub struct Unfit {
    pub name: String,
    pub what: String,
    pub missing: bool,
}

impl Schema {
    /// From an untrusted server: a schema too costly to validate against is listed, but arguments
    /// aren't validated.
    pub fn untrusted(value: Value) -> Self {
        let reasonable = super::cost::is_reasonable(&value);
        let schema = Schema::new(value);
        if !reasonable {
            let _ = schema.validator.set(None);
        }
        schema
    }

    pub fn new(value: Value) -> Self {
        let required: HashSet<&str> = value["required"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let properties: Vec<Property> = value["properties"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, schema)| Property::new(name, schema, required.contains(name.as_str())))
            .collect();
        let (mut by_name, mut by_folded) = (HashMap::new(), HashMap::new());
        for (place, property) in properties.iter().enumerate() {
            by_name.insert(property.name.clone(), place);
            by_folded.entry(fold(&property.name)).or_insert(place);
        }
        let text = |key: &str| value[key].as_str().map(str::to_owned);
        let marked = value.get("x-ati-param-location").is_some();
        Schema {
            by_name,
            by_folded,
            body: Body {
                encoding: match value["x-ati-body-encoding"].as_str() {
                    Some("form") => Encoding::Form,
                    Some("multipart") => Encoding::Multipart,
                    Some("raw") => Encoding::Raw,
                    _ => Encoding::Json,
                },
                media_type: text("x-ati-body-type"),
                argument: text("x-ati-body-argument"),
                required: value["x-ati-body-required"] == true,
                optional: value["x-ati-body-optional"] == true,
            },
            located: marked
                || properties
                    .iter()
                    .any(|property| property.location.is_some()),
            properties,
            value,
            validator: OnceLock::new(),
        }
    }

    pub fn property(&self, name: &str) -> Option<&Property> {
        self.by_name.get(name).map(|place| &self.properties[*place])
    }

    /// Why the schema itself can't be used.
    pub fn fault(&self) -> Option<String> {
        if self.value.is_null() {
            return None;
        }
        let (validator, fault) = match build(&self.value) {
            Ok(validator) => (Some(validator), None),
            Err(fault) => (None, Some(fault)),
        };
        let _ = self.validator.set(validator);
        fault
    }

    /// Resolves names, fills in defaults, converts types, then validates.
    pub fn prepare(&self, args: Map<String, Value>) -> Result<Map<String, Value>, Unfit> {
        let mut args = self.rename(args);
        let in_body = |property: &Property| property.location == Some(Location::Body);
        let no_body = self.body.optional
            && !self
                .properties
                .iter()
                .any(|property| in_body(property) && args.contains_key(&property.name));
        for property in &self.properties {
            if no_body && in_body(property) {
                continue;
            }
            match args.get_mut(&property.name) {
                Some(value) => property.coerce(value),
                None => {
                    if let Some(default) = &property.default {
                        args.insert(property.name.clone(), default.clone());
                    }
                }
            }
        }
        if self.value.is_null() {
            return Ok(args);
        }
        let args = Value::Object(args);
        let validator = self.validator.get_or_init(|| build(&self.value).ok());
        if let Some(validator) = validator
            && let Err(error) = validator.validate(&args)
        {
            return Err(unfit(&error));
        }
        match args {
            Value::Object(args) => Ok(args),
            _ => Ok(Map::new()),
        }
    }

    /// Gives an argument the name of the property that differs from it only by case, `-` and `_`.
    fn rename(&self, args: Map<String, Value>) -> Map<String, Value> {
        if args.keys().all(|name| self.property(name).is_some()) {
            return args;
        }
        // Taken names: given exactly, or matched by an earlier argument.
        let mut taken: Vec<bool> = self
            .properties
            .iter()
            .map(|property| args.contains_key(&property.name))
            .collect();
        let mut renamed = Map::with_capacity(args.len());
        for (name, value) in args {
            let meant = match self.property(&name) {
                Some(_) => None,
                None => self
                    .by_folded
                    .get(&fold(&name))
                    .filter(|place| !taken[**place]),
            };
            let name = match meant {
                Some(place) => {
                    taken[*place] = true;
                    self.properties[*place].name.clone()
                }
                None => name,
            };
            renamed.insert(name, value);
        }
        renamed
    }
}

impl Property {
    fn new(name: &str, schema: &Value, required: bool) -> Self {
        let types = match &schema["type"] {
            Value::String(one) => vec![one.clone()],
            Value::Array(several) => several
                .iter()
                .filter_map(|one| one.as_str().map(str::to_owned))
                .collect(),
            _ => Vec::new(),
        };
        let location = match schema["x-ati-param-location"].as_str() {
            Some("path") => Some(Location::Path),
            Some("query") => Some(Location::Query),
            Some("cookie") => Some(Location::Cookie),
            Some("header") => Some(Location::Header),
            Some("body") => Some(Location::Body),
            _ => None,
        };
        let says_something = |default: &&Value| match default {
            Value::Null => false,
            Value::Array(list) => !list.is_empty(),
            Value::Object(map) => !map.is_empty(),
            _ => true,
        };
        let mut property = Property {
            name: name.to_owned(),
            types,
            default: schema.get("default").filter(says_something).cloned(),
            location,
            style: Style::new(schema),
            required,
            wire_name: schema["x-ati-name"].as_str().map(str::to_owned),
            file: schema["x-ati-file"] == true,
            part_type: schema["x-ati-part-type"].as_str().map(str::to_owned),
        };
        if let Some(mut default) = property.default.take() {
            property.coerce(&mut default);
            property.default = Some(default);
        }
        property
    }

    /// Its name in the request.
    pub fn wire_name(&self) -> &str {
        self.wire_name.as_deref().unwrap_or(&self.name)
    }

    /// Converts between a string and a number or boolean where the schema has the other type.
    fn coerce(&self, value: &mut Value) {
        let wants = |kind: &str| self.types.iter().any(|known| known == kind);
        let coerced = match value {
            Value::String(text) if !self.types.is_empty() && !wants("string") => {
                let text = text.trim();
                match serde_json::from_str(text) {
                    Ok(parsed @ Value::Number(_)) if wants("number") || wants("integer") => {
                        Some(parsed)
                    }
                    Ok(parsed @ Value::Bool(_)) if wants("boolean") => Some(parsed),
                    _ => None,
                }
            }
            Value::Number(number) if wants("string") && !wants("number") && !wants("integer") => {
                Some(Value::String(number.to_string()))
            }
            Value::Bool(truth) if wants("string") && !wants("boolean") => {
                Some(Value::String(truth.to_string()))
            }
            _ => None,
        };
        if let Some(coerced) = coerced {
            *value = coerced;
        }
    }
}

impl Style {
    fn new(schema: &Value) -> Self {
        let (form, explode) = match (
            schema["x-ati-style"].as_str(),
            schema["x-ati-collection-format"].as_str(),
        ) {
            (Some("simple"), _) => (Form::Simple, false),
            (Some("label"), _) => (Form::Label, false),
            (Some("matrix"), _) => (Form::Matrix, false),
            (Some("form"), _) => (Form::Form, true),
            (Some("spaceDelimited"), _) => (Form::Space, false),
            (Some("tabDelimited"), _) => (Form::Tab, false),
            (Some("pipeDelimited"), _) => (Form::Pipe, false),
            (Some("deepObject"), _) => (Form::Deep, true),
            (Some("json"), _) => (Form::Json, false),
            (_, Some("csv")) => (Form::Form, false),
            (_, Some("ssv")) => (Form::Space, false),
            (_, Some("tsv")) => (Form::Tab, false),
            (_, Some("pipes")) => (Form::Pipe, false),
            _ => (Form::Plain, true),
        };
        Style {
            form,
            explode: schema["x-ati-explode"].as_bool().unwrap_or(explode),
            reserved: schema["x-ati-allow-reserved"] == true,
        }
    }
}

/// Bytes of a compiled pattern: `\pL{40}` is five characters and a megabyte.
const LARGEST_PATTERN: usize = 128 << 10;

/// Patterns in the wild are written for other engines. One that this engine can't compile must not
/// disable the rest of the validation.
fn build(schema: &Value) -> Result<Validator, String> {
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

fn unfit(error: &jsonschema::ValidationError<'_>) -> Unfit {
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
        },
        ValidationErrorKind::AdditionalProperties { unexpected } => Unfit {
            name: below(unexpected.first().map_or("", String::as_str)),
            what: "is not known to this tool".to_owned(),
            missing: false,
        },
        _ => Unfit {
            name: if path.is_empty() {
                "arguments".to_owned()
            } else {
                path
            },
            what: error.masked().to_string(),
            missing: false,
        },
    }
}

fn fold(name: &str) -> String {
    name.chars()
        .filter(|c| !matches!(c, '-' | '_'))
        .flat_map(char::to_lowercase)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn schema() -> Schema {
        Schema::new(json!({
            "type": "object",
            "required": ["query"],
            "properties": {
                "query": {"type": "string"},
                "maxResults": {"type": "integer", "default": 10, "maximum": 50},
                "safe_search": {"type": "boolean"},
                "either": {"type": ["string", "integer"]},
                "list": {"type": "array", "default": []},
            },
        }))
    }

    fn prepare(args: Value) -> Result<Value, Unfit> {
        let Value::Object(args) = args else { panic!() };
        schema().prepare(args).map(Value::Object)
    }

    #[test]
    fn arguments_get_names_defaults_and_types() {
        assert_eq!(
            prepare(json!({"Query": 5, "max-results": "7", "safeSearch": "true", "either": "5", "extra": 1})).unwrap(),
            json!({"query": "5", "maxResults": 7, "safe_search": true, "either": "5", "extra": 1})
        );
        assert_eq!(
            prepare(json!({"query": "x"})).unwrap(),
            json!({"query": "x", "maxResults": 10})
        );
        // An exact name keeps its value.
        assert_eq!(
            prepare(json!({"QUERY": "b", "query": "a"})).unwrap(),
            json!({"query": "a", "QUERY": "b", "maxResults": 10})
        );
    }

    #[test]
    fn refused_argument_is_named_and_its_value_is_not_quoted() {
        let missing = prepare(json!({})).unwrap_err();
        assert_eq!((missing.name.as_str(), missing.missing), ("query", true));
        let wrong = prepare(json!({"query": ["hunter2"]})).unwrap_err();
        assert_eq!((wrong.name.as_str(), wrong.missing), ("query", false));
        assert!(!wrong.what.contains("hunter2"), "{wrong:?}");
        let large = prepare(json!({"query": "x", "maxResults": 51})).unwrap_err();
        assert_eq!(large.name, "maxResults");
        let closed = Schema::new(json!({"additionalProperties": false, "properties": {"a": {}}}));
        let Value::Object(args) = json!({"b": 1}) else {
            panic!()
        };
        assert_eq!(closed.prepare(args).unwrap_err().name, "b");
    }

    #[test]
    fn invalid_schema_accepts_anything_and_is_reported() {
        let bad = Schema::new(json!({"type": "objekt", "properties": {"a": {"type": "string"}}}));
        assert!(bad.fault().is_some());
        assert!(bad.prepare(Map::new()).is_ok());
        assert_eq!(schema().fault(), None);
        let outside = Schema::new(json!({"$ref": "http://127.0.0.1:1/x.json"}));
        assert!(outside.fault().is_some());
    }
}
