//! Files in the JSON of `/call`, too big for an ordinary call.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{UPLOAD, bytes, refusal, sha256};
use crate::support::ati::{Proxy, Setup, tool};
use crate::support::http::{Client, Response};
use crate::support::tokens::{bearer, claims, key_pair};

/// Ordinary calls have at most 64 KiB, files at most 4 MiB.
const CONF: &str = "[tools]\nmax_call_bytes = 65536\nspool_bytes = 65536\n\
                    [files]\nmax_bytes = 4194304\nspool_bytes = 8388608\n";
const MOST: usize = 4 << 20;

/// A proxy that stores uploads in its folder `store`.
pub fn storing(conf: &str) -> Setup {
    let setup = Setup::new();
    let text = format!(
        "[provider]\nname = 'file_manager'\nhandler = 'file_manager'\n\
         upload_default_destination = 'disk'\n\
         [provider.upload_destinations.disk]\nkind = 'local'\ndirectory = '{}'\n",
        setup.path().join("store").display()
    );
    setup.manifest("file_manager", &text).conf(conf)
}

/// The bytes that an upload stored.
pub fn stored(answer: &Response) -> Vec<u8> {
    assert_eq!(answer.status, 200, "{}", answer.text());
    let url = answer.json()["result"]["url"].as_str().unwrap().to_owned();
    let path = url::Url::parse(&url).unwrap().to_file_path().unwrap();
    std::fs::read(path).unwrap()
}

fn body(content: &[u8], named_first: bool) -> String {
    let name = format!("\"tool_name\":\"{UPLOAD}\"");
    let text = STANDARD.encode(content);
    let args = format!("\"args\":{{\"content_base64\":\"{text}\",\"filename\":\"f.bin\"}}");
    match named_first {
        true => format!("{{{name},{args}}}"),
        false => format!("{{{args},{name}}}"),
    }
}

fn post(proxy: &Proxy, token: Option<&str>, body: &str) -> Response {
    let token = token.map(|token| ("authorization", token));
    let headers: Vec<(&str, &str)> = token.into_iter().collect();
    send(proxy, "POST", "/call", &headers, body.as_bytes())
}

