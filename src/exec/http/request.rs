//! Builds a request from arguments: each goes into the path, the query, a header, a cookie or the
//! body.

use std::borrow::Cow;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, COOKIE};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde_json::{Map, Value};
use url::{Url, form_urlencoded};

use super::{HttpError, header_names, multipart, style};
use crate::catalog::schema::{Encoding, Location, Property, Schema, Style};
use crate::catalog::{HttpInvocation, Tool};
use crate::egress::{Base, EgressError, Target, is_http_url};

const JSON: &str = "application/json";
const FORM: &str = "application/x-www-form-urlencoded";

/// A request before its credential is attached.
pub struct Wire {
    pub method: Method,
    pub target: Target,
    pub headers: HeaderMap,
    pub body: Option<Bytes>,
    /// The tool doesn't say that a second call does more than one.
    pub repeatable: bool,
}

#[derive(Default)]
struct Parts<'a> {
    path: Vec<(&'a str, &'a Value, Style)>,
    query: Vec<(&'a str, &'a Value, Style)>,
    headers: Vec<(&'a str, &'a Value, Style)>,
    cookies: Vec<(&'a str, &'a Value, Style)>,
    body: Map<String, Value>,
}

/// Builds the request. `args` are the caller's, or what the dialect made of them.
pub fn build(
    tool: &Tool,
    invocation: &HttpInvocation,
    base_url: &str,
    args: &Map<String, Value>,
) -> Result<Wire, HttpError> {
    let method = &invocation.method;
    let located = tool.schema.located;
    let parts = if located {
        by_location(tool, args)
    } else {
        by_method(method, args)
    };
    let endpoint = &invocation.endpoint;
    let path = match located {
        true => Cow::Owned(fill(endpoint, tool, &parts)?),
        false => Cow::Borrowed(endpoint.as_str()),
    };
    let query = style::query(parts.query.iter().copied());
    let known = tool.provider.base_url().and_then(|url| url.base.as_ref());
    let target = target(known, base_url, &path, &query)?;
    let mut headers = HeaderMap::new();
    for (name, value, style) in &parts.headers {
        if let Some((name, value)) = header(tool, name, value, *style)? {
            headers.insert(name, value);
        }
    }
    if let Some(cookies) = cookies(&parts.cookies) {
        headers.insert(COOKIE, cookies);
    }
    let body = body(tool, method, parts.body)?;
    let body = body.map(|(body, kind)| {
        headers.insert(CONTENT_TYPE, kind);
        body
    });
    let effects = tool.effects.as_ref().map(|known| &known.effects);
    Ok(Wire {
        repeatable: effects.and_then(|effects| effects.idempotent) != Some(false),
        method: method.clone(),
        target,
        headers,
        body,
    })
}

/// By the location of each property. Arguments without a property go into the body.
fn by_location<'a>(tool: &'a Tool, args: &'a Map<String, Value>) -> Parts<'a> {
    let mut parts = Parts::default();
    for (name, value) in args {
        let Some(property) = tool.schema.property(name) else {
            parts.body.insert(name.clone(), value.clone());
            continue;
        };
        let parameter = (property.wire_name(), value, property.style);
        match property.location {
            Some(Location::Path) => parts.path.push(parameter),
            Some(Location::Query) => parts.query.push(parameter),
            Some(Location::Header) => parts.headers.push(parameter),
            Some(Location::Cookie) => parts.cookies.push(parameter),
            Some(Location::Body) | None => {
                parts.body.insert(name.clone(), value.clone());
            }
        }
    }
    parts
}

/// For schemas without locations: all arguments go into the query of a GET, or into the body.
fn by_method<'a>(method: &Method, args: &'a Map<String, Value>) -> Parts<'a> {
    let mut parts = Parts::default();
    if method == Method::GET {
        let plain = Style {
            explode: true,
            ..Style::default()
        };
        parts.query = args
            .iter()
            .map(|(name, value)| (name.as_str(), value, plain))
            .collect();
    } else {
        parts.body = args.clone();
    }
    parts
}

/// The endpoint with its path parameters filled in.
fn fill(endpoint: &str, tool: &Tool, parts: &Parts<'_>) -> Result<String, HttpError> {
    let mut path = String::with_capacity(endpoint.len() + 32);
    let mut rest = endpoint;
    while let Some((before, after)) = rest.split_once('{') {
        path.push_str(before);
        let Some((name, behind)) = after.split_once('}') else {
            rest = &rest[before.len()..];
            break;
        };
        let in_path =
            |known: &&Property| known.location == Some(Location::Path) && known.wire_name() == name;
        if tool.schema.properties.iter().any(|known| in_path(&known)) {
            let given = parts.path.iter().find(|(known, ..)| *known == name);
            let written = match given {
                Some((name, value, style)) => {
                    style::joined(name, value, *style, |text| path_value(name, text))?
                }
                None => None,
            };
            let written = written.filter(|text| !text.is_empty());
            path.push_str(
                &written.ok_or_else(|| HttpError::MissingPathParameter(name.to_owned()))?,
            );
        } else {
            path.push_str(&format!("{{{name}}}"));
        }
        rest = behind;
    }
    path.push_str(rest);
    // Values that are harmless one by one can form `..` together.
    let leads_out = path
        .split(['?', '#'])
        .next()
        .unwrap_or_default()
        .split('/')
        .any(|segment| matches!(segment, "." | ".."));
    let written_so = endpoint
        .split('/')
        .any(|segment| matches!(segment, "." | ".."));
    if leads_out && !written_so {
        return Err(HttpError::PathParameter {
            name: "path".to_owned(),
            value: path,
        });
    }
    Ok(path)
}

