//! `[[tools]]` of a manifest, compiled: everything that a call needs to know about a tool.

use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use serde_json_path::JsonPath;
use toml::Table;

use super::atip::{self, AtipInvocation};
use super::cli::Cli;
use super::effects::KnownEffects;
use super::invocation::{Dialect, HttpInvocation, Invocation, McpInvocation};
use super::mcp::{ListedTool, param_headers};
use super::openapi::Operation;
use super::provider::{Override, Provider};
use super::result_format::ResultFormat;
use super::schema::{Location, Schema};
use crate::config::Section;
use crate::error::{Intro, Problem};
use crate::telemetry::metrics::{METRICS, ToolMetrics};

/// Bytes of a tool's name.
pub const LONGEST_NAME: usize = 256;

pub struct Tool {
    pub name: String,
    pub provider: Arc<Provider>,
    pub description: String,
    /// None where no scope is needed.
    pub scope: Option<String>,
    pub invocation: Invocation,
    pub schema: Schema,
    pub extract: Option<Extract>,
    pub format: ResultFormat,
    pub tags: Vec<String>,
    pub hint: Option<String>,
    pub examples: Vec<Value>,
    /// What its author says that it does.
    pub effects: Option<KnownEffects>,
    pub metrics: ToolMetrics,
}

/// The part of an answer that is the result. An invalid path fails the call, not the start.
pub type Extract = Result<JsonPath, String>;

impl Tool {
    pub fn read(
        file: &Path,
        index: usize,
        table: Table,
        provider: &Arc<Provider>,
        problems: &mut Vec<Problem>,
        warnings: &mut Vec<Problem>,
    ) -> Option<Self> {
        let label = match table.get("name").and_then(toml::Value::as_str) {
            Some(name) => format!("tools.{name}"),
            None => format!("tools[{index}]"),
        };
        let mut found = Vec::new();
        let mut s = Section::item(file, &label, table, &mut found);
        let tool = Tool::take(&mut s, provider, warnings);
        s.finish_leniently(warnings);
        let failed = !found.is_empty();
        problems.extend(
            found
                .into_iter()
                .map(|problem| problem.intro(Intro::InvalidManifest)),
        );
        let tool = tool.filter(|_| !failed)?;
        let faults = tool.faults().into_iter().map(|(key, message)| {
            Problem::new(message)
                .file(file)
                .key(format!("{label}.{key}"))
        });
        warnings.extend(faults);
        Some(tool)
    }

    fn take(
        s: &mut Section<'_>,
        provider: &Arc<Provider>,
        warnings: &mut Vec<Problem>,
    ) -> Option<Self> {
        let name: Option<String> = s.take("name");
        if name
            .as_ref()
            .is_none_or(|name| name.trim().is_empty() || name.len() > LONGEST_NAME)
        {
            s.problem("name", "a tool needs a name of at most 256 characters");
        }
        let name = name.unwrap_or_default();
        let scope = s.take("scope").or_else(|| default_scope(&name, provider));
        let invocation = Invocation::read(s, &name, provider);
        let input: Option<Value> = s.take("input_schema");
        let input = input.or_else(|| invocation.own_schema());
        let mut response = s.section("response");
        let extract: Option<String> = response.take("extract");
        let format: Option<toml::Value> = response.take("format");
        let format = format.as_ref().and_then(toml::Value::as_str);
        if let Some(fault) = format.and_then(ResultFormat::fault) {
            let key = format!("tools.{name}.response.format");
            warnings.push(Problem::new(fault).file(&provider.file).key(key));
        }
        let format = format.and_then(ResultFormat::named);
        response.finish_leniently(warnings);
        Some(Tool {
            metrics: METRICS.tool(&provider.name, &name),
            scope: scope.filter(|scope: &String| !scope.is_empty()),
            invocation,
            description: s.take("description").unwrap_or_default(),
            schema: input.map(Schema::new).unwrap_or_default(),
            extract: extract.map(|path| JsonPath::parse(&path).map_err(|e| e.to_string())),
            format: format.unwrap_or_default(),
            tags: s.take("tags").unwrap_or_default(),
            hint: s.take("hint"),
            examples: s.take("examples").unwrap_or_default(),
            effects: read_effects(s),
            provider: provider.clone(),
            name,
        })
    }

