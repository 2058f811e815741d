//! How values are written in a request: OpenAPI's styles, and ATI's own collection formats.

use serde_json::Value;

/// How a value is written: `x-ati-style` and `x-ati-explode`, or `x-ati-collection-format`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Style {
    pub form: Form,
    /// Each item or key gets a pair of its own.
    pub explode: bool,
    /// `x-ati-allow-reserved`: reserved characters are not encoded.
    pub reserved: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Form {
    /// In a query, lists repeat the name; in other places they are joined by commas. Objects are
    /// JSON.
    #[default]
    Plain,
    Simple,
    Label,
    Matrix,
    Form,
    Space,
    Tab,
    Pipe,
    Deep,
    Json,
}

impl Style {
    pub(super) fn new(schema: &Value) -> Self {
        let (form, explode) = match (
            schema["x-ati-style"].as_str(),
            schema["x-ati-collection-format"].as_str(),
        ) {
            (Some("simple"), _) => (Form::Simple, false),
            (Some("label"), _) => (Form::Label, false),
            (Some("matrix"), _) => (Form::Matrix, false),
            (Some("form"), _) => (Form::Form, true),
            (Some("spaceDelimited"), _) => (Form::Space, false),
            (Some("tabDelimited"), _) => (Form::Tab, false),
            (Some("pipeDelimited"), _) => (Form::Pipe, false),
            (Some("deepObject"), _) => (Form::Deep, true),
            (Some("json"), _) => (Form::Json, false),
            (_, Some("csv")) => (Form::Form, false),
            (_, Some("ssv")) => (Form::Space, false),
            (_, Some("tsv")) => (Form::Tab, false),
            (_, Some("pipes")) => (Form::Pipe, false),
            _ => (Form::Plain, true),
        };
        Style {
            form,
            explode: schema["x-ati-explode"].as_bool().unwrap_or(explode),
            reserved: schema["x-ati-allow-reserved"] == true,
        }
    }
}
