//! The arguments of file tools. Numbers and booleans may be texts, as agents and command lines
//! send them.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Map, Value};
use url::Url;

use super::content_type;
use super::error::FilesError;
use crate::catalog::schema::fold;
use crate::egress::is_http_url;

const DEFAULT_MAX_BYTES: u64 = 500 << 20;
const DEFAULT_TIMEOUT: u64 = 120;
/// Seconds.
const LONGEST_TIMEOUT: u64 = 3600;
/// Bytes of a file's name: with an id before it, it must fit into a file system.
const LONGEST_NAME: usize = 200;
/// Headers that are about the connection or about the request as a whole, which are ati's.
const DENIED: [&str; 11] = [
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "proxy-authorization",
    "expect",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "upgrade",
];

/// The arguments of `download`.
#[derive(Debug)]
pub struct DownloadArgs {
    /// As the caller sent it.
    pub source_url: String,
    /// Without user, password and fragment.
    pub url: Url,
    pub max_bytes: u64,
    pub timeout: Duration,
    pub follow_redirects: bool,
    pub headers: HeaderMap,
}

impl DownloadArgs {
    /// `most`: no call may download more bytes than that.
    pub fn read(args: &Map<String, Value>, most: u64) -> Result<Self, FilesError> {
        let source_url = text(args, "url")?.ok_or(FilesError::MissingArgument("url"))?;
        let max_bytes = number(args, "max_bytes")?.unwrap_or(DEFAULT_MAX_BYTES);
        if max_bytes == 0 {
            return Err(FilesError::argument("max_bytes", "it must be more than 0"));
        }
        let timeout = number(args, "timeout")?.unwrap_or(DEFAULT_TIMEOUT);
        if !(1..=LONGEST_TIMEOUT).contains(&timeout) {
            let what = format!("expected 1 to {LONGEST_TIMEOUT} seconds");
            return Err(FilesError::argument("timeout", what));
        }
        let mut headers = headers(args.get("headers"))?;
        let mut url = Url::parse(source_url.trim())
            .map_err(|_| FilesError::InvalidUrl("it can't be parsed"))?;
        if !is_http_url(&url) {
            return Err(FilesError::InvalidUrl("expected http:// or https://"));
        }
        move_user(&mut url, &mut headers);
        url.set_fragment(None);
        Ok(DownloadArgs {
            url,
            max_bytes: max_bytes.min(most),
            timeout: Duration::from_secs(timeout),
            follow_redirects: flag(args, "follow_redirects")?.unwrap_or(true),
            headers,
            source_url,
        })
    }
}

/// A user of the URL becomes a header, as with any client: errors show the URL.
fn move_user(url: &mut Url, headers: &mut HeaderMap) {
    if url.username().is_empty() && url.password().is_none() {
        return;
    }
    let decoded = |text: &str| percent_encoding::percent_decode_str(text).collect::<Vec<u8>>();
    let mut pair = decoded(url.username());
    pair.push(b':');
    pair.extend(decoded(url.password().unwrap_or_default()));
    if let Ok(mut value) = HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(pair))) {
        value.set_sensitive(true);
        headers.entry(AUTHORIZATION).or_insert(value);
    }
    let _ = url.set_username("");
    let _ = url.set_password(None);
}

/// The arguments of `upload`, without the file's bytes.
#[derive(Debug)]
pub struct UploadArgs {
    pub filename: String,
    pub content_type: String,
    pub destination: Option<String>,
}

impl UploadArgs {
    pub fn read(args: &Map<String, Value>) -> Result<Self, FilesError> {
        let given = text(args, "filename")?.ok_or(FilesError::MissingArgument("filename"))?;
        let filename = base_name(&given)?;
        let content_type = match text(args, "content_type")? {
            None => content_type::guess(&filename).to_owned(),
            Some(given) => {
                let is_type = given.contains('/') && !given.contains(char::is_control);
                let good = is_type && HeaderValue::from_str(&given).is_ok();
                match good {
                    true => given,
                    false => {
                        let what = "expected a media type, as in image/png";
                        return Err(FilesError::argument("content_type", what));
                    }
                }
            }
        };
        Ok(UploadArgs {
            filename,
            content_type,
            destination: text(args, "destination")?,
        })
    }
}

/// The name without the folders before it. Of a name that is too long the end is kept, for its
/// extension.
pub fn base_name(given: &str) -> Result<String, FilesError> {
    let bad = |what: &str| Err(FilesError::argument("filename", what));
    if given.contains(char::is_control) {
        return bad("it has control characters");
    }
    let name = given.rsplit(['/', '\\']).next().unwrap_or_default().trim();
    if matches!(name, "" | "." | "..") {
        return bad("expected the name of a file");
    }
    let cut = name.ceil_char_boundary(name.len().saturating_sub(LONGEST_NAME));
    Ok(name[cut..].to_owned())
}

