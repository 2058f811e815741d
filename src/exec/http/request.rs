//! Arguments to a request: which go into the path, the query, the headers, the body.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value};
use url::{Url, form_urlencoded};

use crate::catalog::Tool;
use crate::catalog::schema::{Collection, Location};
use crate::config::provider::Auth;
use crate::credential::Credential;
use crate::error::ToolError;

/// Everything but RFC 3986's unreserved characters.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// What a caller may not say through a header parameter.
const DENIED: [HeaderName; 9] = [
    http::header::AUTHORIZATION,
    http::header::HOST,
    http::header::COOKIE,
    http::header::SET_COOKIE,
    http::header::CONTENT_TYPE,
    http::header::CONTENT_LENGTH,
    http::header::TRANSFER_ENCODING,
    http::header::CONNECTION,
    http::header::PROXY_AUTHORIZATION,
];
const DENIED_NAMES: [&str; 8] = [
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-real-ip",
    "te",
    "trailer",
    "upgrade",
    "keep-alive",
];

/// A request without its credentials.
pub struct Wire {
    pub method: Method,
    pub url: Url,
    pub headers: HeaderMap,
    pub body: Option<Bytes>,
}

#[derive(Default)]
struct Parts<'a> {
    path: Vec<(&'a str, &'a Value)>,
    query: Vec<(&'a str, &'a Value, Collection)>,
    headers: Vec<(&'a str, &'a Value)>,
    body: Map<String, Value>,
}

pub fn build(tool: &Tool, args: &Map<String, Value>, base_url: &str) -> Result<Wire, ToolError> {
    let located = tool.schema.has_locations();
    let parts = if located {
        by_location(tool, args)
    } else {
        by_method(&tool.method, args)
    };
    let mut path = tool.endpoint.clone();
    if located {
        path = fill(tool, &parts)?;
    }
    let url = join(base_url, &path, &query(&parts.query))?;
    let mut headers = HeaderMap::new();
    for (name, value) in &parts.headers {
        let (name, value) = header(tool, name, value)?;
        headers.insert(name, value);
    }
    let body = body(tool, parts.body, located);
    if body.is_some() {
        let kind = if tool.schema.form {
            "application/x-www-form-urlencoded"
        } else {
            "application/json"
        };
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    }
    Ok(Wire {
        method: tool.method.clone(),
        url,
        headers,
        body,
    })
}

/// Where each property says. What no property knows counts as body.
fn by_location<'a>(tool: &'a Tool, args: &'a Map<String, Value>) -> Parts<'a> {
    let mut parts = Parts::default();
    for (name, value) in args {
        let property = tool.schema.property(name);
        match property.and_then(|property| property.location) {
            Some(Location::Path) => parts.path.push((name, value)),
            Some(Location::Query) => {
                let collection = property.map(|property| property.collection);
                parts
                    .query
                    .push((name, value, collection.unwrap_or_default()));
            }
            Some(Location::Header) => parts.headers.push((name, value)),
            Some(Location::Body) | None => {
                parts.body.insert(name.clone(), value.clone());
            }
        }
    }
    parts
}

/// As it was before properties had places: all to the query, or all to the body.
fn by_method<'a>(method: &Method, args: &'a Map<String, Value>) -> Parts<'a> {
    let mut parts = Parts::default();
    if method == Method::GET {
        parts.query = args
            .iter()
            .map(|(name, value)| (name.as_str(), value, Collection::default()))
            .collect();
    } else {
        parts.body = args.clone();
    }
    parts
}

/// The endpoint with its parameters in place.
fn fill(tool: &Tool, parts: &Parts<'_>) -> Result<String, ToolError> {
    let mut path = String::with_capacity(tool.endpoint.len() + 32);
    let mut rest = tool.endpoint.as_str();
    while let Some((before, after)) = rest.split_once('{') {
        path.push_str(before);
        let Some((name, behind)) = after.split_once('}') else {
            rest = &rest[before.len()..];
            break;
        };
        let in_path =
            |property: &crate::catalog::schema::Property| property.location == Some(Location::Path);
        if tool.schema.property(name).is_some_and(in_path) {
            let value = parts.path.iter().find(|(known, _)| *known == name);
            let value = value
                .and_then(|(_, value)| text(value))
                .filter(|value| !value.is_empty())
                .ok_or_else(|| ToolError::MissingPathParameter(name.to_owned()))?;
            path.push_str(&path_value(name, &value)?);
        } else {
            path.push_str(&format!("{{{name}}}"));
        }
        rest = behind;
    }
    path.push_str(rest);
    Ok(path)
}

/// A value that stays within its segment, whoever reads the path.
fn path_value(name: &str, value: &str) -> Result<String, ToolError> {
    let forbidden = value.contains("..")
        || value == "."
        || value.contains(['\\', '?', '#'])
        || value.chars().any(char::is_control);
    if forbidden {
        return Err(ToolError::PathParameter {
            name: name.to_owned(),
            value: value.to_owned(),
        });
    }
    Ok(utf8_percent_encode(value, UNRESERVED).to_string())
}

