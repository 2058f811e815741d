//! A parsed document, and its references.

use percent_encoding::percent_decode_str;
use serde_json::Value;

/// Bytes of a document; published ones are smaller.
pub const LARGEST: usize = 64 << 20;
/// How many references may lead to each other.
const LONGEST_CHAIN: usize = 32;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    V2,
    V30,
    V31,
}

pub struct Document {
    pub(super) root: Value,
    pub(super) version: Version,
}

/// Why a document can't be used, as a sentence for the operator.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unreadable(pub String);

/// Why a reference can't be resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Dangling(pub String);

impl Document {
    /// Parses JSON where the text begins like JSON, YAML otherwise.
    pub fn parse(text: &str) -> Result<Self, Unreadable> {
        let unreadable = |message: String| Unreadable(message);
        if text.len() > LARGEST {
            return Err(unreadable(format!("larger than {} MiB", LARGEST >> 20)));
        }
        let text = text.trim_start_matches('\u{feff}');
        let root: Value = if text.trim_start().starts_with(['{', '[']) {
            serde_json::from_str(text).map_err(|e| unreadable(format!("not JSON: {e}")))?
        } else {
            from_yaml(text).map_err(|e| unreadable(format!("not YAML: {e}")))?
        };
        let version = version(&root)?;
        if !root["paths"].is_object() {
            let hint = if root["webhooks"].is_object() {
                "it has webhooks and no paths: there is nothing to call"
            } else {
                "it has no paths: there is nothing to call"
            };
            return Err(unreadable(hint.to_owned()));
        }
        Ok(Document { root, version })
    }

    pub fn title(&self) -> &str {
        self.root["info"]["title"].as_str().unwrap_or_default()
    }

    pub fn version_text(&self) -> String {
        match &self.root["info"]["version"] {
            Value::String(text) => text.clone(),
            Value::Null => String::new(),
            other => other.to_string(),
        }
    }

    pub fn description(&self) -> &str {
        self.root["info"]["description"]
            .as_str()
            .unwrap_or_default()
    }

    /// The document as JSON, for the file below `specs/`.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(&self.root).unwrap_or_default()
    }

    /// The value itself, after following its references.
    pub(super) fn resolve<'a>(&'a self, mut value: &'a Value) -> Result<&'a Value, Dangling> {
        for _ in 0..LONGEST_CHAIN {
            match value.get("$ref").and_then(Value::as_str) {
                None => return Ok(value),
                Some(reference) => value = self.find(reference)?,
            }
        }
        Err(Dangling("its references go round in circles".to_owned()))
    }

    /// The value that a reference names. Nothing outside of the document is ever read.
    pub(super) fn find(&self, reference: &str) -> Result<&Value, Dangling> {
        let Some(pointer) = reference.strip_prefix('#') else {
            return Err(Dangling(format!(
                "it refers to another document, '{}'",
                clip(reference)
            )));
        };
        let pointer = percent_decode_str(pointer).decode_utf8_lossy();
        self.root.pointer(&pointer).ok_or_else(|| {
            Dangling(format!(
                "it refers to '{}', which isn't there",
                clip(reference)
            ))
        })
    }
}

fn version(root: &Value) -> Result<Version, Unreadable> {
    let text = |key: &str| match &root[key] {
        Value::String(text) => text.clone(),
        // YAML reads 2.0 as a number.
        Value::Number(number) => number.to_string(),
        _ => String::new(),
    };
    let (swagger, openapi) = (text("swagger"), text("openapi"));
    match (swagger.as_str(), openapi.as_str()) {
        ("2.0" | "2", _) => Ok(Version::V2),
        (_, v) if v.starts_with("3.0") => Ok(Version::V30),
        (_, v) if v.starts_with("3.1") => Ok(Version::V31),
        ("", "") => Err(Unreadable(
            "no OpenAPI document: it has neither 'openapi' nor 'swagger'".to_owned(),
        )),
        _ => Err(Unreadable(format!(
            "OpenAPI {}{} is not known here: 2.0, 3.0 and 3.1 are",
            clip(&openapi),
            clip(&swagger)
        ))),
    }
}

/// YAML with a budget: aliases can expand a short text to gigabytes.
fn from_yaml(text: &str) -> Result<Value, String> {
    let options = serde_saphyr::options! {
        // YAML 1.2: `y`, `no` and `on` are strings.
        strict_booleans: true,
        budget: serde_saphyr::budget! {
            max_events: 8_000_000,
            max_nodes: 4_000_000,
            max_depth: 120,
            max_total_scalar_bytes: LARGEST,
        },
    };
    serde_saphyr::from_str_with_options(text, options).map_err(|e| clip(&e.to_string()).to_owned())
}

fn clip(text: &str) -> &str {
    let line = text.lines().next().unwrap_or_default();
    crate::text::clip(line, 200)
}
