//! Arguments as `Mcp-Param-*` headers, for servers of the stateless era. The value of a header
//! equals the argument in the body: servers check that.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::{HeaderName, HeaderValue};
use serde_json::{Map, Value};

use crate::catalog::mcp::param_headers::ParamHeader;

/// A header value that isn't plain ASCII is sent as `=?base64?<base64 of its UTF-8>?=`.
const ENCODED_START: &str = "=?base64?";
const ENCODED_END: &str = "?=";

/// The headers of one call, carried through rmcp to the transport.
#[derive(Debug, Clone)]
pub struct ParamHeaders(pub Vec<(HeaderName, HeaderValue)>);

impl ParamHeaders {
    /// None for arguments that are absent or null, and for those that are no string, number or
    /// boolean.
    pub fn of(annotations: &[ParamHeader], args: &Map<String, Value>) -> Self {
        let header = |annotation: &ParamHeader| {
            let (first, rest) = annotation.path.split_first()?;
            let value = args.get(first)?;
            let value = rest
                .iter()
                .try_fold(value, |value, name| value.get(name.as_str()))?;
            let text = match value {
                Value::String(text) => text.clone(),
                Value::Bool(_) | Value::Number(_) => value.to_string(),
                Value::Null | Value::Array(_) | Value::Object(_) => return None,
            };
            let name = format!("mcp-param-{}", annotation.name.to_ascii_lowercase());
            let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
            Some((name, HeaderValue::from_str(&encode(&text)).ok()?))
        };
        ParamHeaders(annotations.iter().filter_map(header).collect())
    }
}

fn encode(text: &str) -> String {
    let is_plain = text.bytes().all(|byte| matches!(byte, 0x20..=0x7e))
        && text.trim_matches(' ').len() == text.len()
        // A text that looks encoded would be decoded.
        && !(text.starts_with(ENCODED_START) && text.ends_with(ENCODED_END));
    if is_plain {
        text.to_owned()
    } else {
        let encoded = BASE64_STANDARD.encode(text);
        format!("{ENCODED_START}{encoded}{ENCODED_END}")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn arguments_become_headers_and_what_is_no_plain_ascii_is_encoded() {
        let annotation = |path: &str, name: &str| ParamHeader {
            path: path.split('.').map(str::to_owned).collect(),
            name: name.to_owned(),
        };
        let annotations = [
            annotation("region", "Region"),
            annotation("count", "Count"),
            annotation("debug", "Debug"),
            annotation("nothing", "Nothing"),
            annotation("absent", "Absent"),
            annotation("list", "List"),
            annotation("place.city", "City"),
            annotation("padded", "Padded"),
            annotation("lines", "Lines"),
            annotation("empty", "Empty"),
            annotation("inner", "Inner"),
            annotation("looks", "Looks"),
            annotation("region", "no token"),
        ];
        let args = json!({
            "region": "eu-1", "count": 42, "debug": true, "nothing": null, "list": [1],
            "place": {"city": "Łódź"}, "padded": " x ", "lines": "a\r\nb", "empty": "",
            "inner": "a b", "looks": "=?base64?eA==?=",
        });
        let headers = ParamHeaders::of(&annotations, args.as_object().unwrap());
        let shown: Vec<_> = headers
            .0
            .iter()
            .map(|(name, value)| (name.as_str(), value.to_str().unwrap()))
            .collect();
        assert_eq!(
            shown,
            [
                ("mcp-param-region", "eu-1"),
                ("mcp-param-count", "42"),
                ("mcp-param-debug", "true"),
                ("mcp-param-city", "=?base64?xYHDs2TFug==?="),
                ("mcp-param-padded", "=?base64?IHgg?="),
                ("mcp-param-lines", "=?base64?YQ0KYg==?="),
                ("mcp-param-empty", ""),
                ("mcp-param-inner", "a b"),
                ("mcp-param-looks", "=?base64?PT9iYXNlNjQ/ZUE9PT89?="),
            ]
        );
    }
}
