//! Where clients get tokens (RFC 9728), for deployments with an authorization server.

use http::HeaderMap;
use http::header::HOST;
use serde_json::json;

use super::super::{Reply, Request};
use crate::config::McpSettings;
use crate::error::Refusal;
use crate::snapshot::Snapshot;

const PATH: &str = "/.well-known/oauth-protected-resource";
const FORWARDED_PROTO: &str = "x-forwarded-proto";

/// `GET /.well-known/oauth-protected-resource`, also with the path of the resource behind it.
pub fn protected_resource(request: &Request, snapshot: &Snapshot) -> Result<Reply, Refusal> {
    let settings = &snapshot.settings.mcp;
    let below = request.path().strip_prefix(PATH).unwrap_or_default();
    let resource = match &settings.resource {
        Some(url) => url.to_string(),
        None => {
            let path = if below.is_empty() { "/mcp" } else { below };
            format!("{}{path}", origin(&request.parts.headers))
        }
    };
    let metadata = json!({
        "resource": resource,
        "authorization_servers": settings.authorization_servers,
        "bearer_methods_supported": ["header"],
        "resource_name": "ati",
    });
    Reply::json(request.id, &metadata)
}

/// What a challenge for a path of `/mcp` says in addition: where the metadata is. None where there
/// is none.
pub fn challenge(path: &str, headers: &HeaderMap, settings: &McpSettings) -> Option<String> {
    let is_mcp = path == "/mcp" || path.starts_with("/mcp/");
    if !is_mcp || settings.authorization_servers.is_empty() {
        return None;
    }
    let origin = match &settings.resource {
        Some(url) => url.origin().ascii_serialization(),
        None => origin(headers),
    };
    Some(format!(", resource_metadata=\"{origin}{PATH}\""))
}

/// Scheme, host and port as the client sees them.
fn origin(headers: &HeaderMap) -> String {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let plain = |host: &&str| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
        host.bytes().all(is_plain)
    };
    let host = text(HOST.as_str()).filter(plain).unwrap_or("localhost");
    let scheme = match text(FORWARDED_PROTO) {
        Some("https") => "https",
        _ => "http",
    };
    format!("{scheme}://{host}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenge_names_the_metadata_of_mcp_alone() {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, "ati.example:8090".parse().unwrap());
        let mut settings = McpSettings::default();
        assert_eq!(challenge("/mcp", &headers, &settings), None);
        settings.authorization_servers = vec!["https://login.example".to_owned()];
        let url = "http://ati.example:8090/.well-known/oauth-protected-resource";
        let expected = format!(", resource_metadata=\"{url}\"");
        assert_eq!(
            challenge("/mcp", &headers, &settings).as_deref(),
            Some(expected.as_str())
        );
        assert_eq!(challenge("/mcp/x", &headers, &settings), Some(expected));
        assert_eq!(challenge("/call", &headers, &settings), None);
        headers.insert(HOST, "a\"b".parse().unwrap());
        headers.insert(FORWARDED_PROTO, "https".parse().unwrap());
        let quoted = challenge("/mcp", &headers, &settings).unwrap();
        assert!(quoted.contains("\"https://localhost/"), "{quoted}");
    }
}
