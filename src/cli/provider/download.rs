//! Reads an OpenAPI document from a file or a URL.

use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::time::Duration;

use tracing::warn;
use url::Url;

use super::super::transport::NoAnswer;
use super::super::{problem_failure, runtime};
use crate::catalog::openapi::LARGEST;
use crate::config::Environment;
use crate::egress::{self, Clients, Resolver};
use crate::error::{Code, Failure};

const TIMEOUT: Duration = Duration::from_secs(30);

/// The text of a document, and the URL that it was fetched from.
pub struct Fetched {
    pub text: String,
    pub url: Option<Url>,
}

pub fn read(source: &str) -> Result<Fetched, Failure> {
    if !source.contains("://") {
        return from_file(source);
    }
    let url = Url::parse(source)
        .ok()
        .filter(egress::is_http_url)
        .ok_or_else(|| Failure::invalid(format!("'{source}' is not an http or https URL")))?;
    if url.scheme() == "http" {
        warn!("the document comes over plain HTTP: it can be changed on the way");
    }
    let env = Environment::read();
    if !env.problems.is_empty() {
        return Err(Failure::from_problems("the environment", &env.problems));
    }
    let text = runtime()?.block_on(async {
        tokio::time::timeout(TIMEOUT, fetch(&url, &env))
            .await
            .unwrap_or_else(|_| {
                let seconds = TIMEOUT.as_secs();
                let message = format!("the download timed out after {seconds} s");
                Err(Failure::new(Code::ProviderTimeout, message))
            })
    })?;
    Ok(Fetched {
        text,
        url: Some(url),
    })
}

fn from_file(path: &str) -> Result<Fetched, Failure> {
    let failed = |e: std::io::Error| Failure::invalid(path).because(e);
    let size = std::fs::metadata(path).map_err(failed)?.len();
    if size > LARGEST as u64 {
        return Err(Failure::invalid(format!(
            "{path}: larger than {} MiB",
            LARGEST >> 20
        )));
    }
    let text = std::fs::read_to_string(path).map_err(failed)?;
    Ok(Fetched { text, url: None })
}

async fn fetch(url: &Url, env: &Environment) -> Result<String, Failure> {
    let upstream = |message: String| Failure::new(Code::UpstreamError, message);
    let origin = url.origin().ascii_serialization();
    let blocked = || {
        Failure::invalid(format!(
            "SSRF protection: URL '{origin}' targets a private/internal network address"
        ))
    };
    let clients = Clients::new(
        &egress::Settings::default(),
        env.guard,
        Arc::new(Resolver::new(&[])),
    );
    clients.guard().check(url).map_err(|_| blocked())?;
    let client = clients
        .get(None)
        .map_err(|problem| problem_failure(Code::ExecutionFailed, &problem))?;
    let failed = |e: reqwest::Error| match egress::fault(&e) {
        Ok(_) => upstream("the download failed".to_owned()).because(NoAnswer::new(e)),
        Err(_) => blocked(),
    };
    let mut response = client.get(url.clone()).send().await.map_err(failed)?;
    let status = response.status();
    if status.is_redirection() {
        let target = response.headers().get(http::header::LOCATION);
        let target = target.and_then(|value| value.to_str().ok()).unwrap_or("?");
        return Err(Failure::invalid(format!(
            "URL redirected to '{target}' — fetch the target URL directly to avoid SSRF"
        )));
    }
    if !status.is_success() {
        return Err(upstream(format!(
            "the download failed: HTTP {}",
            status.as_u16()
        )));
    }
    let mut progress = Progress::new(response.content_length());
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(failed)? {
        body.extend_from_slice(&chunk);
        progress.show(body.len());
        if body.len() > LARGEST {
            return Err(Failure::invalid(format!(
                "the document is larger than {} MiB",
                LARGEST >> 20
            )));
        }
    }
    progress.done();
    String::from_utf8(body).map_err(|e| {
        // Without the bytes, which the error would hold.
        Failure::invalid("the document is no text").because(e.utf8_error())
    })
}

/// Shows on a terminal how much of a download has arrived.
struct Progress {
    total: Option<u64>,
    watched: bool,
    shown: usize,
}

impl Progress {
    fn new(total: Option<u64>) -> Self {
        Progress {
            total,
            watched: std::io::stderr().is_terminal(),
            shown: 0,
        }
    }

    fn show(&mut self, done: usize) {
        if self.watched && done >= self.shown + (256 << 10) {
            self.shown = done;
            let of = self
                .total
                .map_or_else(String::new, |total| format!(" of {}", total >> 10));
            let _ = write!(std::io::stderr(), "\r{}{of} KiB ", done >> 10);
        }
    }

    fn done(&self) {
        if self.shown > 0 {
            let _ = write!(std::io::stderr(), "\r                              \r");
        }
    }
}
