//! A plan, checked as a whole before its first step: tools, scopes, arguments, effects.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::super::local::Local;
use super::super::remote::{Remote, not_ati};
use super::reference;
use crate::assist::checked::{self, Misfit, Takes};
use crate::assist::plan::{Plan, Step};
use crate::catalog::effects::{Effects, Flag, KnownEffects, Source};
use crate::catalog::json_reader::Findings;
use crate::catalog::nearest::suggestion;
use crate::catalog::schema::Schema;
use crate::catalog::words::Words;
use crate::error::{Code, Failure};

/// Who wrote a plan. What a language model makes up is refused where a person is only warned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Author {
    Model,
    Person,
}

/// Whose tools a plan calls.
pub enum Registry<'a> {
    Here(&'a Local),
    Proxy(&'a Remote),
}

/// What is known about a step.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckedStep {
    /// A second call does no harm.
    pub is_idempotent: bool,
    /// It only reads: it may be called again at any time.
    pub only_reads: bool,
    /// Why it wants to be confirmed.
    pub confirm: Option<&'static str>,
    /// Steps whose results it needs, from 0.
    pub needs: Vec<usize>,
    /// Arguments that the tool doesn't name, and doesn't forbid.
    pub warnings: Vec<String>,
}

impl CheckedStep {
    /// For people.
    pub fn marks(&self) -> String {
        let mut marks = Vec::new();
        if self.only_reads {
            marks.push("only reads".to_owned());
        } else if self.is_idempotent {
            marks.push("idempotent".to_owned());
        }
        marks.extend(self.confirm.map(|why| format!("wants confirmation: {why}")));
        match marks.is_empty() {
            true => String::new(),
            false => format!("({})", marks.join("; ")),
        }
    }
}

/// A tool, as far as a check needs it.
struct Described {
    schema: Schema,
    takes: Takes,
    effects: Option<KnownEffects>,
}

/// Everything that is wrong with a plan, in one failure.
pub fn check_plan(
    plan: &Plan,
    registry: &Registry<'_>,
    author: Author,
) -> Result<Vec<CheckedStep>, Failure> {
    let mut steps = Vec::new();
    let mut wrong: Vec<Failure> = Vec::new();
    for (at, step) in plan.steps.iter().enumerate() {
        match check_step(at, step, registry, author) {
            Ok(checked) => steps.push(checked),
            // Nothing can be said about the others.
            Err(failure) if failure.code == Code::UpstreamError => return Err(failure),
            Err(failure) => {
                let message = format!("Step {}: {}", at + 1, failure.one_line());
                wrong.push(Failure {
                    message,
                    source: None,
                    ..failure
                });
            }
        }
    }
    match wrong.len() {
        0 => Ok(steps),
        1 => Err(wrong.remove(0)),
        _ => {
            let texts: Vec<&str> = wrong.iter().map(|one| one.message.as_str()).collect();
            let message = texts.join("\n");
            Err(Failure::new(wrong[0].code, message))
        }
    }
}

fn check_step(
    at: usize,
    step: &Step,
    registry: &Registry<'_>,
    author: Author,
) -> Result<CheckedStep, Failure> {
    let described = registry.describe(&step.tool)?;
    let invalid = |why: String| Failure::invalid(format!("'{}': {why}", step.tool));
    let (mut known, mut open) = (Map::new(), HashSet::new());
    let mut needs = Vec::new();
    for (name, value) in &step.args {
        let references = reference::in_value(value).map_err(invalid)?;
        for reference in &references {
            if reference.step >= at {
                let text = &reference.text;
                let why = format!("{name}: {text} is not a step before this one");
                return Err(invalid(why));
            }
            needs.push(reference.step);
        }
        match references.is_empty() {
            true => {
                known.insert(name.clone(), value.clone());
            }
            false => {
                open.insert(name.clone());
            }
        }
    }
    let Described {
        schema,
        takes,
        effects,
    } = described;
    let checked = checked::arguments(&schema, takes, known, &Words::default(), &open);
    let unknown = checked.map_err(|Misfit { why, is_missing }| Failure {
        // As `ati run` says it.
        code: match is_missing {
            true => Code::MissingArg,
            false => Code::InvalidValue,
        },
        ..invalid(format!("Invalid arguments: {why}"))
    })?;
    if let (Some(why), Author::Model) = (unknown.first(), author) {
        return Err(invalid(format!("Invalid arguments: {why}")));
    }
    let effect = |get: fn(&Effects) -> Option<bool>| {
        let effects = effects.as_ref().map(|known| &known.effects);
        effects.and_then(get)
    };
    let is_idempotent = effect(|it| it.idempotent) == Some(true);
    let only_reads = is_idempotent && effect(|it| it.destructive) == Some(false);
    Ok(CheckedStep {
        is_idempotent,
        only_reads,
        confirm: effects.as_ref().and_then(wants_confirmation),
        needs,
        warnings: unknown,
    })
}

