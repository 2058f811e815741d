//! `handler = "passthrough"`: a manifest is read, checked and compiled to a route. All of its
//! problems are reported, not only the first.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use url::Url;

use super::Guard;
use super::builtin;
use super::credential::{CredentialFault, RouteCredential, fault};
use super::passthrough::{Caps, Route, Rule, SignatureRule};
use super::table::host_name;
use crate::config::provider::{self, Auth};
use crate::config::{ManifestFile, Section};
use crate::credential::{Attachment, Credential, Gaps, Lookup, Template};
use crate::egress::{self, Timeouts, Upstream};
use crate::error::{Intro, Problem};
use crate::keyring::Keyring;
use crate::keyring::stored::Place;
use crate::telemetry::metrics::METRICS;

/// Known keys that mean nothing to a route: every provider has them, or other handlers read them.
const IGNORED_KEYS: [&str; 8] = [
    "name",
    "description",
    "handler",
    "internal",
    "category",
    "skills",
    "auth_session_token_env",
    "auth_generator",
];

pub(super) struct Compiler<'a> {
    pub keyring: &'a Keyring,
    pub egress: &'a egress::Settings,
    pub problems: &'a mut Vec<Problem>,
    pub warnings: &'a mut Vec<Problem>,
    /// A cache: routes that send the same credential and headers share one attachment.
    attachments: HashMap<AttachmentKey, Sent>,
}

type AttachmentKey = (Credential, Vec<(HeaderName, Template)>);

/// What a route sends.
#[derive(Clone)]
struct Sent {
    credential: Arc<RouteCredential>,
    attachment: Arc<Attachment>,
    fault: Option<CredentialFault>,
}

pub(super) struct Compiled {
    pub host: Option<String>,
    pub route: Route,
}

/// The manifest's values, or their defaults, before they are checked.
struct RawRoute {
    base_url: String,
    host_match: Option<String>,
    path_prefix: Option<String>,
    strip: bool,
    replace: Option<(String, String)>,
    host_override: Option<String>,
    deny: Vec<String>,
    forward: Vec<String>,
    timeouts: Timeouts,
    total: Option<Duration>,
    signature: Option<SignatureRule>,
    require_token: bool,
    caps: Caps,
    websockets: bool,
    scrub: bool,
    attachment: AttachmentKey,
    source: Option<IpAddr>,
}

impl<'a> Compiler<'a> {
    pub fn new(
        keyring: &'a Keyring,
        egress: &'a egress::Settings,
        problems: &'a mut Vec<Problem>,
        warnings: &'a mut Vec<Problem>,
    ) -> Self {
        Compiler {
            keyring,
            egress,
            problems,
            warnings,
            attachments: HashMap::new(),
        }
    }

    pub fn compile(&mut self, manifest: &ManifestFile) -> Option<Compiled> {
        let mut found = Vec::new();
        let mut s = Section::root(&manifest.path, manifest.provider.clone(), &mut found);
        let raw = self.read(manifest, &mut s);
        let base = check(&raw, &mut s);
        self.warnings.extend(unreachable(&raw, manifest));
        let sent = self.resolve(&raw, manifest, &mut s);
        s.finish();
        let failed = !found.is_empty();
        let located = found
            .into_iter()
            .map(|problem| problem.file(&manifest.path).intro(Intro::InvalidManifest));
        self.problems.extend(located);
        base.filter(|_| !failed)
            .and_then(|base| build(&manifest.name, raw, &base, sent))
    }

    fn read(&mut self, manifest: &ManifestFile, s: &mut Section<'_>) -> RawRoute {
        for key in IGNORED_KEYS {
            s.ignore(key);
        }
        let seconds = |value: Option<u64>, default| Duration::from_secs(value.unwrap_or(default));
        let cap =
            |value: Option<u64>, default| Some(value.unwrap_or(default)).filter(|cap| *cap > 0);
        RawRoute {
            base_url: s.take("base_url").unwrap_or_default(),
            host_match: s.take("host_match"),
            path_prefix: s.take("path_prefix"),
            strip: s.take("strip_prefix").unwrap_or(true),
            replace: s.take("path_replace"),
            host_override: s.take("host_override"),
            deny: s.take("deny_paths").unwrap_or_default(),
            forward: s.take("forward_authorization_paths").unwrap_or_default(),
            timeouts: Timeouts {
                connect: seconds(s.take("connect_timeout_seconds"), 5),
                inactivity: seconds(s.take("read_timeout_seconds"), 300),
                idle: seconds(s.take("idle_timeout_seconds"), 60),
            },
            total: s.take("total_timeout_seconds").map(Duration::from_secs),
            signature: read_signature(s),
            require_token: s.take("require_token").unwrap_or(false),
            caps: Caps {
                request: cap(s.take("max_request_bytes"), 100 << 20),
                response: cap(s.take("max_response_bytes"), 500 << 20),
            },
            websockets: s.take("forward_websockets").unwrap_or(false),
            scrub: s.take("scrub").unwrap_or(false),
            attachment: (
                self.read_credential(manifest, s),
                provider::read_extra_headers(s),
            ),
            source: provider::read_source(s, Some(self.egress)),
        }
    }

