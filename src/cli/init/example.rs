//! `ati init --example`: a tool and a route that work on any machine, without a network and without
//! an account. Their API is the demo's upstream.

use std::path::Path;

use tracing::{info, warn};

use super::super::demo::{DEMO_KEY, EXAMPLE_UPSTREAM};
use super::super::file_failure;
use crate::auth::keys::generate_secret;
use crate::error::{Code, Failure};
use crate::files;
use crate::keyring::{Credentials, SIGNING_SECRET};

/// The name of the example's credential, which both manifests use.
const KEY_NAME: &str = "example_api_key";

/// What to paste, with a title for each group of lines. A test pastes them.
pub const NEXT: &[(&str, &[&str])] = &[
    (
        "Start an API that wants a key, and the proxy in front of it",
        &[
            "ati demo --upstream &",
            "ati proxy --enable-passthrough 2> ati.log &",
            "curl -s --retry 9 --retry-connrefused http://127.0.0.1:8090/health",
        ],
    ),
    (
        "Call the tool through the proxy, with a token",
        &[
            "export ATI_PROXY_URL=http://127.0.0.1:8090",
            "export ATI_SESSION_TOKEN=$(ati token issue --sub me --scope 'tool:example:*')",
            "ati run example:hello --name Ada",
        ],
    ),
    (
        "Use the route; then ask the API directly, without the key that ati adds",
        &[
            "curl -s 'http://127.0.0.1:8090/example/hello?name=Ada'",
            "curl -s 'http://127.0.0.1:18090/hello?name=Ada'",
        ],
    ),
    ("Stop both", &["kill %1 %2; wait"]),
];

/// Write the manifests and the credentials that aren't there yet.
pub fn write(dir: &Path) -> Result<(), Failure> {
    for (name, text) in [
        ("example-tool.toml", tool()),
        ("example-route.toml", route()),
    ] {
        let path = dir.join("manifests").join(name);
        if path.exists() {
            info!("kept {}: it exists", path.display());
            continue;
        }
        files::write_atomic(&path, text.as_bytes(), 0o644)
            .map_err(|e| file_failure(Code::ExecutionFailed, &path, e))?;
        info!("saved manifest {}", path.display());
    }
    credentials(dir)
}

fn credentials(dir: &Path) -> Result<(), Failure> {
    if dir.join("keyring.enc").exists() {
        warn!(
            "no key was saved: keyring.enc is there, and wins over the file of credentials. \
             The example needs the key {KEY_NAME} with the value '{DEMO_KEY}' in it"
        );
        return Ok(());
    }
    let path = dir.join("credentials");
    let failed = |e: std::io::Error| file_failure(Code::InvalidValue, &path, e);
    let mut credentials = Credentials::open(dir.to_path_buf()).map_err(failed)?;
    let secret = generate_secret().map_err(|e| Failure::from_error(Code::ExecutionFailed, e))?;
    for (name, value) in [(KEY_NAME, DEMO_KEY), (SIGNING_SECRET, secret.as_str())] {
        if credentials.masked().any(|(known, _)| known == name) {
            info!("kept key {name}: it exists");
            continue;
        }
        credentials.set(name, value).map_err(failed)?;
        info!("saved key {name}");
    }
    Ok(())
}

fn tool() -> String {
    format!(
        r#"# A tool: agents call it by name, with `ati run example:hello --name Ada` or POST /call.
# docs/tools.md says what can stand here.
[provider]
name = "example"
description = "An example: the API that `ati demo --upstream` serves"
base_url = "http://{EXAMPLE_UPSTREAM}"
# Sent as `Authorization: Bearer <the key>`. Callers never see it.
auth_type = "bearer"
auth_key_name = "{KEY_NAME}"

[[tools]]
name = "example:hello"
description = "Say hello to a person"
method = "GET"
endpoint = "/hello"
# A token with the scope tool:example:* may call it.
scope = "tool:example:hello"

[tools.input_schema]
type = "object"
required = ["name"]
properties.name.type = "string"
properties.name.description = "Who is greeted"
"#
    )
}

fn route() -> String {
    format!(
        r#"# A route: what comes to /example/... is passed on to the API, with the key added.
# It needs `ati proxy --enable-passthrough`. docs/passthrough.md says what can stand here.
[provider]
name = "example_route"
description = "An example: the API that `ati demo --upstream` serves"
handler = "passthrough"
base_url = "http://{EXAMPLE_UPSTREAM}"
path_prefix = "/example"
auth_type = "bearer"
auth_key_name = "{KEY_NAME}"
deny_paths = ["/admin/*"]
"#
    )
}
