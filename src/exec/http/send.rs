//! Sends a request and follows redirects. Credentials go to the origin of the tool, and to no
//! other.

use std::borrow::Cow;
use std::net::IpAddr;

use http::{HeaderName, HeaderValue, Method};

use super::request::Wire;
use super::{HttpError, LONGEST_URL};
use crate::credential::{Attachment, query};
use crate::egress::{EgressError, Origin, Target, http1, is_http_url};
use crate::exec::ExecContext;
use crate::exec::egress::{Incoming, Redacted, check_origin, client, failed_at, read_redacted};
use crate::request_id;
use crate::telemetry::otel::traceparent;

const REDIRECTS: usize = 10;

pub struct Response {
    status: u16,
    pub body: Redacted,
}

impl Response {
    pub fn status(&self) -> u16 {
        self.status
    }

    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
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
    context.trail.attempt();
    let _wait = context.trail.wait();
    let home = &wire.target.origin;
    let mut hop = Hop {
        method: wire.method.clone(),
        target: wire.target.clone(),
        with_body: true,
        at_origin: true,
    };
    for redirects in 0..=REDIRECTS {
        check_origin(context.clients, &hop.target.origin)?;
        let target = hop.with_credential(attachment);
        if target.length() > LONGEST_URL {
            // The arguments are in the first URL. Any other is the upstream's.
            return Err(match redirects {
                0 => HttpError::LongUrl(target.length()),
                _ => HttpError::BadRedirect,
            });
        }
        let headers = hop.headers(wire, attachment, &context);
        let request = http1::Request {
            method: &hop.method,
            origin: &target.origin,
            path_and_query: &target.path_and_query,
            headers: &headers,
            body: wire.body.as_ref().filter(|_| hop.with_body),
            may_repeat: wire.repeatable,
        };
        let answer = exchange(&request, &target, source, context).await?;
        let status = answer.status();
        context.trail.answered(status);
        if hop.at_origin {
            attachment.observe(status);
        }
        match location(&answer) {
            Some(target) => {
                hop.follow(status, &target, home)?;
                hop.drop_credential(attachment)?;
            }
            None => {
                return Ok(Response {
                    status,
                    body: read_redacted(answer, attachment, provider, context).await?,
                });
            }
        }
    }
    Err(HttpError::TooManyRedirects(REDIRECTS))
}

/// Sends one request: to an origin that speaks HTTP/1 on a connection of ati's own client, to any
/// other with reqwest, which finds out.
async fn exchange(
    request: &http1::Request<'_>,
    target: &Target,
    source: Option<IpAddr>,
    context: ExecContext<'_>,
) -> Result<Incoming, HttpError> {
    let (clients, origin) = (context.clients, request.origin);
    if clients.speaks_http1(origin) {
        match http1::send(clients, source, request).await {
            Ok(answer) => return Ok(Incoming::http1(answer, origin.clone())),
            Err(http1::SendError::Http2) => {
                clients.note_version(origin, http::Version::HTTP_2);
            }
            Err(error) => return Err(Incoming::failed(error, origin).into()),
        }
    }
    let url = target.to_url().map_err(|_| EgressError::NO_BASE_URL)?;
    let mut sent = reqwest::Request::new(request.method.clone(), url);
    sent.headers_mut().extend(request.headers.iter().cloned());
    *sent.body_mut() = request.body.cloned().map(Into::into);
    let response = Box::pin(client(clients, source)?.execute(sent)).await;
    let response = response.map_err(|e| failed_at(&e, origin.as_str()))?;
    clients.note_version(origin, response.version());
    Ok(Incoming::reqwest(response, origin.clone()))
}

struct Hop {
    method: Method,
    target: Target,
    with_body: bool,
    /// False after a redirect to another origin, even where a later one leads back.
    at_origin: bool,
}

