use super::FieldKind::{Flag, Number, NumberMap, Table, TableMap, Text, TextList, TextMap, Word};
use super::{Field, Group, field};
use crate::config::HandlerKind;

pub(super) const OPENAPI: Group = Group {
    table: "provider",
    title: "`handler = \"openapi\"`",
    handler: Some(HandlerKind::OpenApi),
    fields: &[
        field(
            "openapi_spec",
            Text,
            "The document: the name of a file in `specs/`, or else in `manifests/specs/`",
        ),
        field(
            "openapi_include_operations",
            TextList,
            "Only these operation ids",
        )
        .default("`[]`"),
        field(
            "openapi_exclude_operations",
            TextList,
            "Without these operation ids",
        )
        .default("`[]`"),
        field(
            "openapi_include_tags",
            TextList,
            "Only operations with one of these tags",
        )
        .default("`[]`"),
        field(
            "openapi_exclude_tags",
            TextList,
            "Without operations that have one of these tags",
        )
        .default("`[]`"),
        field(
            "openapi_max_operations",
            Number,
            "At most this many operations, in the document's order",
        ),
        field(
            "openapi_overrides",
            TableMap("openapi_overrides"),
            "Changes to operations, by operation id",
        ),
    ],
};

pub(super) const OPENAPI_OVERRIDES: Group = Group {
    table: "openapi_overrides",
    title: "`[provider.openapi_overrides.<operationId>]`",
    handler: Some(HandlerKind::OpenApi),
    fields: &[
        field("description", Text, "Replaces the document's"),
        field("hint", Text, "Short guidance for callers"),
        field("tags", TextList, "Added to the document's").default("`[]`"),
        field("scope", Text, "The scope that a caller needs").default("`tool:<name>`"),
        field(
            "response_extract",
            Text,
            "As `extract` of `[tools.response]`",
        ),
        field(
            "response_format",
            Word(super::tools::RESULT_FORMATS),
            "As `format` of `[tools.response]`",
        ),
    ],
};

pub(super) const PASSTHROUGH: Group = Group {
    table: "provider",
    title: "`handler = \"passthrough\"`",
    handler: Some(HandlerKind::Passthrough),
    fields: &[
        field("host_match", Text, "Matches requests by `Host`"),
        field(
            "path_prefix",
            Text,
            "Matches requests by path, at a segment boundary",
        ),
        field("strip_prefix", Flag, "Remove the prefix from the path").default("`true`"),
        field(
            "path_replace",
            TextList,
            "`[\"/from\", \"/to\"]`, after the prefix is removed",
        ),
        field("host_override", Text, "The `Host` that the upstream gets"),
        field(
            "deny_paths",
            TextList,
            "Patterns on the rewritten path; a match answers 403",
        )
        .default("`[]`"),
        field(
            "forward_authorization_paths",
            TextList,
            "Patterns on the rewritten path; on a match the caller's `Authorization` is \
             sent in place of the credential",
        )
        .default("`[]`"),
        field(
            "signature",
            Word(&["required", "exempt"]),
            "Whether a request must be signed. Without it a route with `host_match` requires a \
             signature, and one without is exempt if an exempt path covers its `path_prefix`",
        ),
        field(
            "require_token",
            Flag,
            "Whether a caller also needs a session token or a virtual key, as for tools. Its \
             `Authorization` header isn't sent on",
        )
        .default("`false`"),
        field("connect_timeout_seconds", Number, "For TCP and TLS").default("5"),
        field(
            "read_timeout_seconds",
            Number,
            "For each pause of the upstream",
        )
        .default("300"),
        field(
            "total_timeout_seconds",
            Number,
            "For the whole request, also while bytes flow; not for WebSockets",
        )
        .default("none"),
        field(
            "idle_timeout_seconds",
            Number,
            "How long an unused upstream connection is kept",
        )
        .default("60"),
        field("max_request_bytes", Number, "0 is unlimited").default("100 MiB"),
        field("max_response_bytes", Number, "0 is unlimited").default("500 MiB"),
        field("forward_websockets", Flag, "Relay WebSocket connections").default("`false`"),
        field(
            "scrub",
            Flag,
            "Take the route's credentials out of bodies, too; headers never have them",
        )
        .default("`false`"),
    ],
};