    fn read_credential(&mut self, manifest: &ManifestFile, s: &mut Section<'_>) -> Credential {
        match provider::read_auth(s, false, provider::DEFAULT_HEADER) {
            Auth::Static(credential) => credential,
            Auth::None => Credential::None,
            other @ (Auth::OAuth2(_) | Auth::Url) => {
                let kind = other.name();
                self.warnings.push(
                    Problem::new(format!(
                        "auth_type '{kind}' adds nothing to a passthrough request"
                    ))
                    .file(&manifest.path)
                    .key("auth_type"),
                );
                Credential::None
            }
        }
    }

    fn resolve(&mut self, raw: &RawRoute, manifest: &ManifestFile, s: &mut Section<'_>) -> Sent {
        if let Some(known) = self.attachments.get(&raw.attachment) {
            return known.clone();
        }
        let (credential, extra) = raw.attachment.clone();
        let credential = RouteCredential::new(self.attachments.len(), credential, extra);
        let (attachment, gaps) = credential.resolve(&Lookup::passthrough(self.keyring, None));
        self.report(&gaps, manifest, s);
        let sent = Sent {
            credential: Arc::new(credential),
            attachment: Arc::new(attachment),
            fault: fault(gaps),
        };
        self.attachments
            .insert(raw.attachment.clone(), sent.clone());
        sent
    }

    /// A route whose key is missing forwards requests without it, as existing deployments do: a
    /// warning. A key that can't be sent is a problem; one of the database only a warning, because
    /// it may change at any time, and keeps no other route from working.
    fn report(&mut self, gaps: &Gaps, manifest: &ManifestFile, s: &mut Section<'_>) {
        let about = |message: String| {
            let problem = Problem::new(message).file(&manifest.path);
            problem.key("auth_key_name")
        };
        for name in &gaps.missing {
            // There for the customers that have it.
            if self.keyring.has_tenants_of(name) {
                continue;
            }
            let message = format!("'{name}' is not in the keyring; requests go on without it");
            self.warnings.push(about(message).missing_credential(name));
        }
        for row in &gaps.unreadable {
            let message = format!("{row}; requests are refused");
            self.warnings.push(about(message));
        }
        for name in &gaps.unsendable {
            let message =
                format!("the value of '{name}' can't be sent in a header (a line break?)");
            let place = Place {
                customer: None,
                name,
            };
            match self.keyring.stored().has_ignoring_case(place) {
                true => self
                    .warnings
                    .push(about(message + "; requests are refused")),
                false => s.problem("auth_key_name", message),
            }
        }
    }
}

fn read_signature(s: &mut Section<'_>) -> Option<SignatureRule> {
    let word: String = s.take("signature")?;
    match word.as_str() {
        "required" => Some(SignatureRule::Required),
        "exempt" => Some(SignatureRule::Exempt),
        _ => {
            s.problem("signature", "must be \"required\" or \"exempt\"");
            None
        }
    }
}

