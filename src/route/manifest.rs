//! `handler = "passthrough"`: a manifest is read, checked and compiled to a route. All of its
//! problems are reported, not only the first.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use url::Url;

use super::Guard;
use super::passthrough::{Caps, Route, Rule};
use super::table::host_name;
use crate::config::provider::{self, Auth};
use crate::config::{ManifestFile, Section};
use crate::credential::{Attachment, Credential, Gaps, Lookup, Template};
use crate::egress::{self, Timeouts, Upstream};
use crate::error::{Intro, Problem};
use crate::keyring::Keyring;
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
    attachments: HashMap<AttachmentKey, Arc<Attachment>>,
}

type AttachmentKey = (Credential, Vec<(HeaderName, Template)>);

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
        let attachment = self.attachment(&raw, manifest, &mut s);
        s.finish();
        let failed = !found.is_empty();
        let located = found
            .into_iter()
            .map(|problem| problem.file(&manifest.path).intro(Intro::InvalidManifest));
        self.problems.extend(located);
        base.filter(|_| !failed)
            .and_then(|base| build(&manifest.name, raw, &base, attachment))
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
        match provider::read_auth(s, false) {
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

    fn attachment(
        &mut self,
        raw: &RawRoute,
        manifest: &ManifestFile,
        s: &mut Section<'_>,
    ) -> Arc<Attachment> {
        if let Some(known) = self.attachments.get(&raw.attachment) {
            return known.clone();
        }
        let (credential, extra) = &raw.attachment;
        let (attachment, gaps) =
            Attachment::resolve(credential, extra, &Lookup::passthrough(self.keyring));
        report(&gaps, manifest, s, self.warnings);
        let attachment = Arc::new(attachment);
        self.attachments
            .insert(raw.attachment.clone(), attachment.clone());
        attachment
    }
}

/// Checks the values, with the messages of existing deployments. Returns `base_url` if it parses.
fn check(raw: &RawRoute, s: &mut Section<'_>) -> Option<Url> {
    let mut invalid = |wrong: bool, message: &str| {
        if wrong {
            s.general_problem(message);
        }
    };
    let blank = raw.base_url.trim().is_empty();
    let prefix = raw.path_prefix.as_deref();
    let host = raw.host_match.as_deref();
    invalid(blank, "passthrough provider requires non-empty base_url");
    invalid(
        host.is_none() && prefix.is_none(),
        "passthrough provider requires at least one of host_match or path_prefix",
    );
    invalid(
        prefix.is_some_and(|prefix| !prefix.starts_with('/')),
        "passthrough path_prefix must start with '/'",
    );
    invalid(
        host.is_some_and(|host| host.trim().is_empty()),
        "passthrough host_match must be non-empty when set",
    );
    invalid(
        raw.replace
            .as_ref()
            .is_some_and(|(from, _)| !from.starts_with('/')),
        "passthrough path_replace source must start with '/'",
    );
    let url = Url::parse(&raw.base_url).ok().filter(|url| url.has_host());
    let http = url.as_ref().is_some_and(egress::is_http_url);
    invalid(
        raw.websockets && !http,
        "forward_websockets requires base_url to use http:// or https://",
    );
    invalid(
        !raw.websockets && !blank && !http,
        "passthrough base_url must be an http:// or https:// URL",
    );
    if let Some(url) = &url {
        invalid(
            !url.username().is_empty() || url.password().is_some(),
            "passthrough base_url must not contain credentials; use auth_type",
        );
        invalid(
            url.query().is_some() || url.fragment().is_some(),
            "passthrough base_url must not have a query or a fragment",
        );
    }
    let override_ = raw.host_override.as_deref();
    invalid(
        override_.is_some_and(|host| host.is_empty() || HeaderValue::from_str(host).is_err()),
        "passthrough host_override is not a host",
    );
    let timeouts = [
        raw.timeouts.connect,
        raw.timeouts.inactivity,
        raw.timeouts.idle,
    ];
    invalid(
        timeouts.iter().any(Duration::is_zero),
        "passthrough timeouts must be at least 1 second",
    );
    for pattern in raw.deny.iter().chain(&raw.forward) {
        invalid(
            !pattern.starts_with(['/', '*']),
            &format!(
                "the path pattern '{pattern}' can match nothing: it must start with '/' or '*'"
            ),
        );
    }
    url
}

