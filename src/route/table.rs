use std::collections::HashMap;
use std::sync::Arc;

use super::builtin::{self, Endpoint, Guard};
use super::credential::CredentialFault;
use super::manifest::{Compiled, Compiler};
use super::passthrough::Route;
use crate::config::ManifestFile;
use crate::credential::{self, Attachment, PerCustomer};
use crate::egress;
use crate::error::{Intro, Problem};
use crate::keyring::Keyring;
use crate::telemetry::metrics::{METRICS, RouteMetrics};

type Lookup<V> = HashMap<String, V, foldhash::fast::RandomState>;

/// What a host and a path lead to.
#[derive(Clone, Copy)]
pub enum Match<'a> {
    Endpoint(&'static Endpoint),
    Route(&'a Arc<Route>),
    Nothing,
}

impl Match<'_> {
    /// An unknown path has the guard of a tool endpoint: only a caller with a token learns which
    /// paths exist.
    pub fn guard(self) -> Guard {
        match self {
            Match::Endpoint(endpoint) => endpoint.guard,
            Match::Route(route) => route.guard,
            Match::Nothing => Guard::Token,
        }
    }
}

pub struct Table {
    builtins: Vec<Arc<RouteMetrics>>,
    unmatched: Arc<RouteMetrics>,
    routes: Vec<Arc<Route>>,
    /// Routes with a `host_match`, by host, and routes without.
    by_host: Lookup<Prefixes>,
    any_host: Prefixes,
    /// Of customers that have credentials of their own.
    of_customers: PerCustomer,
}

/// Routes by path prefix, as a hash table. A path is looked up by its own prefixes, longest first,
/// so that the number of routes doesn't matter.
#[derive(Clone, Default)]
struct Prefixes {
    routes: Lookup<usize>,
    /// The number of segments of the longest prefix. It bounds the lookups for a long path.
    depth: usize,
}

impl Prefixes {
    fn find(&self, path: &str) -> Option<usize> {
        self.candidates(path)
            .find_map(|prefix| self.routes.get(prefix).copied())
    }

    /// The prefixes of `path` that are looked up, longest first.
    fn candidates<'p>(&self, path: &'p str) -> impl Iterator<Item = &'p str> {
        let end = nth_slash(path, self.depth + 1).unwrap_or(path.len());
        std::iter::successors(Some(&path[..end]), |prefix| {
            memchr::memrchr(b'/', prefix.as_bytes()).map(|end| &prefix[..end])
        })
    }
}

/// The position of the nth slash, counted from one.
fn nth_slash(path: &str, n: usize) -> Option<usize> {
    path.bytes()
        .enumerate()
        .filter(|(_, byte)| *byte == b'/')
        .nth(n - 1)
        .map(|(at, _)| at)
}

impl Table {
    /// Compiles the passthrough manifests. Where passthrough is off they are checked too, but not
    /// added.
    pub fn build(
        manifests: &[ManifestFile],
        enabled: bool,
        keyring: &Keyring,
        egress: &egress::Settings,
        problems: &mut Vec<Problem>,
        warnings: &mut Vec<Problem>,
    ) -> Self {
        let mut table = Table::default();
        let mut off = Vec::new();
        let mut compiler = Compiler::new(keyring, egress, problems, warnings);
        for manifest in manifests
            .iter()
            .filter(|m| m.handler == crate::config::HandlerKind::Passthrough)
        {
            match compiler.compile(manifest) {
                Some(compiled) if enabled => table.add(compiled, manifest, compiler.problems),
                Some(_) => off.push(manifest.name.as_str()),
                None => {}
            }
        }
        if !off.is_empty() {
            let message = format!("passthrough is off, and not served are: {}", off.join(", "));
            let fix = "--enable-passthrough, or [passthrough] enabled = true in the conf file";
            let problem = Problem::new(format!("{message} ({fix})"));
            warnings.push(problem.advice("manifests", fix));
        }
        table
    }

