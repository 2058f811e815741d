//! How requests of a provider authenticate and leave: the same for every handler.

use std::collections::BTreeMap;
use std::net::IpAddr;

use http::HeaderName;
use serde::Deserialize;

use crate::config::provider::{self, Auth};
use crate::config::{HandlerKind, Section};
use crate::credential::{Credential, Template};
use crate::egress;
use crate::error::Problem;

/// The credential and the source address, as a manifest names them.
#[derive(Debug)]
pub struct Outbound {
    pub auth: Auth,
    pub generator: Option<Generator>,
    pub extra_headers: Vec<(HeaderName, Template)>,
    /// The address that connections come from.
    pub source: Option<IpAddr>,
}

impl Default for Outbound {
    fn default() -> Self {
        Outbound {
            auth: Auth::None,
            generator: None,
            extra_headers: Vec::new(),
            source: None,
        }
    }
}

impl Outbound {
    pub(super) fn read(
        s: &mut Section<'_>,
        kind: &HandlerKind,
        egress: Option<&egress::Settings>,
        warnings: &mut Vec<Problem>,
    ) -> Self {
        let generated = s.has("auth_generator");
        let default_header = match kind {
            HandlerKind::Mcp => "Authorization",
            _ => provider::DEFAULT_HEADER,
        };
        let auth = match provider::read_auth(s, generated, default_header) {
            // A tool's key may be the user name alone; routes expect `user:password`.
            Auth::Static(Credential::Basic { key }) => Auth::Static(Credential::BasicUser { key }),
            auth => auth,
        };
        Outbound {
            auth,
            generator: Generator::read(s, warnings),
            extra_headers: provider::read_extra_headers(s),
            source: provider::read_source(s, egress),
        }
    }

    /// Names of the keyring entries in the extra headers.
    pub fn header_keys(&self) -> impl Iterator<Item = &str> {
        self.extra_headers
            .iter()
            .flat_map(|(_, template)| template.keys())
    }

    /// Names of the keyring entries that the credential is made of. A generator takes the place of
    /// the others.
    pub fn credential_keys(&self) -> Vec<&str> {
        if let Some(generator) = &self.generator {
            return generator.key_names().collect();
        }
        match &self.auth {
            Auth::None | Auth::Url => Vec::new(),
            Auth::Static(credential) => credential.key().into_iter().collect(),
            Auth::OAuth2(oauth) => vec![&oauth.id_key, &oauth.secret_key],
        }
    }

    /// The credential, where it comes from the keyring as it is.
    pub fn static_credential(&self) -> &Credential {
        match &self.auth {
            Auth::Static(credential) => credential,
            Auth::None | Auth::OAuth2(_) | Auth::Url => &Credential::None,
        }
    }
}

/// A URL of a manifest.
#[derive(Debug, Default, Hash)]
pub struct BaseUrl {
    /// As the manifest has it: what messages may show.
    pub text: String,
    /// Where `${key}` in it stands for a keyring entry.
    pub template: Option<Template>,
    /// Where no call changes it, and paths can be appended as they are.
    pub base: Option<egress::Base>,
}

impl BaseUrl {
    /// For handlers whose URLs hold keys only with `auth_type = "url"`.
    pub fn with_keys_if(auth: &Auth, text: String) -> Self {
        let template = (*auth == Auth::Url).then(|| Template::parse(&text));
        BaseUrl {
            base: match template {
                None => egress::Base::parse(&text),
                Some(_) => None,
            },
            template,
            text,
        }
    }

    /// For handlers whose URLs may always hold keys.
    pub fn with_keys(text: String) -> Self {
        BaseUrl {
            template: Some(Template::parse(&text)),
            base: None,
            text,
        }
    }

    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.template.iter().flat_map(Template::keys)
    }
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

/// Variables of a generator that are not names of keyring entries.
pub const VARIABLES: [&str; 4] = ["JWT_SUB", "JWT_SCOPE", "TOOL_NAME", "TIMESTAMP"];

pub(super) fn is_credential(name: &str) -> bool {
    !VARIABLES.contains(&name)
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