fn build(name: &str, raw: RawRoute, base: &Url, attachment: Arc<Attachment>) -> Option<Compiled> {
    let authority = &base[url::Position::BeforeHost..url::Position::AfterPort];
    let host_header =
        HeaderValue::from_str(raw.host_override.as_deref().unwrap_or(authority)).ok()?;
    let rules = |patterns: &[String]| patterns.iter().map(|pattern| Rule::new(pattern)).collect();
    let prefix = raw.path_prefix.unwrap_or_default();
    Some(Compiled {
        host: raw
            .host_match
            .map(|host| host_name(host.trim()).to_ascii_lowercase()),
        route: Route {
            name: name.to_owned(),
            prefix: prefix.trim_end_matches('/').to_owned(),
            guard: Guard::Signature,
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
            // Without a secret there is nothing to look for.
            scrub: raw.scrub && attachment.redacts(),
            attachment,
            caps: raw.caps,
            websockets: raw.websockets,
            metrics: METRICS.route(name),
        },
    })
}

/// A route whose key is missing forwards requests without it, as existing deployments do: a
/// warning. A key that can't be sent is a problem.
fn report(gaps: &Gaps, manifest: &ManifestFile, s: &mut Section<'_>, warnings: &mut Vec<Problem>) {
    for name in &gaps.missing {
        let message = format!("'{name}' is not in the keyring; requests go on without it");
        let warning = Problem::new(message)
            .file(&manifest.path)
            .key("auth_key_name");
        warnings.push(warning.missing_credential(name));
    }
    for name in &gaps.unsendable {
        let message = format!("the value of '{name}' can't be sent in a header (a line break?)");
        s.problem("auth_key_name", message);
    }
}

#[cfg(test)]
mod tests {
    use super::super::path;
    use super::*;
    use crate::error::Refusal;
    use std::path::PathBuf;

    fn compile_text(text: &str) -> (Option<Compiled>, Vec<String>, Vec<String>) {
        let manifest = ManifestFile {
            path: PathBuf::from("m.toml"),
            name: "m".into(),
            handler: "passthrough".into(),
            provider: text.parse().unwrap(),
            tools: Vec::new(),
            unknown: Vec::new(),
            origin: crate::config::Origin::Permanent,
            spec: None,
        };
        let (mut problems, mut warnings) = (Vec::new(), Vec::new());
        let egress = egress::Settings::default();
        let keyring = Keyring::empty();
        let mut compiler = Compiler::new(&keyring, &egress, &mut problems, &mut warnings);
        let compiled = compiler.compile(&manifest);
        let text = |list: Vec<Problem>| list.iter().map(ToString::to_string).collect();
        (compiled, text(problems), text(warnings))
    }

    fn route(text: &str) -> Route {
        let text = format!("base_url = 'https://up.example/v1/'\n{text}");
        let (compiled, problems, _) = compile_text(&text);
        assert!(problems.is_empty(), "{problems:?}");
        compiled.unwrap().route
    }

    #[test]
    fn invalid_manifest_is_reported_in_the_words_of_existing_deployments() {
        for (text, expected) in [
            (
                "path_prefix = '/x'",
                "passthrough provider requires non-empty base_url",
            ),
            (
                "base_url = 'http://h'",
                "passthrough provider requires at least one of host_match or path_prefix",
            ),
            (
                "base_url = 'http://h'\npath_prefix = 'x'",
                "passthrough path_prefix must start with '/'",
            ),
            (
                "base_url = 'http://h'\nhost_match = ' '",
                "passthrough host_match must be non-empty when set",
            ),
            (
                "base_url = 'ftp://h'\npath_prefix = '/x'\nforward_websockets = true",
                "forward_websockets requires base_url to use http:// or https://",
            ),
            (
                "base_url = 'http://h'\npath_prefix = '/x'\npath_replace = ['v1', '/v2']",
                "passthrough path_replace source must start with '/'",
            ),
        ] {
            let (compiled, problems, _) = compile_text(text);
            assert!(compiled.is_none());
            assert_eq!(
                problems,
                [format!("Manifest m.toml is invalid: {expected}")]
            );
        }
    }

