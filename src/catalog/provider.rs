//! `[provider]` of a manifest, typed: what every handler has, and a variant for each.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use http::HeaderName;
use serde::Deserialize;

use super::mcp::Mcp;
use super::openapi::Selection;
use crate::config::fields;
use crate::config::provider::{self, Auth};
use crate::config::{ManifestFile, Origin, Section};
use crate::credential::{Credential, Template};
use crate::egress;
use crate::error::{Intro, Problem};

#[derive(Debug)]
pub struct Provider {
    /// Its place among the providers of its catalogue.
    pub index: usize,
    pub name: String,
    pub description: String,
    pub category: Option<String>,
    /// Neither listed nor callable by agents.
    pub internal: bool,
    pub skills: Vec<String>,
    /// The variable that holds a caller's token for this provider, where it isn't the usual one.
    pub session_token_env: Option<String>,
    pub handler: Handler,
    pub file: PathBuf,
    /// When it ends, where it was only meant for a while.
    ends: Option<Instant>,
}

#[derive(Debug)]
pub enum Handler {
    Http(Http),
    /// An HTTP tool that answers with an agent's final text.
    Xai(Http),
    /// HTTP tools that a document describes.
    OpenApi(Box<OpenApi>),
    /// Tools that a server lists.
    Mcp(Box<Mcp>),
    /// Routes, not tools.
    Passthrough,
    /// Known by name; its tools are absent.
    Absent(String),
}

#[derive(Debug)]
pub struct Http {
    pub base_url: String,
    /// The same with its keys, where `auth_type = "url"` says that it has some.
    pub url: Option<Template>,
    pub auth: Auth,
    pub generator: Option<Generator>,
    pub extra_headers: Vec<(HeaderName, Template)>,
    /// Where connections come from.
    pub source: Option<IpAddr>,
}

#[derive(Debug)]
pub struct OpenApi {
    pub http: Http,
    /// A file's name below `specs/`.
    pub spec: String,
    pub selection: Selection,
    /// By operation id.
    pub overrides: BTreeMap<String, Override>,
}

/// `[provider.openapi_overrides.<operationId>]`.
#[derive(Debug, Default, Deserialize)]
pub struct Override {
    pub hint: Option<String>,
    pub description: Option<String>,
    #[serde(default)]
    pub tags: Vec<String>,
    pub scope: Option<String>,
    pub response_extract: Option<String>,
    /// Known, and without effect: only `--output` decides how a result looks.
    pub response_format: Option<String>,
}

/// `[provider.auth_generator]`: a program that mints credentials.
#[derive(Debug)]
pub struct Generator {
    pub program: Program,
    pub env: Vec<(String, Template)>,
    /// Seconds; 0 keeps nothing.
    pub cache_ttl: u64,
    pub json: bool,
    /// Dot paths into its JSON, and where what is there goes.
    pub inject: Vec<(String, Inject)>,
    pub timeout: u64,
}

#[derive(Debug, Hash)]
pub enum Program {
    Command {
        command: String,
        args: Vec<Template>,
    },
    Script {
        interpreter: String,
        script: String,
    },
}

#[derive(Debug, PartialEq, Eq, Hash)]
pub enum Inject {
    Header(HeaderName),
    Env(String),
    Primary,
}