    /// One operation of an OpenAPI document.
    pub fn of_operation(
        operation: Operation,
        provider: &Arc<Provider>,
        over: Option<&Override>,
    ) -> Self {
        let name = format!("{}:{}", provider.name, operation.id);
        let nothing = Override::default();
        let over = over.unwrap_or(&nothing);
        let mut tags = operation.tags;
        if !over.tags.is_empty() {
            tags.extend(over.tags.iter().cloned());
            tags.sort();
            tags.dedup();
        }
        let scope = over.scope.clone();
        let scope = scope.or_else(|| default_scope(&name, provider));
        let extract = over.response_extract.as_deref();
        Tool {
            metrics: METRICS.tool(&provider.name, &name),
            provider: provider.clone(),
            description: over.description.clone().unwrap_or(operation.description),
            scope: scope.filter(|scope| !scope.is_empty()),
            invocation: Invocation::Http(HttpInvocation {
                method: operation.method,
                endpoint: operation.endpoint,
                dialect: Dialect::Plain,
            }),
            schema: Schema::new(operation.input_schema),
            extract: extract.map(|path| JsonPath::parse(path).map_err(|e| e.to_string())),
            format: over.format(),
            tags,
            hint: over.hint.clone(),
            examples: Vec::new(),
            effects: over.effects().0,
            name,
        }
    }

    /// A tool that an MCP server lists.
    pub fn of_listed(name: String, listed: &ListedTool, provider: &Arc<Provider>) -> Self {
        Tool {
            metrics: METRICS.tool(&provider.name, &name),
            provider: provider.clone(),
            description: listed.description.clone(),
            scope: default_scope(&name, provider),
            invocation: Invocation::Mcp(McpInvocation {
                remote_name: listed.name.clone(),
                repeatable: listed.repeatable,
                headers: param_headers::annotations(&listed.input_schema),
                details: listed.details.clone(),
            }),
            schema: Schema::untrusted(listed.input_schema.clone()),
            extract: None,
            format: ResultFormat::default(),
            tags: Vec::new(),
            hint: None,
            examples: Vec::new(),
            effects: None,
            name,
        }
    }

    /// The one tool of a provider that is a program, where its manifest writes down none.
    pub fn of_program(provider: &Arc<Provider>) -> Self {
        let name = provider.name.clone();
        Tool {
            metrics: METRICS.tool(&provider.name, &name),
            provider: provider.clone(),
            description: provider.description.clone(),
            scope: default_scope(&name, provider),
            invocation: Invocation::Cli,
            schema: Schema::default(),
            extract: None,
            format: ResultFormat::default(),
            tags: Vec::new(),
            hint: None,
            examples: Vec::new(),
            effects: None,
            name,
        }
    }

    /// A command of a program.
    pub fn of_command(
        name: String,
        command: &atip::metadata::Command,
        invocation: AtipInvocation,
        schema: Value,
        effects: Option<KnownEffects>,
        provider: &Arc<Provider>,
    ) -> Self {
        Tool {
            metrics: METRICS.tool(&provider.name, &name),
            provider: provider.clone(),
            description: command.description.clone(),
            scope: default_scope(&name, provider),
            invocation: Invocation::Atip(Box::new(invocation)),
            schema: Schema::untrusted(schema),
            extract: None,
            format: ResultFormat::default(),
            tags: Vec::new(),
            hint: None,
            examples: command.examples.clone(),
            effects,
            name,
        }
    }

    /// This tool of the manifest, with what its server says about it now.
    pub fn as_listed(&self, listed: Tool) -> Self {
        let description = match self.description.as_str() {
            "" => listed.description,
            own => own.to_owned(),
        };
        let mut invocation = listed.invocation;
        if let Invocation::Mcp(remote) = &mut invocation
            && let Some(known) = &self.effects
            && let Some(idempotent) = known.effects.idempotent
        {
            remote.repeatable = idempotent;
        }
        Tool {
            description,
            invocation,
            scope: if self.scope == default_scope(&self.name, &self.provider) {
                listed.scope
            } else {
                self.scope.clone()
            },
            extract: self.extract.clone(),
            format: self.format,
            tags: self.tags.clone(),
            hint: self.hint.clone(),
            examples: self.examples.clone(),
            effects: self.effects.clone(),
            ..listed
        }
    }

