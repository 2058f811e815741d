//! `handler = "passthrough"`: a manifest, compiled to a route.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use url::Url;

use super::rewrite::{self, Rewritten};
use super::table::host_name;
use crate::config::{ManifestFile, Section};
use crate::credential::{Attachment, Credential, Gaps, Template};
use crate::egress::{self, Timeouts, Upstream};
use crate::error::{Intro, Problem, Refusal};
use crate::keyring::Keyring;
use crate::pattern::Pattern;
use crate::telemetry::metrics::{METRICS, RouteMetrics};

pub struct Route {
    pub name: String,
    pub prefix: String,
    strip: bool,
    replace: Option<(String, String)>,
    deny: Vec<Rule>,
    forward_authorization: Vec<Rule>,
    pub upstream: Upstream,
    /// The path of base_url, without a slash at its end.
    base_path: String,
    pub host_header: HeaderValue,
    pub attachment: Arc<Attachment>,
    pub caps: Caps,
    pub websockets: bool,
    pub metrics: Arc<RouteMetrics>,
}

/// Body sizes; none is unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caps {
    pub request: Option<u64>,
    pub response: Option<u64>,
}

pub(super) struct Compiled {
    pub host: Option<String>,
    pub route: Route,
}

/// A path pattern that also covers everything below what it names.
struct Rule {
    exact: Pattern,
    below: Pattern,
}

impl Rule {
    fn new(text: &str) -> Self {
        Rule {
            exact: Pattern::new(text),
            below: Pattern::new(&format!("{}/*", text.trim_end_matches('/'))),
        }
    }

    fn covers(&self, path: &str) -> bool {
        self.exact.matches(path) || self.below.matches(path)
    }
}

impl Route {
    /// The path for the upstream, unless a rule denies it.
    pub fn rewrite(&self, received: &str, decoded: &str) -> Result<Rewritten, Refusal> {
        let prefix = if self.strip { self.prefix.as_str() } else { "" };
        let mut path = rewrite::strip(received, decoded, prefix)?;
        if let Some((from, to)) = &self.replace {
            path = rewrite::replace(path, from, to)?;
        }
        if self.deny.iter().any(|rule| rule.covers(&path.decoded)) {
            return Err(Refusal::PathDenied);
        }
        Ok(path)
    }

    /// Whether the caller's own Authorization goes on instead of ours.
    pub fn forwards_authorization(&self, path: &Rewritten) -> bool {
        self.forward_authorization
            .iter()
            .any(|rule| rule.covers(&path.decoded))
    }

    /// What the request line says: base path, rewritten path, the caller's query as it came, then a query credential.
    pub fn target(&self, path: &str, query: Option<&str>, with_auth: bool) -> Vec<u8> {
        let credential = self
            .attachment
            .query(with_auth)
            .map(|secret| secret.expose());
        let query = query.unwrap_or_default().as_bytes();
        let size =
            self.base_path.len() + path.len() + query.len() + credential.map_or(0, <[u8]>::len) + 2;
        let mut target = Vec::with_capacity(size);
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
        target
    }
}

/// Attachments by what they are made of: a thousand routes with one key share one.
pub(super) type Attachments = HashMap<(Credential, Vec<(HeaderName, Template)>), Arc<Attachment>>;

pub(super) fn compile(
    manifest: &ManifestFile,
    keyring: &Keyring,
    egress: &egress::Settings,
    attachments: &mut Attachments,
    problems: &mut Vec<Problem>,
    warnings: &mut Vec<Problem>,
) -> Option<Compiled> {
    let mut found = Vec::new();
    let compiled = read(manifest, keyring, egress, attachments, &mut found, warnings);
    let failed = !found.is_empty();
    let located = found
        .into_iter()
        .map(|problem| problem.file(&manifest.path).intro(Intro::InvalidManifest));
    problems.extend(located);
    compiled.filter(|_| !failed)
}

