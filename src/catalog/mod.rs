//! The catalogue: manifests compiled to [`Tool`]s, found by name in one hash lookup.

pub mod atip;
pub mod captures;
pub mod cli;
pub mod cmp;
mod cost;
pub mod effects;
pub mod files;
mod in_order;
mod invocation;
pub mod json_reader;
pub mod listing_cache;
pub mod mcp;
pub mod nearest;
pub mod openapi;
pub mod outbound;
pub mod provider;
pub mod result_format;
pub mod runfile;
mod sandbox;
pub mod schema;
pub mod search;
mod specs;
#[cfg(test)]
mod tests;
pub mod tool;
mod unlisted;
pub mod words;

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use foldhash::fast::RandomState;

pub use invocation::{Dialect, HttpInvocation, Invocation, McpInvocation};
pub use provider::{Handler, Provider};
pub use result_format::ResultFormat;
pub use specs::Specs;
pub use tool::Tool;
pub use unlisted::Unlisted;

use crate::auth::Scopes;
use crate::config::{ManifestFile, Origin};
use crate::egress;
use crate::error::Problem;
use mcp::{Listing, Listings};
use provider::OpenApi;

/// The providers and tools of one snapshot.
#[derive(Default)]
pub struct Catalog {
    providers: Vec<Arc<Provider>>,
    tools: Vec<Arc<Tool>>,
    by_name: HashMap<String, usize, RandomState>,
    public: usize,
    /// The tools as the manifests have them, before MCP servers have listed theirs.
    written: Arc<[Arc<Tool>]>,
    /// The lists of MCP servers.
    listings: Listings,
    /// Providers without tools because their OpenAPI document can't be read.
    unreadable: Vec<String>,
    /// The places of the tools in the order of their names; made at the first listing.
    by_order: OnceLock<Box<[usize]>>,
    fingerprint: OnceLock<String>,
    /// Made at the first search, or by a server when it loads.
    index: OnceLock<search::Index>,
    /// The file tools without a manifest are offered to no caller.
    files_withheld: bool,
}

impl Catalog {
    /// Compiles the manifests, in the order of their names. Of two tools with the same name the
    /// later one wins.
    pub fn build(
        manifests: &mut [ManifestFile],
        specs: &Specs<'_>,
        egress: Option<&egress::Settings>,
        problems: &mut Vec<Problem>,
        warnings: &mut Vec<Problem>,
    ) -> Self {
        let mut catalog = Catalog::default();
        for manifest in manifests {
            for key in &manifest.unknown {
                warnings.push(Problem::new("unknown key").file(&manifest.path).key(key));
            }
            let index = catalog.providers.len();
            let mut own = Vec::new();
            let provider = Provider::read(index, manifest, egress, &mut own, warnings);
            if manifest.origin != Origin::Permanent && !own.is_empty() {
                // A provider of the provider cache must not keep the others from starting.
                warnings.extend(own);
                continue;
            }
            problems.extend(own);
            let provider = Arc::new(provider);
            let tables = std::mem::take(&mut manifest.tools);
            if let Handler::OpenApi(openapi) = &provider.handler {
                let inline = manifest.spec.take();
                catalog.add_operations(&provider, openapi, specs, inline, warnings);
                catalog.override_effects(&provider, tables, specs, problems, warnings);
            } else if let Handler::Atip(atip) = &provider.handler {
                catalog.add_commands(&provider, atip, specs, warnings);
                catalog.override_effects(&provider, tables, specs, problems, warnings);
            } else if let Some(tools) = own_tools(&provider, &tables, specs, warnings) {
                tools
                    .into_iter()
                    .for_each(|tool| catalog.add(tool, warnings));
                catalog.override_effects(&provider, tables, specs, problems, warnings);
            } else if provider.has_written_tools() {
                for (index, table) in tables.into_iter().enumerate() {
                    let tool =
                        Tool::read(&manifest.path, index, table, &provider, problems, warnings);
                    if let Some(tool) = tool {
                        catalog.add(tool, warnings);
                    }
                }
            }
            catalog.providers.push(provider);
        }
        catalog.written = catalog.tools.as_slice().into();
        catalog.public = catalog.public().count();
        catalog
    }

