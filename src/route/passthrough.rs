//! A compiled passthrough route: its rules for paths, its upstream and its credential.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;

use super::Guard;
use super::credential::{CredentialFault, RouteCredential};
use super::path;
use super::rewrite::{self, Rewritten};
use crate::credential::{Attachment, query};
use crate::egress::Upstream;
use crate::error::Refusal;
use crate::pattern::Pattern;
use crate::telemetry::metrics::RouteMetrics;

#[derive(Clone)]
pub struct Route {
    pub name: String,
    pub prefix: String,
    pub guard: Guard,
    pub signature: SignatureRule,
    pub(super) strip: bool,
    pub(super) replace: Option<(String, String)>,
    pub(super) deny: Vec<Rule>,
    pub(super) forward_authorization: Vec<Rule>,
    pub upstream: Arc<Upstream>,
    /// The path of `base_url`, without a trailing slash.
    pub(super) base_path: String,
    pub host_header: HeaderValue,
    /// For callers whose customer has none of its own.
    pub attachment: Arc<Attachment>,
    /// Why that can't be sent.
    pub(super) fault: Option<CredentialFault>,
    pub(super) credential: Arc<RouteCredential>,
    pub caps: Caps,
    /// The time that a request may take in all. None: as long as bytes flow.
    pub total: Option<Duration>,
    pub websockets: bool,
    /// Secrets are taken out of bodies, too, where there are some.
    pub scrub: bool,
    pub metrics: Arc<RouteMetrics>,
}

/// Whether a request to the route needs a signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignatureRule {
    /// Unless an exempt pattern covers the route's own prefix: a route without a host.
    ByPrefix,
    /// Always. A route that is found by its host: the exempt patterns are about paths, and any path
    /// may lead to such a route.
    Required,
    /// Never: `signature = "exempt"` in the manifest.
    Exempt,
}

/// The largest allowed bodies, in bytes. None means unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caps {
    pub request: Option<u64>,
    pub response: Option<u64>,
}

/// A path pattern that also covers everything below the paths that it matches.
#[derive(Clone)]
pub(super) struct Rule {
    /// As the manifest has it.
    text: String,
    exact: Pattern,
    below: Pattern,
}

impl Rule {
    pub(super) fn new(text: &str) -> Self {
        Rule {
            text: text.to_owned(),
            exact: Pattern::new(text),
            below: Pattern::new(&format!("{}/*", text.trim_end_matches('/'))),
        }
    }

    fn covers(&self, path: &str) -> bool {
        self.exact.matches(path) || self.below.matches(path)
    }
}

impl Route {
    /// The name of its credential in the keyring.
    pub fn credential_name(&self) -> Option<&str> {
        self.credential.name()
    }

    /// The path for the upstream, unless a rule denies it.
    pub fn rewrite(&self, received: &str, decoded: &str) -> Result<Rewritten, Refusal> {
        let path = self.new_path(received, decoded)?;
        match self.denied_by(&path.decoded) {
            Some(_) => Err(Refusal::PathDenied),
            None => Ok(path),
        }
    }

    /// Of a path that [`Route::rewrite`] denies: what the upstream would have got, and the pattern
    /// that denies it.
    pub fn denial(&self, received: &str, decoded: &str) -> Option<(String, &str)> {
        let path = self.new_path(received, decoded).ok()?;
        let rule = self.denied_by(&path.decoded)?;
        Some((self.with_base(&path.path), rule))
    }

    /// A rewritten path as the upstream gets it, below the path of `base_url`.
    pub fn with_base(&self, path: &str) -> String {
        format!("{}{path}", self.base_path)
    }

    fn new_path(&self, received: &str, decoded: &str) -> Result<Rewritten, Refusal> {
        let prefix = if self.strip { self.prefix.as_str() } else { "" };
        let mut path = rewrite::strip(received, decoded, prefix)?;
        if let Some((from, to)) = &self.replace {
            path = rewrite::replace(path, from, to)?;
            // Checked again: with '/api' replaced by '', '/api../x' has become '/../x'.
            path.decoded = path::normalise(&path.path)?.into_owned();
        }
        Ok(path)
    }

    /// The rule that denies a path. One is enough that covers one of its readings: as it is,
    /// decoded once more, and each of these as a server reads it that removes `;x` from every
    /// segment.
    fn denied_by(&self, path: &str) -> Option<&str> {
        if self.deny.is_empty() {
            return None;
        }
        let covering = |path: &str| self.deny.iter().find(|rule| rule.covers(path));
        let denying = |path: &str| {
            let is_lax = path.contains([';', '\\']) || path.contains("//");
            let as_lax = || match is_lax {
                true => covering(&path::without_parameters(path)),
                false => None,
            };
            covering(path).or_else(as_lax)
        };
        let again = || denying(&path::decoded_again(path)?);
        denying(path).or_else(again).map(|rule| rule.text.as_str())
    }

    /// Whether the caller's own Authorization header is sent on instead of the route's credential.
    pub fn forwards_authorization(&self, path: &Rewritten) -> bool {
        self.forward_authorization
            .iter()
            .any(|rule| rule.covers(&path.decoded))
    }

    /// The target of the request line: base path, rewritten path, the caller's query as received,
    /// then a credential that belongs in the query.
    pub fn target(
        &self,
        path: &str,
        query: Option<&str>,
        attachment: &Attachment,
        with_auth: bool,
    ) -> Vec<u8> {
        let mut target = Vec::new();
        self.write_target(&mut target, path, query, attachment, with_auth);
        target
    }

    /// Appends the same to `target`.
    pub fn write_target(
        &self,
        target: &mut Vec<u8>,
        path: &str,
        query: Option<&str>,
        attachment: &Attachment,
        with_auth: bool,
    ) {
        let credential = attachment.query(with_auth).map(|secret| secret.expose());
        // A server that takes the first of two parameters would take the caller's.
        let query = match credential {
            Some(pair) => query::without(query.unwrap_or_default(), query::name(pair)),
            None => Cow::Borrowed(query.unwrap_or_default()),
        };
        let query = query.as_bytes();
        target.reserve(self.target_room(path, attachment, with_auth) + query.len());
        target.extend_from_slice(self.base_path.as_bytes());
        target.extend_from_slice(path.as_bytes());
        if !query.is_empty() || credential.is_some() {
            target.push(b'?');
        }
        target.extend_from_slice(query);
        if let Some(credential) = credential {
            if !query.is_empty() {
                target.push(b'&');
            }
            target.extend_from_slice(credential);
        }
    }

    /// How long the target of this path can be, without the caller's query.
    pub fn target_room(&self, path: &str, attachment: &Attachment, with_auth: bool) -> usize {
        let credential = attachment.query(with_auth);
        let credential = credential.map_or(0, |pair| pair.expose().len());
        self.base_path.len() + path.len() + credential + 2
    }
}

#[cfg(test)]
mod tests;
