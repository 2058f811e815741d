//! Every field of a manifest, said once: for the reference page and for the JSON Schema that editors use.

use serde_json::{Map, Value, json};

use super::HandlerKind;

pub struct Field {
    pub name: &'static str,
    pub kind: Kind,
    /// As the page says it; empty where there is none.
    pub default: &'static str,
    pub meaning: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Text,
    Flag,
    Number,
    TextList,
    TextMap,
    /// One of these words.
    Word(&'static [&'static str]),
    /// Anything: a JSON Schema, say.
    Free,
    /// A table of this group's fields.
    Table(&'static str),
    /// Tables of this group's fields, by name.
    TableMap(&'static str),
    NumberMap,
}

impl Kind {
    /// For the page.
    pub fn words(self) -> String {
        match self {
            Kind::Text => "text".to_owned(),
            Kind::Flag => "true or false".to_owned(),
            Kind::Number => "number".to_owned(),
            Kind::TextList => "list of texts".to_owned(),
            Kind::TextMap => "texts by name".to_owned(),
            Kind::NumberMap => "numbers by name".to_owned(),
            Kind::Word(words) => words
                .iter()
                .map(|word| format!("`{word}`"))
                .collect::<Vec<_>>()
                .join(", "),
            Kind::Free => "any".to_owned(),
            Kind::Table(_) => "table".to_owned(),
            Kind::TableMap(_) => "tables by name".to_owned(),
        }
    }
}

pub struct Group {
    /// The table's name in a manifest.
    pub table: &'static str,
    pub title: &'static str,
    pub fields: &'static [Field],
}

const fn field(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    meaning: &'static str,
) -> Field {
    Field {
        name,
        kind,
        default,
        meaning,
    }
}

use Kind::{Flag, Free, Number, NumberMap, Table, TableMap, Text, TextList, TextMap, Word};

const AUTH: &[&str] = &[
    "none", "bearer", "header", "query", "basic", "oauth2", "url",
];
const METHODS: &[&str] = &["GET", "POST", "PUT", "DELETE", "PATCH"];

/// In the order of the page. Groups with the same table are one table of a manifest.
pub const GROUPS: &[Group] = &[
    Group {
        table: "provider",
        title: "Every provider",
        fields: &[
            field(
                "name",
                Text,
                "",
                "Its name; tools of OpenAPI and MCP are called `<name>:<tool>`",
            ),
            field(
                "description",
                Text,
                "",
                "What it is, for people and for search",
            ),
            field(
                "handler",
                Word(&HandlerKind::NAMES),
                "`http`",
                "What its tools are",
            ),
            field("base_url", Text, "", "Where it is: `http://` or `https://`"),
            field("category", Text, "", "Found by search"),
            field(
                "internal",
                Flag,
                "`false`",
                "Neither listed nor callable by agents",
            ),
            field("skills", TextList, "`[]`", "Skills that go with it"),
            field(
                "auth_session_token_env",
                Text,
                "`ATI_SESSION_TOKEN`",
                "The variable in which a sandbox keeps its token for these tools",
            ),
            field(
                "egress",
                Text,
                "",
                "One of `[egress.addresses]` of the conf file: the address to connect from",
            ),
        ],
    },
    Group {
        table: "provider",
        title: "Credentials",
        fields: &[
            field(
                "auth_type",
                Word(AUTH),
                "`none`",
                "How the credential is presented",
            ),
            field(
                "auth_key_name",
                Text,
                "",
                "Its name in the keyring; for `oauth2` the client's id",
            ),
            field("auth_header_name", Text, "`X-Api-Key`", "For `header`"),
            field(
                "auth_value_prefix",
                Text,
                "",
                "For `header`: what stands before the value",
            ),
            field("auth_query_name", Text, "`api_key`", "For `query`"),
            field(
                "auth_secret_name",
                Text,
                "",
                "For `oauth2`: the client's secret",
            ),
            field(
                "oauth2_token_url",
                Text,
                "",
                "For `oauth2`: absolute, or below `base_url`; https",
            ),
            field(
                "oauth2_basic_auth",
                Flag,
                "`false`",
                "For `oauth2`: id and secret as Basic instead of in the form",
            ),
            field(
                "extra_headers",
                TextMap,
                "`{}`",
                "Sent with every request; `${name}` stands for a credential",
            ),
            field(
                "auth_generator",
                Table("auth_generator"),
                "",
                "A program that mints the credential",
            ),
        ],
    },
    Group {
        table: "provider",
        title: "`handler = \"openapi\"`",
        fields: &[
            field(
                "openapi_spec",
                Text,
                "",
                "The document: a file's name below `specs/`",
            ),
            field(
                "openapi_include_operations",
                TextList,
                "`[]`",
                "Only these, by operation id",
            ),
            field("openapi_exclude_operations", TextList, "`[]`", "Not these"),
            field(
                "openapi_include_tags",
                TextList,
                "`[]`",
                "Only with one of these tags",
            ),
            field(
                "openapi_exclude_tags",
                TextList,
                "`[]`",
                "Not with one of these tags",
            ),
            field(
                "openapi_max_operations",
                Number,
                "",
                "The first so many, in the document's order",
            ),
            field(
                "openapi_overrides",
                TableMap("openapi_overrides"),
                "",
                "By operation id",
            ),
        ],
    },
    Group {
        table: "openapi_overrides",
        title: "`[provider.openapi_overrides.<operationId>]`",
        fields: &[
            field("description", Text, "", "In place of the document's"),
            field("hint", Text, "", "Short guidance"),
            field("tags", TextList, "`[]`", "Besides the document's"),
            field(
                "scope",
                Text,
                "`tool:<name>`",
                "The scope that a caller needs",
            ),
            field(
                "response_extract",
                Text,
                "",
                "As `extract` of `[tools.response]`",
            ),
            field("response_format", Text, "", "Known, and without effect"),
        ],
    },
    Group {
        table: "provider",
        title: "`handler = \"passthrough\"`",
        fields: &[
            field("host_match", Text, "", "Route by `Host`"),
            field(
                "path_prefix",
                Text,
                "",
                "Route by path, on a segment boundary",
            ),
            field("strip_prefix", Flag, "`true`", "Cut the prefix off"),
            field(
                "path_replace",
                TextList,
                "",
                "`[\"/from\", \"/to\"]`, after the cut",
            ),
            field(
                "host_override",
                Text,
                "",
                "The `Host` that the upstream sees",
            ),
            field(
                "deny_paths",
                TextList,
                "`[]`",
                "Patterns on the rewritten path: 403",
            ),
            field(
                "forward_authorization_paths",
                TextList,
                "`[]`",
                "There, the caller's `Authorization` goes on",
            ),
            field("connect_timeout_seconds", Number, "5", "TCP and TLS"),
            field("read_timeout_seconds", Number, "300", "Inactivity"),
            field(
                "idle_timeout_seconds",
                Number,
                "60",
                "How long an unused upstream connection is kept",
            ),
            field("max_request_bytes", Number, "100 MiB", "0 is unlimited"),
            field("max_response_bytes", Number, "500 MiB", "0 is unlimited"),
            field("forward_websockets", Flag, "`false`", "Relay WebSockets"),
        ],
    },
    Group {
        table: "provider",
        title: "`handler = \"mcp\"`",
        fields: &[
            field(
                "mcp_transport",
                Word(&["stdio", "http"]),
                "`stdio`",
                "How the server is reached",
            ),
            field("mcp_command", Text, "", "For `stdio`: the program"),
            field("mcp_args", TextList, "`[]`", "For `stdio`: its arguments"),
            field(
                "mcp_env",
                TextMap,
                "`{}`",
                "For `stdio`: its environment; `${name}` stands for a credential",
            ),
            field("mcp_url", Text, "", "For `http`"),
            field(
                "mcp_url_env",
                Text,
                "",
                "For `http`: the sandbox's variable with another URL",
            ),
        ],
    },
    Group {
        table: "provider",
        title: "`handler = \"cli\"`",
        fields: &[
            field("cli_command", Text, "", "The program"),
            field(
                "cli_default_args",
                TextList,
                "`[]`",
                "Before all other arguments",
            ),
            field(
                "cli_env",
                TextMap,
                "`{}`",
                "Its environment; `${name}` stands for a credential, `@{name}` for a file with it",
            ),
            field("cli_timeout_secs", Number, "120", "When it is ended"),
            field(
                "cli_output_args",
                TextList,
                "`[]`",
                "Flags whose value is a file that it writes",
            ),
            field(
                "cli_output_positional",
                NumberMap,
                "`{}`",
                "By subcommand: which word is a file that it writes",
            ),
        ],
    },
    Group {
        table: "provider",
        title: "`handler = \"file_manager\"`",
        fields: &[
            field(
                "upload_destinations",
                Free,
                "`{}`",
                "Where files may go, by name",
            ),
            field(
                "upload_default_destination",
                Text,
                "",
                "The one that is used where none is named",
            ),
        ],
    },
    Group {
        table: "auth_generator",
        title: "`[provider.auth_generator]`",
        fields: &[
            field("type", Word(&["command", "script"]), "", "What is run"),
            field("command", Text, "", "For `command`"),
            field(
                "args",
                TextList,
                "`[]`",
                "For `command`; `${JWT_SUB}`, `${JWT_SCOPE}`, `${TOOL_NAME}`, `${TIMESTAMP}` and credentials",
            ),
            field("interpreter", Text, "`bash`", "For `script`"),
            field("script", Text, "", "For `script`"),
            field("env", TextMap, "`{}`", "With the same variables"),
            field(
                "output_format",
                Word(&["text", "json"]),
                "`text`",
                "What it prints",
            ),
            field(
                "inject",
                TableMap("inject"),
                "`{}`",
                "For `json`: a dot path, and where what is there goes",
            ),
            field(
                "cache_ttl_secs",
                Number,
                "0",
                "How long it is kept, for each subject",
            ),
            field("timeout_secs", Number, "30", "When it is ended"),
        ],
    },
    Group {
        table: "inject",
        title: "`[provider.auth_generator.inject.<path>]`",
        fields: &[
            field(
                "type",
                Word(&["header", "env", "query"]),
                "",
                "`query`: the value that `auth_type` presents",
            ),
            field("name", Text, "", "Of the header or the variable"),
        ],
    },
    Group {
        table: "tools",
        title: "`[[tools]]`",
        fields: &[
            field("name", Text, "", "What it is called by"),
            field("description", Text, "", "What it does"),
            field("endpoint", Text, "", "Its path below `base_url`"),
            field("method", Word(METHODS), "`GET`", "In any case"),
            field(
                "scope",
                Text,
                "`tool:<name>`",
                "The scope that a caller needs; `\"\"` is none",
            ),
            field(
                "input_schema",
                Free,
                "",
                "A JSON Schema, with `x-ati-*` for where arguments go",
            ),
            field(
                "response",
                Table("response"),
                "",
                "What becomes of the answer",
            ),
            field("tags", TextList, "`[]`", "Found by search"),
            field("hint", Text, "", "Short guidance"),
            field("examples", Free, "`[]`", "How it is called"),
        ],
    },
    Group {
        table: "response",
        title: "`[tools.response]`",
        fields: &[
            field("extract", Text, "", "JSONPath (RFC 9535)"),
            field(
                "format",
                Text,
                "",
                "Known, and without effect: `--output` decides how a result looks",
            ),
        ],
    },
];

/// A value that a field of this kind could have.
#[cfg(test)]
fn sample(kind: Kind) -> toml::Value {
    use toml::Value as T;
    match kind {
        Text => T::String("http://h".into()),
        Flag => T::Boolean(true),
        Number => T::Integer(1),
        TextList => T::Array(vec![T::String("/a".into()), T::String("/b".into())]),
        Word(words) => T::String(words[0].into()),
        TextMap | NumberMap | Free | TableMap(_) => T::Table(toml::Table::new()),
        Table(table) => T::Table(sample_table(table)),
    }
}

#[cfg(test)]
pub fn sample_table(table: &str) -> toml::Table {
    let groups = GROUPS.iter().filter(|group| group.table == table);
    let fields = groups.flat_map(|group| group.fields);
    fields
        .map(|field| (field.name.to_owned(), sample(field.kind)))
        .collect()
}

/// The names of a table's fields.
pub fn names(table: &str) -> impl Iterator<Item = &'static str> {
    let groups = GROUPS.iter().filter(move |group| group.table == table);
    groups
        .flat_map(|group| group.fields)
        .map(|field| field.name)
}