/// A request whose refusal may come before the end of its body.
pub fn send(
    proxy: &Proxy,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Response {
    let mut client = proxy.client();
    let mut head = format!("{method} {path} HTTP/1.1\r\nhost: x\r\n");
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    client.write(format!("{head}content-length: {}\r\n\r\n", body.len()).as_bytes());
    let _ = client.try_write(body);
    client.read(false)
}

fn post_chunked(proxy: &Proxy, body: &str) -> Response {
    let mut client = proxy.client();
    client.write(b"POST /call HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n");
    for piece in body.as_bytes().chunks(50_000) {
        let piece = [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat();
        if client.try_write(&piece).is_err() {
            break;
        }
    }
    let _ = client.try_write(b"0\r\n\r\n");
    client.read(false)
}

#[test]
fn upload_longer_than_an_ordinary_call_arrives_whole() {
    let proxy = storing(CONF).start();
    let content = bytes(MOST);
    for named_first in [true, false] {
        let body = body(&content, named_first);
        for answer in [post(&proxy, None, &body), post_chunked(&proxy, &body)] {
            assert_eq!(stored(&answer), content);
            let result = answer.json()["result"].clone();
            assert_eq!(result["size_bytes"], json!(MOST));
            assert_eq!(result["sha256"], json!(sha256(&content)));
            assert_eq!(result["destination"], "disk");
        }
    }
    // Between what is parsed at once and what an ordinary call may have, it is the same.
    for size in [0, 1, 40_000, 49_000, 70_000] {
        let content = bytes(size);
        for named_first in [true, false] {
            let answer = post(&proxy, None, &body(&content, named_first));
            assert_eq!(stored(&answer), content, "{size}");
        }
    }
    proxy.settles("ati_file_spool_bytes", 0.0);
    proxy.settles("ati_spool_bytes", 0.0);
    let line = proxy.wait_for_audit(14).pop().unwrap();
    assert_eq!(line["args"]["filename"], "f.bin");
    assert!(line.to_string().len() < 1000, "{line}");
}

#[test]
fn ordinary_call_keeps_its_limit_whatever_its_arguments_are() {
    let api = crate::support::upstream::Upstream::echo();
    let proxy = storing(CONF)
        .tools("api", &api.url(), "", &tool("api:get", "method = 'POST'"))
        .start();
    let long = "the request can't be longer".repeat(5000);
    let limit = "Failed to read request body: length limit exceeded: more than 65536 bytes";
    for text in [
        json!({"tool_name": "api:get", "args": {"content_base64": long}}).to_string(),
        json!({"args": {"content_base64": STANDARD.encode(&long)}, "tool_name": "api:get"})
            .to_string(),
        json!({"args": {"text": long}, "tool_name": "api:get"}).to_string(),
        json!({"args": {"text": long}, "tool_name": UPLOAD}).to_string(),
    ] {
        assert_eq!(refusal(&post(&proxy, None, &text)), (400, limit.to_owned()));
        assert_eq!(
            refusal(&post_chunked(&proxy, &text)),
            (400, limit.to_owned())
        );
    }
    let named = json!({"tool_name": UPLOAD, "args": {"text": long}}).to_string();
    let (status, text) = refusal(&post(&proxy, None, &named));
    assert_eq!(status, 422);
    assert!(text.contains("at most 64 KiB besides the file"), "{text}");
    let unknown = json!({"tool_name": "no:such", "args": {"content_base64": long}});
    assert_eq!(post(&proxy, None, &unknown.to_string()).status, 404);
    assert!(api.received().is_empty());
}

#[test]
fn file_that_is_wrong_is_refused_with_its_status_and_text() {
    let proxy = storing(CONF).start();
    let big = bytes(MOST + 1);
    let large = (413, format!("Response exceeds max-bytes ({MOST} bytes)"));
    for named_first in [true, false] {
        assert_eq!(
            refusal(&post(&proxy, None, &body(&big, named_first))),
            large
        );
    }
    let wire_cap = MOST.div_ceil(3) * 4 + 8192;
    let beyond = body(&bytes(MOST + 20_000), true);
    let limit =
        format!("Failed to read request body: length limit exceeded: more than {wire_cap} bytes");
    assert_eq!(refusal(&post(&proxy, None, &beyond)), (400, limit));
    let mut broken = body(&bytes(1 << 20), true);
    let at = broken.find("base64\":\"").unwrap() + 9 + 500_002;
    broken.replace_range(at..=at, "*");
    let text = "Invalid base64 in upload payload: Invalid symbol 42, offset 500002.";
    assert_eq!(
        refusal(&post(&proxy, None, &broken)),
        (400, text.to_owned())
    );
    let half = body(&bytes(1 << 20), true);
    assert_eq!(post(&proxy, None, &half[..half.len() - 2]).status, 422);
    proxy.settles("ati_file_spool_bytes", 0.0);
}

#[test]
fn caller_without_the_scope_is_refused_before_its_file_is_kept() {
    let (signer, public) = key_pair();
    let proxy = storing(CONF).jwt(&public).start();
    let token = |scope: &str| {
        let mut claims = claims();
        claims.scope = scope.to_owned();
        bearer(&signer, &claims)
    };
    let (may, may_not) = (
        token(&format!("tool:{UPLOAD}")),
        token("tool:file_manager:download"),
    );
    // The answer comes while the body is still to be sent.
    let begin = |named_first: bool, path: &str, token: &str| {
        let text = body(&bytes(200_000), named_first);
        let announced = 3 << 20;
        let mut client = proxy.client();
        let head = format!(
            "PUT {path} HTTP/1.1\r\nhost: x\r\nauthorization: {token}\r\ncontent-length: {announced}\r\n\r\n"
        );
        let head = match path {
            "/call" => head.replacen("PUT", "POST", 1),
            _ => head,
        };
        client.write(head.as_bytes());
        client.write(&text.as_bytes()[..150_000]);
        client.read(false)
    };
    let denied = format!("Access denied: '{UPLOAD}' is not in your scopes");
    let refused = begin(true, "/call", &may_not);
    assert_eq!(refusal(&refused), (403, denied.clone()));
    let (status, text) = refusal(&begin(false, "/call", &may_not));
    assert_eq!(status, 400);
    assert!(text.contains("more than 65536 bytes"), "{text}");
    let refused = begin(true, "/files", &may_not);
    assert_eq!(
        (refused.status, &refused.json()["error"]),
        (403, &json!(denied))
    );
    assert_eq!(proxy.metric("ati_file_spool_bytes"), Some(0.0));
    let line = proxy.wait_for_audit(1).pop().unwrap();
    assert_eq!(
        (&line["tool"], &line["status"]),
        (&json!(UPLOAD), &json!("error"))
    );
    // Without a token, not even that much.
    let mut client = proxy.client();
    let refused = client.send("PUT", "/files", &[], b"content");
    assert_eq!(refused.status, 401);
    let content = bytes(1 << 20);
    assert_eq!(
        stored(&post(&proxy, Some(&may), &body(&content, false))),
        content
    );
}

#[test]
fn upload_that_breaks_off_leaves_nothing() {
    let proxy = storing(CONF).start();
    let whole = body(&bytes(2 << 20), true);
    for (method, path) in [("POST", "/call"), ("PUT", "/files")] {
        let mut client: Client = proxy.client();
        let length = whole.len();
        client.write(
            format!("{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n")
                .as_bytes(),
        );
        client.write(&whole.as_bytes()[..3 << 19]);
        proxy.rises_to("ati_file_spool_bytes", 1.0);
        drop(client);
        proxy.settles("ati_file_spool_bytes", 0.0);
    }
}

#[test]
fn file_beyond_the_quota_is_told_to_come_back() {
    let proxy = storing(CONF).start();
    let put = |size: usize| send(&proxy, "PUT", "/files", &[], &bytes(size));
    let first: Value = put(MOST).json();
    assert_eq!(put(3 << 20).status, 201);
    for answer in [
        put(2 << 20),
        post(&proxy, None, &body(&bytes(2 << 20), true)),
    ] {
        assert_eq!(answer.status, 503, "{}", answer.text());
        assert_eq!(answer.header("retry-after"), Some("1"));
        assert!(
            answer.text().contains("[files] spool_bytes"),
            "{}",
            answer.text()
        );
    }
    let path = format!("/files/{}", first["file"].as_str().unwrap());
    assert_eq!(proxy.client().get(&path).status, 200);
    proxy.settles("ati_file_spool_bytes", (3 << 20) as f64);
    let content = bytes(2 << 20);
    assert_eq!(stored(&post(&proxy, None, &body(&content, true))), content);
}
