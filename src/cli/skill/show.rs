//! `ati skill show`, `info` and `read`.

use serde_json::{Map, Value, json};

use super::super::{Format, output};
use super::view::{Text, View};
use crate::error::Failure;

pub fn show(name: &str, refs: bool, asked: Option<Format>) -> Result<u8, Failure> {
    let view = View::open()?;
    let text = view.text(name)?;
    let references = match refs {
        true => Some(view.references(name)?),
        false => None,
    };
    output::lines_or_value(
        asked,
        || {
            print(&text.content);
            if let Some(references) = &references {
                output::line("\n--- References ---");
                references.iter().for_each(|name| output::line(name));
            }
        },
        || {
            let mut value = as_json(&text);
            if let Some(references) = &references {
                value["references"] = json!(references);
            }
            value
        },
    );
    Ok(0)
}

pub fn read(
    name: Option<&str>,
    tool: Option<&str>,
    with_refs: bool,
    asked: Option<Format>,
) -> Result<u8, Failure> {
    let view = View::open()?;
    let names: Vec<String> = match (name, tool) {
        (Some(name), _) => vec![name.to_owned()],
        (None, tool) => view.of_tool(tool.unwrap_or_default())?,
    };
    let mut texts = Vec::new();
    for name in &names {
        let references = match with_refs {
            true => view.reference_texts(name)?,
            false => Vec::new(),
        };
        texts.push((view.text(name)?, references));
    }
    output::lines_or_value(
        asked,
        || {
            if texts.is_empty() {
                output::line("No skills found.");
            }
            for (at, (text, references)) in texts.iter().enumerate() {
                if at > 0 {
                    output::line("\n---\n");
                }
                print(&text.content);
                for (path, content) in references {
                    output::line(&format!("\n--- Reference: {path} ---"));
                    print(content);
                }
            }
        },
        || {
            let mut values = texts.iter().map(|(text, references)| {
                let mut value = as_json(text);
                if with_refs {
                    let each = references.iter();
                    let all: Map<String, Value> = each
                        .map(|(path, text)| (path.clone(), json!(text)))
                        .collect();
                    value["references"] = Value::Object(all);
                }
                value
            });
            match name.and_then(|_| values.next()) {
                Some(one) => one,
                None => values.collect(),
            }
        },
    );
    Ok(0)
}

fn print(text: &str) {
    output::line(text.trim_end_matches('\n'));
}

fn as_json(text: &Text) -> Value {
    json!({
        "name": text.name,
        "version": text.version,
        "description": text.description,
        "content": text.content,
    })
}

pub fn info(name: &str, format: Format) -> Result<u8, Failure> {
    let meta = View::open()?.meta(name)?;
    if format != Format::Text {
        output::value(&meta, format);
        return Ok(0);
    }
    for (label, key) in [
        ("Name", "name"),
        ("Version", "version"),
        ("Description", "description"),
        ("Author", "author"),
        ("License", "license"),
        ("Compat", "compatibility"),
        ("Allowed", "allowed_tools"),
        ("Format", "format"),
        ("Tools", "tools"),
        ("Providers", "providers"),
        ("Categories", "categories"),
        ("Keywords", "keywords"),
        ("Hint", "hint"),
        ("Depends on", "depends_on"),
        ("Suggests", "suggests"),
        ("Metadata", "metadata"),
        ("Directory", "directory"),
    ] {
        let text = in_one_line(&meta[key]);
        if !text.is_empty() {
            output::line(&format!("{:<13}{text}", format!("{label}:")));
        }
    }
    Ok(0)
}

fn in_one_line(value: &Value) -> String {
    let text = match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(in_one_line).collect();
            items.join(", ")
        }
        Value::Object(map) => {
            let pairs = map.iter();
            let pairs: Vec<String> = pairs
                .map(|(key, value)| format!("{key}={}", in_one_line(value)))
                .collect();
            pairs.join(", ")
        }
        other => other.to_string(),
    };
    output::printable(&text)
}
