//! What an operator sees: access lines, metrics, the audit of routes, `ati status` and
//! `ati reload`.

mod access;
mod control;
mod log_format;
mod metrics;
mod routes_audit;

use serde_json::Value;

use crate::support::ati::Proxy;
use crate::support::eventually;

/// The access line of the first request to this path.
fn access_line(proxy: &Proxy, path: &str) -> Value {
    eventually(&format!("the access line of {path}"), || {
        let mut lines = proxy.log.find_all("request").into_iter();
        lines.find(|line| line["path"] == path)
    })
}