/// None where it is absent, null or empty.
fn text(args: &Map<String, Value>, name: &'static str) -> Result<Option<String>, FilesError> {
    match args.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone()).filter(|text| !text.trim().is_empty())),
        Some(Value::Number(number)) => Ok(Some(number.to_string())),
        Some(_) => Err(FilesError::argument(name, "expected a text")),
    }
}

fn number(args: &Map<String, Value>, name: &'static str) -> Result<Option<u64>, FilesError> {
    let number = match args.get(name) {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Number(number)) => {
            let whole = number.as_f64().filter(|n| n.fract() == 0.0 && *n >= 0.0);
            number.as_u64().or_else(|| whole.map(|n| n as u64))
        }
        Some(Value::String(text)) => text.trim().parse().ok(),
        Some(_) => None,
    };
    let wrong = || FilesError::argument(name, "expected a whole number, not below 0");
    number.map(Some).ok_or_else(wrong)
}

fn flag(args: &Map<String, Value>, name: &'static str) -> Result<Option<bool>, FilesError> {
    let flag = match args.get(name) {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Bool(flag)) => Some(*flag),
        Some(Value::String(text)) => match text.trim().to_ascii_lowercase().as_str() {
            "true" | "1" => Some(true),
            "false" | "0" => Some(false),
            _ => None,
        },
        Some(Value::Number(number)) => match number.as_u64() {
            Some(0) => Some(false),
            Some(1) => Some(true),
            _ => None,
        },
        Some(_) => None,
    };
    let wrong = || FilesError::argument(name, "expected true or false");
    flag.map(Some).ok_or_else(wrong)
}

/// An object, or the JSON text of one.
fn headers(given: Option<&Value>) -> Result<HeaderMap, FilesError> {
    let wrong = || FilesError::argument("headers", "expected an object, or the JSON text of one");
    let parsed: Value;
    let object = match given {
        None | Some(Value::Null) => return Ok(HeaderMap::new()),
        Some(Value::Object(object)) => object,
        Some(Value::String(text)) if text.trim().is_empty() => return Ok(HeaderMap::new()),
        Some(Value::String(text)) => {
            parsed = serde_json::from_str(text).map_err(|_| wrong())?;
            parsed.as_object().ok_or_else(wrong)?
        }
        Some(_) => return Err(wrong()),
    };
    let mut headers = HeaderMap::with_capacity(object.len());
    for (name, value) in object {
        let bad = |what| FilesError::Header {
            name: name.chars().filter(|c| !c.is_control()).take(100).collect(),
            what,
        };
        let parsed = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| bad("its name can't be the name of a header"))?;
        if DENIED.contains(&parsed.as_str()) {
            return Err(bad("it is not allowed"));
        }
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            Value::Bool(flag) => flag.to_string(),
            Value::Null | Value::Array(_) | Value::Object(_) => {
                return Err(bad("its value is no text, number or boolean"));
            }
        };
        let mut value = HeaderValue::from_bytes(text.as_bytes())
            .map_err(|_| bad("its value can't be sent in a header"))?;
        // It may be a credential of the caller.
        value.set_sensitive(true);
        headers.insert(parsed, value);
    }
    Ok(headers)
}

/// The arguments as the audit keeps them: without the file's bytes, the values of headers, and what
/// may be secret of a URL.
pub fn for_audit(args: &Map<String, Value>) -> Map<String, Value> {
    let mut shown = Map::new();
    for (name, value) in args {
        // Names in any spelling that the tool takes.
        let value = match fold(name).as_str() {
            "contentbase64" => match value {
                Value::String(text) => format!("[{} letters of base64]", text.len()).into(),
                _ => Value::Null,
            },
            "url" => match value.as_str().map(Url::parse) {
                Some(Ok(url)) => shown_url(&url).into(),
                _ => Value::Null,
            },
            "headers" => match headers(Some(value)) {
                Ok(headers) => headers.keys().map(HeaderName::as_str).collect(),
                Err(_) => Value::Null,
            },
            _ => value.clone(),
        };
        shown.insert(name.clone(), value);
    }
    shown
}

