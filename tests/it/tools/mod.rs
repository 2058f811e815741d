//! HTTP tools behind `POST /call`.

mod calls;
mod credentials;
mod escapes;
mod generators;
mod http1;
mod limits;
mod long_work;
mod oauth;
mod refusals;
mod reload;
mod spool;

use std::io::Write;

use serde_json::{Value, json};

use crate::support::ati::Setup;
use crate::support::upstream::{Received, Upstream};

const KEY: &str = "planted-api-key-41c2";

/// An upstream that answers `(status, headers, body)` to each target.
fn upstream(
    answer: impl Fn(&Received) -> (u16, String, String) + Send + Sync + 'static,
) -> Upstream {
    Upstream::answering(move |received, stream| {
        let (status, headers, body) = answer(received);
        let text = format!(
            "HTTP/1.1 {status} X\r\ncontent-length: {}\r\n{headers}\r\n{body}",
            body.len()
        );
        stream.write_all(text.as_bytes()).is_ok()
    })
}

fn json_upstream(body: Value) -> Upstream {
    upstream(move |_| (200, String::new(), body.to_string()))
}

const BEARER: &str = "auth_type = 'bearer'\nauth_key_name = 'api'";

fn with_key(setup: Setup) -> Setup {
    setup.credentials(&json!({"api": KEY}))
}
