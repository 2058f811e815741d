//! `ati provider inspect-openapi`.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::super::{Format, output};
use super::import::{self, Imported};
use crate::catalog::openapi::{Operation, Scheme};
use crate::error::Failure;

#[derive(clap::Args)]
pub struct Inspect {
    /// The OpenAPI document: a file, or an http or https URL
    spec: String,

    /// Only operations with this tag; repeatable
    #[arg(long)]
    include_tags: Vec<String>,
}

pub fn inspect(args: &Inspect, asked: Option<Format>) -> Result<u8, Failure> {
    let imported = import::read(&args.spec, None, &args.include_tags)?;
    output::lines_or_value(asked, || print(&imported), || as_json(&imported));
    Ok(0)
}

fn as_json(imported: &Imported) -> Value {
    let (document, survey) = (&imported.document, &imported.survey);
    let scheme = document.auth().scheme;
    let mut auth = json!({ "type": scheme.auth_type() });
    match &scheme {
        Scheme::Header(name) => auth["header_name"] = json!(name),
        Scheme::Query(name) => auth["query_name"] = json!(name),
        _ => {}
    }
    let operation = |operation: &Operation| {
        json!({
            "id": operation.id,
            "method": operation.method.as_str(),
            "path": operation.endpoint,
            "tags": operation.tags,
            "description": operation.description,
        })
    };
    let left_out = survey
        .left_out
        .iter()
        .map(|left| json!({"method": left.method, "path": left.path, "reason": left.reason}));
    json!({
        "title": document.title(),
        "version": document.version_text(),
        "description": document.description(),
        "base_url": imported.base_url,
        "auth": auth,
        "operations": survey.operations.iter().map(operation).collect::<Vec<_>>(),
        "left_out": left_out.collect::<Vec<_>>(),
    })
}

fn print(imported: &Imported) {
    let document = &imported.document;
    let title = format!("OpenAPI: {} v{}", document.title(), document.version_text());
    output::line(&output::printable(&title));
    let description: String = document.description().chars().take(120).collect();
    if !description.is_empty() {
        output::line(&format!("  {}", description.replace(char::is_control, " ")));
    }
    output::line(&output::printable(&format!(
        "Base URL: {}",
        imported.base_url
    )));
    let scheme = document.auth().scheme;
    let detail = match &scheme {
        Scheme::Header(name) => format!(" (auth_header_name={name})"),
        Scheme::Query(name) => format!(" (auth_query_name={name})"),
        _ => String::new(),
    };
    output::line(&format!("Auth: {}{detail}", scheme.auth_type()));
    output::line(&format!(
        "\nOperations ({}):",
        imported.survey.operations.len()
    ));
    let mut by_tag: BTreeMap<&str, Vec<&Operation>> = BTreeMap::new();
    for operation in &imported.survey.operations {
        let tag = operation.tags.first().map_or("(untagged)", String::as_str);
        by_tag.entry(tag).or_default().push(operation);
    }
    for (tag, operations) in by_tag {
        let tag = output::printable(tag);
        output::line(&format!("  TAG: {tag} ({} operations)", operations.len()));
        for operation in operations {
            let text: String = operation.description.chars().take(50).collect();
            let line = format!(
                "    {:<24} {:<7} {:<30} {}",
                operation.id,
                operation.method.as_str(),
                operation.endpoint,
                text.replace(char::is_control, " ")
            );
            output::line(output::printable(&line).trim_end());
        }
    }
    if !imported.survey.left_out.is_empty() {
        output::line(&format!("\nLeft out ({}):", imported.survey.left_out.len()));
        for operation in &imported.survey.left_out {
            let line = format!(
                "    {:<7} {:<30} {}",
                operation.method, operation.path, operation.reason
            );
            output::line(&output::printable(&line));
        }
    }
}
