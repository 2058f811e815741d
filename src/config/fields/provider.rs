use super::FieldKind::{Flag, Number, Table, TableMap, Text, TextList, TextMap, Word};
use super::{Group, field};
use crate::config::HandlerKind;

const AUTH_TYPES: &[&str] = &[
    "none", "bearer", "header", "query", "basic", "oauth2", "url",
];

pub(super) const COMMON: Group = Group {
    table: "provider",
    title: "Every provider",
    handler: None,
    fields: &[
        field(
            "name",
            Text,
            "The provider's name; tools of OpenAPI and MCP are called `<name>:<tool>`",
        ),
        field("description", Text, "For people and for search"),
        field(
            "handler",
            Word(&HandlerKind::NAMES),
            "Where its tools come from; `cli` is not in this build yet",
        )
        .default("`http`"),
        field(
            "base_url",
            Text,
            "The upstream's URL: `http://` or `https://`",
        ),
        field("category", Text, "For search"),
        field(
            "internal",
            Flag,
            "Its tools are neither listed nor callable by agents",
        )
        .default("`false`"),
        field("skills", TextList, "Names of the skills that belong to it").default("`[]`"),
        field(
            "auth_session_token_env",
            Text,
            "The variable in which a sandbox keeps its token for these tools",
        )
        .default("`ATI_SESSION_TOKEN`"),
        field(
            "egress",
            Text,
            "A name from `[egress.addresses]` of the conf file: the local address to connect from",
        ),
    ],
};

pub(super) const CREDENTIALS: Group = Group {
    table: "provider",
    title: "Credentials",
    handler: None,
    fields: &[
        field("auth_type", Word(AUTH_TYPES), "How the credential is sent").default("`none`"),
        field(
            "auth_key_name",
            Text,
            "The credential's name in the keyring; for `oauth2` the name of the client id",
        ),
        field("auth_header_name", Text, "For `header`: the header's name").default("`X-Api-Key`"),
        field(
            "auth_value_prefix",
            Text,
            "For `header`: put in front of the value",
        ),
        field("auth_query_name", Text, "For `query`: the parameter's name").default("`api_key`"),
        field(
            "auth_secret_name",
            Text,
            "For `oauth2`: the name of the client secret in the keyring",
        ),
        field(
            "oauth2_token_url",
            Text,
            "For `oauth2`: an https URL, or a path below `base_url`",
        ),
        field(
            "oauth2_basic_auth",
            Flag,
            "For `oauth2`: send id and secret as Basic instead of in the form",
        )
        .default("`false`"),
        field(
            "extra_headers",
            TextMap,
            "Sent with every request; `${name}` is replaced by a credential",
        )
        .default("`{}`"),
        field(
            "auth_generator",
            Table("auth_generator"),
            "A program that makes the credential",
        ),
    ],
};

pub(super) const AUTH_GENERATOR: Group = Group {
    table: "auth_generator",
    title: "`[provider.auth_generator]`",
    handler: None,
    fields: &[
        field("type", Word(&["command", "script"]), "What is run"),
        field("command", Text, "For `command`: the program"),
        field(
            "args",
            TextList,
            "For `command`: its arguments; `${JWT_SUB}`, `${JWT_SCOPE}`, \
             `${TOOL_NAME}`, `${TIMESTAMP}` and `${name}` of a credential are replaced",
        )
        .default("`[]`"),
        field(
            "interpreter",
            Text,
            "For `script`: the program that runs it",
        )
        .default("`bash`"),
        field("script", Text, "For `script`: its text"),
        field(
            "env",
            TextMap,
            "Its environment, with the same replacements as `args`",
        )
        .default("`{}`"),
        field("output_format", Word(&["text", "json"]), "What it prints").default("`text`"),
        field(
            "inject",
            TableMap("inject"),
            "For `json`: by dot path into the output, where the value goes",
        )
        .default("`{}`"),
        field(
            "cache_ttl_secs",
            Number,
            "How many seconds the credential is kept, for each subject",
        )
        .default("0"),
        field("timeout_secs", Number, "Killed after this many seconds").default("30"),
    ],
};

pub(super) const INJECT: Group = Group {
    table: "inject",
    title: "`[provider.auth_generator.inject.<path>]`",
    handler: None,
    fields: &[
        field(
            "type",
            Word(&["header", "env", "query"]),
            "`query`: the value is sent as `auth_type` says",
        ),
        field("name", Text, "The name of the header or of the variable"),
    ],
};
