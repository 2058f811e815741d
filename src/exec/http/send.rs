//! Sends a request and follows redirects. Credentials go to the origin of the tool, and to no
//! other.

use std::net::IpAddr;

use http::{HeaderValue, Method, StatusCode};
use url::{Origin, Url};

use super::request::Wire;
use super::{HttpError, LONGEST_URL};
use crate::credential::Attachment;
use crate::egress::is_http_url;
use crate::exec::ExecContext;
use crate::exec::egress::{Redacted, append_query, check, client, failed, read_redacted};
use crate::request_id::{self, RequestId};

const REDIRECTS: usize = 10;

pub struct Response {
    status: StatusCode,
    pub body: Redacted,
}

impl Response {
    pub fn status(&self) -> u16 {
        self.status.as_u16()
    }

    pub fn is_success(&self) -> bool {
        self.status.is_success()
    }

    pub fn is_unauthorized(&self) -> bool {
        self.status() == 401
    }

    pub fn is_not_found(&self) -> bool {
        self.status() == 404
    }
}

pub async fn send(
    wire: &Wire,
    attachment: &Attachment,
    provider: &str,
    source: Option<IpAddr>,
    context: ExecContext<'_>,
) -> Result<Response, HttpError> {
    let client = client(context.clients, source)?;
    context.trail.attempt();
    let _wait = context.trail.wait();
    let home = wire.url.origin();
    let mut hop = Hop {
        method: wire.method.clone(),
        url: wire.url.clone(),
        with_body: true,
        at_origin: true,
    };
    for _ in 0..=REDIRECTS {
        check(context.clients, &hop.url)?;
        let request = hop.request(wire, attachment, context.request_id);
        let length = request.url().as_str().len();
        if length > LONGEST_URL {
            // The arguments are in the first URL. Any other is the upstream's.
            return Err(match hop.url == wire.url {
                true => HttpError::LongUrl(length),
                false => HttpError::BadRedirect,
            });
        }
        let origin = hop.url.origin();
        let response = client
            .execute(request)
            .await
            .map_err(|e| failed(&e, &origin))?;
        context.trail.answered(response.status().as_u16());
        if hop.at_origin {
            attachment.observe(response.status().as_u16());
        }
        match location(&response) {
            Some(target) => hop.follow(response.status(), &target, &home)?,
            None => {
                return Ok(Response {
                    status: response.status(),
                    body: read_redacted(response, &origin, attachment, provider, context).await?,
                });
            }
        }
    }
    Err(HttpError::TooManyRedirects(REDIRECTS))
}

struct Hop {
    method: Method,
    url: Url,
    with_body: bool,
    /// False after a redirect to another origin, even where a later one leads back.
    at_origin: bool,
}

impl Hop {
    fn request(&self, wire: &Wire, attachment: &Attachment, id: RequestId) -> reqwest::Request {
        let mut url = self.url.clone();
        if let Some(pair) = attachment.query(self.at_origin) {
            append_query(&mut url, &String::from_utf8_lossy(pair.expose()));
        }
        let mut request = reqwest::Request::new(self.method.clone(), url);
        let headers = request.headers_mut();
        if self.at_origin {
            *headers = wire.headers.clone();
            if let Ok(id) = HeaderValue::from_str(&id.to_string()) {
                headers.insert(request_id::HEADER, id);
            }
            let _ = attachment.attach(true, |name, value| {
                headers.insert(name, value);
                Ok::<_, std::convert::Infallible>(())
            });
        } else if let Some(kind) = wire.headers.get(http::header::CONTENT_TYPE) {
            headers.insert(http::header::CONTENT_TYPE, kind.clone());
        }
        if self.with_body {
            *request.body_mut() = wire.body.clone().map(Into::into);
        } else {
            request.headers_mut().remove(http::header::CONTENT_TYPE);
        }
        request
    }

    fn follow(&mut self, status: StatusCode, target: &str, home: &Origin) -> Result<(), HttpError> {
        let mut url = self.url.join(target).map_err(|_| HttpError::BadRedirect)?;
        if !is_http_url(&url) {
            return Err(HttpError::BadRedirect);
        }
        let _ = url.set_username("");
        let _ = url.set_password(None);
        self.at_origin &= url.origin() == *home;
        self.url = url;
        let becomes_get = match status.as_u16() {
            303 => self.method != Method::HEAD,
            301 | 302 => self.method == Method::POST,
            _ => false,
        };
        if becomes_get {
            self.method = Method::GET;
            self.with_body = false;
        }
        Ok(())
    }
}

fn location(response: &reqwest::Response) -> Option<String> {
    let redirects = matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308);
    let target = response.headers().get(http::header::LOCATION)?;
    let target = String::from_utf8(target.as_bytes().to_vec()).ok()?;
    redirects.then_some(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirect_to_another_origin_drops_the_credential_for_good() {
        let home = Url::parse("https://up.example/a").unwrap();
        let mut hop = Hop {
            method: Method::POST,
            url: home.clone(),
            with_body: true,
            at_origin: true,
        };
        let origin = home.origin();
        hop.follow(StatusCode::TEMPORARY_REDIRECT, "/b", &origin)
            .unwrap();
        assert!(hop.at_origin && hop.with_body && hop.method == Method::POST);
        hop.follow(StatusCode::FOUND, "//other.example/c", &origin)
            .unwrap();
        assert!(!hop.at_origin && !hop.with_body && hop.method == Method::GET);
        hop.follow(StatusCode::FOUND, "https://up.example/d", &origin)
            .unwrap();
        assert!(!hop.at_origin);
        let mut hop = Hop {
            at_origin: true,
            ..hop
        };
        hop.follow(StatusCode::FOUND, "http://up.example/d", &origin)
            .unwrap();
        assert!(!hop.at_origin, "another scheme is another origin");
        assert!(
            hop.follow(StatusCode::FOUND, "file:///etc/passwd", &origin)
                .is_err()
        );
    }
}
