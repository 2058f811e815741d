//! A manifest that a skill brings along: `provider.toml`. It is shown, and wants the caller's word,
//! where it does more than HTTP requests of its own tools.

use std::path::Path;

use super::super::local::Local;
use super::super::{output, problem_failure};
use crate::catalog::files::PROVIDER as BUILT_IN;
use crate::catalog::mcp::Transport;
use crate::catalog::{Catalog, Handler, Provider, Specs};
use crate::config::{self, HandlerKind, is_provider_name};
use crate::error::{Code, Failure};
use crate::files;
use crate::skills::PROVIDER;

const LONGEST: u64 = 1 << 20;

/// A manifest that can be installed.
pub struct BundledProvider {
    pub name: String,
    text: Vec<u8>,
    /// Names of the keyring entries that its tools use.
    pub keys: Vec<String>,
    /// What it may not do without the caller's word.
    risks: Vec<String>,
}

/// What became of it.
pub enum Outcome {
    Written(std::path::PathBuf),
    /// There is one of the same name.
    Kept,
}

impl BundledProvider {
    /// The manifest of a skill's folder, if it has one.
    pub fn of(folder: &Path) -> Result<Option<Self>, Failure> {
        let path = folder.join(PROVIDER);
        let text = match files::read_beneath(folder, Path::new(PROVIDER), LONGEST) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(super::super::file_failure(Code::InvalidValue, &path, e)),
        };
        let read = config::read_manifest(&path);
        let manifest = read.map_err(|problem| problem_failure(Code::InvalidValue, &problem))?;
        let name = manifest.name.clone();
        if !is_provider_name(&name) {
            let message = format!("{PROVIDER}: '{name}' is no name for a provider");
            return Err(Failure::invalid(message));
        }
        let dir = config::ati_dir();
        let (mut problems, mut warnings) = (Vec::new(), Vec::new());
        let mut manifests = [manifest];
        let specs = Specs::of(&dir);
        let catalog = Catalog::build(&mut manifests, &specs, None, &mut problems, &mut warnings);
        if !problems.is_empty() {
            return Err(Failure::from_problems(PROVIDER, &problems));
        }
        let provider = catalog.providers().first();
        let mut risks: Vec<String> = provider.and_then(|one| risk(one)).into_iter().collect();
        risks.extend(replaced(&catalog));
        let keys = provider.map(|one| one.key_names()).unwrap_or_default();
        Ok(Some(BundledProvider {
            name,
            text,
            keys: keys.into_iter().map(str::to_owned).collect(),
            risks,
        }))
    }

    /// What the caller has to allow.
    pub fn risks(&self) -> &[String] {
        &self.risks
    }

    /// Shows it on stderr.
    pub fn show(&self, title: &str) {
        output::note(&format!("{title}:\n"));
        for line in String::from_utf8_lossy(&self.text).lines() {
            output::note(&format!("  {}", output::printable(line)));
        }
        output::note("");
    }

    /// Refuses what the caller has to allow, after showing it.
    pub fn check(&self, skill: &str, allowed: bool) -> Result<(), Failure> {
        if self.risks.is_empty() || allowed || self.is_installed() {
            return Ok(());
        }
        self.show(&format!("{PROVIDER} of '{skill}'"));
        let risks = self.risks.join("; ");
        let message = format!("the provider '{}' of skill '{skill}' {risks}", self.name);
        Err(Failure::invalid(message)
            .hint("nothing was installed; --allow-provider installs it with its provider"))
    }

    pub fn is_installed(&self) -> bool {
        let dir = config::ati_dir();
        let known = config::read_manifests(&dir, &mut Vec::new());
        known.iter().any(|manifest| manifest.name == self.name) || self.path().exists()
    }

    fn path(&self) -> std::path::PathBuf {
        let file = format!("{}.toml", self.name);
        config::ati_dir().join("manifests").join(file)
    }

    /// Writes it, unless there is one of the same name.
    pub fn install(&self) -> Result<Outcome, Failure> {
        if self.is_installed() {
            return Ok(Outcome::Kept);
        }
        let path = self.path();
        let failed = |e| super::super::file_failure(Code::ExecutionFailed, &path, e);
        if let Some(folder) = path.parent() {
            files::create_private_dir(folder).map_err(failed)?;
        }
        files::write_atomic(&path, &self.text, 0o600).map_err(failed)?;
        Ok(Outcome::Written(path))
    }
}

/// What a provider does besides requests of its tools. A handler that isn't known to be harmless
/// is taken for one that starts programs.
fn risk(provider: &Provider) -> Option<String> {
    if provider.outbound.generator.is_some() {
        return Some("runs a program for its credential (auth_generator)".to_owned());
    }
    match &provider.handler {
        Handler::Http(_) | Handler::OpenApi(_) => None,
        Handler::Mcp(mcp) if !matches!(mcp.transport, Transport::Stdio { .. }) => None,
        Handler::Mcp(_) => Some("starts a program (an MCP server over stdio)".to_owned()),
        Handler::Cli(cli) => Some(format!(
            "starts a program ('{}')",
            output::printable(&cli.command)
        )),
        Handler::Passthrough if provider.kind == HandlerKind::Passthrough => {
            Some("opens a route (passthrough)".to_owned())
        }
        _ => Some(format!("has the handler '{}'", provider.handler_name())),
    }
}

/// Of two tools with the same name the later one wins: a stranger's must not take the place of one
/// that is there, whether a manifest or ati itself has it. Nothing of a provider that is installed
/// is replaced: its manifest stays.
fn replaced(catalog: &Catalog) -> Option<String> {
    let own = catalog.providers().first()?;
    if own.name == BUILT_IN {
        return Some(format!("replaces the built-in provider '{BUILT_IN}'"));
    }
    let known = match Local::load_catalog() {
        Ok(known) => known,
        Err(e) => {
            return Some(format!(
                "can't be compared with the tools that are there ({e})"
            ));
        }
    };
    let mut tools = catalog.tools().iter();
    let replaced = tools.find(|tool| {
        let is_there = known.tools().iter().any(|other| other.name == tool.name);
        // Also by another spelling: `file_manager_upload`.
        is_there || known.find(&tool.name).is_some()
    })?;
    Some(format!("replaces the tool '{}'", replaced.name))
}