pub fn json_schema() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "ATI manifest",
        "type": "object",
        "required": ["provider"],
        "properties": {
            "provider": table_schema("provider", &["name"]),
            "tools": {"type": "array", "items": table_schema("tools", &["name"])},
        },
        "additionalProperties": false,
    })
}

fn table_schema(table: &str, required: &[&str]) -> Value {
    let mut properties = Map::new();
    for group in GROUPS.iter().filter(|group| group.table == table) {
        for field in group.fields {
            let mut schema = kind_schema(field.kind);
            schema["description"] = json!(field.meaning);
            properties.insert(field.name.to_owned(), schema);
        }
    }
    let mut schema =
        json!({"type": "object", "properties": properties, "additionalProperties": false});
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

fn kind_schema(kind: Kind) -> Value {
    match kind {
        Text => json!({"type": "string"}),
        Flag => json!({"type": "boolean"}),
        Number => json!({"type": "integer", "minimum": 0}),
        TextList => json!({"type": "array", "items": {"type": "string"}}),
        TextMap => json!({"type": "object", "additionalProperties": {"type": "string"}}),
        NumberMap => {
            json!({"type": "object", "additionalProperties": {"type": "integer", "minimum": 0}})
        }
        // Methods are read in any case.
        Word(words) if words == METHODS => json!({"type": "string"}),
        Word(words) => json!({"enum": words}),
        Free => json!({}),
        Table(name) => table_schema(name, &[]),
        TableMap(name) => {
            json!({"type": "object", "additionalProperties": table_schema(name, &[])})
        }
    }
}