    /// The names of the routes that add a credential to requests.
    pub fn with_credentials(&self) -> impl Iterator<Item = &str> {
        let routes = self.routes.iter();
        let routes = routes.filter(|route| route.attachment.has_credential());
        routes.map(|route| route.name.as_str())
    }

    /// The same routes with the credentials of another keyring.
    pub fn with_keyring(&self, keyring: &Keyring) -> Self {
        let mut resolved = HashMap::new();
        let routes = self.routes.iter().map(|route| {
            let known = resolved.entry(route.credential.index());
            let known = known.or_insert_with(|| route.credential.resolve_shared(keyring));
            let (attachment, fault) = known.clone();
            Arc::new(Route {
                attachment,
                fault,
                ..Route::clone(route)
            })
        });
        Table {
            builtins: self.builtins.clone(),
            unmatched: self.unmatched.clone(),
            routes: routes.collect(),
            by_host: self.by_host.clone(),
            any_host: self.any_host.clone(),
            of_customers: PerCustomer::default(),
        }
    }

    /// The credential of this customer, where it has one of its own. An error where what would be
    /// sent can't be: nothing else takes its place.
    pub fn own_attachment(
        &self,
        route: &Route,
        customer: Option<&str>,
        keyring: &Keyring,
    ) -> Result<Option<Arc<Attachment>>, CredentialFault> {
        let lookup = credential::Lookup::passthrough(keyring, customer);
        let own = lookup.customer();
        let own = own.filter(|_| lookup.is_special(|| route.credential.key_names()));
        let Some(customer) = own else {
            return route.fault.clone().map_or(Ok(None), Err);
        };
        let resolve = || route.credential.resolve_for(&lookup);
        let index = route.credential.index();
        let known = self.of_customers.get_or_resolve(index, customer, resolve);
        known.map(Some)
    }

    fn add(&mut self, compiled: Compiled, manifest: &ManifestFile, problems: &mut Vec<Problem>) {
        let Compiled { host, route } = compiled;
        let index = self.routes.len();
        let prefix = route.prefix.clone();
        let prefixes = match &host {
            Some(host) => self.by_host.entry(host.clone()).or_default(),
            None => &mut self.any_host,
        };
        prefixes.depth = prefixes.depth.max(prefix.matches('/').count());
        if let Some(other) = prefixes.routes.insert(prefix, index) {
            let message = format!(
                "passthrough provider '{}' has the same host and path_prefix",
                self.routes[other].name
            );
            let problem = Problem::new(message).file(&manifest.path);
            let problem = problem.about("path_prefix");
            problems.push(problem.intro(Intro::InvalidManifest));
        }
        self.routes.push(Arc::new(route));
    }