    /// The same catalogue with the tools that MCP servers list. Description and schema come from
    /// the server; scope, tags and hints from the manifest.
    pub fn with_listings(&self, listings: &Listings) -> Self {
        let mut catalog = Catalog {
            providers: self.providers.clone(),
            unreadable: self.unreadable.clone(),
            written: self.written.clone(),
            listings: listings.clone(),
            files_withheld: self.files_withheld,
            ..Catalog::default()
        };
        for tool in self.written.iter() {
            catalog
                .by_name
                .insert(tool.name.clone(), catalog.tools.len());
            catalog.tools.push(tool.clone());
        }
        for provider in self.providers.iter().filter(|one| one.mcp().is_some()) {
            let Some(listing) = listings.get(&provider.name) else {
                continue;
            };
            let before = self.listings.get(&provider.name);
            let unchanged = before.is_some_and(|before| Arc::ptr_eq(before, listing));
            let written = self.written.iter();
            let written: Vec<_> = written
                .filter(|tool| tool.provider.name == provider.name)
                .collect();
            for (name, listed) in listing.named(&provider.name) {
                if let Some(tool) = self.listed_before(&name, provider).filter(|_| unchanged) {
                    catalog.put_listed(tool.clone());
                    continue;
                }
                let tool = Tool::of_listed(name, listed, provider);
                let named = |one: &&&Arc<Tool>| one.name == tool.name;
                // The manifest may have another name for it.
                let remote = tool.invocation.listed_endpoint();
                let meant = |one: &&&Arc<Tool>| one.invocation.listed_endpoint() == remote;
                let known = written.iter().find(named);
                let tool = match known.or_else(|| written.iter().find(meant)) {
                    Some(written) => written.as_listed(tool),
                    None => tool,
                };
                catalog.put_listed(Arc::new(tool));
            }
        }
        catalog.public = catalog.public().count();
        catalog.adopt_index(self);
        catalog
    }

    /// The tool of this name that this provider's server has listed.
    fn listed_before(&self, name: &str, provider: &Provider) -> Option<&Arc<Tool>> {
        let tool = &self.tools[*self.by_name.get(name)?];
        Some(tool).filter(|tool| tool.provider.name == provider.name)
    }

    fn put_listed(&mut self, tool: Arc<Tool>) {
        match self.by_name.get(&tool.name) {
            Some(&known) if self.tools[known].provider.name == tool.provider.name => {
                self.tools[known] = tool;
            }
            // A server can't replace another provider's tool.
            Some(_) => {}
            None => {
                self.by_name.insert(tool.name.clone(), self.tools.len());
                self.tools.push(tool);
            }
        }
    }

    /// The last list of this provider's server.
    pub fn listing(&self, provider: &str) -> Option<&Arc<Listing>> {
        self.listings.get(provider)
    }

    /// A document that can't be read is a warning: the provider has no tools then.
    fn add_operations(
        &mut self,
        provider: &Arc<Provider>,
        openapi: &OpenApi,
        specs: &Specs<'_>,
        inline: Option<String>,
        warnings: &mut Vec<Problem>,
    ) {
        if !specs.wants(&provider.name) {
            return;
        }
        let survey = match specs.survey(provider, openapi, inline) {
            Ok(survey) => survey,
            Err(why) => {
                self.unreadable.push(provider.name.clone());
                let message = format!("{why}; its tools are absent");
                let key = "provider.openapi_spec";
                warnings.push(Problem::new(message).file(&provider.file).key(key));
                return;
            }
        };
        for operation in survey.operations {
            let over = operation
                .original_id
                .as_ref()
                .and_then(|id| openapi.overrides.get(id))
                .or_else(|| openapi.overrides.get(&operation.id));
            self.add(Tool::of_operation(operation, provider, over), warnings);
        }
    }

    /// What `[[tools]]` say about the effects of tools that come from somewhere else.
    fn override_effects(
        &mut self,
        provider: &Provider,
        tables: Vec<toml::Table>,
        specs: &Specs<'_>,
        problems: &mut Vec<Problem>,
        warnings: &mut Vec<Problem>,
    ) {
        if specs.wants(&provider.name) {
            for table in tables {
                tool::override_effects(&mut self.tools, table, provider, problems, warnings);
            }
        }
    }

    /// As with a document: without metadata the provider has no tools.
    fn add_commands(
        &mut self,
        provider: &Arc<Provider>,
        atip: &atip::Atip,
        specs: &Specs<'_>,
        warnings: &mut Vec<Problem>,
    ) {
        if !specs.wants(&provider.name) {
            return;
        }
        let folders = &specs.agent_tools;
        match atip::load(provider, atip, specs.may_run, folders, warnings) {
            Ok(tools) => tools.into_iter().for_each(|tool| self.add(tool, warnings)),
            Err(why) => {
                self.unreadable.push(provider.name.clone());
                let message = format!("{why}; its tools are absent");
                let key = "provider.atip_command";
                warnings.push(Problem::new(message).file(&provider.file).key(key));
            }
        }
    }

    /// Providers that had tools in `old` and lose them, because their document can't be read any
    /// more.
    pub fn lost_since(&self, old: &Catalog) -> Vec<&str> {
        let had = |name: &str| old.tools.iter().any(|tool| tool.provider.name == name);
        let unreadable = self.unreadable.iter().map(String::as_str);
        unreadable.filter(|name| had(name)).collect()
    }

