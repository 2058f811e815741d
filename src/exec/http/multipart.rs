//! `multipart/form-data`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::HttpError;
use super::style::text;
use crate::catalog::schema::Schema;

/// The body and its content type.
pub fn build(
    schema: &Schema,
    arguments: &Map<String, Value>,
) -> Result<(Vec<u8>, String), HttpError> {
    let boundary = format!("ati-{}", uuid::Uuid::new_v4().simple());
    let mut body = Vec::new();
    for (name, value) in arguments {
        let property = schema.property(name);
        let wire = property.map_or(name.as_str(), |property| property.wire_name());
        let file = property.is_some_and(|property| property.file);
        let kind = property.and_then(|property| property.part_type.as_deref());
        let values = match value {
            Value::Array(list) => list.as_slice(),
            one => std::slice::from_ref(one),
        };
        for value in values.iter().filter(|value| !value.is_null()) {
            let part = Part::new(name, value, file, kind)?;
            part.write(&boundary, wire, &mut body);
        }
    }
    body.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
    Ok((body, format!("multipart/form-data; boundary={boundary}")))
}

struct Part {
    content: Vec<u8>,
    filename: Option<String>,
    kind: Option<String>,
}

impl Part {
    fn new(name: &str, value: &Value, file: bool, kind: Option<&str>) -> Result<Self, HttpError> {
        if !file {
            let json = value.is_object() || value.is_array();
            let kind = kind.or(json.then_some("application/json"));
            return Ok(Part {
                content: text(value).unwrap_or_default().into_bytes(),
                filename: None,
                kind: kind.map(str::to_owned),
            });
        }
        let said = |key: &str| value[key].as_str().map(str::to_owned);
        let kind = said("content_type").or_else(|| kind.map(str::to_owned));
        Ok(Part {
            content: bytes(name, value)?,
            filename: Some(said("filename").unwrap_or_else(|| name.to_owned())),
            kind: Some(kind.unwrap_or_else(|| "application/octet-stream".to_owned())),
        })
    }

    fn write(&self, boundary: &str, name: &str, body: &mut Vec<u8>) {
        let mut head = format!(
            "--{boundary}\r\ncontent-disposition: form-data; name=\"{}\"",
            quoted(name)
        );
        if let Some(filename) = &self.filename {
            head += &format!("; filename=\"{}\"", quoted(filename));
        }
        if let Some(kind) = &self.kind {
            head += &format!("\r\ncontent-type: {}", kind.replace(['\r', '\n'], ""));
        }
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(b"\r\n\r\n");
        body.extend_from_slice(&self.content);
        body.extend_from_slice(b"\r\n");
    }
}

/// Escapes a name the way browsers do.
fn quoted(name: &str) -> String {
    name.replace('"', "%22")
        .replace('\r', "%0D")
        .replace('\n', "%0A")
}

/// The bytes of a part: text as it is, or decoded from `{"content_base64": …}`.
pub fn bytes(name: &str, value: &Value) -> Result<Vec<u8>, HttpError> {
    match value.get("content_base64").and_then(Value::as_str) {
        Some(encoded) => STANDARD
            .decode(encoded.trim())
            .map_err(|_| HttpError::Base64(name.to_owned())),
        None => Ok(text(value).unwrap_or_default().into_bytes()),
    }
}
