//! The functions of a Runfile as tools of the catalogue.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::function::{Function, Kind};
use super::script::Command;
use super::{Runfile, RunfileProvider, load};
use crate::catalog::effects::{Effects, Filesystem, KnownEffects, Source};
use crate::catalog::invocation::Invocation;
use crate::catalog::json_reader::Findings;
use crate::catalog::provider::Provider;
use crate::catalog::result_format::ResultFormat;
use crate::catalog::schema::Schema;
use crate::catalog::tool::{Tool, default_scope};
use crate::error::Problem;
use crate::telemetry::metrics::METRICS;

/// The argument that every tool has, unless its function declares one of that name.
const TIMEOUT: &str = "timeout";

/// What a call of a function runs.
#[derive(Debug)]
pub struct RunfileInvocation {
    pub function: Arc<Function>,
    pub command: Command,
    /// Whether `timeout` is ati's own argument, and not the function's.
    pub has_timeout: bool,
}

impl RunfileInvocation {
    /// How long the call may take, where the caller says so.
    pub fn seconds(&self, args: &Map<String, Value>) -> Option<u64> {
        let given = args.get(TIMEOUT).filter(|_| self.has_timeout)?;
        given.as_u64()
    }
}

/// Every function with a description. A file that can't be read is a warning.
pub fn tools(
    provider: &Arc<Provider>,
    own: &RunfileProvider,
    warnings: &mut Vec<Problem>,
) -> Vec<Tool> {
    let Some(path) = &own.path else {
        let message = "without it there are no functions, and there are no tools";
        let problem = Problem::new(message).file(&provider.file);
        warnings.push(problem.key("provider.runfile"));
        return Vec::new();
    };
    let mut found = Findings::default();
    let mut runfile = load::load(path, &mut found);
    if let Some(global) = &own.global {
        runfile = load::merged(load::load(global, &mut found), runfile);
    }
    warnings.extend(found.problems);
    warnings.extend(found.warnings);
    let _ = own.instructions.set(runfile.instructions.join("\n"));
    // `ati mcp serve --runfile`: the Runfile takes the place of a manifest, and its functions have
    // their own names.
    let is_alone = provider.file == *path;
    let prefix = match is_alone {
        true => String::new(),
        false => format!("{}:", provider.name),
    };
    of_runfile(&runfile, &prefix, own, provider)
}

fn of_runfile(
    runfile: &Runfile,
    prefix: &str,
    own: &RunfileProvider,
    provider: &Arc<Provider>,
) -> Vec<Tool> {
    let folder = own.path.as_deref().map(|path| match path.is_dir() {
        true => path,
        false => path.parent().unwrap_or(path),
    });
    let folder = folder.unwrap_or(std::path::Path::new("/"));
    let mut names = HashSet::new();
    let offered = runfile
        .functions
        .iter()
        .filter(|function| function.description.is_some() && (function.is_safe || !own.readonly));
    offered
        .filter_map(|function| {
            let name = format!("{prefix}{}", function.tool_name());
            // `a:b` and `a__b` would be one tool.
            names.insert(name.clone()).then(|| {
                let command = Command::new(runfile, function, folder);
                of_function(function, name, command, provider)
            })
        })
        .collect()
}

fn of_function(
    function: &Arc<Function>,
    name: String,
    command: Command,
    provider: &Arc<Provider>,
) -> Tool {
    let has_timeout = !function.parameters.iter().any(|one| one.name == TIMEOUT);
    let mut schema = schema(function);
    if has_timeout {
        schema["properties"][TIMEOUT] = json!({
            "type": "integer",
            "minimum": 1,
            "description": "Seconds after which the call is ended",
        });
    }
    let safe = KnownEffects {
        effects: Effects {
            destructive: Some(false),
            idempotent: Some(true),
            filesystem: Some(Filesystem {
                write: Some(false),
                delete: Some(false),
                ..Filesystem::default()
            }),
            ..Effects::default()
        },
        source: Source::Native,
        inferred: Vec::new(),
    };
    Tool {
        metrics: METRICS.tool(&provider.name, &name),
        provider: provider.clone(),
        description: function.description.clone().unwrap_or_default(),
        scope: default_scope(&name, provider),
        schema: Schema::new(schema),
        extract: None,
        format: ResultFormat::default(),
        tags: vec![function.interpreter.program().to_owned()],
        hint: None,
        examples: Vec::new(),
        effects: function.is_safe.then_some(safe),
        invocation: Invocation::Runfile(Arc::new(RunfileInvocation {
            function: function.clone(),
            command,
            has_timeout,
        })),
        name,
    }
}

/// The schema of a function's arguments, as `--inspect` prints it.
pub fn schema(function: &Function) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for parameter in &function.parameters {
        let kind = parameter.kind.schema_type();
        let mut schema = match parameter.is_rest {
            true => json!({"type": "array", "items": {"type": kind}}),
            false => json!({"type": kind}),
        };
        if let Some(text) = &parameter.description {
            schema["description"] = text.as_str().into();
        }
        if let Some(default) = &parameter.default {
            schema["default"] = typed(default, parameter.kind);
        }
        if parameter.required {
            required.push(parameter.name.as_str());
        }
        properties.insert(parameter.name.clone(), schema);
    }
    json!({"type": "object", "properties": properties, "required": required})
}

/// A default as JSON, where it is one of its type.
fn typed(text: &str, kind: Kind) -> Value {
    let value = match kind {
        Kind::String => None,
        Kind::Integer => text.parse::<i64>().ok().map(Value::from),
        Kind::Number => text.parse::<f64>().ok().map(Value::from),
        Kind::Boolean => text.parse::<bool>().ok().map(Value::from),
        Kind::Object => serde_json::from_str(text).ok(),
    };
    value.unwrap_or_else(|| text.into())
}