/// Encodes a value so that every server reads it as part of its segment.
fn path_value(name: &str, value: &str) -> Result<String, HttpError> {
    let forbidden = value.contains("..")
        || value == "."
        || value.contains(['\\', '?', '#'])
        || value.chars().any(char::is_control);
    if forbidden {
        return Err(HttpError::PathParameter {
            name: name.to_owned(),
            value: value.to_owned(),
        });
    }
    Ok(style::encode(value))
}

fn header(
    tool: &Tool,
    name: &str,
    value: &Value,
    style: Style,
) -> Result<Option<(HeaderName, HeaderValue)>, HttpError> {
    let refused = || HttpError::HeaderParameter(name.to_owned());
    let header = HeaderName::try_from(name).map_err(|_| refused())?;
    if !header_names::may_set(&header, &tool.provider.outbound) {
        return Err(refused());
    }
    let as_it_is = |text: &str| Ok::<_, HttpError>(text.to_owned());
    let Some(text) = style::joined(name, value, style, as_it_is)? else {
        return Ok(None);
    };
    let value =
        HeaderValue::from_str(&text).map_err(|_| HttpError::HeaderValue(name.to_owned()))?;
    Ok(Some((header, value)))
}

fn cookies(parameters: &[(&str, &Value, Style)]) -> Option<HeaderValue> {
    let pairs: Vec<String> = parameters
        .iter()
        .flat_map(|(name, value, style)| style::pairs(name, value, *style, style::encode))
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    (!pairs.is_empty()).then(|| HeaderValue::from_str(&pairs.join("; ")).ok())?
}

/// The body and its content type.
fn body(
    tool: &Tool,
    method: &Method,
    mut arguments: Map<String, Value>,
) -> Result<Option<(Bytes, HeaderValue)>, HttpError> {
    let schema = &tool.schema;
    let declared = |property: &Property| property.location == Some(Location::Body);
    let bodiless = *method == Method::GET
        || (schema.located && *method == Method::DELETE && !schema.properties.iter().any(declared));
    // Without locations an empty call sends `{}`, as existing deployments do. With them, only where
    // the API requires a body.
    let nothing = arguments.is_empty()
        && (schema.located || *method == Method::DELETE)
        && !schema.body.required;
    if bodiless || nothing {
        return Ok(None);
    }
    let said = schema.body.media_type.as_deref();
    let kind = |default: &'static str| {
        said.and_then(|kind| HeaderValue::from_str(kind).ok())
            .unwrap_or_else(|| HeaderValue::from_static(default))
    };
    if let Some(name) = &schema.body.argument {
        let Some(whole) = arguments.shift_remove(name) else {
            return Ok(None);
        };
        return Ok(Some(match (schema.body.encoding, &whole) {
            (Encoding::Raw, _) => {
                let own = whole["content_type"].as_str();
                let own = own.and_then(|kind| HeaderValue::from_str(kind).ok());
                let kind = own.unwrap_or_else(|| kind("application/octet-stream"));
                (multipart::bytes(name, &whole)?.into(), kind)
            }
            (Encoding::Form, Value::String(text)) => (text.clone().into(), kind(FORM)),
            (Encoding::Form, Value::Object(fields)) => (form(schema, fields).into(), kind(FORM)),
            (Encoding::Multipart, Value::Object(fields)) => {
                let (body, kind) = multipart::build(schema, fields)?;
                let kind = HeaderValue::from_str(&kind);
                (
                    body.into(),
                    kind.unwrap_or_else(|_| HeaderValue::from_static("multipart/form-data")),
                )
            }
            _ => (Bytes::from(whole.to_string()), kind(JSON)),
        }));
    }
    Ok(Some(match schema.body.encoding {
        Encoding::Form => (form(schema, &arguments).into(), kind(FORM)),
        Encoding::Multipart => {
            let (body, kind) = multipart::build(schema, &arguments)?;
            let kind = HeaderValue::from_str(&kind)
                .unwrap_or_else(|_| HeaderValue::from_static("multipart/form-data"));
            (body.into(), kind)
        }
        Encoding::Json | Encoding::Raw => {
            let named: Map<String, Value> = arguments
                .into_iter()
                .map(|(name, value)| (on_the_wire(schema, &name).to_owned(), value))
                .collect();
            (Bytes::from(Value::Object(named).to_string()), kind(JSON))
        }
    }))
}