impl Provider {
    /// Every problem of the table is reported; what could be read is returned all the same, so that its tools are looked at too.
    pub fn read(
        index: usize,
        manifest: &ManifestFile,
        egress: Option<&egress::Settings>,
        problems: &mut Vec<Problem>,
        warnings: &mut Vec<Problem>,
    ) -> Self {
        let mut found = Vec::new();
        let mut s = Section::item(
            &manifest.path,
            "provider",
            manifest.provider.clone(),
            &mut found,
        );
        s.ignore("name");
        s.ignore("handler");
        let mut provider = Provider {
            index,
            name: manifest.name.clone(),
            description: s.take("description").unwrap_or_default(),
            category: s.take("category"),
            internal: s.take("internal").unwrap_or(false),
            skills: s.take("skills").unwrap_or_default(),
            session_token_env: s.take("auth_session_token_env"),
            handler: Handler::Passthrough,
            file: manifest.path.clone(),
            ends: match manifest.origin {
                Origin::Permanent => None,
                Origin::Cached { remaining_seconds } => {
                    Instant::now().checked_add(Duration::from_secs(remaining_seconds))
                }
            },
        };
        match manifest.handler.as_str() {
            // Routes read the rest, and are strict about it.
            "passthrough" => return provider,
            kind @ ("http" | "xai") => {
                let http = Http::read(&mut s, egress, warnings);
                provider.handler = match kind {
                    "xai" => Handler::Xai(http),
                    _ => Handler::Http(http),
                };
                // What other handlers read means nothing here, and harms nothing.
                for key in fields::names("provider") {
                    s.ignore(key);
                }
                s.finish_leniently(warnings);
                provider.warn(warnings);
            }
            "openapi" => {
                let http = Http::read(&mut s, egress, warnings);
                provider.handler = Handler::OpenApi(Box::new(OpenApi {
                    http,
                    spec: s.take("openapi_spec").unwrap_or_default(),
                    selection: Selection {
                        include_operations: s
                            .take("openapi_include_operations")
                            .unwrap_or_default(),
                        exclude_operations: s
                            .take("openapi_exclude_operations")
                            .unwrap_or_default(),
                        include_tags: s.take("openapi_include_tags").unwrap_or_default(),
                        exclude_tags: s.take("openapi_exclude_tags").unwrap_or_default(),
                        most: s.take("openapi_max_operations"),
                    },
                    overrides: s.take("openapi_overrides").unwrap_or_default(),
                }));
                // What other handlers read means nothing here, and harms nothing.
                for key in fields::names("provider") {
                    s.ignore(key);
                }
                s.finish_leniently(warnings);
                provider.warn(warnings);
            }
            "mcp" => {
                let mcp = Mcp::read(&mut s, egress, warnings);
                if let Some(key) = mcp.lacks() {
                    let message = "without it there is no server, and there are no tools";
                    let problem = Problem::new(message).file(&manifest.path);
                    warnings.push(problem.key(format!("provider.{key}")));
                }
                provider.handler = Handler::Mcp(Box::new(mcp));
                for key in fields::names("provider") {
                    s.ignore(key);
                }
                s.finish_leniently(warnings);
                provider.warn(warnings);
            }
            other => {
                provider.handler = Handler::Absent(other.to_owned());
                warnings.push(
                    Problem::new(format!(
                        "handler '{other}' is not part of this build; its tools are absent"
                    ))
                    .file(&manifest.path)
                    .key("provider.handler"),
                );
            }
        }
        problems.extend(
            found
                .into_iter()
                .map(|problem| problem.intro(Intro::InvalidManifest)),
        );
        provider
    }

    /// Whether its time is over.
    pub fn is_over(&self) -> bool {
        self.ends.is_some_and(|end| end <= Instant::now())
    }

    pub fn http(&self) -> Option<&Http> {
        match &self.handler {
            Handler::Http(http) | Handler::Xai(http) => Some(http),
            Handler::OpenApi(openapi) => Some(&openapi.http),
            Handler::Mcp(_) | Handler::Passthrough | Handler::Absent(_) => None,
        }
    }

    pub fn mcp(&self) -> Option<&Mcp> {
        match &self.handler {
            Handler::Mcp(mcp) => Some(mcp),
            _ => None,
        }
    }

    /// What it presents, whichever its handler.
    pub fn presents(&self) -> Option<&Http> {
        self.http().or_else(|| self.mcp().map(|mcp| &mcp.http))
    }

    /// Names of the keyring that its tools need.
    pub fn key_names(&self) -> Vec<&str> {
        match &self.handler {
            Handler::Mcp(mcp) => mcp.key_names(),
            _ => self.http().map(Http::key_names).unwrap_or_default(),
        }
    }

    /// Whether `[[tools]]` of its manifest are its tools.
    pub fn has_written_tools(&self) -> bool {
        matches!(
            self.handler,
            Handler::Http(_) | Handler::Xai(_) | Handler::Mcp(_)
        )
    }

    /// The word for its handler, as manifests write it.
    pub fn handler_name(&self) -> &str {
        match &self.handler {
            Handler::Http(_) => "http",
            Handler::Xai(_) => "xai",
            Handler::OpenApi(_) => "openapi",
            Handler::Mcp(_) => "mcp",
            Handler::Passthrough => "passthrough",
            Handler::Absent(name) => name,
        }
    }

    fn warn(&self, warnings: &mut Vec<Problem>) {
        let Some(generator) = self.presents().and_then(|http| http.generator.as_ref()) else {
            return;
        };
        let mut warn = |message: &str| {
            warnings.push(
                Problem::new(message)
                    .file(&self.file)
                    .key("provider.auth_generator"),
            );
        };
        if let Program::Command { args, .. } = &generator.program
            && args.iter().flat_map(Template::keys).any(is_credential)
        {
            warn(
                "a credential in args can be seen by every user of this machine; env is the place for it",
            );
        }
        let unused = self
            .http()
            .is_some_and(|http| !matches!(http.auth, Auth::Static(_)));
        if unused
            && !generator
                .inject
                .iter()
                .any(|(_, to)| matches!(to, Inject::Header(_)))
        {
            warn("with this auth_type and no injected header, what it mints is not used");
        }
    }
}

/// Variables of a generator that aren't names of the keyring.
pub const VARIABLES: [&str; 4] = ["JWT_SUB", "JWT_SCOPE", "TOOL_NAME", "TIMESTAMP"];

