//! Turns a document's operations into tools, in its order.

use std::collections::{BTreeMap, HashSet};

use http::Method;
use serde_json::{Map, Value, json};

use super::body::{self, Body};
use super::document::{Dangling, Document};
use super::parameter::{self, Parameter};
use super::schema::Converter;
use super::{LeftOut, Operation, Survey};
use crate::catalog::invocation::placeholders;

const MOST_PARAMETERS: usize = 1000;
/// Arguments of all operations together.
const LARGEST_SURVEY: usize = 64 << 20;

/// Characters of a name, provider included; longer ones are cut.
const LONGEST_NAME: usize = 128;

impl Document {
    /// Every operation. `provider` and its colon count towards the length of names; `base_url` is
    /// the tools' base URL.
    pub fn survey(&self, provider: &str, base_url: &str) -> Survey {
        let mut survey = Survey::default();
        let mut names = Names::new(LONGEST_NAME.saturating_sub(provider.len() + 1));
        let paths = self.root["paths"].as_object().into_iter().flatten();
        let mut weight = 0;
        for (path, item) in paths.filter(|(path, _)| !path.starts_with("x-")) {
            if !(path.is_empty() || path.starts_with('/')) || path.contains('#') {
                survey.leave_out("*", path, "its path is no path");
                continue;
            }
            let item = match self.resolve(item) {
                Ok(item) => item,
                Err(Dangling(reason)) => {
                    survey.leave_out("*", path, reason);
                    continue;
                }
            };
            for (key, operation) in item.as_object().into_iter().flatten() {
                let method = match key.as_str() {
                    "get" => Method::GET,
                    "post" => Method::POST,
                    "put" => Method::PUT,
                    "delete" => Method::DELETE,
                    "patch" => Method::PATCH,
                    "head" | "options" | "trace" => {
                        survey.leave_out(
                            key,
                            path,
                            format!("{} is not a tool's method", key.to_uppercase()),
                        );
                        continue;
                    }
                    _ => continue,
                };
                if weight > LARGEST_SURVEY {
                    survey.leave_out(key, path, "the document is too large, written out");
                    continue;
                }
                match self.operation(&method, path, item, operation, base_url, &mut weight) {
                    Ok(mut made) => {
                        made.id = names.unique(&made.original_id, &method, path);
                        survey.operations.push(made);
                    }
                    Err(Dangling(reason)) => survey.leave_out(method.as_str(), path, reason),
                }
            }
        }
        survey
    }

    fn operation(
        &self,
        method: &Method,
        path: &str,
        item: &Value,
        operation: &Value,
        base_url: &str,
        weight: &mut usize,
    ) -> Result<Operation, Dangling> {
        let prefix = self.server_prefix(item, operation, base_url)?;
        let parameters = self.parameters(item, operation)?;
        let mut inputs = Inputs::new(self);
        for parameter in &parameters.plain {
            inputs.parameter(parameter);
        }
        inputs.undeclared(path);
        let body = match &parameters.body {
            // The body of a GET has no defined meaning, so none is sent.
            _ if method == Method::GET => None,
            Some(body) => Some(body::of_version_2(self, operation, body)?),
            None => body::of_request_body(self, operation)?,
        };
        if let Some(body) = &body {
            inputs.body(body)?;
        }
        *weight += inputs.converter.weight;
        let text = |key: &str| operation[key].as_str().unwrap_or_default().trim();
        let description = match (text("summary"), text("description")) {
            (summary, "") => summary.to_owned(),
            ("", description) => description.to_owned(),
            (summary, description) if summary == description => summary.to_owned(),
            (summary, description) => format!("{summary} — {description}"),
        };
        let tags = operation["tags"].as_array().into_iter().flatten();
        Ok(Operation {
            id: String::new(),
            original_id: operation["operationId"]
                .as_str()
                .filter(|id| !id.trim().is_empty())
                .map(str::to_owned),
            method: method.clone(),
            endpoint: format!("{prefix}{path}"),
            tags: tags
                .filter_map(|tag| tag.as_str().map(str::to_owned))
                .collect(),
            description,
            input_schema: inputs.finish(),
        })
    }