impl Hop {
    /// Its URL, with the credential where that belongs into the query: in place of any parameter
    /// that a server may read under its name.
    fn with_credential(&self, attachment: &Attachment) -> Cow<'_, Target> {
        let Some(pair) = attachment.query(self.at_origin) else {
            return Cow::Borrowed(&self.target);
        };
        let pair = String::from_utf8_lossy(pair.expose());
        let mut target = self.target.clone();
        target.set_query(&query::with_credential(target.query(), &pair));
        Cow::Owned(target)
    }

    /// A server may repeat its query in the redirect. To another origin, the parameter of the
    /// credential is left out, and a URL with a secret in any other place isn't asked for.
    fn drop_credential(&mut self, attachment: &Attachment) -> Result<(), HttpError> {
        if self.at_origin {
            return Ok(());
        }
        if let Some(pair) = attachment.query(true) {
            let name = query::name(pair.expose());
            if let Cow::Owned(rest) = query::without(self.target.query(), name) {
                self.target.set_query(&rest);
            }
        }
        let url = format!(
            "{}{}",
            self.target.origin.as_str(),
            self.target.path_and_query
        );
        match attachment.redact_header(url.as_bytes()) {
            Some(_) => Err(HttpError::SecretInRedirect),
            None => Ok(()),
        }
    }

    /// Each name once: a later header takes the place of an earlier one.
    fn headers(
        &self,
        wire: &Wire,
        attachment: &Attachment,
        context: &ExecContext<'_>,
    ) -> Vec<(HeaderName, HeaderValue)> {
        let mut headers: Vec<(HeaderName, HeaderValue)> = Vec::with_capacity(8);
        let mut insert = |name: HeaderName, value: HeaderValue| match headers
            .iter_mut()
            .find(|(known, _)| *known == name)
        {
            Some((_, known)) => *known = value,
            None => headers.push((name, value)),
        };
        let is_type = |name: &HeaderName| *name == http::header::CONTENT_TYPE;
        for (name, value) in &wire.headers {
            let is_sent = match is_type(name) {
                true => self.with_body,
                false => self.at_origin,
            };
            if is_sent {
                insert(name.clone(), value.clone());
            }
        }
        if self.at_origin {
            let id = context.request_id.text();
            if let Ok(id) = HeaderValue::from_bytes(id.as_bytes()) {
                insert(HeaderName::from_static(request_id::HEADER), id);
            }
            if let Some(parent) = context.trail.traceparent()
                && let Ok(parent) = HeaderValue::from_bytes(parent.text().as_bytes())
            {
                insert(HeaderName::from_static(traceparent::HEADER), parent);
            }
            let _ = attachment.attach(true, |name, value| {
                if self.with_body || !is_type(&name) {
                    insert(name, value);
                }
                Ok::<_, std::convert::Infallible>(())
            });
        }
        headers
    }

    fn follow(&mut self, status: u16, target: &str, home: &Origin) -> Result<(), HttpError> {
        let here = self.target.to_url().map_err(|_| HttpError::BadRedirect)?;
        let mut url = here.join(target).map_err(|_| HttpError::BadRedirect)?;
        if !is_http_url(&url) {
            return Err(HttpError::BadRedirect);
        }
        let _ = url.set_username("");
        let _ = url.set_password(None);
        self.target = Target::of(&url).ok_or(HttpError::BadRedirect)?;
        self.at_origin &= *self.target.origin == *home;
        let becomes_get = match status {
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

fn location(answer: &Incoming) -> Option<String> {
    let redirects = matches!(answer.status(), 301 | 302 | 303 | 307 | 308);
    let target = redirects.then(|| answer.location())??;
    String::from_utf8(target.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use url::Url;

    #[test]
    fn redirect_to_another_origin_drops_the_credential_for_good() {
        let home = Url::parse("https://up.example/a").unwrap();
        let home = Target::of(&home).unwrap();
        let mut hop = Hop {
            method: Method::POST,
            target: home.clone(),
            with_body: true,
            at_origin: true,
        };
        let origin = home.origin;
        hop.follow(307, "/b", &origin).unwrap();
        assert!(hop.at_origin && hop.with_body && hop.method == Method::POST);
        hop.follow(302, "//other.example/c", &origin).unwrap();
        assert!(!hop.at_origin && !hop.with_body && hop.method == Method::GET);
        hop.follow(302, "https://up.example/d", &origin).unwrap();
        assert!(!hop.at_origin);
        let mut hop = Hop {
            at_origin: true,
            ..hop
        };
        hop.follow(302, "http://up.example/d", &origin).unwrap();
        assert!(!hop.at_origin, "another scheme is another origin");
        assert!(hop.follow(302, "file:///etc/passwd", &origin).is_err());
    }
}