    /// Looks up the normalised path. Built-in endpoints come first, then routes for this host, then
    /// routes for any host, then endpoints that yield to routes.
    pub fn find(&self, host: Option<&str>, path: &str) -> Match<'_> {
        let endpoint = builtin::find(path);
        if let Some(endpoint) = endpoint.filter(|endpoint| !endpoint.yields()) {
            return Match::Endpoint(endpoint);
        }
        let otherwise = endpoint.map_or(Match::Nothing, Match::Endpoint);
        if self.routes.is_empty() || builtin::is_reserved(path) {
            return otherwise;
        }
        let for_host = || {
            if self.by_host.is_empty() {
                return None;
            }
            let host = host_name(host?);
            let prefixes = match self.by_host.get(host) {
                Some(prefixes) => prefixes,
                None => self.by_host.get(&host.to_ascii_lowercase())?,
            };
            prefixes.find(path)
        };
        for_host()
            .or_else(|| self.any_host.find(path))
            .map_or(otherwise, |index| Match::Route(&self.routes[index]))
    }

    /// Whether `/files` is ati's own for callers of this host, and no route's.
    pub fn serves_files(&self, host: Option<&str>) -> bool {
        matches!(self.find(host, builtin::FILES), Match::Endpoint(_))
    }

    /// Takes over the resolved addresses of upstreams that an older table has too, so that a reload
    /// doesn't depend on a nameserver.
    pub fn adopt(&self, old: &Table) {
        let known: HashMap<_, _> = old
            .routes
            .iter()
            .map(|route| (route.upstream.key(), &route.upstream))
            .collect();
        for route in &self.routes {
            if let Some(old) = known.get(&route.upstream.key()) {
                route.upstream.adopt(old);
            }
        }
    }

    /// The upstreams' origins, as URLs.
    pub fn origins(&self) -> impl Iterator<Item = String> {
        self.routes.iter().map(|route| {
            let upstream = &route.upstream;
            let scheme = if upstream.tls { "https" } else { "http" };
            match upstream.host.contains(':') {
                true => format!("{scheme}://[{}]:{}", upstream.host, upstream.port),
                false => format!("{scheme}://{}:{}", upstream.host, upstream.port),
            }
        })
    }

    /// A table with one route.
    #[cfg(test)]
    pub fn from_text(provider: &str) -> Self {
        let text = format!("[provider]\nname = 'r'\nhandler = 'passthrough'\n{provider}");
        let manifests = [ManifestFile::from_text("r.toml", &text)];
        let (mut problems, egress) = (Vec::new(), egress::Settings::default());
        let keyring = Keyring::empty();
        let table = Table::build(
            &manifests,
            true,
            &keyring,
            &egress,
            &mut problems,
            &mut Vec::new(),
        );
        assert!(problems.is_empty(), "{problems:?}");
        table
    }

    #[cfg(test)]
    pub fn set_guards(&mut self, guard: Guard) {
        for route in &mut self.routes {
            Arc::get_mut(route).unwrap().guard = guard;
        }
    }

    pub fn len(&self) -> usize {
        self.routes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }

    pub fn metrics<'a>(&'a self, found: Match<'a>) -> &'a Arc<RouteMetrics> {
        match found {
            Match::Endpoint(endpoint) => &self.builtins[endpoint.kind as usize],
            Match::Route(route) => &route.metrics,
            Match::Nothing => &self.unmatched,
        }
    }
}

/// Only the built-in endpoints.
impl Default for Table {
    fn default() -> Self {
        Table {
            builtins: builtin::ENDPOINTS
                .iter()
                .map(|endpoint| METRICS.route(endpoint.label))
                .collect(),
            unmatched: METRICS.route("unmatched"),
            routes: Vec::new(),
            by_host: Lookup::default(),
            any_host: Prefixes::default(),
            of_customers: PerCustomer::default(),
        }
    }
}

