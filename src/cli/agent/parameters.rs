//! Arguments and options of ati's commands, in the words of ATIP.

use std::any::TypeId;
use std::path::PathBuf;

use clap::{Arg, ArgAction, Command};
use serde_json::{Map, Value};

use crate::cli::help;

pub fn arguments(command: &Command) -> Vec<Value> {
    let positional = command.get_arguments().filter(|arg| arg.is_positional());
    let shown = positional.filter(|arg| !arg.is_hide_set());
    shown.map(|arg| parameter(arg).into()).collect()
}

pub fn options(command: &Command) -> Vec<Value> {
    let own = command
        .get_arguments()
        .filter(|arg| is_option(arg) && !is_global(arg));
    own.map(option).collect()
}

pub fn global_options(root: &Command) -> Vec<Value> {
    let global = root
        .get_arguments()
        .filter(|arg| is_option(arg) && is_global(arg));
    global.map(option).collect()
}

/// `-J`, `--json`.
pub fn flags(arg: &Arg) -> Vec<String> {
    let short = arg.get_short_and_visible_aliases().unwrap_or_default();
    let long = arg.get_long_and_visible_aliases().unwrap_or_default();
    let short = short.into_iter().map(|letter| format!("-{letter}"));
    short
        .chain(long.into_iter().map(|name| format!("--{name}")))
        .collect()
}

fn is_option(arg: &Arg) -> bool {
    let is_help = matches!(
        arg.get_action(),
        ArgAction::Help | ArgAction::HelpShort | ArgAction::HelpLong | ArgAction::Version
    );
    !arg.is_positional() && !arg.is_hide_set() && !is_help
}

fn is_global(arg: &Arg) -> bool {
    arg.get_help_heading() == Some(help::GLOBAL)
}

fn option(arg: &Arg) -> Value {
    let mut option = parameter(arg);
    option.insert("flags".into(), flags(arg).into());
    if let Some(variable) = arg.get_env().and_then(|name| name.to_str()) {
        option.insert("envVar".into(), variable.into());
    }
    option.into()
}

fn parameter(arg: &Arg) -> Map<String, Value> {
    let mut shown = Map::new();
    let name = arg.get_long().unwrap_or_else(|| arg.get_id().as_str());
    shown.insert("name".into(), name.into());
    let choices: Vec<Value> = arg
        .get_possible_values()
        .iter()
        .filter(|value| !value.is_hide_set())
        .map(|value| value.get_name().into())
        .collect();
    let is_flag = matches!(arg.get_action(), ArgAction::SetTrue | ArgAction::SetFalse);
    let kind = match is_flag {
        true => "boolean",
        false if !choices.is_empty() => "enum",
        false => value_kind(arg),
    };
    shown.insert("type".into(), kind.into());
    if kind == "enum" {
        shown.insert("enum".into(), choices.into());
    }
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    shown.insert("description".into(), help.into());
    shown.insert("required".into(), arg.is_required_set().into());
    let many = arg
        .get_num_args()
        .is_some_and(|range| range.max_values() > 1);
    if many || matches!(arg.get_action(), ArgAction::Append) {
        shown.insert("variadic".into(), true.into());
    }
    if let [default] = arg.get_default_values()
        && !is_flag
        && let Some(text) = default.to_str()
    {
        let number = text.parse::<i64>().ok().filter(|_| kind == "integer");
        let default = number.map_or_else(|| text.into(), Value::from);
        shown.insert("default".into(), default);
    }
    shown
}

fn value_kind(arg: &Arg) -> &'static str {
    let parsed = arg.get_value_parser().type_id();
    let is = |id: TypeId| parsed == id;
    let integers = [
        TypeId::of::<u8>(),
        TypeId::of::<u16>(),
        TypeId::of::<u32>(),
        TypeId::of::<u64>(),
        TypeId::of::<usize>(),
        TypeId::of::<i64>(),
    ];
    let is_folder = |name: &str| name.contains("dir") || name.contains("folder");
    if integers.into_iter().any(is) {
        "integer"
    } else if is(TypeId::of::<f64>()) {
        "number"
    } else if !is(TypeId::of::<PathBuf>()) {
        "string"
    } else {
        let names = arg.get_value_names().unwrap_or_default();
        let mut names = names.iter().map(|name| name.to_lowercase());
        match names.any(|name| is_folder(&name)) || is_folder(arg.get_id().as_str()) {
            true => "directory",
            false => "file",
        }
    }
}
