//! `ati tool export --cmp`: a folder for each provider with the two files of CMP, so that an agent
//! that knows only CMP can find and call every tool by `ati run`.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::catalog::Tool;
use crate::catalog::cmp::is_placeholder_name;
use crate::cli::{Format, file_failure, output};
use crate::config::is_provider_name;
use crate::error::{Code, Failure};
use crate::files;
use crate::text::clip_chars;

/// Characters of a summary, by CMP's specification, and of a pattern.
const LONGEST: usize = 100;
/// Tools of a provider that share a folder.
const MOST_TOGETHER: usize = 20;
/// What an agent is told once, whatever the number of tools.
const INSTRUCTION: &str = "\
## Local Tools (CMP)

CMP-compatible tools are installed in FOLDER. Each tool has:
- cmp/manifest.json: domain, name, summary
- cmp/capability.json: intents, parameters, commands

When a task might benefit from a local tool:
1. List FOLDER to see available tools
2. Read manifest.json files to find relevant domain
3. Read capability.json to understand invocation
4. Execute the command directly with substituted parameters";

/// A tool of this machine, as `/tools` of a proxy has it.
pub fn item(tool: &Tool) -> Value {
    let provider = &tool.provider;
    json!({
        "name": tool.name,
        "provider": provider.name,
        "description": tool.description,
        "provider_description": provider.description,
        "category": tool.category(),
        "input_schema": tool.input_schema(),
        "method": tool.invocation.listed_method().as_str(),
        "handler": provider.handler_name(),
        "effects": tool.effects.as_ref().map(|known| json!(known.effects)),
    })
}

/// Writes the folders, and prints what an agent has to be told.
pub fn write(tools: &[Value], folder: &Path, format: Format) -> Result<(), Failure> {
    let mut providers: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for tool in tools {
        let name = tool["provider"].as_str().unwrap_or_default();
        if is_provider_name(name) {
            providers.entry(name).or_default().push(tool);
        }
    }
    let providers = folders(providers);
    let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    // First all of them, so that nothing is written where one can't be.
    for name in providers.keys() {
        check_free(&folder.join(name))?;
    }
    let mut written = Vec::new();
    for (name, tools) in &providers {
        let target = folder.join(name).join("cmp");
        let failed = |e: std::io::Error| file_failure(Code::ExecutionFailed, &target, e);
        std::fs::create_dir_all(&target).map_err(failed)?;
        for (file, content) in [
            ("manifest.json", manifest(name, tools)),
            ("capability.json", capability(tools)),
        ] {
            // In one line: a model pays for white space.
            let text = content.to_string() + "\n";
            let path = target.join(file);
            let wrote = files::write_atomic(&path, text.as_bytes(), 0o644);
            wrote.map_err(|e| file_failure(Code::ExecutionFailed, &path, e))?;
        }
        written.push(json!({"name": name, "folder": folder.join(name), "tools": tools.len()}));
    }
    let instruction = INSTRUCTION.replace("FOLDER", &format!("{}/", folder.display()));
    match format {
        Format::Text => output::line(&instruction),
        Format::Json | Format::Table => {
            let done = json!({"folder": folder, "written": written, "instruction": instruction});
            output::pretty(&done);
        }
    }
    Ok(())
}

/// The folders and their tools. A provider with many tools has a folder for each, because an agent
/// reads the capabilities of a folder as a whole.
fn folders<'t>(providers: BTreeMap<&str, Vec<&'t Value>>) -> BTreeMap<String, Vec<&'t Value>> {
    let mut folders = BTreeMap::new();
    for (name, tools) in providers {
        if tools.len() <= MOST_TOGETHER {
            folders.insert(name.to_owned(), tools);
            continue;
        }
        for tool in tools {
            let own = own_name(tool).chars();
            let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
            let own: String = own.map(|c| if plain(c) { c } else { '_' }).collect();
            let together: &mut Vec<&Value> = folders.entry(format!("{name}.{own}")).or_default();
            together.push(tool);
        }
    }
    folders
}

