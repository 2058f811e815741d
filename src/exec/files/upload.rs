//! `upload`: streams a file from its spool to a destination.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderValue, Method};
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use url::Url;

use super::content::Content;
use super::error::{FilesError, UploadFault};
use super::{fal, gcs, local, s3};
use crate::catalog::files::{Gcs, S3};
use crate::credential::Attachment;
use crate::egress::{Clients, host_and_port};
use crate::exec::ExecContext;
use crate::exec::credentials::CallCredential;
use crate::exec::egress::{client, failed, read};
use crate::keyring::Secret;

/// For the whole upload. Destinations have no time of their own, and a big file takes long.
const TIMEOUT: Duration = Duration::from_secs(600);
/// Bytes of a destination's answer.
const LONGEST_ANSWER: usize = 1 << 20;
/// Bytes of it that an error shows.
const LONGEST_ERROR: usize = 512;

/// One file to upload.
pub struct Upload {
    pub filename: String,
    pub content_type: String,
    pub content: Content,
}

/// A destination with its credentials.
pub enum Target<'a> {
    Gcs {
        settings: &'a Gcs,
        credential: CallCredential,
    },
    FalStorage {
        endpoint: &'a Url,
        key: Arc<Attachment>,
    },
    S3 {
        settings: &'a S3,
        access_key: Secret,
        secret_key: Secret,
    },
    Local {
        directory: &'a Path,
    },
}

/// The answer, with the file's URL. `name` is the destination's.
pub async fn upload(
    file: Upload,
    name: &str,
    target: Target<'_>,
    source: Option<IpAddr>,
    context: ExecContext<'_>,
) -> Result<Box<RawValue>, FilesError> {
    let sent = async {
        match &target {
            Target::Gcs {
                settings,
                credential,
            } => gcs::upload(&file, settings, credential, source, context).await,
            Target::FalStorage { endpoint, key } => {
                fal::upload(&file, endpoint, key, source, context).await
            }
            Target::S3 {
                settings,
                access_key,
                secret_key,
            } => s3::upload(&file, settings, access_key, secret_key, source, context).await,
            Target::Local { directory } => local::upload(&file, directory).await,
        }
    };
    let sent = tokio::time::timeout(TIMEOUT, sent).await;
    let url = sent.unwrap_or_else(|_| Err(UploadFault::Timeout(TIMEOUT.as_secs()).into()))?;
    let answer = json!({
        "success": true,
        "url": url,
        "size_bytes": file.content.len(),
        "content_type": file.content_type,
        "destination": name,
        "sha256": file.content.sha256_hex(),
    });
    let answer = to_raw_value(&answer);
    answer.map_err(|e| FilesError::Disk(e.to_string()))
}

/// A request with the file as its body, which is read while it is sent.
pub fn file_request(method: Method, url: Url, file: &Upload) -> reqwest::Request {
    let mut request = reqwest::Request::new(method, url);
    let headers = request.headers_mut();
    headers.insert(CONTENT_LENGTH, HeaderValue::from(file.content.len()));
    // It was checked with the arguments.
    if let Ok(kind) = HeaderValue::from_str(&file.content_type) {
        headers.insert(CONTENT_TYPE, kind);
    }
    let body = match file.content.is_empty() {
        true => reqwest::Body::from(""),
        false => reqwest::Body::wrap_stream(file.content.body.reader()),
    };
    *request.body_mut() = Some(body);
    request
}

/// What a destination answered.
pub struct Answer {
    pub status: u16,
    body: Vec<u8>,
}

impl Answer {
    pub fn is_unauthorized(&self) -> bool {
        self.status == 401
    }

    /// The body of an answer that went well. An error shows what the destination says, without the
    /// secrets of `attachment`.
    pub fn into_success(mut self, attachment: &Attachment) -> Result<Vec<u8>, UploadFault> {
        if (200..300).contains(&self.status) {
            return Ok(self.body);
        }
        attachment.redact(&mut self.body);
        let text = String::from_utf8_lossy(&self.body);
        Err(UploadFault::Status {
            status: self.status,
            body: crate::text::clip(&text, LONGEST_ERROR).to_owned(),
        })
    }
}

/// Sends a request of an upload. Redirects are answers like any other: a destination has none.
pub async fn send(
    mut request: reqwest::Request,
    clients: &Clients,
    source: Option<IpAddr>,
    context: ExecContext<'_>,
) -> Result<Answer, UploadFault> {
    context
        .trail
        .leads_to(host_and_port(request.url().as_str()));
    context.trail.attempt();
    if let Some(parent) = context.trail.traceparent() {
        // Signatures of destinations don't cover it.
        parent.insert(request.headers_mut());
    }
    let _wait = context.trail.wait();
    let origin = request.url().origin();
    let client = client(clients, source).map_err(UploadFault::Egress)?;
    let sent = client.execute(request).await;
    let response = sent.map_err(|e| UploadFault::Egress(failed(&e, &origin)))?;
    let status = response.status().as_u16();
    context.trail.answered(status);
    let body = read(response, &origin, LONGEST_ANSWER).await;
    Ok(Answer {
        status,
        body: body.map_err(UploadFault::Egress)?,
    })
}
