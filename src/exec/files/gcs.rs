//! Google Cloud Storage: a simple upload of its JSON API, with a token of a service account.

use std::net::IpAddr;

use http::{HeaderValue, Method};
use percent_encoding::utf8_percent_encode;
use url::Url;

use super::error::{FilesError, UploadFault};
use super::object;
use super::upload::{Answer, Upload, file_request, send};
use crate::catalog::files::Gcs;
use crate::credential::{Attachment, CredentialError, UNRESERVED};
use crate::exec::ExecContext;
use crate::exec::credentials::{CallCredential, obtain, renew_after_refusal};

pub async fn upload(
    file: &Upload,
    settings: &Gcs,
    credential: &CallCredential,
    source: Option<IpAddr>,
    context: ExecContext<'_>,
) -> Result<String, FilesError> {
    let name = object::name(&settings.prefix, &file.filename);
    let url = upload_url(settings, &name)?;
    let mut token = obtain(credential, source, context).await.map_err(lacks)?;
    let mut answer = put(file, &url, &token, source, context).await?;
    if answer.is_unauthorized() && renew_after_refusal(credential, &token, context) {
        token = obtain(credential, source, context).await.map_err(lacks)?;
        answer = put(file, &url, &token, source, context).await?;
    }
    token.observe(answer.status);
    let body = answer.into_success(&token)?;
    check_size(&body, file.content.len())?;
    let base = settings.endpoint.as_str().trim_end_matches('/');
    let bucket = object::encoded(&settings.bucket);
    Ok(format!("{base}/{bucket}/{}", object::encoded(&name)))
}

fn upload_url(settings: &Gcs, name: &str) -> Result<Url, UploadFault> {
    let base = settings.endpoint.as_str().trim_end_matches('/');
    let bucket = utf8_percent_encode(&settings.bucket, UNRESERVED);
    let name = utf8_percent_encode(name, UNRESERVED);
    let url = format!("{base}/upload/storage/v1/b/{bucket}/o?uploadType=media&name={name}");
    Url::parse(&url).map_err(|_| UploadFault::Answer("can't be had: its endpoint is no URL"))
}

fn lacks(error: CredentialError) -> FilesError {
    UploadFault::Credential(error).into()
}

async fn put(
    file: &Upload,
    url: &Url,
    token: &Attachment,
    source: Option<IpAddr>,
    context: ExecContext<'_>,
) -> Result<Answer, UploadFault> {
    let mut request = file_request(Method::POST, url.clone(), file);
    let headers = request.headers_mut();
    headers.insert(
        http::header::ACCEPT,
        HeaderValue::from_static("application/json"),
    );
    let _ = token.attach(true, |name, value| {
        headers.insert(name, value);
        Ok::<_, std::convert::Infallible>(())
    });
    send(request, context.clients.unguarded(), source, context).await
}

/// The service tells how many bytes it has stored, as a text.
fn check_size(body: &[u8], sent: u64) -> Result<(), UploadFault> {
    let stored: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let size = stored["size"]
        .as_str()
        .and_then(|size| size.parse::<u64>().ok());
    match size {
        Some(size) if size != sent => Err(UploadFault::Answer("names another size of the file")),
        _ => Ok(()),
    }
}
