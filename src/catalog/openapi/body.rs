//! Request bodies: which of the media types a document offers is used, and how its fields are
//! written.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use super::document::{Dangling, Document};
use super::parameter::{Version2Body, Version2Kind, collection_format, version_2_schema};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    Json,
    Form,
    Multipart,
    /// Bytes or text, sent unchanged.
    Raw,
}

impl Encoding {
    pub fn word(self) -> &'static str {
        match self {
            Encoding::Json => "json",
            Encoding::Form => "form",
            Encoding::Multipart => "multipart",
            Encoding::Raw => "raw",
        }
    }

    /// Whether each of its fields can be an argument.
    pub fn has_fields(self) -> bool {
        self != Encoding::Raw
    }

    /// In order of preference, where a document offers several.
    fn of(media_type: &str) -> (u8, Encoding) {
        match essence(media_type).as_str() {
            "application/json" => (0, Encoding::Json),
            e if e.ends_with("+json") || e.ends_with("/json") => (1, Encoding::Json),
            "application/x-www-form-urlencoded" => (2, Encoding::Form),
            "multipart/form-data" => (3, Encoding::Multipart),
            e if e.starts_with("multipart/") => (6, Encoding::Multipart),
            // No media type: such APIs read JSON.
            "*/*" | "application/*" | "" => (4, Encoding::Json),
            _ => (5, Encoding::Raw),
        }
    }
}

/// A media type without its parameters.
fn essence(media_type: &str) -> String {
    let essence = media_type.split(';').next().unwrap_or_default();
    essence.trim().to_lowercase()
}

pub(super) struct Body<'d> {
    pub encoding: Encoding,
    pub media_type: String,
    pub schema: Cow<'d, Value>,
    pub required: bool,
    fields: Option<&'d Value>,
}

pub(super) fn of_request_body<'d>(
    document: &'d Document,
    operation: &'d Value,
) -> Result<Option<Body<'d>>, Dangling> {
    let Some(body) = operation.get("requestBody") else {
        return Ok(None);
    };
    let body = document.resolve(body)?;
    let content = body["content"].as_object().into_iter().flatten();
    let chosen = content.min_by_key(|(media_type, _)| Encoding::of(media_type).0);
    let Some((media_type, media)) = chosen else {
        return Ok(None);
    };
    let (_, encoding) = Encoding::of(media_type);
    Ok(Some(Body {
        encoding,
        media_type: concrete(media_type, encoding),
        schema: Cow::Borrowed(&media["schema"]),
        required: body["required"] == true,
        fields: media.get("encoding"),
    }))
}

pub(super) fn of_version_2<'d>(
    document: &'d Document,
    operation: &'d Value,
    body: &Version2Body<'d>,
) -> Result<Body<'d>, Dangling> {
    let consumes = operation
        .get("consumes")
        .or_else(|| document.root.get("consumes"));
    let offered: Vec<&str> = consumes
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let (schema, encoding, media_type) = match &body.kind {
        Version2Kind::Whole(schema) => {
            let chosen = offered
                .iter()
                .map(|media_type| (Encoding::of(media_type), *media_type))
                .filter(|((_, encoding), _)| matches!(encoding, Encoding::Json | Encoding::Raw))
                .min_by_key(|((rank, _), _)| *rank);
            let ((_, encoding), media_type) =
                chosen.unwrap_or(((0, Encoding::Json), "application/json"));
            (Cow::Borrowed(*schema), encoding, media_type.to_owned())
        }
        Version2Kind::Form(fields) => {
            let file = fields.iter().any(|field| field["type"] == "file");
            let offers = |kind: &str| offered.iter().any(|known| essence(known) == kind);
            let form = offers("application/x-www-form-urlencoded");
            let multipart = offers("multipart/form-data");
            let encoding = if file || (multipart && !form) {
                Encoding::Multipart
            } else {
                Encoding::Form
            };
            let media_type = match encoding {
                Encoding::Multipart => "multipart/form-data",
                _ => "application/x-www-form-urlencoded",
            };
            (
                Cow::Owned(form_schema(fields)),
                encoding,
                media_type.to_owned(),
            )
        }
    };
    Ok(Body {
        encoding,
        media_type: concrete(&media_type, encoding),
        schema,
        required: body.required,
        fields: None,
    })
}

fn form_schema(fields: &[&Value]) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for field in fields {
        let name = field["name"].as_str().unwrap_or_default();
        let mut schema = version_2_schema(field);
        if field["type"] == "array" {
            let (style, explode) = match field["collectionFormat"].as_str() {
                Some("multi") => ("form", true),
                Some("ssv") => ("spaceDelimited", false),
                Some("tsv") => ("tabDelimited", false),
                Some("pipes") => ("pipeDelimited", false),
                _ => ("form", false),
            };
            schema["x-ati-style"] = json!(style);
            schema["x-ati-explode"] = json!(explode);
            schema["x-ati-collection-format"] = json!(collection_format(style, explode));
        }
        properties.insert(name.to_owned(), schema);
        if field["required"] == true {
            required.push(json!(name));
        }
    }
    json!({"type": "object", "properties": properties, "required": required})
}

/// The media type to send, where the document has a range like `text/*`.
fn concrete(media_type: &str, encoding: Encoding) -> String {
    if !media_type.contains('*') && !media_type.is_empty() {
        return media_type.to_owned();
    }
    match encoding {
        Encoding::Json => "application/json",
        _ => "application/octet-stream",
    }
    .to_owned()
}

impl Body<'_> {
    /// The style of one field of a form, where the document sets it.
    pub fn field_marks(
        &self,
        name: &str,
        schema: &Map<String, Value>,
    ) -> Vec<(&'static str, Value)> {
        let mut marks = Vec::new();
        if !matches!(self.encoding, Encoding::Form | Encoding::Multipart) {
            return marks;
        }
        let said = self.fields.map(|fields| &fields[name]);
        let said = said.unwrap_or(&Value::Null);
        let explodes = said["explode"].as_bool();
        let style = said["style"].as_str().or(explodes.map(|_| "form"));
        if let Some(style) = style {
            marks.push(("x-ati-style", json!(style)));
            marks.push((
                "x-ati-explode",
                json!(said["explode"].as_bool().unwrap_or(style == "form")),
            ));
        }
        if let Some(kind) = said["contentType"]
            .as_str()
            .filter(|kind| !kind.contains([',', '*']))
        {
            marks.push(("x-ati-part-type", json!(kind)));
        }
        let binary = |schema: &Value| {
            schema["format"] == "binary"
                || schema["format"] == "base64"
                || schema.get("contentMediaType").is_some()
        };
        let file = schema.get("x-ati-file").is_some()
            || binary(&Value::Object(schema.clone()))
            || schema.get("items").is_some_and(binary);
        if self.encoding == Encoding::Multipart && file {
            marks.push(("x-ati-file", json!(true)));
            // Text, or bytes in base64.
            marks.push(("type", json!(["string", "object", "array"])));
        }
        marks
    }
}

/// The schema of a body without structure: text, or bytes in base64.
pub(super) fn raw_schema(schema: &Map<String, Value>) -> Map<String, Value> {
    let mut raw = Map::new();
    raw.insert(
        "type".into(),
        json!(["string", "object", "array", "number", "boolean"]),
    );
    let told = schema.get("description").cloned();
    let told = told.unwrap_or_else(|| {
        json!("The body of the request: text, or {\"content_base64\": …} for bytes")
    });
    raw.insert("description".into(), told);
    raw
}
