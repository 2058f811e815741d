use super::FieldKind::{Free, Table, Text, TextList, Word};
use super::{Group, field};

pub(super) const METHODS: &[&str] = &["GET", "POST", "PUT", "DELETE", "PATCH"];

/// How `ati run --output text` prints a result.
pub const RESULT_FORMATS: &[&str] = &["text", "json", "markdown_table", "raw"];

pub(super) const TOOLS: Group = Group {
    table: "tools",
    title: "`[[tools]]`",
    handler: None,
    fields: &[
        field("name", Text, "The name that callers use"),
        field("description", Text, "What it does"),
        field("endpoint", Text, "The path below `base_url`"),
        field("method", Word(METHODS), "Case-insensitive").default("`GET`"),
        field(
            "scope",
            Text,
            "The scope that a caller needs; `\"\"` means none",
        )
        .default("`tool:<name>`"),
        field(
            "input_schema",
            Free,
            "A JSON Schema; `x-ati-*` says where an argument is sent",
        ),
        field(
            "response",
            Table("response"),
            "What is taken from the answer",
        ),
        field("tags", TextList, "For search").default("`[]`"),
        field("hint", Text, "Short guidance for callers"),
        field("examples", Free, "Example calls").default("`[]`"),
        field(
            "effects",
            Free,
            "What a call does, in the words of ATIP: `destructive`, `idempotent`, `network` and \
             so on",
        ),
    ],
};

pub(super) const RESPONSE: Group = Group {
    table: "response",
    title: "`[tools.response]`",
    handler: None,
    fields: &[
        field("extract", Text, "JSONPath (RFC 9535)"),
        field(
            "format",
            Word(RESULT_FORMATS),
            "How `ati run --output text` prints the result",
        )
        .default("`text`"),
    ],
};
