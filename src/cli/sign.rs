//! `ati sign`: the signature header of one request, for programs that don't sign themselves.

use http::Method;
use serde_json::json;
use url::Url;

use super::{Format, output, remote};
use crate::auth::sandbox;
use crate::clock::unix_now;
use crate::error::{Code, Failure};

/// The header's name, as it is written where people read it.
const HEADER: &str = "X-Sandbox-Signature";

#[derive(clap::Args)]
#[command(
    after_help = "The secret comes from ATI_SANDBOX_SECRET, from the file that \
                  ATI_SANDBOX_SECRET_FILE names, or from /run/ati/sandbox_secret. \
                  A signature is for one method and path, and for about a minute.\n\n\
                  Example:\n  \
                  curl -H \"$(ati sign GET https://edge.example.com/tools)\" https://edge.example.com/tools"
)]
pub struct Args {
    /// The request's method
    method: String,

    /// The request's URL, or its path as it will be sent; a query is not signed
    url: String,
}

/// `asked`: the format that was asked for by name. By default it is the line to paste.
pub fn run(args: &Args, asked: Option<Format>) -> Result<u8, Failure> {
    let method = Method::from_bytes(args.method.to_ascii_uppercase().as_bytes())
        .map_err(|_| Failure::invalid(format!("'{}' is no method", args.method)))?;
    let path = signed_path(&args.url)?;
    let Some(signing) = remote::signing_key()? else {
        return Err(Failure::new(
            Code::MissingKey,
            format!("no secret to sign with: put it into {}", sandbox::SOURCES),
        ));
    };
    let timestamp = unix_now();
    let value = signing.key.sign(timestamp, method.as_str(), &path);
    if asked == Some(Format::Json) {
        output::pretty(&json!({"header": HEADER, "value": value, "timestamp": timestamp}));
    } else {
        output::line(&format!("{HEADER}: {value}"));
    }
    Ok(0)
}

/// The path of a URL, or a path, as clients send it. One that they would change first is refused:
/// its signature would not be that of the request.
fn signed_path(text: &str) -> Result<String, Failure> {
    let (url, given) = if text.starts_with('/') {
        (Url::parse(&format!("http://host{text}")), text)
    } else {
        let authority = text.split_once("://").map_or("", |(_, rest)| rest);
        let path = authority
            .find(['/', '?', '#'])
            .map_or("", |at| &authority[at..]);
        (Url::parse(text), path)
    };
    let url = url
        .ok()
        .filter(crate::egress::is_http_url)
        .ok_or_else(|| Failure::invalid("expected an http or https URL, or a path from '/' on"))?;
    let given = given.split(['?', '#']).next().unwrap_or_default();
    if given != url.path() && !given.is_empty() {
        let message = format!(
            "write the path as it is sent: '{}' and not '{given}'",
            url.path()
        );
        return Err(Failure::invalid(output::printable(&message)));
    }
    Ok(url.path().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_is_signed_as_it_is_sent_and_without_its_query() {
        for (text, path) in [
            ("/tools", "/tools"),
            ("/tools?search=a/b", "/tools"),
            ("//x/%2F", "//x/%2F"),
            ("http://h:1/base/tools?x=y#z", "/base/tools"),
            ("https://user:password@h", "/"),
            ("https://h?x=/y", "/"),
            ("HTTP://h/tools/a:b", "/tools/a:b"),
        ] {
            assert_eq!(signed_path(text).unwrap(), path, "{text}");
        }
        for text in [
            "",
            "tools",
            "ftp://h/x",
            "http://",
            "/a b",
            "/a/../b",
            "/ü",
            "http://h/a/./b",
        ] {
            assert!(signed_path(text).is_err(), "{text}");
        }
        let hint = signed_path("/a b").unwrap_err().message;
        assert!(hint.contains("'/a%20b'"), "{hint}");
    }
}
