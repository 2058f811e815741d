//! Prints the result of a call.

use serde_json::Value;
use serde_json::value::RawValue;

use super::layout;
use crate::catalog::ResultFormat;
use crate::cli::{Format, output};

/// The tool's own format counts where the caller wants text.
pub fn print(result: &RawValue, format: Format, wanted: ResultFormat) {
    let Ok(value) = serde_json::from_str::<Value>(result.get()) else {
        // JSON that is nested too deep for serde_json is printed as it came.
        return output::line(result.get());
    };
    match (format, wanted) {
        (Format::Json, _) | (Format::Text, ResultFormat::Json) => {
            output::line(&layout::pretty(result.get()));
        }
        (Format::Text, ResultFormat::MarkdownTable) => match markdown(&value) {
            Some(table) => output::line(&table),
            None => output::value(&value, format),
        },
        (Format::Text, ResultFormat::Raw) => output::exact(&match value {
            // The upstream's text was no JSON.
            Value::String(text) => text,
            _ => result.get().to_owned(),
        }),
        _ => output::value(&value, format),
    }
}

/// A table for a list of objects; None for anything else.
fn markdown(value: &Value) -> Option<String> {
    let (headers, rows) = output::as_table(value).filter(|_| value.is_array())?;
    let row = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|cell| escaped(cell)).collect();
        format!("| {} |", cells.join(" | "))
    };
    let mut lines = vec![
        row(&headers),
        format!("|{}", " --- |".repeat(headers.len())),
    ];
    lines.extend(rows.iter().map(|cells| row(cells)));
    Some(lines.join("\n"))
}

fn escaped(cell: &str) -> String {
    output::printable(&cell.replace("\r\n", "\n").replace('\n', "<br>"))
        .replace('\\', "\\\\")
        .replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn list_of_objects_becomes_a_markdown_table() {
        let list = json!([{"b": 1, "a": "x|y"}, {"a": "two\nlines", "c": [true]}]);
        assert_eq!(
            markdown(&list).unwrap(),
            "| a | b | c |\n| --- | --- | --- |\n| x\\|y | 1 |  |\n| two<br>lines |  | [true] |"
        );
        for other in [json!({"a": 1}), json!([1]), json!([]), json!("x")] {
            assert_eq!(markdown(&other), None, "{other}");
        }
    }
}