    fn add(&mut self, tool: Tool, warnings: &mut Vec<Problem>) {
        let tool = Arc::new(tool);
        match self.by_name.get(&tool.name) {
            None => {
                self.by_name.insert(tool.name.clone(), self.tools.len());
                self.tools.push(tool);
            }
            Some(&known) => {
                let before = self.tools[known].provider.file.display();
                let message = format!("replaces the tool of the same name in {before}");
                warnings.push(
                    Problem::new(message)
                        .file(&tool.provider.file)
                        .key(format!("tools.{}", tool.name)),
                );
                self.tools[known] = tool;
            }
        }
    }

    pub fn providers(&self) -> &[Arc<Provider>] {
        &self.providers
    }

    pub fn tools(&self) -> &[Arc<Tool>] {
        &self.tools
    }

    pub fn has(&self, provider: &str) -> bool {
        self.providers.iter().any(|known| known.name == provider)
    }

    pub fn public_count(&self) -> usize {
        self.public
    }

    /// Whether manifests have tools to call, now or once an MCP server has listed its own. The file
    /// tools that are there without a manifest don't count.
    pub fn offers_tools(&self) -> bool {
        let mut providers = self.providers.iter();
        self.public().any(|tool| !tool.provider.is_builtin())
            || providers.any(|one| one.mcp().is_some() && !one.internal)
    }

    /// Offers the file tools that are there without a manifest to no caller. They still count.
    pub fn withhold_files(&mut self) {
        self.files_withheld = true;
    }

    /// Whether no caller may call this tool, whatever its scopes.
    pub fn is_withheld(&self, tool: &Tool) -> bool {
        self.files_withheld && tool.provider.is_builtin()
    }

    /// Tools that are listed: not internal, not expired.
    pub fn public(&self) -> impl Iterator<Item = &Arc<Tool>> {
        let tools = self.tools.iter();
        tools.filter(|tool| !tool.provider.internal && !tool.provider.is_expired())
    }

    /// Tools that a caller with these scopes may use.
    pub fn visible<'a>(&'a self, scopes: &'a Scopes) -> impl Iterator<Item = &'a Arc<Tool>> {
        let tools = self.public().filter(|tool| tool.is_allowed(scopes));
        tools.filter(|tool| !self.is_withheld(tool))
    }

    /// By name, or by an alias in which a `_` or a `__` stands for the `:` between provider and
    /// tool.
    pub fn find(&self, name: &str) -> Option<&Arc<Tool>> {
        if name.len() > tool::LONGEST_NAME {
            return None;
        }
        let by_alias = |mark: &str| {
            name.match_indices(mark).find_map(|(at, mark)| {
                let (provider, own) = (&name[..at], &name[at + mark.len()..]);
                self.exactly(&format!("{provider}:{own}"))
            })
        };
        self.exactly(name)
            .or_else(|| by_alias("_"))
            .or_else(|| by_alias("__"))
    }

    fn exactly(&self, name: &str) -> Option<&Arc<Tool>> {
        let tool = &self.tools[*self.by_name.get(name)?];
        Some(tool).filter(|tool| !tool.provider.internal && !tool.provider.is_expired())
    }

    /// Compiles every schema now, so that a server reports unusable ones at its start.
    pub fn compile_schemas(&self, warnings: &mut Vec<Problem>) {
        warnings.extend(self.tools.iter().flat_map(|tool| tool.schema_faults()));
    }

    #[cfg(test)]
    pub fn from_text(text: &str) -> Self {
        let (mut problems, mut warnings) = (Vec::new(), Vec::new());
        let mut manifests = [ManifestFile::from_text("m.toml", text)];
        let egress = egress::Settings::default();
        let catalog = Catalog::build(
            &mut manifests,
            &Specs::none(),
            Some(&egress),
            &mut problems,
            &mut warnings,
        );
        assert!(problems.is_empty(), "{problems:?}");
        catalog
    }
}

/// The tools of a provider that has them from somewhere else than its manifest's tables.
fn own_tools(
    provider: &Arc<Provider>,
    tables: &[toml::Table],
    specs: &Specs<'_>,
    warnings: &mut Vec<Problem>,
) -> Option<Vec<Tool>> {
    match &provider.handler {
        Handler::Cli(_) if provider.cli().is_some() && tables.is_empty() => {
            Some(vec![Tool::of_program(provider)])
        }
        Handler::FileManager(_) if tables.is_empty() => {
            Some(files::builtin_tools(provider).collect())
        }
        Handler::Cmp(_) | Handler::Runfile(_) if !specs.wants(&provider.name) => Some(Vec::new()),
        Handler::Cmp(cmp) => Some(cmp::tools(provider, cmp, warnings)),
        Handler::Runfile(own) => Some(runfile::tools(provider, own, warnings)),
        _ => None,
    }
}

impl Tool {
    /// What search groups it under: its own, or its provider's.
    pub fn category(&self) -> Option<&str> {
        let provider = self.provider.category.as_deref();
        provider.or_else(|| self.invocation.category())
    }

    pub fn is_allowed(&self, scopes: &Scopes) -> bool {
        self.scope
            .as_deref()
            .is_none_or(|scope| scopes.allow(scope) || scopes.allow_category(self.category()))
    }
}