    /// The path's parameters. The operation's own replace those of the same name and location.
    fn parameters<'d>(
        &'d self,
        item: &'d Value,
        operation: &'d Value,
    ) -> Result<parameter::All<'d>, Dangling> {
        let mut raw: Vec<&Value> = Vec::new();
        for holder in [item, operation] {
            for parameter in holder["parameters"].as_array().into_iter().flatten() {
                let parameter = self.resolve(parameter)?;
                if raw.len() >= MOST_PARAMETERS {
                    return Err(Dangling(format!(
                        "it has more than {MOST_PARAMETERS} parameters"
                    )));
                }
                raw.retain(|known| {
                    known["name"] != parameter["name"] || known["in"] != parameter["in"]
                });
                raw.push(parameter);
            }
        }
        parameter::read(self, &raw)
    }
}

impl Survey {
    fn leave_out(&mut self, method: &str, path: &str, reason: impl Into<String>) {
        self.left_out.push(LeftOut {
            method: method.to_uppercase(),
            path: path.to_owned(),
            reason: reason.into(),
        });
    }
}

/// Builds a tool's arguments.
struct Inputs<'d> {
    converter: Converter<'d>,
    properties: Map<String, Value>,
    required: Vec<Value>,
    whole: Map<String, Value>,
}

impl<'d> Inputs<'d> {
    fn new(document: &'d Document) -> Self {
        Inputs {
            converter: Converter::new(document),
            properties: Map::new(),
            required: Vec::new(),
            whole: Map::new(),
        }
    }

    fn parameter(&mut self, parameter: &Parameter<'_>) {
        let mut schema = self.converter.property(parameter.schema.as_deref());
        if let Some(description) = parameter.description {
            schema
                .entry("description")
                .or_insert_with(|| json!(description));
        }
        for (key, value) in parameter.marks(&schema) {
            schema.insert(key.to_owned(), value);
        }
        self.add(
            parameter.name,
            parameter.location,
            schema,
            parameter.required,
        );
    }

    /// Placeholders of the path without a declared parameter.
    fn undeclared(&mut self, path: &str) {
        for name in placeholders(path).filter(|name| !name.is_empty()) {
            let declared = self.properties.iter().any(|(known, schema)| {
                let wire = schema["x-ati-name"].as_str().unwrap_or(known);
                wire == name && schema["x-ati-param-location"] == "path"
            });
            if !declared {
                let schema = Map::from_iter([("type".to_owned(), json!("string"))]);
                self.add(name, "path", schema, true);
            }
        }
    }

    /// Of two arguments with one name in different locations, the later one gets its location
    /// appended.
    fn add(
        &mut self,
        name: &str,
        location: &str,
        mut schema: Map<String, Value>,
        required: bool,
    ) -> String {
        let mut chosen = name.to_owned();
        while self.properties.contains_key(&chosen) {
            chosen = format!("{chosen}_{location}");
        }
        schema.insert("x-ati-param-location".into(), json!(location));
        if chosen != name {
            schema.insert("x-ati-name".into(), json!(name));
        }
        if required {
            self.required.push(json!(chosen));
        }
        self.properties
            .insert(chosen.clone(), Value::Object(schema));
        chosen
    }

