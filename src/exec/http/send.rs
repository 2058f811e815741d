//! A request on its way, hop by hop. Credentials go to the origin that they are for, and nowhere else.

use std::net::IpAddr;

use http::{Method, StatusCode};
use percent_encoding::percent_decode_str;
use url::{Origin, Url};

use super::Means;
use super::request::Wire;
use crate::credential::Attachment;
use crate::egress::{Blocked, Clients, fault};
use crate::error::ToolError;

const REDIRECTS: usize = 10;

pub struct Answer {
    status: StatusCode,
    pub body: Vec<u8>,
}

impl Answer {
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
    source: Option<IpAddr>,
    means: Means<'_>,
) -> Result<Answer, ToolError> {
    let client = client(means.clients, source)?;
    let home = wire.url.origin();
    let mut hop = Hop {
        method: wire.method.clone(),
        url: wire.url.clone(),
        with_body: true,
        at_home: true,
    };
    for _ in 0..=REDIRECTS {
        check(means.clients, &hop.url)?;
        let request = hop.request(wire, attachment);
        let origin = hop.url.origin();
        let response = client
            .execute(request)
            .await
            .map_err(|e| failed(&e, &origin))?;
        if hop.at_home {
            attachment.observe(response.status().as_u16());
        }
        match location(&response) {
            Some(target) => hop.follow(response.status(), &target, &home)?,
            None => {
                return Ok(Answer {
                    status: response.status(),
                    body: read(response, &origin, means.limits.max_response_bytes).await?,
                });
            }
        }
    }
    Err(ToolError::TooManyRedirects(REDIRECTS))
}

pub fn client(clients: &Clients, source: Option<IpAddr>) -> Result<reqwest::Client, ToolError> {
    clients
        .get(source)
        .map_err(|problem| ToolError::Setup(problem.to_string()))
}

/// Scheme and host only: a path or a query may hold what nobody should read.
pub fn check(clients: &Clients, url: &Url) -> Result<(), ToolError> {
    clients
        .guard()
        .check(url)
        .map_err(|_| ToolError::Blocked(url.origin().ascii_serialization()))
}

pub fn failed(error: &reqwest::Error, origin: &Origin) -> ToolError {
    match fault(error) {
        Ok(fault) => ToolError::Request(fault),
        Err(Blocked(_)) => ToolError::Blocked(origin.ascii_serialization()),
    }
}

struct Hop {
    method: Method,
    url: Url,
    with_body: bool,
    /// False from the first step to another origin on, even where a later one leads back.
    at_home: bool,
}

impl Hop {
    fn request(&self, wire: &Wire, attachment: &Attachment) -> reqwest::Request {
        let mut url = self.url.clone();
        if let Some(pair) = attachment.query(self.at_home) {
            append(&mut url, &String::from_utf8_lossy(pair.expose()));
        }
        let mut request = reqwest::Request::new(self.method.clone(), url);
        let headers = request.headers_mut();
        if self.at_home {
            *headers = wire.headers.clone();
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

    fn follow(&mut self, status: StatusCode, target: &str, home: &Origin) -> Result<(), ToolError> {
        let mut url = self.url.join(target).map_err(|_| ToolError::BadRedirect)?;
        if !crate::egress::is_http_url(&url) {
            return Err(ToolError::BadRedirect);
        }
        let _ = url.set_username("");
        let _ = url.set_password(None);
        self.at_home &= url.origin() == *home;
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

pub fn append(url: &mut Url, pair: &str) {
    // However either is written.
    let named = |pair: &str| {
        let name = pair.split('=').next().unwrap_or_default().replace('+', " ");
        percent_decode_str(&name).decode_utf8_lossy().into_owned()
    };
    let name = named(pair);
    let has = url
        .query()
        .is_some_and(|query| query.split('&').any(|known| named(known) == name));
    // A redirect of the upstream's own may have kept it; a caller's own copy has to go.
    let query = match url.query() {
        Some(query) if has => {
            let others: Vec<&str> = query
                .split('&')
                .filter(|known| named(known) != name)
                .chain([pair])
                .collect();
            others.join("&")
        }
        Some(query) if !query.is_empty() => format!("{query}&{pair}"),
        _ => pair.to_owned(),
    };
    url.set_query(Some(&query));
}

fn location(response: &reqwest::Response) -> Option<String> {
    let redirects = matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308);
    let target = response.headers().get(http::header::LOCATION)?;
    let target = String::from_utf8(target.as_bytes().to_vec()).ok()?;
    redirects.then_some(target)
}

pub async fn read(
    mut response: reqwest::Response,
    origin: &Origin,
    most: usize,
) -> Result<Vec<u8>, ToolError> {
    let too_large = || ToolError::TooLarge(most as u64);
    let announced = response.content_length().unwrap_or(0);
    if announced > most as u64 {
        return Err(too_large());
    }
    let mut body = Vec::with_capacity(announced as usize);
    while let Some(chunk) = response.chunk().await.map_err(|e| failed(&e, origin))? {
        if body.len() + chunk.len() > most {
            return Err(too_large());
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credential_in_the_query_stands_there_once() {
        for (before, after) in [
            ("http://h/", "http://h/?key=ours"),
            ("http://h/?a=1", "http://h/?a=1&key=ours"),
            (
                "http://h/?key=theirs&a=1&key=again",
                "http://h/?a=1&key=ours",
            ),
            ("http://h/?", "http://h/?key=ours"),
        ] {
            let mut url = Url::parse(before).unwrap();
            append(&mut url, "key=ours");
            assert_eq!(url.as_str(), after);
        }
    }

    #[test]
    fn who_leaves_home_does_not_come_back_with_the_keys() {
        let home = Url::parse("https://up.example/a").unwrap();
        let mut hop = Hop {
            method: Method::POST,
            url: home.clone(),
            with_body: true,
            at_home: true,
        };
        let origin = home.origin();
        hop.follow(StatusCode::TEMPORARY_REDIRECT, "/b", &origin)
            .unwrap();
        assert!(hop.at_home && hop.with_body && hop.method == Method::POST);
        hop.follow(StatusCode::FOUND, "//other.example/c", &origin)
            .unwrap();
        assert!(!hop.at_home && !hop.with_body && hop.method == Method::GET);
        hop.follow(StatusCode::FOUND, "https://up.example/d", &origin)
            .unwrap();
        assert!(!hop.at_home);
        let mut hop = Hop {
            at_home: true,
            ..hop
        };
        hop.follow(StatusCode::FOUND, "http://up.example/d", &origin)
            .unwrap();
        assert!(!hop.at_home, "another scheme is another origin");
        assert!(
            hop.follow(StatusCode::FOUND, "file:///etc/passwd", &origin)
                .is_err()
        );
    }
}
