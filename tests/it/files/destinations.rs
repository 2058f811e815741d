//! Uploads to a folder, and to fal's storage.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{UPLOAD, bytes, refusal, sha256, upload, with_destinations};
use crate::ssrf::{PUBLIC, in_namespace};
use crate::support::dns::Nameserver;
use crate::support::tls::Authority;
use crate::support::upstream::Upstream;

fn local(dir: &Path) -> String {
    format!(
        "upload_default_destination = 'here'\n[provider.upload_destinations.here]\nkind = 'local'\n\
         directory = '{}'\n",
        dir.display()
    )
}

/// Every file below a folder.
fn below(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(below(&path)),
            false => found.push(path),
        }
    }
    found
}

#[test]
fn upload_to_a_folder_writes_one_file_and_answers_its_url() {
    let dir = tempfile::tempdir().unwrap();
    let proxy = with_destinations(&local(dir.path()), &json!({})).start();
    let body = bytes(2 << 20);
    let args = json!({"filename": "../../etc/ü x.png", "content_base64": STANDARD.encode(&body)});
    let response = proxy.call(None, "file_manager_upload", args);
    assert_eq!(response.status, 200, "{}", response.text());
    let result = response.json()["result"].clone();
    let files = below(dir.path());
    assert_eq!(files.len(), 1, "{files:?}");
    assert_eq!(std::fs::read(&files[0]).unwrap(), body);
    let name = files[0].file_name().unwrap().to_str().unwrap();
    assert!(
        name.ends_with("-ü x.png") && name.len() == 37 + "ü x.png".len(),
        "{name}"
    );
    let url = result["url"].as_str().unwrap();
    assert_eq!(
        url::Url::parse(url).unwrap().to_file_path().unwrap(),
        files[0]
    );
    let expected = json!({"success": true, "url": url, "size_bytes": body.len(),
        "content_type": "image/png", "destination": "here", "sha256": sha256(&body)});
    assert_eq!(result, expected);
    let line = &proxy.wait_for_audit(1)[0];
    assert_eq!(line["file"]["sha256"], json!(sha256(&body)));
    let letters = STANDARD.encode(&body).len();
    assert_eq!(
        line["args"]["content_base64"],
        format!("[{letters} letters of base64]")
    );
    // An empty file is one, too.
    assert_eq!(upload(&proxy, "here", "empty", b"").status, 200);
    assert_eq!(upload(&proxy, "here", "small", b"small").status, 200);
    assert_eq!(below(dir.path()).len(), 3);
    let line = &proxy.wait_for_audit(3)[2];
    assert_eq!(line["args"]["content_base64"], "[8 letters of base64]");
}

#[test]
fn folder_that_cant_be_written_fails_the_upload_and_keeps_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let proxy = with_destinations(&local(&file), &json!({})).start();
    let (status, text) = refusal(&upload(&proxy, "here", "a", b"x"));
    assert_eq!(status, 502);
    assert!(
        text.starts_with("Upload failed: the file can't be written: "),
        "{text}"
    );
    assert_eq!(below(dir.path()), [file]);
}

/// Head and body of a request.
type Sent = (String, Vec<u8>);

const FAL_KEY: &str = "planted-fal-key";
const FAL_TOKEN: &str = "planted-fal-token";

/// fal's API on loopback, which answers with this `base_url`.
fn fal_api(base_url: String) -> Upstream {
    super::server(move |received| {
        let good = received.header("authorization") == Some(&format!("Key {FAL_KEY}"))
            && received.method == "POST"
            && received.target == "/storage/auth/token?storage_type=fal-cdn-v3";
        let answer = json!({"token": FAL_TOKEN, "token_type": "Bearer", "base_url": base_url,
            "expires_at": "2099-01-01T00:00:00Z"});
        match good {
            true => (200, String::new(), answer.to_string().into_bytes()),
            false => (401, String::new(), b"no".to_vec()),
        }
    })
}

fn fal(api: &Upstream) -> String {
    format!(
        "[provider.upload_destinations.fal]\nkind = 'fal_storage'\nendpoint = '{}'\n",
        api.url()
    )
}