    fn body(&mut self, body: &Body<'_>) -> Result<(), Dangling> {
        let mut mark = |key: &str, value: Value| {
            self.whole.insert(key.to_owned(), value);
        };
        mark("x-ati-body-encoding", json!(body.encoding.word()));
        mark("x-ati-body-type", json!(body.media_type));
        let fields = if body.encoding.has_fields() {
            self.converter.flatten(&body.schema)
        } else {
            None
        };
        match fields {
            Some(fields) => {
                let mut together = Vec::new();
                for (name, schema) in fields.properties {
                    let required = body.required && fields.required.contains(&name);
                    let mut schema = self.converter.property(Some(&schema));
                    for (key, value) in body.field_marks(&name, &schema) {
                        schema.insert(key.to_owned(), value);
                    }
                    let chosen = self.add(&name, "body", schema, required);
                    together.push((chosen, fields.required.contains(&name)));
                }
                if body.required {
                    // A renamed argument needs its original name in the request.
                    let renamed = together.iter().any(|(name, ..)| name.ends_with("_body"));
                    if !fields.together.is_empty() && !renamed {
                        let together = Value::Array(fields.together);
                        self.whole.insert("allOf".into(), together);
                    }
                    self.whole.insert("x-ati-body-required".into(), json!(true));
                } else {
                    self.whole.insert("x-ati-body-optional".into(), json!(true));
                    self.whole.extend(all_or_nothing(&together));
                }
            }
            None => {
                let mut schema = self.converter.property(Some(&body.schema));
                if body.encoding == body::Encoding::Raw {
                    schema = body::raw_schema(&schema);
                }
                schema
                    .entry("description")
                    .or_insert_with(|| json!("The body of the request"));
                let name = self.add("body", "body", schema, body.required);
                self.whole.insert("x-ati-body-argument".into(), json!(name));
            }
        }
        Ok(())
    }

    fn finish(self) -> Value {
        let mut schema = Map::new();
        schema.insert("type".into(), json!("object"));
        schema.insert("properties".into(), Value::Object(self.properties));
        if !self.required.is_empty() {
            schema.insert("required".into(), Value::Array(self.required));
        }
        // Arguments without a property go into the body, as with every schema with locations.
        schema.insert("x-ati-param-location".into(), json!("body"));
        schema.extend(self.whole);
        let definitions = self.converter.definitions();
        if !definitions.is_empty() {
            schema.insert("$defs".into(), Value::Object(definitions));
        }
        Value::Object(schema)
    }
}

/// The rule of an optional body: with one of its fields, its required fields must be given too.
fn all_or_nothing(fields: &[(String, bool)]) -> Option<(String, Value)> {
    let required: Vec<&String> = fields
        .iter()
        .filter(|(_, needed)| *needed)
        .map(|(name, _)| name)
        .collect();
    if required.is_empty() || fields.len() * required.len() > 10_000 {
        return None;
    }
    let needs: Map<String, Value> = fields
        .iter()
        .map(|(name, _)| {
            let others: Vec<&&String> = required.iter().filter(|other| **other != name).collect();
            (name.clone(), json!(others))
        })
        .collect();
    Some(("dependentRequired".to_owned(), Value::Object(needs)))
}

/// Characters kept free for the number after a taken name.
const ROOM: usize = 7;

/// Names of tools: of safe characters, unique, and the same at every import.
struct Names {
    most: usize,
    taken: HashSet<String>,
    /// The last number appended to each name.
    numbers: BTreeMap<String, usize>,
}

impl Names {
    fn new(most: usize) -> Self {
        Names {
            most: most.max(8),
            taken: HashSet::new(),
            numbers: BTreeMap::new(),
        }
    }

    fn unique(&mut self, id: &Option<String>, method: &Method, path: &str) -> String {
        let wanted = match id {
            Some(id) => id.trim().to_owned(),
            None => made_up(method, path),
        };
        let mut name: String = wanted
            .chars()
            .map(|c| match c {
                'A'..='Z' | 'a'..='z' | '0'..='9' | '_' | '-' | '.' => c,
                _ => '_',
            })
            .take(self.most)
            .collect();
        if name.is_empty() {
            name = "_".to_owned();
        }
        // The number is counted per shortened name, which is what it is appended to.
        let stem: String = name.chars().take(self.most.saturating_sub(ROOM)).collect();
        while !self.taken.insert(name.clone()) {
            let number = self.numbers.entry(stem.clone()).or_insert(1);
            *number += 1;
            name = format!("{stem}_{number}");
        }
        name
    }
}

/// `get_pet_petId` for `GET /pet/{petId}`.
fn made_up(method: &Method, path: &str) -> String {
    let path: String = path
        .chars()
        .filter(|c| !matches!(c, '{' | '}'))
        .map(|c| if c == '/' { '_' } else { c })
        .collect();
    format!(
        "{}_{}",
        method.as_str().to_lowercase(),
        path.trim_matches('_')
    )
}
