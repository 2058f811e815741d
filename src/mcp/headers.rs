//! The era of a request, and whether its headers agree with its body: a server on the way may have
//! routed the request by its headers.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use serde_json::Value;

use super::message::text_of;
use super::{Era, Params, Request, STATELESS, VERSIONS};
use crate::error::RpcError;

const VERSION: &str = "mcp-protocol-version";
const METHOD: &str = "mcp-method";
const NAME: &str = "mcp-name";
pub const PARAM_PREFIX: &str = "mcp-param-";

/// The era that a request's `_meta` names, where there are no headers: over standard streams.
pub fn meta_era(request: &Request<'_>, params: &Params<'_>) -> Result<Era, RpcError> {
    if request.method == "initialize" {
        return Ok(Era::Handshake);
    }
    match version_of(params)? {
        Some(version) if version == STATELESS => Ok(Era::Stateless),
        Some(requested) => Err(RpcError::Version {
            requested: requested.into_owned(),
        }),
        None if request.method == "server/discover" => Err(missing_version()),
        None => Ok(Era::Handshake),
    }
}

/// The era of a request over HTTP. Fails where headers and body contradict each other.
pub fn agree(
    headers: &HeaderMap,
    request: &Request<'_>,
    params: &Params<'_>,
) -> Result<Era, RpcError> {
    let header = single(headers, VERSION)?;
    if request.method == "initialize" {
        check_method(headers, request, false)?;
        return Ok(Era::Handshake);
    }
    let Some(version) = version_of(params)? else {
        return match header {
            Some(version) if !VERSIONS.contains(&version) => Err(RpcError::Version {
                requested: version.to_owned(),
            }),
            Some(STATELESS) => Err(missing_version()),
            _ if request.method == "server/discover" => Err(missing_version()),
            _ => Ok(Era::Handshake),
        };
    };
    match header {
        None => return Err(missing_header("MCP-Protocol-Version")),
        Some(header) if header != version => {
            return Err(mismatch("MCP-Protocol-Version", header, &version));
        }
        Some(_) => {}
    }
    if version != STATELESS {
        let requested = version.into_owned();
        return Err(RpcError::Version { requested });
    }
    check_method(headers, request, true)?;
    let named = match &*request.method {
        "tools/call" | "prompts/get" => params.name,
        "resources/read" | "resources/subscribe" | "resources/unsubscribe" => params.uri,
        _ => None,
    };
    if let Some(name) = named.and_then(text_of) {
        match single(headers, NAME)? {
            None => return Err(missing_header("Mcp-Name")),
            Some(header) => check_value("Mcp-Name", header, &name)?,
        }
    }
    Ok(Era::Stateless)
}

/// The era of a message that can't be read, by its header alone.
pub fn era_of_headers(headers: &HeaderMap) -> Era {
    match single(headers, VERSION) {
        Ok(Some(STATELESS)) => Era::Stateless,
        _ => Era::Handshake,
    }
}

fn version_of<'a>(params: &Params<'a>) -> Result<Option<Cow<'a, str>>, RpcError> {
    let version = params.meta_fields.protocol_version;
    version
        .map(|version| text_of(version).ok_or_else(missing_version))
        .transpose()
}

fn missing_version() -> RpcError {
    RpcError::MissingMeta("io.modelcontextprotocol/protocolVersion")
}

fn check_method(
    headers: &HeaderMap,
    request: &Request<'_>,
    is_required: bool,
) -> Result<(), RpcError> {
    match single(headers, METHOD)? {
        None if is_required => Err(missing_header("Mcp-Method")),
        Some(header) if header != request.method => {
            Err(mismatch("Mcp-Method", header, &request.method))
        }
        _ => Ok(()),
    }
}

/// Arguments that the tool's schema marks with `x-mcp-header`: a header of theirs has to say the
/// same. One that is absent is no contradiction: ati reads the body.
pub fn check_params(
    headers: &HeaderMap,
    schema: &Value,
    arguments: &Value,
) -> Result<(), RpcError> {
    let sent = headers
        .keys()
        .any(|name| name.as_str().starts_with(PARAM_PREFIX));
    if !sent {
        return Ok(());
    }
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
        return Ok(());
    };
    for (name, property) in properties {
        let argument = arguments.get(name).unwrap_or(&Value::Null);
        if property.get("properties").is_some() {
            check_params(headers, property, argument)?;
        }
        let Some(marked) = property.get("x-mcp-header").and_then(Value::as_str) else {
            continue;
        };
        let full = format!("Mcp-Param-{marked}");
        let Some(header) = single(headers, &full.to_ascii_lowercase())? else {
            continue;
        };
        match argument {
            Value::String(text) => check_value(&full, header, text)?,
            Value::Number(number) => check_value(&full, header, &number.to_string())?,
            Value::Bool(flag) => check_value(&full, header, &flag.to_string())?,
            _ => {
                let what = format!("{full} header for an argument that isn't there");
                return Err(RpcError::Headers(what));
            }
        }
    }
    Ok(())
}

fn check_value(name: &str, header: &str, body: &str) -> Result<(), RpcError> {
    match decode(header) {
        Some(header) if header == body => Ok(()),
        Some(header) => Err(mismatch(name, &header, body)),
        None => Err(RpcError::Headers(format!(
            "{name} header is no valid Base64"
        ))),
    }
}

/// Values that can't stand in a header come as `=?base64?…?=`.
fn decode(header: &str) -> Option<Cow<'_, str>> {
    let inner = header
        .strip_prefix("=?base64?")
        .and_then(|rest| rest.strip_suffix("?="));
    match inner {
        None => Some(Cow::Borrowed(header)),
        Some(inner) => String::from_utf8(STANDARD.decode(inner).ok()?)
            .ok()
            .map(Cow::Owned),
    }
}