/// A folder that an earlier export wrote may be written again, another one stays.
fn check_free(tool: &Path) -> Result<(), Failure> {
    let path = tool.join("cmp/manifest.json");
    let Ok(text) = files::read_text(&path) else {
        return match tool.exists() && !tool.join("cmp").is_dir() {
            true => Err(taken(tool)),
            false => Ok(()),
        };
    };
    let known: Value = serde_json::from_str(&text).unwrap_or_default();
    match known["adapter"] == true && known["wraps"] == "ati" {
        true => Ok(()),
        false => Err(taken(tool)),
    }
}

fn taken(tool: &Path) -> Failure {
    let message = format!("{} is there, and not by this command", tool.display());
    Failure::invalid(message).hint("another folder after --cmp, or --provider for single ones")
}

fn manifest(name: &str, tools: &[&Value]) -> Value {
    let text = |key: &str| tools.iter().find_map(|tool| tool[key].as_str());
    let own: Vec<&str> = tools.iter().map(|tool| own_name(tool)).collect();
    let about = match tools {
        [only] => only["description"].as_str(),
        _ => text("provider_description"),
    };
    let summary = about.filter(|text| !text.is_empty());
    let summary = summary.map_or_else(|| own.join(", "), str::to_owned);
    json!({
        "domain": text("category").unwrap_or("general"),
        "name": name,
        "summary": one_line(&summary),
        "version": env!("CARGO_PKG_VERSION"),
        "adapter": true,
        "wraps": "ati",
    })
}

fn capability(tools: &[&Value]) -> Value {
    let intents: Vec<Value> = tools.iter().flat_map(|tool| intents(tool)).collect();
    json!({"intents": intents})
}

fn own_name(tool: &Value) -> &str {
    let name = tool["name"].as_str().unwrap_or_default();
    let provider = tool["provider"].as_str().unwrap_or_default();
    let own = name.strip_prefix(provider);
    own.and_then(|own| own.strip_prefix(':')).unwrap_or(name)
}

/// At most a line of so many characters.
fn one_line(text: &str) -> String {
    let joined = text.split_whitespace().collect::<Vec<_>>().join(" ");
    clip_chars(&joined, LONGEST).trim_end().to_owned()
}

/// One intent with the required arguments, and one with all, where there are others: a command of
/// CMP has no optional parts.
fn intents(tool: &Value) -> Vec<Value> {
    let words = own_name(tool).replace(['_', '-', '.'], " ");
    let about = one_line(tool["description"].as_str().unwrap_or_default());
    let name = tool["name"].as_str().unwrap_or_default();
    let run = format!("ati run {}", quoted(name));
    if tool["handler"] == "cli" {
        let args = json!({"type": "array<string>", "required": true, "description": "Its words"});
        let command = format!("{run} -- {{args}}");
        let patterns = patterns(&[&words, &about]);
        return vec![intent(tool, patterns, &command, json!({"args": args}))];
    }
    let schema = &tool["input_schema"];
    let required: Vec<&str> = schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let all = schema["properties"].as_object();
    let all: Vec<(&String, &Value)> = all.into_iter().flatten().collect();
    let needed = |(name, _): &&(&String, &Value)| required.contains(&name.as_str());
    let mut intents = Vec::new();
    let first: Vec<_> = all.iter().filter(needed).copied().collect();
    let (command, params) = call(&run, &first, &required);
    intents.push(intent(tool, patterns(&[&words, &about]), &command, params));
    if first.len() < all.len() {
        let (command, params) = call(&run, &all, &required);
        let patterns = patterns(&[&format!("{words} with options")]);
        intents.push(intent(tool, patterns, &command, params));
    }
    intents
}

