//! What `ati run` takes for a file tool: files of this machine, where the tool itself takes bytes.

use serde_json::{Map, Value, json};

use crate::catalog::files::FileOperation;

/// The schema of the arguments on a command line, made of the tool's own.
pub fn on_command_line(operation: FileOperation, schema: &Value) -> Value {
    let text = |about: &str| json!({"type": "string", "description": about});
    let (added, without, required) = match operation {
        FileOperation::Download => (
            json!({
                "url": schema["properties"]["url"],
                "out": text("Write the file here; without it the result has it as base64"),
            }),
            &["delivery"][..],
            "url",
        ),
        FileOperation::Upload => (
            json!({
                "path": text("The file to send"),
                "object_name": text("Its name at the destination; by default its own"),
            }),
            &["filename", "content_base64", "file"][..],
            "path",
        ),
    };
    let mut properties = match added {
        Value::Object(added) => added,
        _ => Map::new(),
    };
    let own = schema["properties"].as_object();
    for (name, property) in own.into_iter().flatten() {
        if !without.contains(&name.as_str()) && !properties.contains_key(name) {
            properties.insert(name.clone(), property.clone());
        }
    }
    json!({"type": "object", "properties": properties, "required": [required]})
}

/// A line that can be typed.
pub fn example(operation: FileOperation) -> Value {
    let line = match operation {
        FileOperation::Download => {
            "ati run file_manager:download --url https://example.com/a.png --out a.png"
        }
        FileOperation::Upload => "ati run file_manager:upload --path report.pdf",
    };
    Value::from(line)
}