#[test]
fn upload_to_fal_goes_to_the_server_that_its_token_names() {
    if !in_namespace("files::destinations::upload_to_fal_goes_to_the_server_that_its_token_names") {
        return;
    }
    let authority = Authority::new();
    let seen: Arc<Mutex<Vec<Sent>>> = Arc::default();
    let stored = seen.clone();
    let storage = authority.answering_at(&format!("{PUBLIC}:0"), "cdn.test", move |head, body| {
        stored
            .lock()
            .unwrap()
            .push((head.to_owned(), body.to_vec()));
        (
            200,
            json!({"access_url": "https://v3b.fal.media/files/b/x.png"}).to_string(),
        )
    });
    let api = fal_api(format!("https://cdn.test:{}", storage.port()));
    let names = Nameserver::answering(&[PUBLIC]);
    let setup = with_destinations(&fal(&api), &json!({"fal_api_key": FAL_KEY}))
        .file("ca.pem", authority.pem());
    let ca = setup.path().join("ca.pem");
    let proxy = setup
        .conf(&format!(
            "[egress]\nnameservers = ['{}']\nca_file = '{}'\n",
            names.address,
            ca.display()
        ))
        .start();
    let body = bytes(200_000);
    let response = upload(&proxy, "fal", "x.png", &body);
    assert_eq!(response.status, 200, "{}", response.text());
    let result = response.json()["result"].clone();
    let expected = json!({"success": true, "url": "https://v3b.fal.media/files/b/x.png",
        "size_bytes": body.len(), "content_type": "image/png", "destination": "fal",
        "sha256": sha256(&body)});
    assert_eq!(result, expected);
    let (head, sent) = seen.lock().unwrap()[0].clone();
    let head = head.to_lowercase();
    assert!(head.starts_with("post /files/upload http/1.1"), "{head}");
    for line in [
        &format!("authorization: bearer {FAL_TOKEN}"),
        "x-fal-file-name: x.png",
        "content-type: image/png",
        "content-length: 200000",
    ] {
        assert!(head.lines().any(|one| one == line), "{line}: {head}");
    }
    assert_eq!(sent, body);
}

#[test]
fn server_that_fal_names_must_be_public_whatever_the_protection() {
    if !in_namespace(
        "files::destinations::server_that_fal_names_must_be_public_whatever_the_protection",
    ) {
        return;
    }
    let inside = Upstream::echo();
    let names = Nameserver::answering(&["127.0.0.1"]);
    let port = inside.address.port();
    for base_url in [
        format!("http://{PUBLIC}:{port}"),
        format!("https://127.0.0.1:{port}"),
        "https://169.254.169.254".to_owned(),
        format!("https://rebound.test:{port}"),
        format!("https://user@{PUBLIC}:{port}"),
    ] {
        let api = fal_api(base_url.clone());
        let proxy = with_destinations(&fal(&api), &json!({"fal_api_key": FAL_KEY}))
            .conf(&format!("[egress]\nnameservers = ['{}']\n", names.address))
            .start();
        let (status, text) = refusal(&upload(&proxy, "fal", "x", b"x"));
        assert_eq!(status, 502, "{base_url}");
        let expected =
            "Upload failed: the URL that the destination named is not a public https URL";
        assert!(text.starts_with(expected), "{base_url}: {text}");
    }
    assert!(inside.received().is_empty());
}

#[test]
fn refusal_of_a_destination_is_told_without_its_credentials() {
    let api = super::server(|received| {
        let text = format!("bad {}", received.header("authorization").unwrap());
        (403, String::new(), text.into_bytes())
    });
    let proxy = with_destinations(&fal(&api), &json!({"fal_api_key": FAL_KEY})).start();
    let args = json!({"filename": "x", "content_base64": "", "destination": "fal"});
    let response: Value = proxy.call(None, UPLOAD, args).json();
    let expected = "Upload failed: the destination answered with status 403: bad Key [REDACTED]";
    assert_eq!(response["error"], expected);
}