fn query(parameters: &[(&str, &Value, Collection)]) -> String {
    let mut query = String::new();
    let mut add = |name: &str, value: &str| {
        if !query.is_empty() {
            query.push('&');
        }
        query.extend(utf8_percent_encode(name, UNRESERVED));
        query.push('=');
        query.push_str(value);
    };
    let encode = |value: &str| utf8_percent_encode(value, UNRESERVED).to_string();
    for (name, value, collection) in parameters {
        match value {
            Value::Array(list) => {
                let items = list.iter().filter_map(text).map(|item| encode(&item));
                let separator = match collection {
                    Collection::Multi => {
                        items.for_each(|item| add(name, &item));
                        continue;
                    }
                    Collection::Csv => ",",
                    Collection::Ssv => "%20",
                    Collection::Pipes => "%7C",
                };
                let items: Vec<String> = items.collect();
                if !items.is_empty() {
                    add(name, &items.join(separator));
                }
            }
            value => {
                if let Some(value) = text(value) {
                    add(name, &encode(&value));
                }
            }
        }
    }
    query
}

fn header(tool: &Tool, name: &str, value: &Value) -> Result<(HeaderName, HeaderValue), ToolError> {
    let refused = || ToolError::HeaderParameter(name.to_owned());
    let header = HeaderName::try_from(name).map_err(|_| refused())?;
    let ours = tool.provider.http().is_some_and(|http| {
        let credential = match &http.auth {
            Auth::Static(Credential::Header { name, .. }) => Some(name),
            _ => None,
        };
        credential == Some(&header) || http.extra_headers.iter().any(|(name, _)| *name == header)
    });
    if ours || DENIED.contains(&header) || DENIED_NAMES.contains(&header.as_str()) {
        return Err(refused());
    }
    let value = text(value).unwrap_or_default();
    let value =
        HeaderValue::from_str(&value).map_err(|_| ToolError::HeaderValue(name.to_owned()))?;
    Ok((header, value))
}

fn body(tool: &Tool, arguments: Map<String, Value>, located: bool) -> Option<Bytes> {
    let bodiless = tool.method == Method::GET || (located && tool.method == Method::DELETE);
    // Tools from before properties had places send `{}` where they are given nothing; APIs that want a body get one.
    let nothing = arguments.is_empty() && (located || tool.method == Method::DELETE);
    if bodiless || nothing {
        return None;
    }
    if tool.schema.form {
        let mut form = form_urlencoded::Serializer::new(String::new());
        for (name, value) in &arguments {
            match value {
                Value::Array(list) => {
                    form.extend_pairs(list.iter().filter_map(text).map(|item| (name, item)));
                }
                value => {
                    form.extend_pairs(text(value).map(|value| (name, value)));
                }
            }
        }
        return Some(form.finish().into());
    }
    serde_json::to_vec(&arguments).ok().map(Bytes::from)
}

/// A value as text: nothing for null, JSON for what has parts.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