fn read(
    manifest: &ManifestFile,
    keyring: &Keyring,
    egress: &egress::Settings,
    attachments: &mut Attachments,
    problems: &mut Vec<Problem>,
    warnings: &mut Vec<Problem>,
) -> Option<Compiled> {
    let mut s = Section::root(&manifest.path, manifest.provider.clone(), problems);
    // Read for every provider, or by other handlers: known, and nothing to a route.
    for key in [
        "name",
        "description",
        "handler",
        "internal",
        "category",
        "skills",
        "auth_session_token_env",
        "auth_secret_name",
        "oauth2_token_url",
        "oauth2_basic_auth",
        "auth_generator",
    ] {
        s.take::<toml::Value>(key);
    }
    let base_url = s.take::<String>("base_url").unwrap_or_default();
    let host_match = s.take::<String>("host_match");
    let path_prefix = s.take::<String>("path_prefix");
    let strip = s.take::<bool>("strip_prefix").unwrap_or(true);
    let replace = s.take::<(String, String)>("path_replace");
    let host_override = s.take::<String>("host_override");
    let deny = s.take::<Vec<String>>("deny_paths").unwrap_or_default();
    let forward = s
        .take::<Vec<String>>("forward_authorization_paths")
        .unwrap_or_default();
    let seconds = |value: Option<u64>, default| Duration::from_secs(value.unwrap_or(default));
    let timeouts = Timeouts {
        connect: seconds(s.take("connect_timeout_seconds"), 5),
        inactivity: seconds(s.take("read_timeout_seconds"), 300),
        idle: seconds(s.take("idle_timeout_seconds"), 60),
    };
    let cap = |value: Option<u64>, default| Some(value.unwrap_or(default)).filter(|cap| *cap > 0);
    let caps = Caps {
        request: cap(s.take("max_request_bytes"), 100 << 20),
        response: cap(s.take("max_response_bytes"), 500 << 20),
    };
    let websockets = s.take::<bool>("forward_websockets").unwrap_or(false);
    let credential = read_credential(&mut s, manifest, warnings);
    let extra = read_extra_headers(&mut s);
    let source = match s.take::<String>("egress") {
        Some(name) => {
            let known = egress.named.get(&name).copied();
            if known.is_none() {
                s.problem(
                    "egress",
                    format!("'{name}' is not one of [egress.addresses]"),
                );
            }
            known
        }
        None => egress.source,
    };

    // The words that existing deployments know.
    let mut invalid = |message: &str| s.general_problem(message);
    if base_url.trim().is_empty() {
        invalid("passthrough provider requires non-empty base_url");
    }
    if host_match.is_none() && path_prefix.is_none() {
        invalid("passthrough provider requires at least one of host_match or path_prefix");
    }
    if path_prefix
        .as_ref()
        .is_some_and(|prefix| !prefix.starts_with('/'))
    {
        invalid("passthrough path_prefix must start with '/'");
    }
    if host_match
        .as_ref()
        .is_some_and(|host| host.trim().is_empty())
    {
        invalid("passthrough host_match must be non-empty when set");
    }
    if replace
        .as_ref()
        .is_some_and(|(from, _)| !from.starts_with('/'))
    {
        invalid("passthrough path_replace source must start with '/'");
    }
    let url = Url::parse(&base_url).ok().filter(|url| url.has_host());
    let http = url
        .as_ref()
        .is_some_and(|url| matches!(url.scheme(), "http" | "https"));
    if websockets && !http {
        invalid("forward_websockets requires base_url to use http:// or https://");
    } else if !base_url.trim().is_empty() && !http {
        invalid("passthrough base_url must be an http:// or https:// URL");
    }
    if let Some(url) = &url {
        if !url.username().is_empty() || url.password().is_some() {
            invalid("passthrough base_url must not contain credentials; use auth_type");
        }
        if url.query().is_some() || url.fragment().is_some() {
            invalid("passthrough base_url must not have a query or a fragment");
        }
    }
    let authority = url
        .as_ref()
        .map(|url| &url[url::Position::BeforeHost..url::Position::AfterPort]);
    let host_header =
        HeaderValue::from_str(host_override.as_deref().or(authority).unwrap_or_default());
    if host_header.is_err() || host_override.as_ref().is_some_and(|host| host.is_empty()) {
        invalid("passthrough host_override is not a host");
    }
    for (key, seconds) in [
        ("connect", timeouts.connect),
        ("read", timeouts.inactivity),
        ("idle", timeouts.idle),
    ] {
        if seconds.is_zero() {
            invalid(&format!("{key}_timeout_seconds must be at least 1"));
        }
    }
    for pattern in deny
        .iter()
        .chain(&forward)
        .filter(|p| !p.starts_with(['/', '*']))
    {
        invalid(&format!(
            "the path pattern '{pattern}' can match nothing: it must start with '/' or '*'"
        ));
    }

    let key = (credential, extra);
    let attachment = match attachments.get(&key) {
        Some(attachment) => attachment.clone(),
        None => {
            let (attachment, gaps) = Attachment::resolve(&key.0, &key.1, keyring);
            report(&gaps, manifest, &mut s, warnings);
            let attachment = Arc::new(attachment);
            attachments.insert(key, attachment.clone());
            attachment
        }
    };
    s.finish();

    let url = url?;
    let prefix = path_prefix
        .unwrap_or_default()
        .trim_end_matches('/')
        .to_owned();
    let rules = |patterns: Vec<String>| patterns.iter().map(|pattern| Rule::new(pattern)).collect();
    Some(Compiled {
        host: host_match.map(|host| host_name(host.trim()).to_ascii_lowercase()),
        route: Route {
            name: manifest.name.clone(),
            prefix,
            strip,
            replace,
            deny: rules(deny),
            forward_authorization: rules(forward),
            upstream: Upstream::new(
                url.scheme() == "https",
                url.host_str()?,
                url.port_or_known_default()?,
                source,
                timeouts,
            ),
            base_path: url.path().trim_end_matches('/').to_owned(),
            host_header: host_header.ok()?,
            attachment,
            caps,
            websockets,
            metrics: METRICS.route(&manifest.name),
        },
    })
}