    #[test]
    fn misspelt_or_unusable_key_is_a_problem() {
        let (_, problems, _) =
            compile_text("base_url = 'http://h'\npath_prefix = '/x'\ndeny_path = ['/admin']");
        assert_eq!(
            problems,
            ["Manifest m.toml is invalid: deny_path: unknown key; did you mean 'deny_paths'?"]
        );
        let (_, problems, _) =
            compile_text("base_url = 'http://h'\npath_prefix = '/x'\ndeny_paths = ['admin/*']");
        assert!(
            problems[0].contains("'admin/*' can match nothing"),
            "{problems:?}"
        );
        let (_, problems, _) =
            compile_text("base_url = 'http://h'\npath_prefix = '/x'\nauth_type = 'bearer'");
        assert!(problems[0].contains("auth_key_name"), "{problems:?}");
        let (_, problems, _) =
            compile_text("base_url = 'http://u:p@h?x=1'\npath_prefix = '/x'\nstrip_prefix = 'yes'");
        assert_eq!(problems.len(), 3, "{problems:?}");
    }

    #[test]
    fn missing_credential_is_a_warning() {
        let (compiled, problems, warnings) = compile_text(
            "base_url = 'http://h'\npath_prefix = '/x'\nauth_type = 'bearer'\nauth_key_name = 'k'",
        );
        assert!(compiled.is_some() && problems.is_empty());
        assert!(
            warnings[0].contains("'k' is not in the keyring"),
            "{warnings:?}"
        );
    }

    #[test]
    fn denied_path_covers_everything_below_it() {
        let route = route("path_prefix = '/svc'\ndeny_paths = ['/admin', '/private/*', '/*.php']");
        let ask =
            |decoded: &str| route.rewrite(&format!("/svc{decoded}"), &format!("/svc{decoded}"));
        for denied in [
            "/admin",
            "/admin/",
            "/admin/x/y",
            "/private/x",
            "/private/x/y",
            "/a/b.php",
        ] {
            assert_eq!(ask(denied), Err(Refusal::PathDenied), "{denied}");
        }
        for denied in ["/admin;x", "/admin;/y", "/private;a=1/x"] {
            assert_eq!(ask(denied), Err(Refusal::PathDenied), "{denied}");
        }
        for fine in ["/administrator", "/private", "/x", "/", "/php"] {
            assert!(ask(fine).is_ok(), "{fine}");
        }
    }

    #[test]
    fn replaced_path_is_checked_and_denied_again() {
        let away =
            route("path_prefix = '/svc'\npath_replace = ['/api', '']\ndeny_paths = ['/admin']");
        let ask = |route: &Route, path: &str| {
            let received = format!("/svc{path}");
            let decoded = path::normalise(&received).unwrap().into_owned();
            route.rewrite(&received, &decoded).map(|path| path.path)
        };
        for path in [
            "/api../admin",
            "/api%2e%2e/admin",
            "/api..%2fadmin",
            "/api./x",
        ] {
            assert_eq!(ask(&away, path).unwrap_err().status(), 400, "{path}");
        }
        assert_eq!(ask(&away, "/api/admin"), Err(Refusal::PathDenied));
        let root =
            route("path_prefix = '/svc'\npath_replace = ['/v1', '/']\ndeny_paths = ['/admin']");
        assert_eq!(ask(&root, "/v1/admin"), Err(Refusal::PathDenied));
        assert_eq!(ask(&root, "/v1/fine").unwrap(), "//fine");
    }

    #[test]
    fn target_joins_base_path_rewritten_path_and_query() {
        let route = route("path_prefix = '/svc'\npath_replace = ['/old', '/new']");
        let path = route.rewrite("/svc/old/a%2fb", "/svc/old/a/b").unwrap();
        let target = |query| String::from_utf8(route.target(&path.path, query, true)).unwrap();
        assert_eq!(target(None), "/v1/new/a%2fb");
        assert_eq!(target(Some("x=1&y")), "/v1/new/a%2fb?x=1&y");
        assert_eq!(route.host_header, "up.example");
        assert_eq!((route.upstream.tls, route.upstream.port), (true, 443));
    }
}
