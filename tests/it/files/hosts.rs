//! Where downloads may lead: the allowlist, the address rules, and redirects.

use std::sync::Arc;
use std::sync::Mutex;

use serde_json::json;

use super::{content, download, refusal, server};
use crate::ssrf::{PUBLIC, in_namespace};
use crate::support::ati::{Setup, stderr};
use crate::support::dns::Nameserver;
use crate::support::upstream::Upstream;

#[test]
fn host_off_the_allowlist_is_403_at_every_hop() {
    let files = server(|received| match received.target.as_str() {
        "/off" => (
            302,
            "location: http://fal.media.evil.test/x\r\n".into(),
            Vec::new(),
        ),
        "/local" => {
            let host = received
                .header("host")
                .unwrap()
                .replace("127.0.0.1", "localhost");
            (307, format!("location: http://{host}/fine\r\n"), Vec::new())
        }
        _ => (200, String::new(), b"fine".to_vec()),
    });
    let proxy = Setup::new()
        .env("ATI_DOWNLOAD_ALLOWLIST", "*.fal.media, 127.0.0.1")
        .start();
    let port = files.address.port();
    let fine = download(&proxy, json!({"url": format!("{}/fine", files.url())}));
    assert_eq!(content(&fine), b"fine");
    for (url, host) in [
        ("http://evilfal.media/x".to_owned(), "evilfal.media"),
        (
            "http://fal.media.evil.test/x".to_owned(),
            "fal.media.evil.test",
        ),
        (format!("http://fal.media@127.0.0.2:{port}/"), "127.0.0.2"),
        (format!("http://localhost:{port}/fine"), "localhost"),
        (format!("{}/off", files.url()), "fal.media.evil.test"),
        (format!("{}/local", files.url()), "localhost"),
    ] {
        let expected = format!("Host '{host}' is not in the download allowlist");
        let response = download(&proxy, json!({"url": url}));
        assert_eq!(refusal(&response), (403, expected), "{url}");
    }
    proxy.settles(
        r#"ati_tool_calls_total{outcome="blocked",provider="file_manager",tool="file_manager:download"}"#,
        6.0,
    );
    // The list of the issue alone: loopback isn't on it, under whatever name.
    let proxy = Setup::new()
        .env("ATI_DOWNLOAD_ALLOWLIST", "*.fal.media")
        .start();
    let url = format!("http://fal.media@127.0.0.1:{port}/");
    assert_eq!(refusal(&download(&proxy, json!({"url": url}))).0, 403);
}

#[test]
fn allowlist_that_names_no_host_is_refused_and_a_bad_pattern_is_told() {
    let output = Setup::new().env("ATI_DOWNLOAD_ALLOWLIST", " , ").output();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("ATI_DOWNLOAD_ALLOWLIST: it names no host"));
    let proxy = Setup::new()
        .env("ATI_DOWNLOAD_ALLOWLIST", "https://fal.media/")
        .start();
    proxy.log.wait_for(
        "ATI_DOWNLOAD_ALLOWLIST: 'https://fal.media/' is no host and no *.host: it allows nothing",
    );
    let response = download(&proxy, json!({"url": "https://fal.media/"}));
    assert_eq!(refusal(&response).0, 403);
}

#[test]
fn private_address_is_403_with_protection_and_reached_without() {
    let files = server(|_| (200, String::new(), b"inside".to_vec()));
    let url = format!("{}/x?sig=planted-in-url", files.url());
    let open = Setup::new().start();
    assert_eq!(content(&download(&open, json!({"url": url}))), b"inside");
    let closed = Setup::new().env("ATI_SSRF_PROTECTION", "1").start();
    let shown = format!("{}/x", files.url());
    let expected = format!("URL is not allowed (private/internal address): {shown}");
    assert_eq!(
        refusal(&download(&closed, json!({"url": url}))),
        (403, expected)
    );
    assert_eq!(files.received().len(), 1);
}

#[test]
fn redirect_of_a_public_host_into_the_own_network_is_403() {
    if !in_namespace("files::hosts::redirect_of_a_public_host_into_the_own_network_is_403") {
        return;
    }
    let inside = server(|_| (200, String::new(), b"inside".to_vec()));
    let target = inside.url();
    let public = Upstream::answering_at(&format!("{PUBLIC}:0"), move |received, stream| {
        use std::io::Write as _;
        let location = match received.target.as_str() {
            "/address" => target.clone(),
            _ => target.replace("127.0.0.1", "rebound.test"),
        };
        let text = format!("HTTP/1.1 302 X\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n");
        stream.write_all(text.as_bytes()).is_ok()
    });
    let names = Nameserver::answering(&["127.0.0.1"]);
    let proxy = Setup::new()
        .env("ATI_SSRF_PROTECTION", "1")
        .conf(&format!("[egress]\nnameservers = ['{}']\n", names.address))
        .start();
    for path in ["/address", "/name"] {
        let response = download(&proxy, json!({"url": format!("{}{path}", public.url())}));
        let (status, text) = refusal(&response);
        assert_eq!(status, 403, "{text}");
        assert!(
            text.starts_with("URL is not allowed (private/internal address): "),
            "{text}"
        );
    }
    assert!(inside.received().is_empty());
}

#[test]
fn headers_of_the_caller_stay_with_their_origin() {
    let other = server(|_| (200, String::new(), b"other".to_vec()));
    let target = other.url();
    let files = server(move |received| match received.target.as_str() {
        "/away" => (302, format!("location: {target}/x\r\n"), Vec::new()),
        "/on" => (308, "location: /end\r\n".into(), Vec::new()),
        _ => (200, String::new(), b"own".to_vec()),
    });
    let proxy = Setup::new().start();
    let get = |path: &str| {
        let url = format!("{}{path}", files.url());
        let headers = json!({"Authorization": "planted-header", "X-Number": 5}).to_string();
        content(&download(&proxy, json!({"url": url, "headers": headers})))
    };
    assert_eq!(get("/on"), b"own");
    let seen = files.last();
    assert_eq!(
        (seen.target.as_str(), seen.header("authorization")),
        ("/end", Some("planted-header"))
    );
    assert_eq!(seen.header("x-number"), Some("5"));
    assert_eq!(get("/away"), b"other");
    let seen = other.last();
    assert_eq!(
        (seen.header("authorization"), seen.header("x-number")),
        (None, None)
    );
}

#[test]
fn redirects_are_followed_ten_times_or_not_at_all() {
    let seen: Arc<Mutex<usize>> = Arc::default();
    let count = seen.clone();
    let files = server(move |received| {
        *count.lock().unwrap() += 1;
        match received.target[1..].parse::<u32>().unwrap() {
            0 => (200, String::new(), b"end".to_vec()),
            left => (
                301,
                format!("location: /{}\r\n", left - 1),
                b"moved".to_vec(),
            ),
        }
    });
    let proxy = Setup::new().start();
    let get = |left: u32, follow: bool| {
        let url = format!("{}/{left}", files.url());
        download(
            &proxy,
            json!({"url": url, "follow-redirects": follow.to_string()}),
        )
    };
    assert_eq!(content(&get(10, true)), b"end");
    let expected = (502, "Download failed: more than 10 redirects".to_owned());
    assert_eq!(refusal(&get(11, true)), expected);
    *seen.lock().unwrap() = 0;
    let (status, text) = refusal(&get(3, false));
    assert_eq!(status, 400);
    assert!(
        text.starts_with("Upstream returned status 301 for"),
        "{text}"
    );
    assert_eq!(*seen.lock().unwrap(), 1);
}
