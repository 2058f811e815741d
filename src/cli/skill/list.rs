//! `ati skill list`, `search` and `resolve`.

use std::path::Path;

use serde_json::Value;

use super::super::{Format, output};
use super::view::View;
use crate::error::Failure;
use crate::skills::registry::Filter;

#[derive(clap::Args)]
pub struct Filters {
    /// Only skills of this category; other filters are ignored then
    #[arg(long, value_name = "NAME")]
    category: Option<String>,

    /// Only skills of this provider; --tool is ignored then
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,

    /// Only skills of this tool
    #[arg(long, value_name = "NAME")]
    tool: Option<String>,
}

/// The keys of a row.
const KEYS: [&str; 6] = [
    "name",
    "version",
    "description",
    "tools",
    "providers",
    "categories",
];

pub fn list(filters: &Filters, format: Format) -> Result<u8, Failure> {
    let filter = Filter {
        search: None,
        category: filters.category.as_deref(),
        provider: filters.provider.as_deref(),
        tool: filters.tool.as_deref(),
    };
    print(View::open()?.rows(&filter)?, format);
    Ok(0)
}

pub fn search(query: &str, format: Format) -> Result<u8, Failure> {
    let filter = Filter {
        search: Some(query),
        ..Filter::default()
    };
    print(View::open()?.rows(&filter)?, format);
    Ok(0)
}

fn print(rows: Vec<Value>, format: Format) {
    let rows: Vec<Value> = rows.into_iter().map(shown).collect();
    match format {
        Format::Json => output::pretty(&rows),
        Format::Text | Format::Table if rows.is_empty() => output::line("No skills found."),
        Format::Table => output::value(&Value::Array(rows), format),
        Format::Text => {
            for row in &rows {
                let text = |key: &str| row[key].as_str().unwrap_or_default();
                let (name, version) = (text("name"), text("version"));
                let line = format!("{name:<30} v{version:<8} {}", text("description"));
                output::line(output::printable(line.trim_end()).as_str());
            }
        }
    }
}

pub fn resolve(scopes: Option<&Path>, format: Format) -> Result<u8, Failure> {
    let rows: Vec<Value> = View::open()?
        .resolve(scopes)?
        .into_iter()
        .map(shown)
        .collect();
    match format {
        Format::Json => output::pretty(&rows),
        Format::Text | Format::Table if rows.is_empty() => {
            output::line("No skills auto-resolve for the current scopes.");
        }
        Format::Table => output::value(&Value::Array(rows), format),
        Format::Text => {
            output::line("Skills that auto-load for current scopes:");
            for row in &rows {
                let text = |key: &str| row[key].as_str().unwrap_or_default();
                let line = format!("  {:<30} {}", text("name"), text("description"));
                output::line(output::printable(line.trim_end()).as_str());
            }
        }
    }
    Ok(0)
}

/// The keys that a row has on the command line.
fn shown(mut row: Value) -> Value {
    if let Value::Object(row) = &mut row {
        row.retain(|key, _| KEYS.contains(&key.as_str()));
    }
    row
}