/// A text as a header has it, for [`decode`].
pub fn header_value(text: &str) -> String {
    let is_plain = text.bytes().all(|byte| (0x21..=0x7e).contains(&byte));
    if is_plain && !text.is_empty() && !text.starts_with("=?base64?") {
        text.to_owned()
    } else {
        format!("=?base64?{}?=", STANDARD.encode(text))
    }
}

/// The one value of a header. A second one could have been read by a server on the way.
fn single<'h>(headers: &'h HeaderMap, name: &str) -> Result<Option<&'h str>, RpcError> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        return Err(RpcError::Headers(format!("{name} header is repeated")));
    }
    let no_text = |_| RpcError::Headers(format!("{name} header is no text"));
    value
        .to_str()
        .map(|text| Some(text.trim()))
        .map_err(no_text)
}

fn missing_header(name: &str) -> RpcError {
    RpcError::Headers(format!("{name} header is missing"))
}

fn mismatch(name: &str, header: &str, body: &str) -> RpcError {
    RpcError::Headers(format!(
        "{name} header '{header}' does not match the body's '{body}'"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::{Incoming, parse};
    use serde_json::json;

    fn check(headers: &[(&str, &str)], body: &Value) -> Result<Era, i32> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name: http::HeaderName = name.parse().unwrap();
            map.append(name, value.parse().unwrap());
        }
        let text = body.to_string();
        let Ok(Incoming::Request(request)) = parse(text.as_bytes()) else {
            panic!("{text}");
        };
        let params = Params::read(request.params).unwrap();
        agree(&map, &request, &params).map_err(|e| e.code())
    }

    fn request(method: &str, mut params: Value, version: Option<&str>) -> Value {
        if let Some(version) = version {
            params["_meta"] = json!({"io.modelcontextprotocol/protocolVersion": version});
        }
        json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
    }

    const MODERN: (&str, &str) = ("mcp-protocol-version", "2026-07-28");

    #[test]
    fn request_without_meta_is_of_the_handshake_era() {
        let list = request("tools/list", json!({}), None);
        assert_eq!(check(&[], &list), Ok(Era::Handshake));
        let old = ("mcp-protocol-version", "2025-06-18");
        assert_eq!(check(&[old], &list), Ok(Era::Handshake));
        assert_eq!(
            check(&[("mcp-protocol-version", "1999-01-01")], &list),
            Err(-32022)
        );
        assert_eq!(check(&[MODERN], &list), Err(-32602));
        let discover = request("server/discover", json!({}), None);
        assert_eq!(check(&[], &discover), Err(-32602));
        let begin = request("initialize", json!({}), None);
        assert_eq!(check(&[MODERN], &begin), Ok(Era::Handshake));
        assert_eq!(check(&[("mcp-method", "ping")], &begin), Err(-32020));
    }

    #[test]
    fn headers_of_the_stateless_era_agree_with_the_body() {
        let list = request("tools/list", json!({}), Some(STATELESS));
        let method = ("mcp-method", "tools/list");
        assert_eq!(check(&[MODERN, method], &list), Ok(Era::Stateless));
        for wrong in [
            &[method][..],
            &[MODERN],
            &[MODERN, ("mcp-method", "tools/call")],
            &[("mcp-protocol-version", "2025-11-25"), method],
            &[MODERN, MODERN, method],
            &[MODERN, method, method],
        ] {
            assert_eq!(check(wrong, &list), Err(-32020), "{wrong:?}");
        }
        let call = request("tools/call", json!({"name": "p:ä"}), Some(STATELESS));
        let method = ("mcp-method", "tools/call");
        let name = ("mcp-name", "=?base64?cDrDpA==?=");
        assert_eq!(check(&[MODERN, method, name], &call), Ok(Era::Stateless));
        for wrong in ["p:b", "=?base64?!?=", "=?base64?cDpi?="] {
            let headers = [MODERN, method, ("mcp-name", wrong)];
            assert_eq!(check(&headers, &call), Err(-32020), "{wrong}");
        }
        assert_eq!(check(&[MODERN, method], &call), Err(-32020));
        let newer = request("tools/list", json!({}), Some("2099-01-01"));
        let header = ("mcp-protocol-version", "2099-01-01");
        assert_eq!(
            check(&[header, ("mcp-method", "tools/list")], &newer),
            Err(-32022)
        );
    }

    #[test]
    fn param_header_says_what_its_argument_says() {
        let schema = json!({"properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "deep": {"properties": {"n": {"type": "integer", "x-mcp-header": "N"}}},
        }});
        let check = |name: &str, value: &str, arguments: Value| {
            let mut headers = HeaderMap::new();
            let name: http::HeaderName = name.parse().unwrap();
            headers.insert(name, value.parse().unwrap());
            check_params(&headers, &schema, &arguments).map_err(|e| e.code())
        };
        assert_eq!(
            check("mcp-param-region", "eu", json!({"region": "eu"})),
            Ok(())
        );
        assert_eq!(
            check("mcp-param-region", "us", json!({"region": "eu"})),
            Err(-32020)
        );
        assert_eq!(check("mcp-param-region", "eu", json!({})), Err(-32020));
        assert_eq!(check("mcp-param-n", "5", json!({"deep": {"n": 5}})), Ok(()));
        assert_eq!(
            check("mcp-param-n", "6", json!({"deep": {"n": 5}})),
            Err(-32020)
        );
        assert_eq!(check("mcp-param-other", "x", json!({})), Ok(()));
        assert_eq!(check("x-other", "x", json!({"region": "eu"})), Ok(()));
    }
}
