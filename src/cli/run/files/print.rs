//! Prints the answer of a download. A big file among it is encoded while it is printed.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::value::to_raw_value;
use serde_json::{Map, Value};

use super::sink::Received;
use crate::call::payload::CONTENT;
use crate::catalog::ResultFormat;
use crate::cli::run::{layout, result};
use crate::cli::{Format, output};
use crate::error::{Code, Failure};
use crate::spool::Spooled;

pub fn print(
    mut facts: Map<String, Value>,
    file: Option<Received>,
    format: Format,
    wanted: ResultFormat,
) -> Result<(), Failure> {
    facts.shift_remove(CONTENT);
    let file = match file {
        None => None,
        Some(Received::Out(path)) => {
            facts.insert("path".to_owned(), path.into());
            None
        }
        Some(Received::Spooled(file)) => Some(file),
    };
    let whole = match &file {
        None => None,
        // A table has to know every cell.
        Some(file) if file.in_memory().is_some() || format == Format::Table => Some(encoded(file)?),
        Some(file) => return in_pieces(facts, file, format),
    };
    if let Some(text) = whole {
        facts.insert(CONTENT.to_owned(), text.into());
    }
    let raw = to_raw_value(&facts).map_err(|e| Failure::from_error(Code::ExecutionFailed, e))?;
    result::print(&raw, format, wanted);
    Ok(())
}

fn encoded(file: &Spooled) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    let read = std::io::Read::read_to_end(&mut file.blocking_reader(), &mut bytes);
    read.map_err(|e| Failure::new(Code::ExecutionFailed, "the file").because(e))?;
    Ok(STANDARD.encode(bytes))
}

/// The same text, made around a mark that stands for the file.
fn in_pieces(mut facts: Map<String, Value>, file: &Spooled, format: Format) -> Result<(), Failure> {
    let mark = uuid::Uuid::new_v4().simple().to_string();
    facts.insert(CONTENT.to_owned(), mark.clone().into());
    let value = Value::Object(facts);
    let text = match format {
        Format::Json => layout::pretty(&value.to_string()),
        Format::Text | Format::Table => output::text_of(&value),
    };
    let (before, after) = text.split_once(&mark).unwrap_or((&text, ""));
    output::encoded_file(before, file.blocking_reader(), after);
    Ok(())
}
