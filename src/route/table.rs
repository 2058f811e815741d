use std::collections::HashMap;
use std::sync::Arc;

use super::builtin::{self, Endpoint};
use super::manifest::{Compiled, Compiler};
use super::passthrough::Route;
use crate::config::ManifestFile;
use crate::egress;
use crate::error::{Intro, Problem};
use crate::keyring::Keyring;
use crate::telemetry::metrics::{METRICS, RouteMetrics};

type Lookup<V> = HashMap<String, V, foldhash::fast::RandomState>;

/// What a host and a path lead to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Match {
    Endpoint(&'static Endpoint),
    /// One of the table's routes.
    Route(usize),
    Nothing,
}

pub struct Table {
    builtins: Vec<Arc<RouteMetrics>>,
    unmatched: Arc<RouteMetrics>,
    routes: Vec<Route>,
    /// Routes for one host, and those for any.
    by_host: Lookup<Prefixes>,
    any_host: Prefixes,
}

/// Routes by path prefix. A path is looked up by its own prefixes, longest first, never by going through the routes.
#[derive(Default)]
struct Prefixes {
    routes: Lookup<usize>,
    /// The most segments that any prefix here has: a long path isn't asked about more often than that.
    depth: usize,
}

impl Prefixes {
    fn find(&self, path: &str) -> Option<usize> {
        let mut end = nth_slash(path, self.depth + 1).unwrap_or(path.len());
        loop {
            if let Some(route) = self.routes.get(&path[..end]) {
                return Some(*route);
            }
            end = path[..end].rfind('/')?;
        }
    }
}

/// Where the nth slash stands, counted from one.
fn nth_slash(path: &str, n: usize) -> Option<usize> {
    path.bytes()
        .enumerate()
        .filter(|(_, byte)| *byte == b'/')
        .nth(n - 1)
        .map(|(at, _)| at)
}

impl Table {
    /// Compile the passthrough manifests. Where passthrough is off they are checked all the same, and lead nowhere.
    pub fn build(
        manifests: &[ManifestFile],
        enabled: bool,
        keyring: &Keyring,
        egress: &egress::Settings,
        problems: &mut Vec<Problem>,
        warnings: &mut Vec<Problem>,
    ) -> Self {
        let mut table = Table::default();
        let mut compiler = Compiler::new(keyring, egress, problems, warnings);
        for manifest in manifests
            .iter()
            .filter(|m| m.handler == crate::config::HandlerKind::Passthrough)
        {
            if let Some(compiled) = compiler.compile(manifest)
                && enabled
            {
                table.add(compiled, manifest, compiler.problems);
            }
        }
        table
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
            problems.push(problem.intro(Intro::InvalidManifest));
        }
        self.routes.push(route);
    }

    /// By the decoded path and the request's host. ATI's own paths come first, then routes for this host, then those for any.
    pub fn find(&self, host: Option<&str>, path: &str) -> Match {
        if let Some(endpoint) = builtin::find(path) {
            return Match::Endpoint(endpoint);
        }
        if self.routes.is_empty() || builtin::is_reserved(path) {
            return Match::Nothing;
        }
        let of_host = || {
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
        of_host()
            .or_else(|| self.any_host.find(path))
            .map_or(Match::Nothing, Match::Route)
    }

    /// Take over what an older table knows about its upstreams' addresses: a reload must not depend on a nameserver.
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

    pub fn route(&self, index: usize) -> &Route {
        &self.routes[index]
    }

    /// Where its routes lead, as URLs.
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

    pub fn len(&self) -> usize {
        self.routes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }

    pub fn metrics(&self, found: Match) -> &Arc<RouteMetrics> {
        match found {
            Match::Endpoint(endpoint) => &self.builtins[endpoint.kind as usize],
            Match::Route(index) => &self.routes[index].metrics,
            Match::Nothing => &self.unmatched,
        }
    }
}

/// With nothing but ATI's own paths.
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
        }
    }
}

/// A `Host` without its port, and an IPv6 address without its brackets.
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
            Match::Route(index) => table.route(index).name.clone(),
            Match::Endpoint(endpoint) => endpoint.label.to_owned(),
            Match::Nothing => "-".to_owned(),
        }
    }

    #[test]
    fn host_first_then_the_longest_prefix_on_a_segment_boundary() {
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
    fn our_own_paths_win() {
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
    fn the_same_route_twice_is_a_problem() {
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
    fn a_path_is_looked_up_as_often_as_prefixes_are_deep() {
        let (table, _) = table(&[("a", None, Some("/a"))]);
        let path = "/x".repeat(500_000);
        assert_eq!(table.find(None, &path), Match::Nothing);
    }

    #[test]
    fn hosts() {
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