fn on_the_wire<'a>(schema: &'a Schema, name: &'a str) -> &'a str {
    schema.property(name).map_or(name, Property::wire_name)
}

fn form(schema: &Schema, arguments: &Map<String, Value>) -> String {
    let write = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
    let pairs: Vec<String> = arguments
        .iter()
        .flat_map(|(name, value)| {
            let property = schema.property(name);
            let style = property.map_or_else(
                || Style {
                    explode: true,
                    ..Style::default()
                },
                |property| property.style,
            );
            style::pairs(on_the_wire(schema, name), value, style, write)
        })
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    pairs.join("&")
}

/// The URL that is called. The parser is asked only where it would not leave each part as it is.
fn target(
    known: Option<&Base>,
    base_url: &str,
    path: &str,
    query: &str,
) -> Result<Target, HttpError> {
    if let Some(target) = known.and_then(|base| base.join(path, query)) {
        return Ok(target);
    }
    let target = Target::of(&join(base_url, path, query)?);
    Ok(target.ok_or(EgressError::NO_BASE_URL)?)
}

/// `base_url` without its last slash, then the endpoint, then the query: after a `?`, or after an
/// `&` where one of them has a query already.
fn join(base_url: &str, path: &str, query: &str) -> Result<Url, HttpError> {
    let mut text = String::with_capacity(base_url.len() + path.len() + query.len() + 2);
    let whole = path.starts_with("http://") || path.starts_with("https://");
    if whole && !is_same_origin(base_url, path) {
        return Err(EgressError::BadUrl("its endpoint is on another host than base_url").into());
    }
    if !whole {
        text.push_str(base_url.trim_end_matches('/'));
    }
    if !path.is_empty() && !path.starts_with(['/', '?']) && !text.is_empty() {
        text.push('/');
    }
    text.push_str(path);
    if !query.is_empty() {
        text.push(if text.contains('?') { '&' } else { '?' });
        text.push_str(query);
    }
    let url = Url::parse(&text).map_err(|_| EgressError::NO_BASE_URL)?;
    if !is_http_url(&url) {
        return Err(EgressError::BadUrl("it is not http or https").into());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(EgressError::BadUrl(
            "it contains credentials; auth_type is the place for them",
        )
        .into());
    }
    Ok(url)
}

/// Whether an endpoint that is a whole URL stays on the provider's origin, where its credential may
/// go.
fn is_same_origin(base_url: &str, endpoint: &str) -> bool {
    let origin = |text: &str| Url::parse(text).map(|url| url.origin());
    matches!((origin(base_url), origin(endpoint)), (Ok(a), Ok(b)) if a == b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{Catalog, Invocation};
    use serde_json::json;

    fn wire(tool: &str, args: Value) -> Result<Wire, HttpError> {
        let catalog = Catalog::from_text(&format!(
            "[provider]\nname = 'p'\nauth_type = 'header'\nauth_header_name = 'X-Own'\nauth_key_name = 'k'\n\
             extra_headers = {{ X-Extra = 'e' }}\n[[tools]]\nname = 't'\n{tool}"
        ));
        let tool = &catalog.tools()[0];
        let Value::Object(args) = args else { panic!() };
        let Invocation::Http(invocation) = &tool.invocation else {
            panic!()
        };
        build(tool, invocation, "https://up.example/v1/", &args)
    }

    fn url(tool: &str, args: Value) -> String {
        wire(tool, args)
            .map(|wire| wire.target.to_url().unwrap().to_string())
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
    fn arguments_without_locations_go_to_one_place() {
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
    fn arguments_with_locations_go_to_their_places() {
        let args = json!({"petId": "a/b ü", "q": ["x", "y"], "csv": ["a,b", "c"], "ssv": [1, 2], "pipes": [3, 4],
            "X-Trace": 7, "b": {"deep": true}, "unknown": null});
        let wire = wire(LOCATED, args).unwrap();
        assert_eq!(
            wire.target.to_url().unwrap().as_str(),
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
    fn form_body_is_url_encoded() {
        let form = "method = 'POST'\n[tools.input_schema]\nx-ati-body-encoding = 'form'";
        let args = json!({"a": "x y", "b": [1, 2], "c": null});
        assert_eq!(body(form, args.clone()).as_deref(), Some("a=x+y&b=1&b=2"));
        assert_eq!(
            wire(form, args).unwrap().headers["content-type"],
            "application/x-www-form-urlencoded"
        );
    }

    #[test]
    fn path_values_stay_in_their_segment() {
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
    fn header_arguments_cannot_replace_reserved_headers() {
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
