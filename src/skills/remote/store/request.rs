//! Requests to a registry: repeated where it is busy, bounded, and with errors that tell no URL.

use std::time::Duration;

use http::Method;
use http::header::{ETAG, HeaderMap, HeaderValue, IF_NONE_MATCH};
use percent_encoding::utf8_percent_encode;
use serde::de::DeserializeOwned;
use url::Url;

use super::{Got, Object, failed};
use crate::credential::UNRESERVED;
use crate::egress::Clients;
use crate::error::RemoteSkillError;
use crate::exec::egress;

/// Waits between the attempts at a registry that is busy or failing.
const PAUSES: [Duration; 3] = [
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
];
const TIMEOUT: Duration = Duration::from_secs(30);
/// A page of a listing, or another answer that ati reads itself.
const LONGEST_ANSWER: usize = 32 << 20;

/// A part of a path.
pub fn segment(text: &str) -> String {
    utf8_percent_encode(text, UNRESERVED).to_string()
}

/// The path of an object, each part encoded and the slashes kept.
pub fn object_path(name: &str) -> String {
    let parts: Vec<String> = name.split('/').map(segment).collect();
    parts.join("/")
}

/// One GET, repeated on 429 and 5xx. `headers` makes those of each attempt: some are signed with
/// the time.
pub async fn send(
    clients: &Clients,
    url: &Url,
    headers: impl Fn() -> Result<HeaderMap, RemoteSkillError>,
) -> Result<reqwest::Response, RemoteSkillError> {
    let mut pauses = PAUSES.iter();
    loop {
        let mut request = reqwest::Request::new(Method::GET, url.clone());
        *request.headers_mut() = headers()?;
        *request.timeout_mut() = Some(TIMEOUT);
        let clients = clients.unguarded();
        let client = egress::client(clients, None).map_err(|e| failed(e.to_string()))?;
        let sent = client.execute(request).await;
        let response = sent.map_err(|e| failed(egress::failed(&e, &url.origin()).to_string()))?;
        let status = response.status();
        let is_busy = status == 429 || status.is_server_error();
        match pauses.next().filter(|_| is_busy) {
            Some(pause) => tokio::time::sleep(*pause).await,
            None => return Ok(response),
        }
    }
}

/// What an answer says about an object; the inner error is any other status.
pub async fn object(
    response: reqwest::Response,
    most: usize,
) -> Result<Result<Got, u16>, RemoteSkillError> {
    Ok(match response.status().as_u16() {
        200 => {
            let tag = tag(response.headers());
            let content = body(response, most).await?;
            Ok(Got::Found(Object { content, tag }))
        }
        304 => Ok(Got::Unchanged),
        404 => Ok(Got::Missing),
        other => Err(other),
    })
}

pub async fn body(response: reqwest::Response, most: usize) -> Result<Vec<u8>, RemoteSkillError> {
    let origin = response.url().origin();
    let read = egress::read(response, &origin, most).await;
    read.map_err(|e| failed(e.to_string()))
}

/// A JSON answer.
pub async fn get_json<T: DeserializeOwned>(
    response: reqwest::Response,
) -> Result<T, RemoteSkillError> {
    let status = response.status().as_u16();
    if status != 200 {
        return Err(answered(status));
    }
    let body = body(response, LONGEST_ANSWER).await?;
    serde_json::from_slice(&body).map_err(|_| failed("its answer is not what was asked for"))
}

pub async fn get_text(response: reqwest::Response) -> Result<String, RemoteSkillError> {
    let status = response.status().as_u16();
    if status != 200 {
        return Err(answered(status));
    }
    let body = body(response, LONGEST_ANSWER).await?;
    String::from_utf8(body).map_err(|_| failed("its answer is not text"))
}

/// A status that ends a request. The body isn't told: it may repeat what was sent.
pub fn answered(status: u16) -> RemoteSkillError {
    let reason = match status {
        401 => " (Unauthorized)",
        403 => " (Forbidden)",
        429 => " (Too Many Requests)",
        503 => " (Service Unavailable)",
        _ => "",
    };
    failed(format!("it answered {status}{reason}"))
}

/// Asks only for what has changed.
pub fn unless(known: Option<&str>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if let Some(value) = known.and_then(|tag| HeaderValue::from_str(tag).ok()) {
        headers.insert(IF_NONE_MATCH, value);
    }
    headers
}

fn tag(headers: &HeaderMap) -> Option<String> {
    let tag = headers.get(ETAG)?.to_str().ok()?;
    (tag.len() <= 512).then(|| tag.to_owned())
}