    /// Mistakes that make calls fail, or do less than they seem to. Existing manifests load with
    /// them, so they are warnings.
    fn faults(&self) -> Vec<(&'static str, String)> {
        let mut faults = Vec::new();
        if let Some(Err(e)) = &self.extract {
            faults.push(("response.extract", format!("every call will fail: {e}")));
        }
        let in_path =
            |property: &super::schema::Property| property.location == Some(Location::Path);
        for name in self.invocation.placeholders() {
            if !self.schema.property(name).is_some_and(in_path) {
                faults.push((
                    "endpoint",
                    format!("{{{name}}} is sent as it stands: no property '{name}' has x-ati-param-location = \"path\""),
                ));
            }
        }
        faults
    }

    /// What about the schema can't be used.
    pub fn schema_faults(&self) -> impl Iterator<Item = Problem> {
        let problem = |fault| {
            Problem::new(fault)
                .file(&self.provider.file)
                .key(format!("tools.{}.input_schema", self.name))
        };
        self.schema.faults().into_iter().map(problem)
    }

    /// The program that a call runs, with the time that it has.
    pub fn program(&self) -> Option<&Cli> {
        match &self.invocation {
            Invocation::Atip(command) => Some(&command.cli),
            Invocation::Cli => self.provider.cli(),
            Invocation::Cmp(_) | Invocation::Runfile(_) => self.provider.program(),
            Invocation::Http(_) | Invocation::Mcp(_) | Invocation::Files(_) => None,
        }
    }

    /// How its author says that it is used with others: ATIP's patterns.
    pub fn patterns(&self) -> &[Value] {
        match &self.invocation {
            Invocation::Atip(command) => &command.about.patterns,
            _ => &[],
        }
    }

    /// Whether it changes nothing: as its author says, or as its method says.
    pub fn only_reads(&self) -> Option<bool> {
        let declared = self.effects.as_ref();
        let declared = declared.and_then(|known| known.effects.is_read_only());
        declared.or_else(|| self.invocation.only_reads())
    }

    /// The input schema as callers see it.
    pub fn input_schema(&self) -> &Value {
        &self.schema.value
    }
}

/// `[tools.effects]`: the operator's word.
fn read_effects(s: &mut Section<'_>) -> Option<KnownEffects> {
    let (known, faults) = KnownEffects::of_operator(&s.take("effects")?);
    for fault in faults {
        s.problem("effects", fault);
    }
    known
}

/// `[[tools]]` of a provider whose tools come from somewhere else: their effects are the operator's
/// word, which counts more than what the document says of the same effects.
pub(super) fn override_effects(
    tools: &mut [Arc<Tool>],
    table: Table,
    provider: &Provider,
    problems: &mut Vec<Problem>,
    warnings: &mut Vec<Problem>,
) {
    let name = table.get("name").and_then(toml::Value::as_str);
    let name = name.unwrap_or_default().to_owned();
    if !table.contains_key("effects") {
        return;
    }
    let label = format!("tools.{name}");
    let mut found = Vec::new();
    let mut s = Section::item(&provider.file, &label, table, &mut found);
    let effects = read_effects(&mut s);
    let intro = |problem: Problem| problem.intro(Intro::InvalidManifest);
    problems.extend(found.into_iter().map(intro));
    let full = format!("{}:{name}", provider.name);
    let is_meant = |tool: &&mut Arc<Tool>| {
        tool.provider.name == provider.name && (tool.name == name || tool.name == full)
    };
    match tools.iter_mut().find(is_meant).and_then(Arc::get_mut) {
        Some(tool) => {
            tool.effects = match (effects, tool.effects.take()) {
                (Some(own), Some(document)) => Some(own.over(document)),
                (own, document) => own.or(document),
            };
        }
        None => {
            let message = "the provider has no such tool: its effects are declared in vain";
            warnings.push(Problem::new(message).file(&provider.file).key(label));
        }
    }
}

/// The scope of a tool whose manifest names none.
pub(super) fn default_scope(name: &str, provider: &Provider) -> Option<String> {
    (!provider.internal).then(|| format!("tool:{name}"))
}