fn read_credential(
    s: &mut Section<'_>,
    manifest: &ManifestFile,
    warnings: &mut Vec<Problem>,
) -> Credential {
    let kind = s
        .take::<String>("auth_type")
        .unwrap_or_else(|| "none".to_owned());
    let key = s
        .take::<String>("auth_key_name")
        .filter(|key| !key.is_empty());
    let header = s.take::<String>("auth_header_name");
    let query = s.take::<String>("auth_query_name");
    let prefix = s.take::<String>("auth_value_prefix").unwrap_or_default();
    if !matches!(kind.as_str(), "bearer" | "header" | "query" | "basic") {
        match kind.as_str() {
            "none" => {}
            "oauth2" | "url" => warnings.push(
                Problem::new(format!(
                    "auth_type '{kind}' adds nothing to a passthrough request"
                ))
                .file(&manifest.path)
                .key("auth_type"),
            ),
            _ => s.problem("auth_type", format!("unknown auth type '{kind}'")),
        }
        return Credential::None;
    }
    let Some(key) = key else {
        s.problem("auth_key_name", format!("auth_type '{kind}' needs it"));
        return Credential::None;
    };
    match kind.as_str() {
        "bearer" => Credential::Bearer { key },
        "basic" => Credential::Basic { key },
        "query" => Credential::Query {
            key,
            name: query.unwrap_or_else(|| "api_key".to_owned()),
        },
        _ => {
            let name = header.unwrap_or_else(|| "X-Api-Key".to_owned());
            match HeaderName::try_from(&name) {
                Ok(name) => Credential::Header { key, name, prefix },
                Err(_) => {
                    s.problem("auth_header_name", format!("'{name}' is not a header name"));
                    Credential::None
                }
            }
        }
    }
}

fn read_extra_headers(s: &mut Section<'_>) -> Vec<(HeaderName, Template)> {
    let raw = s
        .take::<BTreeMap<String, String>>("extra_headers")
        .unwrap_or_default();
    let mut headers = Vec::new();
    for (name, value) in raw {
        match HeaderName::try_from(&name) {
            Ok(name) => headers.push((name, Template::parse(&value))),
            Err(_) => s.problem("extra_headers", format!("'{name}' is not a header name")),
        }
    }
    headers
}

/// A route whose key is missing forwards without it, as it always did, but loudly.
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
    use super::*;
    use std::path::PathBuf;

    fn compile_text(text: &str) -> (Option<Compiled>, Vec<String>, Vec<String>) {
        let manifest = ManifestFile {
            path: PathBuf::from("m.toml"),
            name: "m".into(),
            handler: "passthrough".into(),
            provider: text.parse().unwrap(),
        };
        let (mut problems, mut warnings) = (Vec::new(), Vec::new());
        let egress = egress::Settings::default();
        let compiled = compile(
            &manifest,
            &Keyring::empty(),
            &egress,
            &mut HashMap::new(),
            &mut problems,
            &mut warnings,
        );
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
    fn the_words_of_existing_deployments() {
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
    fn a_typo_never_opens_a_door() {
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
    fn a_missing_key_is_a_warning() {
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
    fn denied_paths_cover_what_is_below() {
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
        for fine in ["/administrator", "/private", "/x", "/", "/php"] {
            assert!(ask(fine).is_ok(), "{fine}");
        }
    }

    #[test]
    fn targets() {
        let route = route("path_prefix = '/svc'\npath_replace = ['/old', '/new']");
        let path = route.rewrite("/svc/old/a%2fb", "/svc/old/a/b").unwrap();
        let target = |query| String::from_utf8(route.target(&path.path, query, true)).unwrap();
        assert_eq!(target(None), "/v1/new/a%2fb");
        assert_eq!(target(Some("x=1&y")), "/v1/new/a%2fb?x=1&y");
        assert_eq!(route.host_header, "up.example");
        assert_eq!((route.upstream.tls, route.upstream.port), (true, 443));
    }
}