fn patterns(texts: &[&str]) -> Value {
    let texts = texts.iter().filter(|text| !text.trim().is_empty());
    // `re:` would make it an expression.
    let mut texts: Vec<&str> = texts.map(|text| text.trim_start_matches("re:")).collect();
    texts.dedup_by(|one, other| one.eq_ignore_ascii_case(other));
    texts.into()
}

fn intent(tool: &Value, patterns: Value, command: &str, params: Value) -> Value {
    let effects = &tool["effects"];
    let method = tool["method"].as_str().unwrap_or_default();
    let is = |name: &str| method.eq_ignore_ascii_case(name);
    let destroys = effects["destructive"].as_bool().unwrap_or(is("DELETE"));
    let repeatable = is("GET") || is("PUT") || is("DELETE");
    let mut intent = json!({"patterns": patterns, "command": command});
    if params.as_object().is_some_and(|params| !params.is_empty()) {
        intent["params"] = params;
    }
    if destroys || effects["confirm"] == true {
        intent["confirm"] = true.into();
    }
    if destroys {
        intent["destructive"] = true.into();
    }
    if !effects["idempotent"].as_bool().unwrap_or(repeatable) {
        intent["idempotent"] = false.into();
    }
    intent
}

/// The command with a place for each of these arguments, and the arguments.
fn call(run: &str, arguments: &[(&String, &Value)], required: &[&str]) -> (String, Value) {
    let (mut command, mut params) = (run.to_owned(), Map::new());
    for (name, schema) in arguments {
        let place: String = name
            .chars()
            .map(|c| {
                if c.is_ascii_alphanumeric() || c == '_' {
                    c
                } else {
                    '_'
                }
            })
            .collect();
        let place = match is_placeholder_name(&place) && !params.contains_key(&place) {
            true => place,
            false => format!("arg_{}", params.len() + 1),
        };
        // With `=`, so that no value is taken for an option.
        command += &format!(" {}", quoted(&format!("--{name}={{{place}}}")));
        params.insert(place, parameter(schema, required.contains(&name.as_str())));
    }
    (command, params.into())
}

fn parameter(schema: &Value, required: bool) -> Value {
    let is_simple = |kind: &&str| ["integer", "boolean", "number"].contains(kind);
    let kind = schema["type"].as_str().filter(is_simple);
    let kind = kind.unwrap_or("string");
    let mut description = schema["description"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    if let Some(kind @ ("array" | "object")) = schema["type"].as_str() {
        description = format!("JSON {kind}. {description}").trim_end().to_owned();
    }
    let mut parameter = json!({"type": kind});
    if required {
        parameter["required"] = true.into();
    }
    for key in ["enum", "default"] {
        if let Some(value) = schema.get(key).filter(|value| !value.is_null()) {
            parameter[key] = value.clone();
        }
    }
    if !description.is_empty() {
        parameter["description"] = description.into();
    }
    parameter
}

/// A word of a command, in quotes where it needs them.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:@=+,{}".contains(c);
    match word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\"")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pattern_is_there_once() {
        assert_eq!(patterns(&["find item", "Find item"]), json!(["find item"]));
    }

    #[test]
    fn optional_arguments_have_an_intent_of_their_own() {
        let tool = json!({
            "name": "shop:find_item", "provider": "shop", "description": "Finds\n things",
            "method": "Delete", "handler": "http",
            "input_schema": {"required": ["q"], "properties": {
                "q": {"type": "string"},
                "odd name": {"type": "array", "description": "Ids"},
            }},
        });
        let all = intents(&tool);
        assert_eq!(
            all[0],
            json!({
                "patterns": ["find item", "Finds things"],
                "command": "ati run shop:find_item --q={q}",
                "params": {"q": {"type": "string", "required": true}},
                "confirm": true, "destructive": true,
            })
        );
        assert_eq!(
            all[1]["command"],
            "ati run shop:find_item --q={q} \"--odd name={odd_name}\""
        );
        assert_eq!(
            all[1]["params"]["odd_name"],
            json!({"type": "string", "description": "JSON array. Ids"})
        );
    }
}
