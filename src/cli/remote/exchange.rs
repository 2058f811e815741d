//! One request to the proxy, and its answer: as a whole, or in pieces.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Method};

use super::clock::clock_ahead;
use super::{Remote, Response, no_answer};
use crate::call::{HANDLER_HEADER, WARNING_HEADER};
use crate::catalog::{ResultFormat, result_format};
use crate::clock::unix_now;
use crate::error::{Code, Failure};
use crate::request_id::{self, RequestId};

/// A proxy that sends nothing for so long is given up.
const STALL: Duration = Duration::from_secs(60);

/// A request that is not sent yet.
pub(super) struct Prepared {
    pub(super) request: reqwest::RequestBuilder,
    /// As it is sent and signed.
    pub(super) path: String,
    pub(super) tls: bool,
}

impl Prepared {
    /// Sends it. Every status is an answer.
    pub(super) async fn open(self) -> Result<Opened, Failure> {
        let (tls, sent) = (self.tls, unix_now());
        let response = self.request.send().await.map_err(|e| no_answer(e, tls))?;
        Ok(Opened::new(response, self.path, sent))
    }
}

/// A body of known length, in pieces.
pub struct Upload<S> {
    pub pieces: S,
    pub length: u64,
    pub headers: HeaderMap,
}

impl Remote {
    /// One request whose answer is read in pieces. `patience` is the time for its head.
    pub async fn open<S>(
        &self,
        method: Method,
        path: &str,
        upload: Option<Upload<S>>,
        patience: Duration,
    ) -> Result<Opened, Failure>
    where
        S: Stream<Item = io::Result<Bytes>> + Send + 'static,
    {
        let mut prepared = self.prepare(&method, path, &[])?;
        if let Some(upload) = upload {
            let body = reqwest::Body::wrap_stream(upload.pieces);
            let length = HeaderValue::from(upload.length);
            let request = prepared.request.headers(upload.headers);
            prepared.request = request.header(CONTENT_LENGTH, length).body(body);
        }
        tokio::time::timeout(patience, prepared.open())
            .await
            .unwrap_or_else(|_| Err(late("the proxy did not answer in time")))
    }
}

fn late(message: &str) -> Failure {
    Failure::new(
        Code::ProviderTimeout,
        format!("Proxy request failed: {message}"),
    )
}

/// An answer whose body isn't read yet.
pub struct Opened {
    /// The body in it is empty.
    pub head: Response,
    response: reqwest::Response,
    tls: bool,
}

impl Opened {
    pub(super) fn new(response: reqwest::Response, path: String, sent: u64) -> Self {
        Opened {
            head: head(&response, path, sent),
            tls: response.url().scheme() == "https",
            response,
        }
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.response.headers().get(name)?.to_str().ok()
    }

    pub fn content_length(&self) -> Option<u64> {
        self.response.content_length()
    }

    /// The next piece of the body.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        match tokio::time::timeout(STALL, self.response.chunk()).await {
            Ok(read) => read.map_err(|e| no_answer(e, self.tls)),
            Err(_) => Err(late("nothing came for too long")),
        }
    }

    /// The answer with its whole body.
    pub async fn read(self) -> Result<Response, Failure> {
        let tls = self.tls;
        let body = self.response.text().await;
        Ok(Response {
            body: body.map_err(|e| no_answer(e, tls))?,
            ..self.head
        })
    }
}

impl Response {
    /// The same answer with this body.
    pub fn with_body(self, body: String) -> Self {
        Response { body, ..self }
    }
}

fn head(response: &reqwest::Response, path: String, sent: u64) -> Response {
    let (headers, status) = (response.headers(), response.status());
    let text = |name| headers.get(name)?.to_str().ok().map(str::to_owned);
    let id = text(request_id::HEADER);
    Response {
        request_id: id.and_then(|id| RequestId::parse(&id)),
        status: status.as_u16(),
        format: text(result_format::HEADER)
            .and_then(|name| ResultFormat::named(&name))
            .unwrap_or_default(),
        warning: text(WARNING_HEADER),
        is_program: text(HANDLER_HEADER).as_deref() == Some("cli"),
        reason: status.canonical_reason().unwrap_or_default(),
        is_json: text(CONTENT_TYPE.as_str())
            .is_some_and(|kind| kind.starts_with("application/json")),
        challenge: text(WWW_AUTHENTICATE.as_str()),
        signature_status: text("x-signature-status"),
        clock_ahead: clock_ahead(headers, sent, unix_now()),
        retry_after: text(RETRY_AFTER.as_str()).and_then(|text| text.trim().parse().ok()),
        path,
        body: String::new(),
    }
}
