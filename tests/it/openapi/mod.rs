//! Tools that are made from an OpenAPI document.

mod import;
mod tools;

use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::json;

use crate::support::ati::command;
use crate::support::upstream::Upstream;

fn spec(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/it/specs")
        .join(name)
}

/// Serves a document at `/openapi.json` and echoes everything else.
fn server(document: Vec<u8>) -> Upstream {
    Upstream::answering(move |received, stream| {
        let body = match received.target.as_str() {
            "/openapi.json" => document.clone(),
            _ => json!({"method": received.method, "target": received.target})
                .to_string()
                .into_bytes(),
        };
        let head = match received.target.as_str() {
            "/moved.json" => "HTTP/1.1 302 Found\r\nlocation: /openapi.json".to_owned(),
            _ => "HTTP/1.1 200 OK".to_owned(),
        };
        let head = format!("{head}\r\ncontent-length: {}\r\n\r\n", body.len());
        std::io::Write::write_all(stream, &[head.as_bytes(), &body].concat()).is_ok()
    })
}

fn run(dir: &Path, args: &[&str]) -> Output {
    command(dir).args(args).output().unwrap()
}
