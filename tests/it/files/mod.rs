//! `file_manager`: downloads and uploads over `POST /call`.

mod binary;
mod command_line;
mod destinations;
mod downloads;
mod errors;
mod gcs;
mod hosts;
mod memory;
mod resume;
mod wire;

use std::io::Write;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::support::ati::{Proxy, Setup};
use crate::support::http::Response;
use crate::support::upstream::{Received, Upstream};

const DOWNLOAD: &str = "file_manager:download";
const UPLOAD: &str = "file_manager:upload";

/// A server of files: `(status, headers, body)` for each request.
fn server(
    answer: impl Fn(&Received) -> (u16, String, Vec<u8>) + Send + Sync + 'static,
) -> Upstream {
    Upstream::answering(move |received, stream| {
        let (status, headers, body) = answer(received);
        let head = format!(
            "HTTP/1.1 {status} X\r\ncontent-length: {}\r\n{headers}\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).is_ok() && stream.write_all(&body).is_ok()
    })
}

/// Bytes that no piece of them repeats.
fn bytes(len: usize) -> Vec<u8> {
    (0..len as u32)
        .flat_map(|n| (n.wrapping_mul(2_654_435_761)).to_le_bytes())
        .take(len)
        .collect()
}

fn sha256(content: &[u8]) -> String {
    use sha2::Digest as _;
    hex::encode(sha2::Sha256::digest(content))
}

fn download(proxy: &Proxy, args: Value) -> Response {
    proxy.call(None, DOWNLOAD, args)
}

/// The bytes of a download that went well.
fn content(response: &Response) -> Vec<u8> {
    assert_eq!(response.status, 200, "{}", response.text());
    let text = response.json()["result"]["content_base64"].clone();
    STANDARD.decode(text.as_str().unwrap()).unwrap()
}

/// Status and text of a call that failed.
fn refusal(response: &Response) -> (u16, String) {
    let body = response.json();
    assert_eq!(body["result"], Value::Null, "{body}");
    let text = body["error"].as_str().unwrap_or_default();
    (response.status, text.to_owned())
}

fn upload(proxy: &Proxy, destination: &str, name: &str, content: &[u8]) -> Response {
    let args = json!({
        "filename": name,
        "content_base64": STANDARD.encode(content),
        "destination": destination,
    });
    proxy.call(None, UPLOAD, args)
}

/// A proxy with destinations, and credentials for them.
fn with_destinations(destinations: &str, credentials: &Value) -> Setup {
    let text =
        format!("[provider]\nname = 'file_manager'\nhandler = 'file_manager'\n{destinations}");
    Setup::new()
        .manifest("file_manager", &text)
        .credentials(credentials)
}
