//! OpenAPI 2.0, 3.0 and 3.1, JSON and YAML: makes tools out of a document. Documents are untrusted,
//! so size, depth and references are bounded. Every operation is accounted for: registered, or left
//! out with the reason.

mod auth;
mod body;
mod document;
mod operation;
mod parameter;
mod schema;
mod server;

use http::Method;
use serde_json::Value;

pub use auth::{Detected, Scheme};
pub use document::{Document, LARGEST, Unreadable};

/// One operation, ready to become a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct Operation {
    /// Unique within the document, of letters, digits and a few safe characters.
    pub id: String,
    /// The document's own `operationId`, where it has one.
    pub original_id: Option<String>,
    pub method: Method,
    /// The path with its `{}`, after the provider's base URL.
    pub endpoint: String,
    pub tags: Vec<String>,
    pub description: String,
    /// Its `x-ati-*` keys say where each argument goes.
    pub input_schema: Value,
}

/// An operation that is left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    pub method: String,
    pub path: String,
    pub reason: String,
}

/// All operations of a document, in its order.
#[derive(Debug, Default)]
pub struct Survey {
    pub operations: Vec<Operation>,
    pub left_out: Vec<LeftOut>,
}

/// The operations that a manifest selects.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    pub include_operations: Vec<String>,
    pub exclude_operations: Vec<String>,
    pub include_tags: Vec<String>,
    pub exclude_tags: Vec<String>,
    pub most: Option<usize>,
}

impl Selection {
    /// Why an operation is not selected.
    fn refuses(&self, operation: &Operation, taken: usize) -> Option<&'static str> {
        let named = |list: &[String]| {
            list.iter()
                .any(|id| *id == operation.id || Some(id) == operation.original_id.as_ref())
        };
        let tagged = |list: &[String]| list.iter().any(|tag| operation.tags.contains(tag));
        if !self.include_operations.is_empty() && !named(&self.include_operations) {
            Some("not in openapi_include_operations")
        } else if named(&self.exclude_operations) {
            Some("in openapi_exclude_operations")
        } else if !self.include_tags.is_empty() && !tagged(&self.include_tags) {
            Some("no tag of openapi_include_tags")
        } else if tagged(&self.exclude_tags) {
            Some("a tag of openapi_exclude_tags")
        } else if self.most.is_some_and(|most| taken >= most) {
            Some("beyond openapi_max_operations")
        } else {
            None
        }
    }
}

impl Survey {
    /// Keeps the selected operations and lists the others as left out.
    pub fn select(mut self, selection: &Selection) -> Self {
        let mut taken = Vec::new();
        for operation in self.operations {
            match selection.refuses(&operation, taken.len()) {
                None => taken.push(operation),
                Some(reason) => self.left_out.push(LeftOut {
                    method: operation.method.to_string(),
                    path: operation.endpoint,
                    reason: reason.to_owned(),
                }),
            }
        }
        Survey {
            operations: taken,
            left_out: self.left_out,
        }
    }
}

#[cfg(test)]
mod tests;
