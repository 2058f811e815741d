//! Passthrough routes: the caller's request, with the operator's credential.

mod bodies;
mod egress;
mod headers;
mod hostile;
mod reload;
mod routing;
mod scrub;

use serde_json::json;

use crate::support::ati::Setup;
use crate::support::tokens::SIGNING;

const KEY: &str = "planted-upstream-key-1c9d/+";

fn with_keys() -> Setup {
    Setup::new().credentials(&json!({
        "api_key": KEY, "BASIC": "user:planted-password", "sandbox_signing_shared_secret": SIGNING,
    }))
}
