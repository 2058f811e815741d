//! `ati completions`: scripts for shells. bash, zsh and fish ask `ati` itself for the names of
//! tools, of their arguments and of providers, with the hidden command below.

use std::ffi::OsString;
use std::sync::mpsc;
use std::time::Duration;

use clap_complete::Shell;
use serde_json::Value;

use super::local::Local;
use super::remote::Remote;
use super::skill::{View, registry_here};
use super::{help, output};
use crate::config::{self, Origin};
use crate::skills::registry::Filter;

pub const COMMAND: &str = "__complete";

/// A person waits for the answer: better none than a late one.
const PATIENCE: Duration = Duration::from_secs(2);

const BASH: &str = include_str!("complete/ati.bash");
const ZSH: &str = include_str!("complete/ati.zsh");
const FISH: &str = include_str!("complete/ati.fish");

pub fn script(shell: Shell) {
    let mut commands = help::command();
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut commands, "ati", &mut script);
    let hidden = commands.get_subcommands().filter(|sub| sub.is_hide_set());
    let hidden: Vec<&str> = hidden.map(clap::Command::get_name).collect();
    let mut script = without(&hidden, &String::from_utf8_lossy(&script));
    match shell {
        Shell::Bash => script += BASH,
        Shell::Fish => script += FISH,
        Shell::Zsh => {
            // The function that asks for names takes the name of clap's: zsh calls a function like
            // its file.
            script = script.replacen("\n_ati() {", "\n_ati_static() {", 1);
            let end = "if [ \"$funcstack[1]\"";
            script = script.replacen(end, &format!("{ZSH}{end}"), 1);
        }
        _ => {}
    }
    output::line(script.trim_end());
}

/// The script without the places that offer hidden commands: clap offers them like others.
fn without(hidden: &[&str], script: &str) -> String {
    let mut kept = String::new();
    for line in script.lines() {
        let start = line.trim_start();
        // fish and zsh have a line for each command, bash has one for all.
        let offers = |name: &&str| {
            start.contains(&format!("-f -a \"{name}\"")) || start.starts_with(&format!("'{name}:"))
        };
        if hidden.iter().any(offers) {
            continue;
        }
        if start.starts_with("opts=\"") {
            let words = line.split(' ').filter(|word| !hidden.contains(word));
            kept += &words.collect::<Vec<_>>().join(" ");
        } else {
            kept += line;
        }
        kept.push('\n');
    }
    kept
}

/// Print the names that complete the last of these words of a command line, one on each line. On
/// any error nothing is printed: the script then goes on with what clap knows.
pub fn run(words: Vec<OsString>) -> u8 {
    let (found, names) = mpsc::channel();
    // On a thread of its own, which the end of the process ends: a proxy that doesn't answer must
    // not hold up the prompt.
    std::thread::spawn(move || found.send(candidates(&words).unwrap_or_default()));
    for name in names.recv_timeout(PATIENCE).unwrap_or_default() {
        output::line(&name);
    }
    0
}

fn candidates(words: &[OsString]) -> Option<Vec<String>> {
    let words: Option<Vec<&str>> = words.iter().map(|word| word.to_str()).collect();
    let (typed, before) = words?
        .split_last()
        .map(|(last, rest)| (*last, rest.to_vec()))?;
    let names = match Wanted::at(&before, typed)? {
        Wanted::Tools => tools("name")?,
        Wanted::ToolProviders => tools("provider")?,
        Wanted::ArgumentsOf(tool) => arguments(&tool)?,
        Wanted::Providers => providers(|_| true),
        Wanted::CachedProviders => providers(|origin| matches!(origin, Origin::Cached { .. })),
        Wanted::ManifestFiles => manifest_files()?,
        Wanted::Skills => skills()?,
        Wanted::SkillFolders => registry_here().iter().map(|one| one.name.clone()).collect(),
    };
    // A name of a tool is the server's own text: nothing that a terminal or a shell would take for
    // more than a word.
    let harmless = |name: &String| !name.contains(|c: char| c.is_control() || c.is_whitespace());
    let fits = |name: &String| name.starts_with(typed) && harmless(name);
    Some(names.into_iter().filter(fits).collect())
}

/// What can stand at a place of a command line.
#[derive(Debug, PartialEq, Eq)]
enum Wanted {
    Tools,
    ArgumentsOf(String),
    ToolProviders,
    Providers,
    CachedProviders,
    /// `provider remove` takes the name of a file.
    ManifestFiles,
    Skills,
    /// Skills of this machine, whatever the proxy has.
    SkillFolders,
}

