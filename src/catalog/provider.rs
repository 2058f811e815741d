//! `[provider]` of a manifest, typed: what every handler has, and a variant for each.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::atip::Atip;
use super::cli::{Cli, ProgramKeys};
use super::cmp::Cmp;
use super::effects::KnownEffects;
use super::files::{self, FileManager};
use super::mcp::{Mcp, Transport};
use super::openapi::Selection;
use super::outbound::{BaseUrl, Inject, Outbound, Program, is_credential};
use super::result_format::ResultFormat;
use super::runfile::RunfileProvider;
use super::sandbox;
use crate::config::fields;
use crate::config::provider::Auth;
use crate::config::{HandlerKind, ManifestFile, Origin, Section};
use crate::credential::Template;
use crate::egress;
use crate::error::{Intro, Problem};
use crate::process::Sandbox;

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
    /// The variable that holds a caller's token for this provider, instead of `ATI_SESSION_TOKEN`.
    pub session_token_env: Option<String>,
    pub kind: HandlerKind,
    pub handler: Handler,
    pub outbound: Outbound,
    /// What its programs may reach; everything that ati's user may where there is none.
    pub sandbox: Option<Sandbox>,
    /// Names of keyring entries whose values stand in a URL or in a program's environment. Answers
    /// may repeat them, so they are redacted.
    pub embedded_keys: Vec<String>,
    pub file: PathBuf,
    /// When a provider of the provider cache expires.
    expires: Option<Instant>,
}

/// What only one handler has.
#[derive(Debug)]
pub enum Handler {
    /// `http` and `xai`: tools that the manifest writes down.
    Http(BaseUrl),
    /// HTTP tools that a document describes.
    OpenApi(Box<OpenApi>),
    /// Tools that an MCP server lists.
    Mcp(Box<Mcp>),
    /// A program that ati runs for each call.
    Cli(Box<Cli>),
    /// A program whose commands are tools.
    Atip(Box<Atip>),
    /// Downloads, and uploads to these destinations.
    FileManager(FileManager),
    /// Programs that describe themselves by CMP.
    Cmp(Box<Cmp>),
    /// Functions of a Runfile.
    Runfile(Box<RunfileProvider>),
    /// Routes, no tools.
    Passthrough,
    /// A handler that this build doesn't have: no tools.
    Absent,
}

#[derive(Debug)]
pub struct OpenApi {
    pub base_url: BaseUrl,
    /// A file's name below `specs/`.
    pub spec: String,
    pub selection: Selection,
    /// By operation id.
    pub overrides: BTreeMap<String, Override>,
}

impl OpenApi {
    fn read(s: &mut Section<'_>, base_url: BaseUrl) -> Self {
        OpenApi {
            base_url,
            spec: s.take("openapi_spec").unwrap_or_default(),
            selection: Selection {
                include_operations: s.take("openapi_include_operations").unwrap_or_default(),
                exclude_operations: s.take("openapi_exclude_operations").unwrap_or_default(),
                include_tags: s.take("openapi_include_tags").unwrap_or_default(),
                exclude_tags: s.take("openapi_exclude_tags").unwrap_or_default(),
                most: s.take("openapi_max_operations"),
            },
            overrides: overrides(s),
        }
    }
}

fn overrides(s: &mut Section<'_>) -> BTreeMap<String, Override> {
    let overrides: BTreeMap<String, Override> = s.take("openapi_overrides").unwrap_or_default();
    for (id, over) in &overrides {
        for problem in over.effects().1 {
            s.problem(&format!("openapi_overrides.{id}.effects"), problem);
        }
    }
    overrides
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
    pub response_format: Option<String>,
    /// In the words of ATIP.
    pub effects: Option<serde_json::Value>,
}

impl Override {
    /// The operator's word about the effects, and what can't be read of it.
    pub fn effects(&self) -> (Option<KnownEffects>, Vec<String>) {
        match &self.effects {
            Some(value) => KnownEffects::of_operator(value),
            None => (None, Vec::new()),
        }
    }

    pub fn format(&self) -> ResultFormat {
        let name = self.response_format.as_deref();
        name.and_then(ResultFormat::named).unwrap_or_default()
    }
}