/// Checks the values, with the messages of existing deployments. Returns `base_url` if it parses.
fn check(raw: &RawRoute, s: &mut Section<'_>) -> Option<Url> {
    let mut invalid = |wrong: bool, key: &str, message: &str| {
        if wrong {
            s.problem_about(key, message);
        }
    };
    let blank = raw.base_url.trim().is_empty();
    let prefix = raw.path_prefix.as_deref();
    let host = raw.host_match.as_deref();
    let message = "passthrough provider requires non-empty base_url";
    invalid(blank, "base_url", message);
    invalid(
        host.is_none() && prefix.is_none(),
        "path_prefix",
        "passthrough provider requires at least one of host_match or path_prefix",
    );
    invalid(
        prefix.is_some_and(|prefix| !prefix.starts_with('/')),
        "path_prefix",
        "passthrough path_prefix must start with '/'",
    );
    invalid(
        host.is_some_and(|host| host.trim().is_empty()),
        "host_match",
        "passthrough host_match must be non-empty when set",
    );
    invalid(
        raw.replace
            .as_ref()
            .is_some_and(|(from, _)| !from.starts_with('/')),
        "path_replace",
        "passthrough path_replace source must start with '/'",
    );
    let url = Url::parse(&raw.base_url).ok().filter(|url| url.has_host());
    let http = url.as_ref().is_some_and(egress::is_http_url);
    invalid(
        raw.websockets && !http,
        "base_url",
        "forward_websockets requires base_url to use http:// or https://",
    );
    invalid(
        !raw.websockets && !blank && !http,
        "base_url",
        "passthrough base_url must be an http:// or https:// URL",
    );
    if let Some(url) = &url {
        invalid(
            !url.username().is_empty() || url.password().is_some(),
            "base_url",
            "passthrough base_url must not contain credentials; use auth_type",
        );
        invalid(
            url.query().is_some() || url.fragment().is_some(),
            "base_url",
            "passthrough base_url must not have a query or a fragment",
        );
    }
    let override_ = raw.host_override.as_deref();
    invalid(
        override_.is_some_and(|host| host.is_empty() || HeaderValue::from_str(host).is_err()),
        "host_override",
        "passthrough host_override is not a host",
    );
    invalid(
        raw.require_token && !raw.forward.is_empty(),
        "forward_authorization_paths",
        "the Authorization header of a route with require_token is for ati, and isn't sent on",
    );
    let total = raw.total.map(|total| ("total_timeout_seconds", total));
    for (key, timeout) in [
        ("connect_timeout_seconds", raw.timeouts.connect),
        ("read_timeout_seconds", raw.timeouts.inactivity),
        ("idle_timeout_seconds", raw.timeouts.idle),
    ]
    .into_iter()
    .chain(total)
    {
        let message = "passthrough timeouts must be at least 1 second";
        invalid(timeout.is_zero(), key, message);
    }
    let deny = raw.deny.iter().map(|it| ("deny_paths", it));
    let forward = raw
        .forward
        .iter()
        .map(|it| ("forward_authorization_paths", it));
    for (key, pattern) in deny.chain(forward) {
        invalid(
            !pattern.starts_with(['/', '*']),
            key,
            &format!(
                "the path pattern '{pattern}' can match nothing: it must start with '/' or '*'"
            ),
        );
    }
    url
}

/// ati's own paths come before every route.
fn unreachable(raw: &RawRoute, manifest: &ManifestFile) -> Option<Problem> {
    let prefix = raw.path_prefix.as_deref()?.trim_end_matches('/');
    let message = if builtin::is_reserved(prefix) {
        format!("no request can reach this route: {prefix} and what is below it is ati's own")
    } else if builtin::find(prefix).is_some_and(|endpoint| !endpoint.yields()) {
        format!("{prefix} itself is ati's own; only paths below it reach this route")
    } else {
        return None;
    };
    let problem = Problem::new(message).file(&manifest.path);
    Some(problem.key("path_prefix"))
}

fn build(name: &str, raw: RawRoute, base: &Url, sent: Sent) -> Option<Compiled> {
    let authority = &base[url::Position::BeforeHost..url::Position::AfterPort];
    let host_header =
        HeaderValue::from_str(raw.host_override.as_deref().unwrap_or(authority)).ok()?;
    let rules = |patterns: &[String]| patterns.iter().map(|pattern| Rule::new(pattern)).collect();
    let prefix = raw.path_prefix.unwrap_or_default();
    let by_default = match &raw.host_match {
        Some(_) => SignatureRule::Required,
        None => SignatureRule::ByPrefix,
    };
    Some(Compiled {
        host: raw
            .host_match
            .map(|host| host_name(host.trim()).to_ascii_lowercase()),
        route: Route {
            name: name.to_owned(),
            prefix: prefix.trim_end_matches('/').to_owned(),
            guard: match raw.require_token {
                true => Guard::Token,
                false => Guard::Signature,
            },
            signature: raw.signature.unwrap_or(by_default),
            strip: raw.strip,
            replace: raw.replace,
            deny: rules(&raw.deny),
            forward_authorization: rules(&raw.forward),
            upstream: Arc::new(Upstream::new(
                base.scheme() == "https",
                base.host_str()?,
                base.port_or_known_default()?,
                raw.source,
                raw.timeouts,
            )),
            base_path: base.path().trim_end_matches('/').to_owned(),
            host_header,
            scrub: raw.scrub,
            attachment: sent.attachment,
            fault: sent.fault,
            credential: sent.credential,
            caps: raw.caps,
            total: raw.total,
            websockets: raw.websockets,
            metrics: METRICS.route(name),
        },
    })
}

#[cfg(test)]
mod tests;
