//! What a download answers, and what it leaves behind.

use std::io::Write;
use std::process::Command;

use ati::auth::token::Claims;
use serde_json::{Value, json};

use super::{
    DOWNLOAD, bytes, content, download, refusal, server, sha256, upload, with_destinations,
};
use crate::support::ati::{Proxy, Setup};
use crate::support::skip::skip;
use crate::support::tokens::{bearer, claims, key_pair};
use crate::support::upstream::Upstream;

#[test]
fn download_answers_the_documented_fields_and_the_bytes() {
    let body = bytes(3 << 20);
    let sent = body.clone();
    let files = server(move |_| (200, "content-type: video/mp4\r\n".into(), sent.clone()));
    let proxy = Setup::new().start();
    let url = format!("{}/a/clip.mp4?signature=planted-in-url", files.url());
    for name in [DOWNLOAD, "file_manager_download"] {
        let response = proxy.call(None, name, json!({"url": url}));
        assert_eq!(content(&response), body);
        let mut result = response.json()["result"].clone();
        result.as_object_mut().unwrap().remove("content_base64");
        let expected = json!({"success": true, "size_bytes": body.len(),
            "content_type": "video/mp4", "source_url": url, "sha256": sha256(&body)});
        assert_eq!(result, expected);
    }
    let seen = files.last();
    assert_eq!(
        (seen.method.as_str(), seen.target.as_str()),
        ("GET", "/a/clip.mp4?signature=planted-in-url")
    );
    let empty = server(|_| (200, String::new(), Vec::new()));
    let response = download(&proxy, json!({"url": empty.url()}));
    assert_eq!(content(&response), b"");
    assert_eq!(response.json()["result"]["content_type"], Value::Null);
}

#[test]
fn audit_of_a_download_has_its_digest_and_no_query_and_no_header() {
    let files = server(|_| (200, String::new(), b"hello".to_vec()));
    let proxy = Setup::new().start();
    let url = format!(
        "http://me:planted-pw@{}/x?sig=planted-in-url",
        files.address
    );
    let args =
        json!({"url": url, "headers": {"Authorization": "planted-header"}, "max-bytes": "9"});
    assert_eq!(content(&download(&proxy, args)), b"hello");
    assert_eq!(files.last().header("authorization"), Some("planted-header"));
    let line = &proxy.wait_for_audit(1)[0];
    assert_eq!(line["args"]["url"], format!("{}/x", files.url()));
    assert_eq!(line["args"]["headers"], json!(["authorization"]));
    assert_eq!(line["args"]["max-bytes"], "9");
    assert_eq!(
        line["file"],
        json!({"size_bytes": 5, "sha256": sha256(b"hello")})
    );
    proxy.settles(
        r#"ati_tool_calls_total{outcome="ok",provider="file_manager",tool="file_manager:download"}"#,
        1.0,
    );
}

#[test]
fn file_over_the_limit_is_refused_with_or_without_a_length() {
    let files = Upstream::answering(|received, stream| {
        let head = match received.target.as_str() {
            "/length" => "HTTP/1.1 200 X\r\ncontent-length: 10\r\n\r\n0123456789",
            _ => "HTTP/1.1 200 X\r\ntransfer-encoding: chunked\r\n\r\na\r\n0123456789\r\n0\r\n\r\n",
        };
        stream.write_all(head.as_bytes()).is_ok()
    });
    let proxy = Setup::new().start();
    for path in ["/length", "/chunked"] {
        let url = format!("{}{path}", files.url());
        let exact = download(&proxy, json!({"url": url, "max_bytes": 10}));
        assert_eq!(content(&exact), b"0123456789");
        let over = download(&proxy, json!({"url": url, "max-bytes": "9"}));
        let expected = (413, "Response exceeds max-bytes (9 bytes)".to_owned());
        assert_eq!(refusal(&over), expected, "{path}");
    }
}

#[test]
fn download_without_room_on_disk_is_told_to_come_again() {
    let files = server(|_| (200, String::new(), bytes(1 << 20)));
    let proxy = Setup::new()
        .conf("[tools]\nspool_bytes = 1024\n[files]\nspool_bytes = 65536\n")
        .start();
    let response = download(&proxy, json!({"url": files.url()}));
    let (status, text) = refusal(&response);
    assert_eq!(status, 503, "{text}");
    assert_eq!(response.header("retry-after"), Some("1"));
    // Its place is free again.
    let small = server(|_| (200, String::new(), bytes(60_000)));
    for _ in 0..3 {
        let response = download(&proxy, json!({"url": small.url()}));
        assert_eq!(content(&response), bytes(60_000));
    }
}