impl Provider {
    /// Every problem of the table is reported. The provider is returned all the same, so that the
    /// problems of its tools are found too.
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
        let mut provider = Provider::read_common(index, manifest, &mut s);
        check_url_env(&mut s, manifest);
        if let Some(absence) = manifest.handler.absence() {
            let problem = Problem::new(absence).file(&manifest.path);
            warnings.push(problem.key("provider.handler"));
            provider.handler = Handler::Absent;
        } else if manifest.handler != HandlerKind::Passthrough {
            provider.outbound = Outbound::read(&mut s, &manifest.handler, egress, warnings);
            provider.read_handler(&mut s, warnings);
            provider.sandbox = sandbox::read(&mut s);
            if manifest.handler == HandlerKind::OpenApi || !manifest.tools.is_empty() {
                warnings.extend(provider.unusable_base_url());
            }
            // Fields of other handlers have no effect here, and do no harm.
            for key in fields::names("provider") {
                s.ignore(key);
            }
            s.finish_leniently(warnings);
            provider.warn(warnings);
        }
        problems.extend(
            found
                .into_iter()
                .map(|problem| problem.intro(Intro::InvalidManifest)),
        );
        provider
    }

    fn read_common(index: usize, manifest: &ManifestFile, s: &mut Section<'_>) -> Self {
        Provider {
            index,
            name: manifest.name.clone(),
            description: s.take("description").unwrap_or_default(),
            category: s.take("category"),
            internal: s.take("internal").unwrap_or(false),
            skills: s.take("skills").unwrap_or_default(),
            session_token_env: s.take("auth_session_token_env"),
            kind: manifest.handler.clone(),
            handler: Handler::Passthrough,
            outbound: Outbound::default(),
            sandbox: None,
            embedded_keys: Vec::new(),
            file: manifest.path.clone(),
            expires: match manifest.origin {
                Origin::Permanent => None,
                Origin::Cached { remaining_seconds } => {
                    Instant::now().checked_add(Duration::from_secs(remaining_seconds))
                }
            },
        }
    }

    /// Compiles the fields of the handler: one arm for each.
    fn read_handler(&mut self, s: &mut Section<'_>, warnings: &mut Vec<Problem>) {
        let base_url: String = s.take("base_url").unwrap_or_default();
        let base_url = BaseUrl::with_keys_if(&self.outbound.auth, base_url);
        let owned = |keys: Vec<&str>| keys.into_iter().map(str::to_owned).collect();
        (self.embedded_keys, self.handler) = match &self.kind {
            HandlerKind::Http | HandlerKind::Xai => {
                (owned(base_url.keys().collect()), Handler::Http(base_url))
            }
            HandlerKind::OpenApi => {
                let openapi = OpenApi::read(s, base_url);
                for (id, over) in &openapi.overrides {
                    let name = over.response_format.as_deref();
                    if let Some(fault) = name.and_then(ResultFormat::fault) {
                        let problem = Problem::new(fault).file(&self.file);
                        let key = format!("provider.openapi_overrides.{id}.response_format");
                        warnings.push(problem.key(key));
                    }
                }
                let keys = owned(openapi.base_url.keys().collect());
                (keys, Handler::OpenApi(Box::new(openapi)))
            }
            HandlerKind::Mcp => {
                let mcp = Mcp::read(s);
                if let Some(key) = mcp.lacks() {
                    let message = "without it there is no server, and there are no tools";
                    let problem = Problem::new(message).file(&self.file);
                    warnings.push(problem.key(format!("provider.{key}")));
                }
                (owned(mcp.keys()), Handler::Mcp(Box::new(mcp)))
            }
            HandlerKind::Cli => {
                let cli = Cli::read(s, ProgramKeys::CLI);
                let faults = cli.faults().into_iter();
                warnings.extend(faults.map(|fault| fault.file(&self.file)));
                self.ignore_auth("cli_env", warnings);
                (owned(cli.keys()), Handler::Cli(Box::new(cli)))
            }
            HandlerKind::Cmp => {
                let cmp = Cmp::read(s, &self.file);
                (owned(cmp.program.keys()), Handler::Cmp(Box::new(cmp)))
            }
            HandlerKind::Runfile => {
                let runfile = RunfileProvider::read(s, &self.file);
                (
                    owned(runfile.program.keys()),
                    Handler::Runfile(Box::new(runfile)),
                )
            }
            HandlerKind::Atip => {
                let atip = Atip::read(s);
                let faults = atip.cli.faults().into_iter();
                warnings.extend(faults.map(|fault| fault.file(&self.file)));
                self.ignore_auth("atip_env", warnings);
                (owned(atip.cli.keys()), Handler::Atip(Box::new(atip)))
            }
            HandlerKind::Passthrough => (Vec::new(), Handler::Passthrough),
            HandlerKind::FileManager => {
                let manager = FileManager::read(s, warnings);
                (owned(manager.keys()), Handler::FileManager(manager))
            }
            HandlerKind::Unknown(_) => (Vec::new(), Handler::Absent),
        };
    }

    /// Why no request of its HTTP tools can be sent, if it is for the URL. Existing manifests load
    /// with it, so it is a warning.
    fn unusable_base_url(&self) -> Option<Problem> {
        let base_url = self.base_url()?;
        let message = match base_url.text.trim() {
            "" => "it is not set, and every call of its tools will fail",
            text if base_url.keys().next().is_some() || is_url(text) => return None,
            _ => "it is no http:// or https:// URL, and every call of its tools will fail",
        };
        let problem = Problem::new(message).file(&self.file);
        Some(problem.key("provider.base_url"))
    }

    /// Whether its time in the provider cache is over.
    pub fn is_expired(&self) -> bool {
        self.expires.is_some_and(|end| end <= Instant::now())
    }

    /// Where its HTTP tools are.
    pub fn base_url(&self) -> Option<&BaseUrl> {
        match &self.handler {
            Handler::Http(base_url) => Some(base_url),
            Handler::OpenApi(openapi) => Some(&openapi.base_url),
            _ => None,
        }
    }

    /// Whether it is there without a manifest.
    pub fn is_builtin(&self) -> bool {
        files::is_builtin(&self.file)
    }

    /// Its URL as the manifest has it, for messages and cache keys; empty where there is none.
    pub fn url_text(&self) -> &str {
        match (&self.handler, self.base_url()) {
            (Handler::Mcp(mcp), _) => mcp.url_text(),
            (_, Some(base_url)) => &base_url.text,
            (_, None) => "",
        }
    }

    pub fn mcp(&self) -> Option<&Mcp> {
        match &self.handler {
            Handler::Mcp(mcp) => Some(mcp),
            _ => None,
        }
    }

    /// Its program, where it has one to run.
    pub fn cli(&self) -> Option<&Cli> {
        match &self.handler {
            Handler::Cli(cli) if !cli.command.is_empty() => Some(cli),
            Handler::Atip(atip) if !atip.cli.command.is_empty() => Some(&atip.cli),
            _ => None,
        }
    }

    /// How its programs run, of whatever handler it is.
    pub fn program(&self) -> Option<&Cli> {
        match &self.handler {
            Handler::Cmp(cmp) => Some(&cmp.program),
            Handler::Runfile(runfile) => Some(&runfile.program),
            _ => self.cli(),
        }
    }

    /// Names of the keyring entries that its tools need.
    pub fn key_names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.outbound.header_keys().collect();
        names.extend(self.embedded_keys.iter().map(String::as_str));
        names.extend(self.outbound.credential_keys());
        names
    }

    /// Whether the `[[tools]]` of its manifest are its tools.
    pub fn has_written_tools(&self) -> bool {
        match &self.handler {
            Handler::Http(_) | Handler::Mcp(_) | Handler::FileManager(_) => true,
            Handler::Cli(cli) => !cli.command.is_empty(),
            Handler::OpenApi(_)
            | Handler::Atip(_)
            | Handler::Cmp(_)
            | Handler::Runfile(_)
            | Handler::Passthrough
            | Handler::Absent => false,
        }
    }

    /// The handler, as manifests write it.
    pub fn handler_name(&self) -> &str {
        self.kind.name()
    }

    /// Whether ati runs programs for it.
    pub fn starts_program(&self) -> bool {
        match (&self.handler, &self.kind) {
            (Handler::Mcp(mcp), _) => matches!(mcp.transport, Transport::Stdio { .. }),
            (_, kind) => matches!(
                kind,
                HandlerKind::Cli | HandlerKind::Atip | HandlerKind::Cmp | HandlerKind::Runfile
            ),
        }
    }

    /// A program has no request that a credential could be attached to.
    fn ignore_auth(&mut self, env: &str, warnings: &mut Vec<Problem>) {
        if !matches!(self.outbound.auth, Auth::None) {
            let message = format!("it has no effect: a program gets its credentials by {env}");
            let problem = Problem::new(message).file(&self.file);
            warnings.push(problem.key("provider.auth_type"));
            self.outbound.auth = Auth::None;
        }
    }

    fn warn(&self, warnings: &mut Vec<Problem>) {
        if self.sandbox.is_some() && !self.starts_program() {
            let message = "ati starts no program for this provider, so that nothing is confined";
            let problem = Problem::new(message).file(&self.file);
            warnings.push(problem.key(format!("provider.{}", sandbox::KEY)));
        }
        let Some(generator) = &self.outbound.generator else {
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
        // A program may get what is minted as variables.
        let unused = !self.starts_program()
            && self.mcp().is_none()
            && !matches!(self.outbound.auth, Auth::Static(_));
        let to_header = |to: &Inject| matches!(to, Inject::Header(_));
        if unused && !generator.inject.iter().any(|(_, to)| to_header(to)) {
            warn("with this auth_type and no injected header, what it mints is not used");
        }
    }
}

fn is_url(text: &str) -> bool {
    url::Url::parse(text).is_ok_and(|url| egress::is_http_url(&url))
}

/// `mcp_url_env`, with the messages of existing deployments.
fn check_url_env(s: &mut Section<'_>, manifest: &ManifestFile) {
    const KEY: &str = "mcp_url_env";
    let text = |key: &str| manifest.provider.get(key).and_then(toml::Value::as_str);
    let Some(name) = text(KEY) else {
        return;
    };
    let over_http = manifest.handler == HandlerKind::Mcp && text("mcp_transport") == Some("http");
    if name.trim().is_empty() {
        s.problem_about(KEY, "mcp_url_env must not be empty when set");
    } else if !is_variable(name) {
        let message = format!("mcp_url_env '{name}' is not a valid POSIX env var name");
        s.problem_about(KEY, &message);
    } else if !over_http {
        let message = "mcp_url_env requires handler = \"mcp\" and mcp_transport = \"http\"";
        s.problem_about(KEY, message);
    }
}

/// Letters, digits and `_`, and no digit in front.
fn is_variable(name: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.chars().all(word) && !name.starts_with(|c: char| c.is_ascii_digit())
}
