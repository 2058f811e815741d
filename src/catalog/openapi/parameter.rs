//! Parameters of 2.0 and 3.x, in one form.

use std::borrow::Cow;

use http::HeaderName;
use serde_json::{Value, json};

use super::document::{Dangling, Document, Version};

#[derive(Default)]
pub(super) struct All<'d> {
    pub plain: Vec<Parameter<'d>>,
    /// In 2.0 the body is a parameter.
    pub body: Option<Version2Body<'d>>,
}

pub(super) struct Version2Body<'d> {
    pub kind: Version2Kind<'d>,
    pub required: bool,
}

pub(super) enum Version2Kind<'d> {
    Whole(&'d Value),
    Form(Vec<&'d Value>),
}

pub(super) struct Parameter<'d> {
    pub name: &'d str,
    pub location: &'static str,
    pub required: bool,
    pub description: Option<&'d str>,
    pub schema: Option<Cow<'d, Value>>,
    style: Option<Cow<'d, str>>,
    explode: Option<bool>,
    reserved: bool,
}

pub(super) fn read<'d>(document: &'d Document, raw: &[&'d Value]) -> Result<All<'d>, Dangling> {
    let mut all = All::default();
    let mut form: Vec<&Value> = Vec::new();
    for parameter in raw {
        let Some(name) = parameter["name"].as_str() else {
            return Err(Dangling("a parameter has no name".to_owned()));
        };
        let location = match parameter["in"].as_str() {
            Some("path") => "path",
            Some("query") => "query",
            Some("header") => "header",
            Some("cookie") => "cookie",
            Some("formData") => {
                form.push(parameter);
                continue;
            }
            Some("body") => {
                all.body = Some(Version2Body {
                    kind: Version2Kind::Whole(&parameter["schema"]),
                    required: parameter["required"] == true,
                });
                continue;
            }
            _ => {
                return Err(Dangling(format!(
                    "the parameter '{name}' has no known place"
                )));
            }
        };
        // Header arguments may not set it.
        if name.trim().is_empty() || (location == "header" && HeaderName::try_from(name).is_err()) {
            continue;
        }
        // The specification leaves these to content negotiation and security.
        let ignored = ["accept", "content-type", "authorization"];
        if location == "header" && ignored.contains(&name.to_lowercase().as_str()) {
            continue;
        }
        all.plain.push(Parameter {
            name,
            location,
            required: location == "path" || parameter["required"] == true,
            description: parameter["description"].as_str(),
            reserved: parameter["allowReserved"] == true,
            ..of_version(document, parameter)?
        });
    }
    if !form.is_empty() {
        all.body = Some(Version2Body {
            required: form.iter().any(|field| field["required"] == true),
            kind: Version2Kind::Form(form),
        });
    }
    Ok(all)
}

fn of_version<'d>(document: &'d Document, parameter: &'d Value) -> Result<Parameter<'d>, Dangling> {
    let mut made = Parameter {
        name: "",
        location: "",
        required: false,
        description: None,
        schema: None,
        style: None,
        explode: None,
        reserved: false,
    };
    if document.version == Version::V2 {
        made.schema = Some(Cow::Owned(version_2_schema(parameter)));
        (made.style, made.explode) = match parameter["collectionFormat"].as_str() {
            Some("multi") => (Some("form".into()), Some(true)),
            Some("ssv") => (Some("spaceDelimited".into()), Some(false)),
            Some("tsv") => (Some("tabDelimited".into()), Some(false)),
            Some("pipes") => (Some("pipeDelimited".into()), Some(false)),
            _ if parameter["in"] == "query" => (Some("form".into()), Some(false)),
            _ => (None, None),
        };
        return Ok(made);
    }
    if let Some(content) = parameter["content"].as_object() {
        // `content` has one media type, in practice always JSON.
        let schema = content.values().next().map(|media| &media["schema"]);
        made.schema = schema.map(Cow::Borrowed);
        made.style = Some("json".into());
        return Ok(made);
    }
    made.schema = parameter.get("schema").map(Cow::Borrowed);
    made.style = parameter["style"].as_str().map(Cow::Borrowed);
    made.explode = parameter["explode"].as_bool();
    Ok(made)
}

/// The keys of a 2.0 parameter that belong to its schema.
pub(super) fn version_2_schema(parameter: &Value) -> Value {
    let mut schema = parameter.as_object().cloned().unwrap_or_default();
    for key in [
        "name",
        "in",
        "required",
        "collectionFormat",
        "allowEmptyValue",
    ] {
        schema.shift_remove(key);
    }
    Value::Object(schema)
}

impl Parameter<'_> {
    /// Its style, where it differs from the default of its location and type.
    pub fn marks(&self, schema: &serde_json::Map<String, Value>) -> Vec<(&'static str, Value)> {
        let mut marks = Vec::new();
        let primitive = ["string", "number", "integer", "boolean"]
            .iter()
            .any(|kind| schema.get("type").is_some_and(|known| known == kind));
        let default = match self.location {
            "path" | "header" => "simple",
            _ => "form",
        };
        let style = self.style.as_deref().unwrap_or(default);
        let explode = self.explode.unwrap_or(style == "form");
        if style == "json" || !primitive || !matches!(style, "simple" | "form") {
            marks.push(("x-ati-style", json!(style)));
            marks.push(("x-ati-explode", json!(explode)));
        }
        let is_list = |kind: &Value| {
            kind == "array"
                || kind
                    .as_array()
                    .is_some_and(|kinds| kinds.iter().any(|kind| kind == "array"))
        };
        if self.location == "query"
            && schema.get("type").is_some_and(is_list)
            && let Some(format) = collection_format(style, explode)
        {
            marks.push(("x-ati-collection-format", json!(format)));
        }
        if self.reserved {
            marks.push(("x-ati-allow-reserved", json!(true)));
        }
        marks
    }
}

/// The name that a style of lists has in manifests.
pub(super) fn collection_format(style: &str, explode: bool) -> Option<&'static str> {
    match style {
        "form" | "spaceDelimited" | "pipeDelimited" if explode => Some("multi"),
        "form" => Some("csv"),
        "spaceDelimited" => Some("ssv"),
        "tabDelimited" => Some("tsv"),
        "pipeDelimited" => Some("pipes"),
        _ => None,
    }
}