impl Wanted {
    /// What comes after these words, the name of the program left out. `None` where clap's own
    /// script knows better.
    fn at(before: &[&str], typed: &str) -> Option<Self> {
        let mut root = help::command();
        root.build();
        let (mut command, mut path) = (&root, Vec::new());
        let mut positionals = Vec::new();
        let mut option = None;
        for word in before {
            let in_tool = path == ["run"] && !positionals.is_empty();
            if option.take().is_some() || in_tool {
                continue;
            }
            if word.len() > 1 && word.starts_with('-') {
                option = option_with_value(command, word);
            } else if let Some(next) = command.find_subcommand(word) {
                path.push(next.get_name());
                command = next;
            } else {
                positionals.push(*word);
            }
        }
        if let Some(option) = option {
            let is_provider = path == ["tool", "list"] && option == "provider";
            return is_provider.then_some(Wanted::ToolProviders);
        }
        match (
            path.as_slice(),
            positionals.as_slice(),
            typed.starts_with('-'),
        ) {
            (["run"], [tool, ..], true) => Some(Wanted::ArgumentsOf((*tool).to_owned())),
            (["run"] | ["tool", "info"], [], false) => Some(Wanted::Tools),
            (["provider", "info" | "install-skills"], [], false) => Some(Wanted::Providers),
            (["skill", "show" | "info" | "read"], [], false) => Some(Wanted::Skills),
            (
                [
                    "skill",
                    "remove" | "validate" | "verify" | "diff" | "update",
                ],
                [],
                false,
            ) => Some(Wanted::SkillFolders),
            (["provider", "remove"], [], false) => Some(Wanted::ManifestFiles),
            (["provider", "unload"], [], false) => Some(Wanted::CachedProviders),
            _ => None,
        }
    }
}

/// The id of the option that a word names, where the next word is its value.
fn option_with_value<'c>(command: &'c clap::Command, word: &str) -> Option<&'c str> {
    let named = |arg: &&clap::Arg| match word.strip_prefix("--") {
        Some(long) => {
            let mut aliases = arg.get_all_aliases().into_iter().flatten();
            arg.get_long() == Some(long) || aliases.any(|alias| alias == long)
        }
        None => word.ends_with(|last| arg.get_short() == Some(last)),
    };
    let arg = command.get_arguments().find(named)?;
    arg.get_action()
        .takes_values()
        .then(|| arg.get_id().as_str())
}

/// A field of every tool that the caller may use: `name`, or `provider` with each name once. MCP
/// servers aren't started: of theirs, the cached listings are used.
fn tools(field: &str) -> Option<Vec<String>> {
    let mut names: Vec<String> = match Remote::from_environment().ok()? {
        Some(remote) => {
            let listed = remote.get("tools", &[]).ok()?;
            let items = listed.as_array()?.iter();
            let text = |item: &Value| item[field].as_str().map(str::to_owned);
            items.filter_map(text).collect()
        }
        None => {
            let local = Local::load().ok()?;
            let visible = local.catalog().visible(&local.identity.scopes);
            let text = |tool: &crate::catalog::Tool| match field {
                "provider" => tool.provider.name.clone(),
                _ => tool.name.clone(),
            };
            visible.map(|tool| text(tool)).collect()
        }
    };
    names.sort();
    names.dedup();
    Some(names)
}

/// The skills that the caller may read.
fn skills() -> Option<Vec<String>> {
    let rows = View::open().ok()?.rows(&Filter::default()).ok()?;
    let names = rows.iter().filter_map(|row| row["name"].as_str());
    Some(names.map(str::to_owned).collect())
}

/// The options that a tool takes.
fn arguments(tool: &str) -> Option<Vec<String>> {
    let schema = match Remote::from_environment().ok()? {
        Some(remote) => remote.tool(tool).ok()?["input_schema"].take(),
        None => {
            let local = Local::load_for(tool).ok()?;
            local.visible(tool).ok()?.input_schema().clone()
        }
    };
    let properties = schema["properties"].as_object()?;
    let mut options: Vec<String> = properties.keys().map(|name| format!("--{name}")).collect();
    options.sort();
    Some(options)
}

fn providers(wanted: impl Fn(Origin) -> bool) -> Vec<String> {
    let manifests = config::read_manifests(&config::ati_dir(), &mut Vec::new());
    let fitting = manifests
        .into_iter()
        .filter(|manifest| wanted(manifest.origin));
    fitting.map(|manifest| manifest.name).collect()
}

fn manifest_files() -> Option<Vec<String>> {
    let entries = std::fs::read_dir(config::ati_dir().join("manifests")).ok()?;
    let names = entries.flatten().map(|entry| entry.file_name());
    let mut stems: Vec<String> = names
        .filter_map(|name| Some(name.to_str()?.strip_suffix(".toml")?.to_owned()))
        .collect();
    stems.sort();
    Some(stems)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(line: &str) -> Option<Wanted> {
        let words: Vec<&str> = line.split(' ').collect();
        let (typed, before) = words.split_last().unwrap();
        Wanted::at(before, typed)
    }

    #[test]
    fn names_are_offered_where_a_command_takes_them() {
        for (line, expected) in [
            ("run ", Wanted::Tools),
            ("run git", Wanted::Tools),
            ("--output text -J run ", Wanted::Tools),
            ("tool info ", Wanted::Tools),
            ("tools info x", Wanted::Tools),
            ("run git:x --", Wanted::ArgumentsOf("git:x".into())),
            ("run git:x --a b --c", Wanted::ArgumentsOf("git:x".into())),
            ("tool list --provider ", Wanted::ToolProviders),
            ("provider info ", Wanted::Providers),
            ("provider remove g", Wanted::ManifestFiles),
            ("provider --verbose unload ", Wanted::CachedProviders),
        ] {
            assert_eq!(wanted(line), Some(expected), "{line}");
        }
    }

    #[test]
    fn other_places_are_left_to_the_shell() {
        for line in [
            "",
            "r",
            "run --",
            "--output ",
            "--output run ",
            "run git:x value",
            "tool info a b",
            "tool search ",
            "provider ",
            "key set ",
            "nonsense run",
        ] {
            assert_eq!(wanted(line), None, "{line}");
        }
    }
}
