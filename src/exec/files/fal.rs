//! fal's storage: a token for the API key, then the file to the server that came with the token.

use std::net::IpAddr;

use http::header::AUTHORIZATION;
use http::{HeaderName, HeaderValue, Method};
use serde::Deserialize;
use url::Url;
use zeroize::Zeroizing;

use super::arguments::shown_url;
use super::error::{FilesError, UploadFault};
use super::upload::{Upload, file_request, send};
use crate::credential::Attachment;
use crate::egress::EgressError;
use crate::exec::ExecContext;
use crate::exec::egress::check;

const FILE_NAME: HeaderName = HeaderName::from_static("x-fal-file-name");

#[derive(Deserialize)]
struct Token {
    token: String,
    #[serde(default = "bearer")]
    token_type: String,
    base_url: String,
}

fn bearer() -> String {
    "Bearer".to_owned()
}

#[derive(Deserialize)]
struct Uploaded {
    access_url: String,
}

pub async fn upload(
    file: &Upload,
    endpoint: &Url,
    key: &Attachment,
    source: Option<IpAddr>,
    context: ExecContext<'_>,
) -> Result<String, FilesError> {
    let token = token(endpoint, key, source, context).await?;
    let url = public(&token.base_url, context)?;
    let secret = Zeroizing::new(token.token);
    let value = Zeroizing::new(format!("{} {}", token.token_type, *secret));
    let mut value = HeaderValue::from_str(&value)
        .map_err(|_| UploadFault::Answer("has a token that can't be sent"))?;
    value.set_sensitive(true);
    let mut request = file_request(Method::POST, url.clone(), file);
    request.headers_mut().insert(AUTHORIZATION, value);
    // Its control characters were refused with the arguments.
    if let Ok(name) = HeaderValue::from_bytes(file.filename.as_bytes()) {
        request.headers_mut().insert(FILE_NAME, name);
    }
    let sent = send(request, context.clients.public_only(), source, context).await;
    let answer = sent.map_err(|fault| match fault {
        // The name resolves to an internal address.
        UploadFault::Egress(EgressError::Blocked(_)) => UploadFault::NotPublic(shown_url(&url)),
        other => other,
    })?;
    let secrets = Attachment::default().with_redacted([secret.as_bytes()].into_iter());
    let body = answer.into_success(&secrets)?;
    let uploaded: Uploaded =
        serde_json::from_slice(&body).map_err(|_| UploadFault::Answer("has no access_url"))?;
    Ok(uploaded.access_url)
}

async fn token(
    endpoint: &Url,
    key: &Attachment,
    source: Option<IpAddr>,
    context: ExecContext<'_>,
) -> Result<Token, UploadFault> {
    let base = endpoint.as_str().trim_end_matches('/');
    let url = format!("{base}/storage/auth/token?storage_type=fal-cdn-v3");
    let url = Url::parse(&url).map_err(|_| UploadFault::Answer("can't be had: no endpoint"))?;
    let mut request = reqwest::Request::new(Method::POST, url);
    let headers = request.headers_mut();
    let json = HeaderValue::from_static("application/json");
    headers.insert(http::header::CONTENT_TYPE, json.clone());
    headers.insert(http::header::ACCEPT, json);
    let _ = key.attach(true, |name, value| {
        headers.insert(name, value);
        Ok::<_, std::convert::Infallible>(())
    });
    *request.body_mut() = Some("{}".into());
    let answer = send(request, context.clients.unguarded(), source, context).await?;
    key.observe(answer.status);
    let body = Zeroizing::new(answer.into_success(key)?);
    serde_json::from_slice(&body).map_err(|_| UploadFault::Answer("has no token and base_url"))
}

/// fal's answer says where the file goes. It could name any machine, so only public ones are
/// believed, whatever `ATI_SSRF_PROTECTION` is.
fn public(base_url: &str, context: ExecContext<'_>) -> Result<Url, UploadFault> {
    let url = format!("{}/files/upload", base_url.trim_end_matches('/'));
    let Ok(url) = Url::parse(&url) else {
        return Err(UploadFault::Answer("has a base_url that is no URL"));
    };
    let has_user = !url.username().is_empty() || url.password().is_some();
    let refused = url.scheme() != "https" || has_user;
    if refused || check(context.clients.public_only(), &url).is_err() {
        return Err(UploadFault::NotPublic(shown_url(&url)));
    }
    Ok(url)
}