/// What its author says about a tool decides. This is the one place where a plan asks for it.
fn wants_confirmation(known: &KnownEffects) -> Option<&'static str> {
    let declares = |flag| known.declares(flag) && known.effects.flag(flag) == Some(true);
    if declares(Flag::Destructive) {
        Some("it destroys data")
    } else if declares(Flag::Confirm) {
        Some("its author wants each call to be confirmed")
    } else {
        None
    }
}

impl Registry<'_> {
    fn describe(&self, name: &str) -> Result<Described, Failure> {
        match self {
            Registry::Here(local) => here(local, name),
            Registry::Proxy(remote) => match remote.tool(name) {
                Ok(described) => Ok(of_answer(&described)),
                // A name that can't be a part of a path is refused as one.
                Err(failure) if matches!(failure.status, Some(400 | 404)) => {
                    let listed = remote.get("tools", &[]).map_err(unsaid)?;
                    let tools = listed.as_array().cloned().ok_or_else(not_ati)?;
                    let names: Vec<&str> = tools
                        .iter()
                        .filter_map(|tool| tool["name"].as_str())
                        .collect();
                    Err(unknown(name, names.into_iter()))
                }
                Err(failure) => Err(unsaid(failure)),
            },
        }
    }
}

/// The proxy doesn't say whether it has the tool.
fn unsaid(failure: Failure) -> Failure {
    Failure {
        code: Code::UpstreamError,
        ..failure
    }
}

fn here(local: &Local, name: &str) -> Result<Described, Failure> {
    let (catalog, scopes) = (local.catalog(), &local.identity.scopes);
    let visible = || catalog.visible(scopes).map(|tool| tool.name.as_str());
    let tool: &Arc<_> = catalog.find(name).ok_or_else(|| unknown(name, visible()))?;
    if !tool.is_allowed(scopes) || catalog.is_withheld(tool) {
        let message = format!("Access denied: '{name}' is not in your scopes");
        return Err(Failure::new(Code::ScopeDenied, message));
    }
    Ok(Described {
        schema: Schema::new(tool.input_schema().clone()),
        takes: Takes::of(&tool.invocation),
        effects: tool.known_effects(),
    })
}

fn unknown<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> Failure {
    let mut message = format!("unknown tool '{name}'. Run 'ati tool list' to see available tools.");
    message += &suggestion(name, known);
    Failure::new(Code::ToolNotFound, message)
}

/// From an answer of `GET /tools/{name}`.
fn of_answer(described: &Value) -> Described {
    let handler = described["handler"].as_str().unwrap_or_default();
    let takes = match handler {
        "cli" => Takes::Words,
        "file_manager" => Takes::Anything,
        _ => Takes::Arguments,
    };
    let declared = described.get("effects").filter(|value| value.is_object());
    let inferred = described["effects_inferred"]
        .as_array()
        .into_iter()
        .flatten();
    let inferred = inferred.filter_map(|name| Flag::named(name.as_str()?));
    let effects = declared.map(|value| KnownEffects {
        effects: Effects::read(value, "", &mut Findings::default()),
        source: described["effects_source"]
            .as_str()
            .and_then(Source::named)
            .unwrap_or(Source::Org),
        inferred: inferred.collect(),
    });
    let effects = effects.or_else(|| by_method(handler, described["method"].as_str()?));
    Described {
        schema: Schema::new(described["input_schema"].clone()),
        takes,
        effects,
    }
}

/// What a method says, where the proxy doesn't say it itself.
fn by_method(handler: &str, method: &str) -> Option<KnownEffects> {
    let (idempotent, destructive) = match (handler, method) {
        ("http" | "openapi" | "file_manager", "Get") => (true, Some(false)),
        ("http" | "openapi", "Put") => (true, None),
        ("http" | "openapi", "Delete") => (true, Some(true)),
        _ => return None,
    };
    let effects = Effects {
        idempotent: Some(idempotent),
        destructive,
        ..Effects::default()
    };
    Some(KnownEffects::concluded(effects))
}