pub(super) const MCP: Group = Group {
    table: "provider",
    title: "`handler = \"mcp\"`",
    handler: Some(HandlerKind::Mcp),
    fields: &[
        field(
            "mcp_transport",
            Word(&["stdio", "http"]),
            "How the server is reached",
        )
        .default("`stdio`"),
        field("mcp_command", Text, "For `stdio`: the program"),
        field("mcp_args", TextList, "For `stdio`: its arguments").default("`[]`"),
        field(
            "mcp_env",
            TextMap,
            "For `stdio`: its environment; `${name}` is replaced by a credential",
        )
        .default("`{}`"),
        field(
            "run_as",
            Text,
            "For `stdio`: the user that the program runs as, `user`, `user:group` or `uid:gid`",
        )
        .default("ati's own"),
        field("mcp_url", Text, "For `http`: the server's URL"),
        field(
            "mcp_url_env",
            Text,
            "For `http`: the variable in which a sandbox names another URL",
        ),
        SANDBOX_FIELD,
    ],
};

const SANDBOX_FIELD: Field = field(
    "cli_sandbox",
    Table("cli_sandbox"),
    "Confines the programs that ati starts for this provider; without it they may do what ati's \
     user may",
);

pub(super) const SANDBOX: Group = Group {
    table: "cli_sandbox",
    title: "`[provider.cli_sandbox]`",
    handler: None,
    fields: &[
        field(
            "read",
            TextList,
            "Files and folders that may be read, as absolute paths, next to the system's own",
        )
        .default("`[]`"),
        field(
            "write",
            TextList,
            "Files and folders that may be read and written, as absolute paths",
        )
        .default("`[]`"),
        field("net", Flag, "Whether sockets may be opened").default("`true`"),
        field("cpu_seconds", Number, "Processor time of each process").default("none"),
        field("memory_bytes", Number, "Address space of each process").default("none"),
        field(
            "processes",
            Number,
            "Processes at a time, the program included; more are killed, all of them",
        )
        .default("none"),
        field("file_bytes", Number, "The longest file that may be written").default("none"),
    ],
};

pub(super) const CLI: Group = Group {
    table: "provider",
    title: "`handler = \"cli\"`",
    handler: Some(HandlerKind::Cli),
    fields: &[
        field(
            "cli_command",
            Text,
            "The program: a path, or a name that is looked up in PATH",
        ),
        field(
            "cli_default_args",
            TextList,
            "Put before all other arguments",
        )
        .default("`[]`"),
        field(
            "cli_env",
            TextMap,
            "Its environment; `${name}` is replaced by a credential, `@{name}` by the \
             path of a file with it",
        )
        .default("`{}`"),
        field(
            "cli_timeout_secs",
            Number,
            "After this many seconds the program and all that it started are ended",
        )
        .default("120"),
        field(
            "cli_cwd",
            Text,
            "The folder that it runs in, an absolute path. Without it an empty temporary folder on \
             a proxy, and the caller's own for `ati run` without one",
        ),
        field(
            "cli_max_concurrent",
            Number,
            "How many calls run the program at a time; others wait",
        )
        .default("8"),
        field(
            "cli_output_args",
            TextList,
            "Flags whose value is a file that the program writes",
        )
        .default("`[]`"),
        field(
            "cli_output_positional",
            NumberMap,
            "By subcommand: the position of an argument that is a file that the program \
             writes",
        )
        .default("`{}`"),
        SANDBOX_FIELD,
    ],
};

const TIMEOUT_FIELD: Field = field(
    "cli_timeout_secs",
    Number,
    "After this many seconds the program and all that it started are ended",
)
.default("120");

const CONCURRENT_FIELD: Field = field(
    "cli_max_concurrent",
    Number,
    "How many calls run its programs at a time; others wait",
)
.default("8");

pub(super) const CMP: Group = Group {
    table: "provider",
    title: "`handler = \"cmp\"`",
    handler: Some(HandlerKind::Cmp),
    fields: &[
        field(
            "cmp_path",
            Text,
            "The folder of one CMP tool, or a folder of such folders; `~` is the home folder",
        )
        .default("those of `CMP_TOOL_PATH`, `~/.cmp/tools`, `/usr/local/share/cmp/tools`"),
        field(
            "cmp_env",
            TextMap,
            "The environment of its programs; `${name}` is replaced by a credential, `@{name}` by \
             the path of a file with it",
        )
        .default("`{}`"),
        TIMEOUT_FIELD,
        CONCURRENT_FIELD,
        SANDBOX_FIELD,
    ],
};