/// A `Host` header without its port, and without the brackets of an IPv6 address.
pub fn host_name(host: &str) -> &str {
    if let Some(rest) = host.strip_prefix('[') {
        return rest.split(']').next().unwrap_or(rest);
    }
    match host.split_once(':') {
        // More than one colon is a bare IPv6 address.
        Some((name, port)) if !port.contains(':') => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn table(routes: &[(&str, Option<&str>, Option<&str>)]) -> (Table, Vec<Problem>) {
        let manifests: Vec<ManifestFile> = routes
            .iter()
            .map(|(name, host, prefix)| {
                let mut provider = toml::Table::new();
                provider.insert("name".into(), (*name).into());
                provider.insert("base_url".into(), "http://127.0.0.1:1".into());
                if let Some(host) = host {
                    provider.insert("host_match".into(), (*host).into());
                }
                if let Some(prefix) = prefix {
                    provider.insert("path_prefix".into(), (*prefix).into());
                }
                ManifestFile {
                    path: PathBuf::from(format!("{name}.toml")),
                    name: (*name).to_owned(),
                    handler: "passthrough".into(),
                    provider,
                    tools: Vec::new(),
                    unknown: Vec::new(),
                    origin: crate::config::Origin::Permanent,
                    spec: None,
                }
            })
            .collect();
        let mut problems = Vec::new();
        let egress = egress::Settings::default();
        let table = Table::build(
            &manifests,
            true,
            &Keyring::empty(),
            &egress,
            &mut problems,
            &mut Vec::new(),
        );
        (table, problems)
    }

    fn name(table: &Table, host: &str, path: &str) -> String {
        match table.find(Some(host), path) {
            Match::Route(route) => route.name.clone(),
            Match::Endpoint(endpoint) => endpoint.label.to_owned(),
            Match::Nothing => "-".to_owned(),
        }
    }

    #[test]
    fn route_is_found_by_host_then_by_longest_prefix_of_segments() {
        let (table, problems) = table(&[
            ("root", None, Some("/")),
            ("svc", None, Some("/svc/")),
            ("deep", None, Some("/svc/deep/er")),
            ("host", Some("API.example.com"), None),
            ("host-svc", Some("api.example.com"), Some("/svc")),
            ("six", Some("[2001:db8::1]"), Some("/svc")),
        ]);
        assert!(problems.is_empty(), "{problems:?}");
        let find = |host, path| name(&table, host, path);
        assert_eq!(find("x", "/svc"), "svc");
        assert_eq!(find("x", "/svc/a"), "svc");
        assert_eq!(find("x", "/svcs"), "root");
        assert_eq!(find("x", "/svc/deep"), "svc");
        assert_eq!(find("x", "/svc/deep/er/and/er/and/er"), "deep");
        assert_eq!(find("x", "/"), "root");
        assert_eq!(find("api.example.com:8443", "/svc/a"), "host-svc");
        assert_eq!(find("Api.Example.Com", "/other"), "host");
        assert_eq!(find("[2001:db8::1]:80", "/svc/x"), "six");
        assert_eq!(find("[2001:db8::1]", "/else"), "root");
    }

    #[test]
    fn builtin_endpoint_wins_over_a_route() {
        let (table, _) = table(&[
            ("root", None, Some("/")),
            ("host", Some("h"), None),
            ("t", None, Some("/tools")),
        ]);
        assert_eq!(name(&table, "h", "/health"), "/health");
        assert_eq!(name(&table, "x", "/tools/a"), "/tools/{name}");
        assert_eq!(name(&table, "x", "/tools/a/b"), "-");
        assert_eq!(name(&table, "x", "/admin/keys/a/b"), "-");
        assert_eq!(name(&table, "x", "/toolsmith"), "root");
        assert_eq!(name(&table, "x", "/admin/other"), "root");
    }

    #[test]
    fn second_route_with_the_same_host_and_prefix_is_a_problem() {
        let (_, problems) = table(&[("a", None, Some("/svc")), ("b", None, Some("/svc/"))]);
        let text = problems[0].to_string();
        assert!(
            text.starts_with("Manifest b.toml is invalid: ") && text.contains("'a'"),
            "{text}"
        );
        let (_, problems) = table(&[
            ("a", Some("h"), Some("/svc")),
            ("b", Some("H"), Some("/svc")),
        ]);
        assert_eq!(problems.len(), 1);
    }

    #[test]
    fn lookups_of_a_long_path_are_bounded_by_the_longest_prefix() {
        let (table, _) = table(&[("a", None, Some("/a")), ("b", None, Some("/b/c"))]);
        let path = "/x".repeat(500_000);
        let candidates: Vec<_> = table.any_host.candidates(&path).collect();
        assert_eq!(candidates, ["/x/x", "/x", ""]);
        assert!(matches!(table.find(None, &path), Match::Nothing));
    }

    #[test]
    fn host_name_has_no_port_and_no_brackets() {
        for (host, name) in [
            ("a.b", "a.b"),
            ("a.b:80", "a.b"),
            ("[::1]:80", "::1"),
            ("[::1]", "::1"),
            ("::1", "::1"),
        ] {
            assert_eq!(host_name(host), name);
        }
    }
}
