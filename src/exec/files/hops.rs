//! Requests of a download, through redirects. Every hop is checked against the allowlist and the
//! address rules; headers that the caller gave go to the first origin, and to no other.

use std::net::IpAddr;

use http::header::LOCATION;
use http::{HeaderMap, Method};
use url::{Origin, Url};

use super::arguments::{DownloadArgs, shown_url};
use super::error::{DownloadFault, FilesError};
use crate::egress::{EgressError, is_http_url};
use crate::exec::ExecContext;
use crate::exec::egress::{self, client, failed};

const MOST_REDIRECTS: usize = 10;
/// The longest URL that the HTTP client can send.
const LONGEST_URL: usize = u16::MAX as usize - 1;

/// Where a request goes.
#[derive(Debug, Clone)]
pub struct Hop {
    pub url: Url,
    /// False after a redirect to another origin, even where a later one leads back.
    at_origin: bool,
}

pub struct Hops<'a> {
    args: &'a DownloadArgs,
    home: Origin,
    client: reqwest::Client,
    context: ExecContext<'a>,
}

impl<'a> Hops<'a> {
    pub fn new(
        args: &'a DownloadArgs,
        source: Option<IpAddr>,
        context: ExecContext<'a>,
    ) -> Result<Self, FilesError> {
        Ok(Hops {
            args,
            home: args.url.origin(),
            client: client(context.clients, source).map_err(DownloadFault::Egress)?,
            context,
        })
    }

    pub fn first(&self) -> Hop {
        Hop {
            url: self.args.url.clone(),
            at_origin: true,
        }
    }

    /// The answer at the end of the redirects, and where it came from. `more` headers go to every
    /// hop.
    pub async fn open(
        &self,
        mut hop: Hop,
        more: &HeaderMap,
    ) -> Result<(reqwest::Response, Hop), FilesError> {
        for _ in 0..=MOST_REDIRECTS {
            admit(&hop.url, self.context)?;
            self.context.trail.attempt();
            let sent = self.client.execute(self.request(&hop, more)).await;
            let response = sent.map_err(|error| {
                let fault = failed(&error, &hop.url.origin());
                blocked_shows(&hop.url, fault)
            })?;
            let status = response.status().as_u16();
            self.context.trail.answered(status);
            let target = match status {
                301 | 302 | 303 | 307 | 308 if self.args.follow_redirects => location(&response),
                _ => None,
            };
            match target {
                None => return Ok((response, hop)),
                Some(target) => hop = self.follow(&hop, &target)?,
            }
        }
        Err(DownloadFault::TooManyRedirects(MOST_REDIRECTS).into())
    }

    fn request(&self, hop: &Hop, more: &HeaderMap) -> reqwest::Request {
        let mut request = reqwest::Request::new(Method::GET, hop.url.clone());
        if hop.at_origin {
            *request.headers_mut() = self.args.headers.clone();
        }
        for (name, value) in more {
            request.headers_mut().insert(name, value.clone());
        }
        // A server that the caller didn't name has no part in the trace.
        if let (true, Some(parent)) = (hop.at_origin, self.context.trail.traceparent()) {
            parent.insert(request.headers_mut());
        }
        request
    }

    fn follow(&self, hop: &Hop, target: &str) -> Result<Hop, FilesError> {
        let url = hop.url.join(target).ok().filter(is_http_url);
        let mut url = url.ok_or(DownloadFault::BadRedirect)?;
        let _ = url.set_username("");
        let _ = url.set_password(None);
        url.set_fragment(None);
        Ok(Hop {
            at_origin: hop.at_origin && url.origin() == self.home,
            url,
        })
    }
}

/// Whether a download may ask its first hop, as far as its URL says.
pub fn check(args: &DownloadArgs, context: ExecContext<'_>) -> Result<(), FilesError> {
    admit(&args.url, context)
}

fn admit(url: &Url, context: ExecContext<'_>) -> Result<(), FilesError> {
    if url.as_str().len() > LONGEST_URL {
        return Err(FilesError::InvalidUrl("it is too long"));
    }
    if !context.clients.downloads().allows(url) {
        let host = url.host_str().unwrap_or_default();
        return Err(FilesError::HostNotAllowed(host.to_owned()));
    }
    egress::check(context.clients, url).map_err(|fault| blocked_shows(url, fault))
}

/// A blocked address is told with its URL, without what may be secret of it.
fn blocked_shows(url: &Url, fault: EgressError) -> FilesError {
    match fault {
        EgressError::Blocked(_) => FilesError::PrivateAddress(shown_url(url)),
        fault => DownloadFault::Egress(fault).into(),
    }
}

fn location(response: &reqwest::Response) -> Option<String> {
    let target = response.headers().get(LOCATION)?;
    String::from_utf8(target.as_bytes().to_vec()).ok()
}