pub(super) const RUNFILE: Group = Group {
    table: "provider",
    title: "`handler = \"runfile\"`",
    handler: Some(HandlerKind::Runfile),
    fields: &[
        field(
            "runfile",
            Text,
            "The Runfile, or the folder that it is in; `~` is the home folder",
        ),
        field(
            "runfile_global",
            Text,
            "Another Runfile, whose functions are there too; those of `runfile` win",
        )
        .default("none"),
        field(
            "runfile_readonly",
            Flag,
            "Offer only functions with `# @safe`",
        )
        .default("`false`"),
        field(
            "cli_env",
            TextMap,
            "The environment of its functions; `${name}` is replaced by a credential, `@{name}` \
             by the path of a file with it",
        )
        .default("`{}`"),
        TIMEOUT_FIELD,
        CONCURRENT_FIELD,
        SANDBOX_FIELD,
    ],
};

pub(super) const ATIP: Group = Group {
    table: "provider",
    title: "`handler = \"atip\"`",
    handler: Some(HandlerKind::Atip),
    fields: &[
        field(
            "atip_command",
            Text,
            "The program: a path, or a name that is looked up in PATH. The `cli_*` fields but \
             `cli_command` and `cli_env` hold for it too",
        ),
        field(
            "atip_metadata",
            Text,
            "A file with ATIP metadata, in place of what the program says to `--agent`: an \
             absolute path, or one from the manifest's folder",
        )
        .default("registry, shims, `--agent`"),
        field("atip_env", TextMap, "Its environment, as `cli_env`").default("`{}`"),
        field(
            "atip_mcp",
            Text,
            "The provider with `handler = \"mcp\"` that executes those commands which it has as \
             tools of the same name",
        ),
    ],
};

pub(super) const FILE_MANAGER: Group = Group {
    table: "provider",
    title: "`handler = \"file_manager\"`",
    handler: Some(HandlerKind::FileManager),
    fields: &[
        field(
            "upload_destinations",
            TableMap("upload_destinations"),
            "Where files may be uploaded to, by name; callers can choose no other",
        )
        .default("`{}`: uploads are refused"),
        field(
            "upload_default_destination",
            Text,
            "The destination of a call that names none",
        ),
    ],
};

pub(super) const UPLOAD_DESTINATIONS: Group = Group {
    table: "upload_destinations",
    title: "`[provider.upload_destinations.<name>]`",
    handler: Some(HandlerKind::FileManager),
    fields: &[
        field(
            "kind",
            Word(&["gcs", "fal_storage", "s3", "local"]),
            "What the destination is",
        ),
        field("bucket", Text, "For `gcs` and `s3`: the bucket"),
        field(
            "prefix",
            Text,
            "For `gcs` and `s3`: stands before the date in the names of objects",
        )
        .default("`ati-uploads`"),
        field(
            "key_ref",
            Text,
            "For `gcs`: the credential that is a service account's JSON; for `fal_storage`: the \
             credential that is fal's API key",
        )
        .default("`gcp_credentials`, `fal_api_key`"),
        field(
            "endpoint",
            Text,
            "Another server: any that speaks S3 (the bucket is then part of the path), an \
             emulator of `gcs`, or fal's API",
        )
        .default("the service's own"),
        field("region", Text, "For `s3`: the region of the signature").default("`us-east-1`"),
        field(
            "access_key_ref",
            Text,
            "For `s3`: the credential that is the id of the access key",
        ),
        field(
            "secret_key_ref",
            Text,
            "For `s3`: the credential that is the secret access key",
        ),
        field(
            "presign_seconds",
            Number,
            "For `s3`: the URL in the answer is signed, and opens the object for so long, at most \
             604800. It shows the id of the access key",
        )
        .default("none: the object's plain URL"),
        field(
            "directory",
            Text,
            "For `local`: the folder on ati's machine, an absolute path",
        ),
    ],
};