/// `base_url` without its last slash, the endpoint, and the query after whatever either brought along.
fn join(base_url: &str, path: &str, query: &str) -> Result<Url, ToolError> {
    let mut text = String::with_capacity(base_url.len() + path.len() + query.len() + 2);
    text.push_str(base_url.trim_end_matches('/'));
    if !path.is_empty() && !path.starts_with(['/', '?']) && !text.is_empty() {
        text.push('/');
    }
    text.push_str(path);
    if !query.is_empty() {
        text.push(if text.contains('?') { '&' } else { '?' });
        text.push_str(query);
    }
    let url = Url::parse(&text).map_err(|_| ToolError::BadUrl("it is no absolute URL"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(ToolError::BadUrl("it is not http or https"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(ToolError::BadUrl(
            "it contains credentials; auth_type is the place for them",
        ));
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Catalog;
    use serde_json::json;

    fn wire(tool: &str, args: Value) -> Result<Wire, ToolError> {
        let catalog = Catalog::from_text(&format!(
            "[provider]\nname = 'p'\nauth_type = 'header'\nauth_header_name = 'X-Own'\nauth_key_name = 'k'\n\
             extra_headers = {{ X-Extra = 'e' }}\n[[tools]]\nname = 't'\n{tool}"
        ));
        let tool = &catalog.tools()[0];
        let Value::Object(args) = args else { panic!() };
        build(tool, &args, "https://up.example/v1/")
    }

    fn url(tool: &str, args: Value) -> String {
        wire(tool, args)
            .map(|wire| wire.url.to_string())
            .unwrap_or_else(|e| e.to_string())
    }

    fn body(tool: &str, args: Value) -> Option<String> {
        let body = wire(tool, args).unwrap().body;
        body.map(|body| String::from_utf8(body.to_vec()).unwrap())
    }

    const LOCATED: &str = "endpoint = '/pets/{petId}/{other}'\nmethod = 'PUT'\n[tools.input_schema.properties]\n\
        petId = { x-ati-param-location = 'path' }\nq = { x-ati-param-location = 'query' }\n\
        csv = { x-ati-param-location = 'query', x-ati-collection-format = 'csv' }\n\
        ssv = { x-ati-param-location = 'query', x-ati-collection-format = 'ssv' }\n\
        pipes = { x-ati-param-location = 'query', x-ati-collection-format = 'pipes' }\n\
        X-Trace = { x-ati-param-location = 'header' }\nAuthorization = { x-ati-param-location = 'header' }\n\
        x-own = { x-ati-param-location = 'header' }\nx-extra = { x-ati-param-location = 'header' }\n\
        b = { x-ati-param-location = 'body' }\n";

    #[test]
    fn legacy_tools_use_one_place() {
        assert_eq!(
            url(
                "endpoint = '/s'",
                json!({"q": "a b&c", "n": 5, "list": [1, "x"], "none": null, "o": {"k": 1}})
            ),
            "https://up.example/v1/s?q=a%20b%26c&n=5&list=1&list=x&o=%7B%22k%22%3A1%7D"
        );
        assert_eq!(
            url("endpoint = '/s?v=2'", json!({"q": 1})),
            "https://up.example/v1/s?v=2&q=1"
        );
        for method in ["POST", "PUT", "DELETE", "PATCH"] {
            let tool = format!("endpoint = '/s'\nmethod = '{method}'");
            assert_eq!(
                body(&tool, json!({"q": [1]})).as_deref(),
                Some(r#"{"q":[1]}"#)
            );
            assert_eq!(url(&tool, json!({"q": 1})), "https://up.example/v1/s");
        }
        assert_eq!(body("method = 'POST'", json!({})).as_deref(), Some("{}"));
        assert_eq!(body("method = 'DELETE'", json!({})), None);
        assert_eq!(
            url("endpoint = '/x/{id}'", json!({"id": 1})),
            "https://up.example/v1/x/%7Bid%7D?id=1"
        );
    }

    #[test]
    fn located_tools_use_each_place() {
        let args = json!({"petId": "a/b ü", "q": ["x", "y"], "csv": ["a,b", "c"], "ssv": [1, 2], "pipes": [3, 4],
            "X-Trace": 7, "b": {"deep": true}, "unknown": null});
        let wire = wire(LOCATED, args).unwrap();
        assert_eq!(
            wire.url.as_str(),
            "https://up.example/v1/pets/a%2Fb%20%C3%BC/%7Bother%7D?q=x&q=y&csv=a%2Cb,c&ssv=1%202&pipes=3%7C4"
        );
        assert_eq!(wire.headers["x-trace"], "7");
        assert_eq!(wire.headers["content-type"], "application/json");
        assert_eq!(wire.body.unwrap(), r#"{"b":{"deep":true},"unknown":null}"#);
        assert_eq!(body(LOCATED, json!({"petId": 1})), None);
        let get = LOCATED.replace("'PUT'", "'GET'");
        assert_eq!(body(&get, json!({"petId": 1, "b": 1})), None);
    }

    #[test]
    fn forms() {
        let form = "method = 'POST'\n[tools.input_schema]\nx-ati-body-encoding = 'form'";
        let args = json!({"a": "x y", "b": [1, 2], "c": null});
        assert_eq!(body(form, args.clone()).as_deref(), Some("a=x+y&b=1&b=2"));
        assert_eq!(
            wire(form, args).unwrap().headers["content-type"],
            "application/x-www-form-urlencoded"
        );
    }

    #[test]
    fn paths_stay_in_their_segment() {
        for bad in ["..", ".", "a/../b", "a\\b", "a?b", "a#b", "a\0", "a\nb"] {
            assert_eq!(
                url(LOCATED, json!({"petId": bad})),
                format!(
                    "Invalid path parameter 'petId': value '{bad}' contains forbidden characters"
                )
            );
        }
        for missing in [json!({}), json!({"petId": null}), json!({"petId": ""})] {
            assert_eq!(url(LOCATED, missing), "Missing path parameter 'petId'");
        }
        assert!(url(LOCATED, json!({"petId": "%2e%2e"})).contains("/pets/%252e%252e/"));
    }

    #[test]
    fn headers_that_are_ours_are_not_theirs() {
        for name in ["Authorization", "x-own", "x-extra"] {
            assert_eq!(
                url(LOCATED, json!({"petId": 1, name: "x"})),
                format!("Header '{name}' is not allowed as a user-supplied parameter")
            );
        }
        assert_eq!(
            url(LOCATED, json!({"petId": 1, "X-Trace": "a\r\nb: c"})),
            "Invalid header parameter 'X-Trace': its value can't be sent in a header"
        );
    }
}
