//! Every documented error of file tools, with its status and its text.

use ati::auth::token::{Claims, Namespace};
use serde_json::{Value, json};

use super::{DOWNLOAD, UPLOAD, download, refusal, server, with_destinations};
use crate::support::ati::Setup;
use crate::support::tokens::{bearer, claims, key_pair};

fn assert_refused(
    proxy: &crate::support::ati::Proxy,
    tool: &str,
    args: Value,
    status: u16,
    text: &str,
) {
    let response = proxy.call(None, tool, args.clone());
    let (found, said) = refusal(&response);
    assert_eq!(found, status, "{args}: {said}");
    assert!(said.starts_with(text), "{args}: {said}");
}

#[test]
fn wrong_arguments_of_a_download_are_400_and_say_which() {
    let proxy = Setup::new().start();
    for (args, text) in [
        (json!({}), "Missing required argument: url"),
        (json!([1]), "Missing required argument: url"),
        (
            json!({"url": "http://h/", "max_bytes": 0}),
            "Invalid argument 'max_bytes': ",
        ),
        (
            json!({"url": "http://h/", "max-bytes": "x"}),
            "Invalid argument 'max_bytes': ",
        ),
        (
            json!({"url": "http://h/", "timeout": {}}),
            "Invalid argument 'timeout': ",
        ),
        (
            json!({"url": "http://h/", "follow-redirects": "maybe"}),
            "Invalid argument 'follow_redirects': ",
        ),
        (
            json!({"url": "http://h/", "headers": "no json"}),
            "Invalid argument 'headers': ",
        ),
        (
            json!({"url": "http://h/", "headers": {"Host": "x"}}),
            "Invalid extra header 'Host': ",
        ),
        (
            json!({"url": "http://h/", "headers": {"proxy-authorization": "x"}}),
            "Invalid extra header 'proxy-authorization': ",
        ),
        (
            json!({"url": "http://h/", "headers": "{\"a:b\": 1}"}),
            "Invalid extra header 'a:b': ",
        ),
    ] {
        assert_refused(&proxy, DOWNLOAD, args, 400, text);
    }
    assert_refused(
        &proxy,
        DOWNLOAD,
        json!({"url": "no url"}),
        502,
        "Invalid URL: ",
    );
    assert_refused(
        &proxy,
        DOWNLOAD,
        json!({"url": "file:///etc/passwd"}),
        502,
        "Invalid URL: ",
    );
}

#[test]
fn status_of_the_upstream_is_the_callers_and_its_text_is_cut() {
    let files = server(|received| {
        let status = received.target[1..4].parse().unwrap();
        (status, String::new(), "é".repeat(1000).into_bytes())
    });
    let proxy = Setup::new().start();
    for (upstream, status) in [(404, 404), (403, 403), (500, 500), (599, 599), (300, 400)] {
        let url = format!("{}/{upstream}", files.url());
        let response = download(&proxy, json!({"url": format!("{url}?sig=planted-in-url")}));
        let (found, text) = refusal(&response);
        assert_eq!(found, status);
        let body = "é".repeat(256);
        assert_eq!(
            text,
            format!("Upstream returned status {upstream} for '{url}': {body}")
        );
    }
    proxy.settles(
        r#"ati_tool_calls_total{outcome="upstream_status",provider="file_manager",tool="file_manager:download"}"#,
        5.0,
    );
}

#[test]
fn upstream_that_is_not_there_is_502() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let proxy = Setup::new().start();
    let args = json!({"url": format!("http://{address}/x?planted-in-url")});
    assert_refused(
        &proxy,
        DOWNLOAD,
        args,
        502,
        "Download failed: HTTP request failed: ",
    );
}

#[test]
fn upload_without_destinations_is_503_and_to_an_unknown_one_403() {
    let file = json!({"filename": "a.txt", "content_base64": "aGk="});
    let with = |destination: &str| {
        let mut args = file.clone();
        args["destination"] = json!(destination);
        args
    };
    const NOT: &str = "Upload destinations not configured on the proxy — ";
    let proxy = Setup::new().start();
    assert_refused(&proxy, UPLOAD, file.clone(), 503, NOT);
    assert_refused(&proxy, UPLOAD, with("fal"), 503, NOT);
    let destination = "[provider.upload_destinations.fal]\nkind = 'fal_storage'\n";
    let proxy = with_destinations(destination, &json!({})).start();
    assert_refused(&proxy, UPLOAD, file.clone(), 503, NOT);
    let unknown = "Unknown upload destination 'other' — not in the operator's allowlist";
    assert_refused(&proxy, UPLOAD, with("other"), 403, unknown);
    let missing = "Upload failed: keyring key 'fal_api_key' missing";
    assert_refused(&proxy, UPLOAD, with("fal"), 502, missing);
}

#[test]
fn wrong_arguments_of_an_upload_are_400_and_say_which() {
    let dir = tempfile::tempdir().unwrap();
    let destination = format!(
        "upload_default_destination = 'here'\n[provider.upload_destinations.here]\nkind = 'local'\n\
         directory = '{}'\n",
        dir.path().display()
    );
    let proxy = with_destinations(&destination, &json!({})).start();
    for (args, text) in [
        (json!({}), "Missing required argument: filename"),
        (
            json!({"filename": "a"}),
            "Missing required argument: content_base64",
        ),
        (
            json!({"filename": "a\nb", "content_base64": ""}),
            "Invalid argument 'filename': ",
        ),
        (
            json!({"filename": "../..", "content_base64": ""}),
            "Invalid argument 'filename': ",
        ),
        (
            json!({"filename": "a", "content_type": "x\r\ny", "content_base64": ""}),
            "Invalid argument 'content_type': ",
        ),
        (
            json!({"filename": "a", "content_base64": "planted-"}),
            "Invalid base64 in upload payload: ",
        ),
        (
            json!({"filename": "a", "content_base64": "a===a"}),
            "Invalid base64 in upload payload: ",
        ),
        (
            json!({"filename": "a", "content_base64": 7}),
            "Invalid base64 in upload payload: ",
        ),
    ] {
        assert_refused(&proxy, UPLOAD, args, 400, text);
    }
    let left = std::fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(left, 0, "nothing was written");
}

#[test]
fn rate_of_a_caller_counts_downloads_under_every_name() {
    let files = server(|_| (200, String::new(), b"x".to_vec()));
    let (signer, public) = key_pair();
    let proxy = Setup::new().jwt(&public).start();
    let rate = [("tool:file_manager:*".to_owned(), "2/hour".to_owned())];
    let claims = Claims {
        ati: Some(Namespace {
            v: 1,
            rate: rate.into_iter().collect(),
            customer_id: None,
            delegation: None,
        }),
        ..claims()
    };
    let token = bearer(&signer, &claims);
    let call = |name: &str| {
        let response = proxy.call(Some(&token), name, json!({"url": files.url()}));
        response.status
    };
    assert_eq!((call(DOWNLOAD), call("file_manager_download")), (200, 200));
    assert_eq!(call(DOWNLOAD), 429);
    assert_eq!(files.received().len(), 2);
}

#[test]
fn default_destination_that_is_not_there_keeps_the_proxy_from_starting() {
    let setup = with_destinations("upload_default_destination = 'X'\n", &json!({}));
    let output = setup.output();
    assert_eq!(output.status.code(), Some(2));
    let said = crate::support::ati::stderr(&output);
    let expected =
        "upload_default_destination 'X' is not present in [provider.upload_destinations]";
    assert!(said.contains(expected), "{said}");
}
