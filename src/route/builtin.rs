//! The built-in endpoints, and the paths that they are found under.

use http::Method;

/// The built-in endpoints, in the order of [`ENDPOINTS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Builtin {
    Health,
    Jwks,
    Call,
    Mcp,
    Help,
    Tools,
    Tool,
    Skills,
    SkillsResolve,
    SkillsBundle,
    Skill,
    SkillBundle,
    RemoteCatalog,
    RemoteSkill,
    RemoteResources,
    RemoteFile,
    RemoteReferences,
    RemoteReference,
    AdminKeys,
    AdminKeysIssue,
    AdminKeysBulkRevoke,
    AdminKey,
    ProtectedResource,
    Files,
    File,
    McpProvider,
    Explain,
}

impl Builtin {
    /// The path as documentation and metrics show it.
    pub fn label(self) -> &'static str {
        ENDPOINTS[self as usize].label
    }
}

/// What a caller must prove. Endpoints and routes both have one; `filters::admit` enforces it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guard {
    /// The sandbox's signature, and no identity.
    Signature,
    /// The signature, and a token wherever token keys are configured.
    Token,
    /// The admin bearer alone: no signature, no token.
    Admin,
    /// Nothing: a client that has neither a key nor a token learns here where to get one.
    Open,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Endpoint {
    pub kind: Builtin,
    /// The path as documentation and metrics show it.
    pub label: &'static str,
    pub allow: &'static str,
    pub guard: Guard,
}

impl Endpoint {
    /// Whether a route with this path goes first: existing deployments may have one there.
    pub fn yields(&self) -> bool {
        matches!(
            self.kind,
            Builtin::Files
                | Builtin::File
                | Builtin::ProtectedResource
                | Builtin::McpProvider
                | Builtin::Explain
        )
    }

    /// Whether tools are called there.
    pub fn calls_tools(&self) -> bool {
        matches!(
            self.kind,
            Builtin::Call | Builtin::Mcp | Builtin::McpProvider
        )
    }

    pub fn allows(&self, method: &Method) -> bool {
        self.allow
            .split(',')
            .any(|allowed| allowed == method.as_str())
    }
}

const fn endpoint(
    kind: Builtin,
    label: &'static str,
    allow: &'static str,
    guard: Guard,
) -> Endpoint {
    Endpoint {
        kind,
        label,
        allow,
        guard,
    }
}

const READ: &str = "GET,HEAD";
const WRITE: &str = "POST";
const PROTECTED_RESOURCE: &str = "/.well-known/oauth-protected-resource";

/// Where files are put.
pub const FILES: &str = "/files";
/// An MCP server as it is. Also its name in metrics and spans.
pub const MCP_PROVIDER: &str = "/mcp/{provider}";

pub static ENDPOINTS: [Endpoint; 27] = [
    endpoint(Builtin::Health, "/health", READ, Guard::Signature),
    endpoint(
        Builtin::Jwks,
        "/.well-known/jwks.json",
        READ,
        Guard::Signature,
    ),
    endpoint(Builtin::Call, "/call", WRITE, Guard::Token),
    endpoint(Builtin::Mcp, "/mcp", WRITE, Guard::Token),
    endpoint(Builtin::Help, "/help", WRITE, Guard::Token),
    endpoint(Builtin::Tools, "/tools", READ, Guard::Token),
    endpoint(Builtin::Tool, "/tools/{name}", READ, Guard::Token),
    endpoint(Builtin::Skills, "/skills", READ, Guard::Token),
    endpoint(
        Builtin::SkillsResolve,
        "/skills/resolve",
        WRITE,
        Guard::Token,
    ),
    endpoint(Builtin::SkillsBundle, "/skills/bundle", WRITE, Guard::Token),
    endpoint(Builtin::Skill, "/skills/{name}", READ, Guard::Token),
    endpoint(
        Builtin::SkillBundle,
        "/skills/{name}/bundle",
        READ,
        Guard::Token,
    ),
    endpoint(
        Builtin::RemoteCatalog,
        "/skillati/catalog",
        READ,
        Guard::Token,
    ),
    endpoint(Builtin::RemoteSkill, "/skillati/{name}", READ, Guard::Token),
    endpoint(
        Builtin::RemoteResources,
        "/skillati/{name}/resources",
        READ,
        Guard::Token,
    ),
    endpoint(
        Builtin::RemoteFile,
        "/skillati/{name}/file",
        READ,
        Guard::Token,
    ),
    endpoint(
        Builtin::RemoteReferences,
        "/skillati/{name}/refs",
        READ,
        Guard::Token,
    ),
    endpoint(
        Builtin::RemoteReference,
        "/skillati/{name}/ref/{reference}",
        READ,
        Guard::Token,
    ),
    endpoint(Builtin::AdminKeys, "/admin/keys", READ, Guard::Admin),
    endpoint(
        Builtin::AdminKeysIssue,
        "/admin/keys/issue",
        WRITE,
        Guard::Admin,
    ),
    endpoint(
        Builtin::AdminKeysBulkRevoke,
        "/admin/keys/bulk-revoke",
        WRITE,
        Guard::Admin,
    ),
    endpoint(
        Builtin::AdminKey,
        "/admin/keys/{hash}",
        "GET,HEAD,DELETE",
        Guard::Admin,
    ),
    endpoint(
        Builtin::ProtectedResource,
        PROTECTED_RESOURCE,
        READ,
        Guard::Open,
    ),
    endpoint(Builtin::Files, FILES, "PUT", Guard::Token),
    // No HEAD: a file can be taken once.
    endpoint(Builtin::File, "/files/{id}", "GET", Guard::Token),
    endpoint(
        Builtin::McpProvider,
        MCP_PROVIDER,
        "POST,GET,DELETE",
        Guard::Token,
    ),
    endpoint(Builtin::Explain, "/explain", WRITE, Guard::Token),
];