fn is_credential(name: &str) -> bool {
    !VARIABLES.contains(&name)
}

impl Http {
    pub(super) fn read(
        s: &mut Section<'_>,
        egress: Option<&egress::Settings>,
        warnings: &mut Vec<Problem>,
    ) -> Self {
        let generated = s.has("auth_generator");
        let auth = match provider::read_auth(s, generated) {
            // Tools have always sent the key as the user name; only routes expect `user:password`.
            Auth::Static(Credential::Basic { key }) => Auth::Static(Credential::BasicUser { key }),
            auth => auth,
        };
        let base_url: String = s.take("base_url").unwrap_or_default();
        Http {
            url: (auth == Auth::Url).then(|| Template::parse(&base_url)),
            base_url,
            auth,
            generator: Generator::read(s, warnings),
            extra_headers: provider::read_extra_headers(s),
            source: provider::read_source(s, egress),
        }
    }

    /// Names of the keyring that a call needs.
    pub fn key_names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self
            .extra_headers
            .iter()
            .flat_map(|(_, template)| template.keys())
            .collect();
        if let Some(url) = &self.url {
            names.extend(url.keys());
        }
        if let Some(generator) = &self.generator {
            names.extend(generator.key_names());
            return names;
        }
        match &self.auth {
            Auth::None | Auth::Url => {}
            Auth::Static(credential) => names.extend(credential.key()),
            Auth::OAuth2(oauth) => names.extend([oauth.id_key.as_str(), oauth.secret_key.as_str()]),
        }
        names
    }
}

#[derive(Deserialize)]
struct RawInject {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    name: String,
}

impl Generator {
    fn read(s: &mut Section<'_>, warnings: &mut Vec<Problem>) -> Option<Self> {
        if !s.has("auth_generator") {
            s.ignore("auth_generator");
            return None;
        }
        let mut s = s.section("auth_generator");
        let kind: String = s.take("type").unwrap_or_default();
        let command: Option<String> = s.take("command");
        let args: Vec<String> = s.take("args").unwrap_or_default();
        let interpreter: Option<String> = s.take("interpreter");
        let script: Option<String> = s.take("script");
        let format: String = s.take("output_format").unwrap_or_else(|| "text".to_owned());
        let env: BTreeMap<String, String> = s.take("env").unwrap_or_default();
        let inject: BTreeMap<String, RawInject> = s.take("inject").unwrap_or_default();
        let cache_ttl = s.take("cache_ttl_secs").unwrap_or(0);
        let timeout = s.take("timeout_secs").unwrap_or(30);
        if !matches!(format.as_str(), "text" | "json") {
            s.problem("output_format", "expected 'text' or 'json'");
        }
        let program = match (kind.as_str(), command, script) {
            ("command", Some(command), _) => Program::Command {
                command,
                args: args.iter().map(|arg| Template::parse(arg)).collect(),
            },
            ("script", _, Some(script)) => Program::Script {
                interpreter: interpreter.unwrap_or_else(|| "bash".to_owned()),
                script,
            },
            ("command", ..) => missing(&mut s, "command", "type 'command' needs it"),
            ("script", ..) => missing(&mut s, "script", "type 'script' needs it"),
            _ => missing(&mut s, "type", "expected 'command' or 'script'"),
        };
        let inject = inject
            .into_iter()
            .map(|(path, to)| {
                let to = read_inject(&mut s, &path, to);
                (path, to)
            })
            .collect();
        s.finish_leniently(warnings);
        Some(Generator {
            program,
            env: env
                .into_iter()
                .map(|(name, value)| (name, Template::parse(&value)))
                .collect(),
            cache_ttl,
            json: format == "json",
            inject,
            timeout,
        })
    }

    fn templates(&self) -> impl Iterator<Item = &Template> {
        let args: &[Template] = match &self.program {
            Program::Command { args, .. } => args,
            Program::Script { .. } => &[],
        };
        args.iter()
            .chain(self.env.iter().map(|(_, template)| template))
    }

    pub fn key_names(&self) -> impl Iterator<Item = &str> {
        self.templates()
            .flat_map(Template::keys)
            .filter(|name| is_credential(name))
    }
}

fn missing(s: &mut Section<'_>, key: &str, message: &str) -> Program {
    s.problem(key, message);
    Program::Script {
        interpreter: String::new(),
        script: String::new(),
    }
}

fn read_inject(s: &mut Section<'_>, path: &str, to: RawInject) -> Inject {
    match to.kind.as_str() {
        "header" => HeaderName::try_from(&to.name).map_or_else(
            |_| {
                let message = format!("'{}' is not a header name", to.name);
                s.problem(&format!("inject.{path}.name"), message);
                Inject::Primary
            },
            Inject::Header,
        ),
        "env" => Inject::Env(to.name),
        _ => Inject::Primary,
    }
}
