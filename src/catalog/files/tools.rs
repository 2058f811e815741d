//! The two file tools as callers see them.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{FileOperation, PROVIDER};
use crate::catalog::invocation::Invocation;
use crate::catalog::provider::Provider;
use crate::catalog::result_format::ResultFormat;
use crate::catalog::schema::Schema;
use crate::catalog::tool::{Tool, default_scope};
use crate::telemetry::metrics::METRICS;

/// Arguments that the command line takes for itself. An agent that sends them over the wire is
/// told nothing of it, as by existing deployments.
pub const COMMAND_LINE_ONLY: [&str; 4] = ["out", "inline", "path", "object_name"];

/// The tools of a `file_manager` whose manifest writes none down. Their names are fixed, whatever
/// the provider's name is.
pub fn builtin(provider: &Arc<Provider>) -> impl Iterator<Item = Tool> {
    FileOperation::ALL.into_iter().map(|operation| {
        let name = format!("{PROVIDER}:{}", operation.name());
        Tool {
            metrics: METRICS.tool(&provider.name, &name),
            provider: provider.clone(),
            description: description(operation).to_owned(),
            scope: default_scope(&name, provider),
            invocation: Invocation::Files(operation),
            schema: Schema::new(operation.schema()),
            extract: None,
            format: ResultFormat::default(),
            tags: vec!["files".to_owned(), operation.name().to_owned()],
            hint: Some(hint(operation).to_owned()),
            examples: Vec::new(),
            effects: None,
            name,
        }
    })
}

fn description(operation: FileOperation) -> &'static str {
    match operation {
        FileOperation::Download => {
            "Download a file from a URL. The answer has its bytes as base64, its size, type and \
             SHA-256"
        }
        FileOperation::Upload => {
            "Upload a file to one of the operator's destinations. The answer has its URL"
        }
    }
}

fn hint(operation: FileOperation) -> &'static str {
    match operation {
        FileOperation::Download => {
            "On the command line, --out <file> writes the bytes to a file instead"
        }
        FileOperation::Upload => {
            "On the command line, --path <file> takes the place of filename and content_base64; \
             --object_name <name> gives it another name"
        }
    }
}

impl FileOperation {
    pub(in crate::catalog) fn schema(self) -> Value {
        match self {
            FileOperation::Download => json!({
                "type": "object",
                "properties": {
                    "url": {"type": "string", "description": "The http or https URL of the file"},
                    "max_bytes": {
                        "type": "integer",
                        "minimum": 1,
                        "description": "Fail if the file has more bytes than this; 500 MiB by default"
                    },
                    "timeout": {
                        "type": "integer",
                        "minimum": 1,
                        "description": "Seconds for the whole download; 120 by default"
                    },
                    "follow_redirects": {
                        "type": "boolean",
                        "description": "Follow up to 10 redirects; true by default"
                    },
                    "headers": {
                        "type": ["object", "string"],
                        "description": "More request headers: an object, or the JSON text of one"
                    },
                    "delivery": {
                        "type": "string",
                        "enum": ["inline", "file"],
                        "description": "file: the answer has the id of a file for GET /files/{id} \
                                        instead of its bytes"
                    }
                },
                "required": ["url"]
            }),
            FileOperation::Upload => json!({
                "type": "object",
                "properties": {
                    "filename": {
                        "type": "string",
                        "description": "The file's name; folders before it are left out"
                    },
                    "content_base64": {"type": "string", "description": "The file's bytes as base64"},
                    "file": {
                        "type": "string",
                        "description": "In place of content_base64: the id of a file of PUT /files"
                    },
                    "content_type": {
                        "type": "string",
                        "description": "The media type; by default the one of the name's extension"
                    },
                    "destination": {
                        "type": "string",
                        "description": "One of the operator's destinations, where it isn't the default"
                    }
                },
                "required": ["filename"]
            }),
        }
    }
}