/// As `setup`, with a folder for temporary files that has room for one megabyte.
fn with_small_disk(setup: Setup) -> Option<Proxy> {
    let plain = setup.command();
    let tmp = setup.path().join("tmp");
    std::fs::create_dir(&tmp).unwrap();
    let script = "mount -t tmpfs -o size=1m none \"$TMPDIR\" && exec \"$0\" \"$@\"";
    for flags in [&["--mount"][..], &["--map-root-user", "--mount"]] {
        let possible = Command::new("unshare")
            .args(flags)
            .args(["mount", "-t", "tmpfs", "none", "/tmp"])
            .output();
        if !possible.is_ok_and(|output| output.status.success()) {
            continue;
        }
        let mut command = Command::new("unshare");
        command
            .args(flags)
            .args(["sh", "-c", script])
            .arg(plain.get_program())
            .args(plain.get_args())
            .env_clear()
            .envs(
                plain
                    .get_envs()
                    .filter_map(|(name, value)| Some((name, value?))),
            )
            .env("TMPDIR", &tmp)
            .stdin(std::process::Stdio::null());
        return Some(setup.start_with(command));
    }
    skip("this machine allows no mount namespaces");
    None
}

#[test]
fn full_disk_in_the_middle_of_a_transfer_is_507_and_others_go_on() {
    let files = server(|received| match received.target.as_str() {
        "/big" => (200, String::new(), bytes(4 << 20)),
        _ => (200, String::new(), bytes(400_000)),
    });
    let dir = tempfile::tempdir().unwrap();
    let destination = format!(
        "[provider.upload_destinations.here]\nkind = 'local'\ndirectory = '{}'\n",
        dir.path().display()
    );
    let setup = with_destinations(&destination, &json!({})).conf("[tools]\nspool_bytes = 1024\n");
    let Some(proxy) = with_small_disk(setup) else {
        return;
    };
    for _ in 0..2 {
        let full = download(&proxy, json!({"url": format!("{}/big", files.url())}));
        let text = "No space left on the disk of ati's machine";
        assert_eq!(refusal(&full), (507, text.to_owned()));
        // Little more than fits: ati reads on only for a while, and this client reads no answer
        // before it has sent everything.
        let full = upload(&proxy, "here", "x", &bytes(1_100_000));
        assert_eq!(refusal(&full), (507, text.to_owned()));
        let fits = download(&proxy, json!({"url": files.url()}));
        assert_eq!(content(&fits), bytes(400_000));
    }
}

#[test]
fn download_that_takes_too_long_is_broken_off() {
    let files = Upstream::answering(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 X\r\ncontent-length: 10\r\n\r\n01");
        // Until ati closes the connection.
        let _ = std::io::Read::read(stream, &mut [0; 1]);
        false
    });
    let proxy = Setup::new().start();
    let response = download(&proxy, json!({"url": files.url(), "timeout": "1"}));
    let expected = (502, "Download failed: it took longer than 1 s".to_owned());
    assert_eq!(refusal(&response), expected);
}

#[test]
fn scope_of_a_caller_holds_for_downloads() {
    let files = server(|_| (200, String::new(), b"x".to_vec()));
    let (signer, public) = key_pair();
    let proxy = Setup::new().jwt(&public).start();
    let token = |scope: &str| {
        let claims = Claims {
            scope: scope.to_owned(),
            ..claims()
        };
        bearer(&signer, &claims)
    };
    let call = |scope: &str| {
        proxy.call(
            Some(&token(scope)),
            "file_manager_download",
            json!({"url": files.url()}),
        )
    };
    assert_eq!(call("tool:file_manager:download").status, 200);
    assert_eq!(call("tool:file_manager:*").status, 200);
    let (status, text) = refusal(&call("tool:file_manager:upload"));
    assert_eq!(status, 403);
    assert_eq!(
        text,
        "Access denied: 'file_manager:download' is not in your scopes"
    );
    let listed = proxy.client().send(
        "GET",
        "/tools",
        &[("authorization", &token("tool:file_manager:upload"))],
        b"",
    );
    let listed = listed.json();
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
    assert_eq!(listed[0]["name"], "file_manager:upload");
}