/// The endpoint of a path. Most requests are for upstreams: they take one comparison of their
/// first segment.
pub fn find(path: &str) -> Option<&'static Endpoint> {
    let (first, rest) = match path.strip_prefix('/')?.split_once('/') {
        Some((first, rest)) => (first, Some(rest)),
        None => (&path[1..], None),
    };
    let kind = match (first, rest) {
        ("health", None) => Builtin::Health,
        (".well-known", Some("jwks.json")) => Builtin::Jwks,
        (".well-known", Some(_)) if is_protected_resource(path) => Builtin::ProtectedResource,
        ("call", None) => Builtin::Call,
        ("mcp", None) => Builtin::Mcp,
        ("mcp", Some(provider)) if is_segment(provider) => Builtin::McpProvider,
        ("help", None) => Builtin::Help,
        ("explain", None) => Builtin::Explain,
        ("tools", None) => Builtin::Tools,
        ("tools", Some(name)) if is_segment(name) => Builtin::Tool,
        ("skills", None) => Builtin::Skills,
        ("skills", Some(rest)) => skills(rest)?,
        ("skillati", Some(rest)) => remote(rest)?,
        ("admin", Some(rest)) => admin(rest)?,
        ("files", None) => Builtin::Files,
        ("files", Some(id)) if is_segment(id) => Builtin::File,
        _ => return None,
    };
    Some(&ENDPOINTS[kind as usize])
}

/// Whether a path is below one of ati's own, where no route applies even if no endpoint answers.
pub fn is_reserved(path: &str) -> bool {
    ["/tools", "/skills", "/skillati", "/admin/keys"]
        .iter()
        .any(|own| {
            path.strip_prefix(own)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
}

fn skills(rest: &str) -> Option<Builtin> {
    match rest.split_once('/') {
        None if rest == "resolve" => Some(Builtin::SkillsResolve),
        None if rest == "bundle" => Some(Builtin::SkillsBundle),
        None if is_segment(rest) => Some(Builtin::Skill),
        Some((name, "bundle")) if is_segment(name) => Some(Builtin::SkillBundle),
        _ => None,
    }
}

fn remote(rest: &str) -> Option<Builtin> {
    match rest.split_once('/') {
        None if rest == "catalog" => Some(Builtin::RemoteCatalog),
        None if is_segment(rest) => Some(Builtin::RemoteSkill),
        Some((_, "resources")) => Some(Builtin::RemoteResources),
        Some((_, "file")) => Some(Builtin::RemoteFile),
        Some((_, "refs")) => Some(Builtin::RemoteReferences),
        Some((_, more)) => more
            .strip_prefix("ref/")
            // References may be in folders.
            .filter(|reference| !reference.is_empty())
            .map(|_| Builtin::RemoteReference),
        None => None,
    }
}

fn admin(rest: &str) -> Option<Builtin> {
    match rest.split_once('/') {
        None if rest == "keys" => Some(Builtin::AdminKeys),
        Some(("keys", "issue")) => Some(Builtin::AdminKeysIssue),
        Some(("keys", "bulk-revoke")) => Some(Builtin::AdminKeysBulkRevoke),
        Some(("keys", hash)) if is_segment(hash) => Some(Builtin::AdminKey),
        _ => None,
    }
}

/// RFC 9728 has the path of the resource behind that of the metadata.
fn is_protected_resource(path: &str) -> bool {
    let below = path.strip_prefix(PROTECTED_RESOURCE);
    below.is_some_and(|below| {
        let provider = below.strip_prefix("/mcp/");
        below.is_empty() || below == "/mcp" || provider.is_some_and(is_segment)
    })
}

fn is_segment(text: &str) -> bool {
    !text.is_empty() && !text.contains('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoint_stands_at_the_index_of_its_kind() {
        for (index, endpoint) in ENDPOINTS.iter().enumerate() {
            assert_eq!(endpoint.kind as usize, index);
        }
    }

    #[test]
    fn endpoint_is_found_under_its_label() {
        for endpoint in &ENDPOINTS {
            let path = endpoint
                .label
                .replace("{name}", "x:y")
                .replace("{reference}", "r.md")
                .replace("{hash}", "abc")
                .replace("{id}", "abc");
            assert_eq!(find(&path), Some(endpoint), "{path}");
        }
    }

    #[test]
    fn similar_path_is_no_endpoint() {
        for path in [
            "/",
            "",
            "/health/",
            "/healthz",
            "/calls",
            "/tools/",
            "/tools/a/b",
            "/skills/a/b",
            "/skillati",
            "/skillati/a/ref/",
            "/admin",
            "/admin/keys/a/b",
            "/.well-known",
            "/mcp/",
            "/mcp/x/y",
        ] {
            assert_eq!(find(path), None, "{path}");
        }
    }
}