/// A URL without what may be secret of it: user, password, query and fragment.
pub fn shown_url(url: &Url) -> String {
    let mut url = url.clone();
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_query(None);
    url.set_fragment(None);
    url.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const MOST: u64 = 1 << 30;

    fn download(args: Value) -> Result<DownloadArgs, String> {
        let Value::Object(args) = args else { panic!() };
        DownloadArgs::read(&args, MOST).map_err(|e| e.to_string())
    }

    #[test]
    fn download_arguments_have_documented_defaults_and_may_be_texts() {
        let args = download(json!({"url": "http://h/x#y"})).unwrap();
        assert_eq!((args.max_bytes, args.timeout.as_secs()), (500 << 20, 120));
        assert!(args.follow_redirects && args.headers.is_empty());
        assert_eq!(
            (args.url.as_str(), args.source_url.as_str()),
            ("http://h/x", "http://h/x#y")
        );
        let args = download(json!({"url": "http://h/", "max_bytes": "9", "timeout": "7",
            "follow_redirects": "false", "headers": "{\"X-A\": 5, \"b\": true}"}));
        let args = args.unwrap();
        assert_eq!((args.max_bytes, args.timeout.as_secs()), (9, 7));
        assert!(!args.follow_redirects);
        assert_eq!(
            (&args.headers["x-a"], &args.headers["b"]),
            (&"5".parse().unwrap(), &"true".parse().unwrap())
        );
        let most = download(json!({"url": "http://h/", "max_bytes": u64::MAX})).unwrap();
        assert_eq!(most.max_bytes, MOST);
    }

    #[test]
    fn download_argument_that_is_wrong_is_named() {
        for (args, text) in [
            (json!({}), "Missing required argument: url"),
            (json!({"url": ""}), "Missing required argument: url"),
            (json!({"url": null}), "Missing required argument: url"),
            (
                json!({"url": ["x"]}),
                "Invalid argument 'url': expected a text",
            ),
            (
                json!({"url": "x", "max_bytes": 0}),
                "Invalid argument 'max_bytes': it must",
            ),
            (
                json!({"url": "x", "max_bytes": "many"}),
                "Invalid argument 'max_bytes': expected",
            ),
            (
                json!({"url": "x", "max_bytes": -1}),
                "Invalid argument 'max_bytes': expected",
            ),
            (
                json!({"url": "x", "max_bytes": 1.5}),
                "Invalid argument 'max_bytes': expected",
            ),
            (
                json!({"url": "x", "timeout": 0}),
                "Invalid argument 'timeout': expected 1 to",
            ),
            (
                json!({"url": "http://h", "follow_redirects": "perhaps"}),
                "Invalid argument 'follow_redirects'",
            ),
            (
                json!({"url": "x", "headers": [1]}),
                "Invalid argument 'headers'",
            ),
            (
                json!({"url": "x", "headers": "[1]"}),
                "Invalid argument 'headers'",
            ),
            (
                json!({"url": "x", "headers": {"Host": "y"}}),
                "Invalid extra header 'Host': it is not allowed",
            ),
            (
                json!({"url": "x", "headers": {"a:b": "y"}}),
                "Invalid extra header 'a:b': its name",
            ),
            (
                json!({"url": "x", "headers": {"ü": "y"}}),
                "Invalid extra header 'ü': its name",
            ),
            (
                json!({"url": "x", "headers": {"a": "y\r\nz: 1"}}),
                "Invalid extra header 'a': its value can't",
            ),
            (
                json!({"url": "x", "headers": {"a": [1]}}),
                "Invalid extra header 'a': its value is no",
            ),
            (
                json!({"url": "not a url"}),
                "Invalid URL: it can't be parsed",
            ),
            (
                json!({"url": "file:///etc/passwd"}),
                "Invalid URL: expected http:// or https://",
            ),
        ] {
            let error = download(args.clone()).unwrap_err();
            assert!(error.starts_with(text), "{args}: {error}");
        }
        for name in DENIED {
            assert!(
                download(json!({"url": "http://h", "headers": {name: "x"}})).is_err(),
                "{name}"
            );
        }
    }

    #[test]
    fn user_of_a_url_becomes_a_header_and_is_in_no_message() {
        let args = download(json!({"url": "http://me:p%40w@h/x?sig=1"})).unwrap();
        assert_eq!(args.headers["authorization"], "Basic bWU6cEB3");
        assert_eq!(args.url.as_str(), "http://h/x?sig=1");
        assert_eq!(shown_url(&args.url), "http://h/x");
    }

    #[test]
    fn filename_is_stripped_of_folders_and_refused_where_nothing_is_left() {
        for (given, name) in [
            ("a.png", "a.png"),
            ("/etc/../x y.txt", "x y.txt"),
            ("..\\..\\w.exe", "w.exe"),
            ("ü.pdf", "ü.pdf"),
            ("...", "..."),
        ] {
            assert_eq!(base_name(given).unwrap(), name);
        }
        let long = base_name(&("ü".repeat(200) + "x.png")).unwrap();
        assert!(
            long.len() <= LONGEST_NAME && long.ends_with("üx.png"),
            "{long}"
        );
        for bad in ["", "/", "a/..", "..", "a\nb", "x\0"] {
            assert!(base_name(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn audit_has_no_bytes_no_header_values_and_no_query() {
        let Value::Object(args) = json!({"url": "https://u:p@h/x?sig=s3cret#f", "timeout": 5,
            "headers": "{\"Authorization\": \"s3cret\"}", "content-base64": "czNjcmV0"})
        else {
            panic!()
        };
        let shown = Value::Object(for_audit(&args));
        let expected = json!({"url": "https://h/x", "timeout": 5, "headers": ["authorization"],
            "content-base64": "[8 letters of base64]"});
        assert_eq!(shown, expected);
    }
}
