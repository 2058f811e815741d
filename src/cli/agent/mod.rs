//! `ati --agent`: what ati can do, as ATIP metadata for agents. It is made of the definitions of
//! the command line and of nothing else: no file is read, and none is written.

mod effects;
mod parameters;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, Command};
use serde_json::{Map, Value, json};

use super::{help, output};

/// The revision of ATIP that is written.
pub const VERSION: &str = "0.6";
/// What the texts of commands end with that only say that they aren't there.
const ABSENT: &str = "(not in this version)";

/// The options of the root command, for the help. `ati --agent` itself is answered before the
/// command line is parsed, because it has no command.
pub fn options() -> [Arg; 3] {
    [
        Arg::new("agent")
            .long("agent")
            .action(ArgAction::SetTrue)
            .help("Print what ati can do as JSON, for agents (ATIP)"),
        Arg::new("commands")
            .long("commands")
            .value_name("NAME,...")
            .requires("agent")
            .help("With --agent: only these commands"),
        Arg::new("depth")
            .long("depth")
            .value_name("N")
            .requires("agent")
            .help("With --agent: only so many levels of commands"),
    ]
}

/// Answers a command line that is `--agent` and its options.
pub fn answer(words: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    let words: Vec<String> = words
        .skip(1)
        .map(|it| it.into_string().ok())
        .collect::<Option<_>>()?;
    if !words.iter().any(|word| word == "--agent") {
        return None;
    }
    let filter = Filter::read(&words)?;
    let printed = filter.and_then(|filter| document(&filter)).map(|document| {
        output::pretty(&document);
        output::finish()
    });
    Some(match printed {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(_)) => ExitCode::FAILURE,
        Err(message) => help::command()
            .error(ErrorKind::InvalidValue, message)
            .exit(),
    })
}

/// What an agent asks for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Filter {
    /// Commands, each with the words of its path. None: all of them.
    commands: Option<Vec<String>>,
    depth: Option<usize>,
}

impl Filter {
    /// None where there is any other word: then it is an ordinary command line.
    fn read(words: &[String]) -> Option<Result<Self, String>> {
        let mut filter = Filter::default();
        let mut words = words.iter().map(String::as_str);
        while let Some(word) = words.next() {
            let (name, value) = match word.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (word, None),
            };
            match name {
                "--agent" | "--json" | "-J" | "--verbose" if value.is_none() => {}
                "--commands" => {
                    let list = value.or_else(|| words.next()).unwrap_or_default();
                    let names = list.split(',').map(|it| it.trim().replace('.', " "));
                    filter.commands = Some(names.filter(|it| !it.is_empty()).collect());
                }
                "--depth" => {
                    let text = value.or_else(|| words.next()).unwrap_or_default();
                    let Some(depth) = text.parse().ok().filter(|depth| *depth > 0) else {
                        return Some(Err(format!("--depth '{text}' is no number above 0")));
                    };
                    filter.depth = Some(depth);
                }
                _ => return None,
            }
        }
        Some(Ok(filter))
    }

    fn to_json(&self) -> Value {
        let mut members = Map::new();
        if let Some(commands) = &self.commands {
            members.insert("commands".into(), json!(commands));
        }
        if let Some(depth) = self.depth {
            members.insert("depth".into(), depth.into());
        }
        members.into()
    }

    fn wants(&self, path: &str) -> bool {
        self.commands.as_ref().is_none_or(|wanted| {
            let below = |one: &str, other: &str| {
                let rest = one.strip_prefix(other);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
            };
            let mut wanted = wanted.iter();
            wanted.any(|wanted| below(path, wanted) || below(wanted, path))
        })
    }
}

fn document(filter: &Filter) -> Result<Value, String> {
    let mut root = help::command();
    root.build();
    let everything = Filter::default();
    let mut all = Walk::new(&everything);
    all.commands(&root, "");
    if let Some(wanted) = &filter.commands {
        let is_there = |name: &&String| !all.paths.contains(name);
        if let Some(missing) = wanted.iter().find(is_there) {
            return Err(format!("there is no command '{missing}'"));
        }
    }
    let mut included = Walk::new(filter);
    let commands = included.commands(&root, "");
    let mut document = json!({
        "atip": VERSION,
        "name": "ati",
        "version": env!("CARGO_PKG_VERSION"),
        "description": env!("CARGO_PKG_DESCRIPTION"),
        "trust": {"source": "native"},
        "commands": commands,
        "globalOptions": parameters::global_options(&root),
        "authentication": authentication(),
        "patterns": patterns(),
    });
    if *filter != everything {
        let (total, leaves) = (all.leaves, included.leaves);
        let members = document.as_object_mut().map(|members| {
            members.insert("partial".into(), true.into());
            members.insert("filter".into(), filter.to_json());
            members.insert("totalCommands".into(), total.into());
            members.insert("includedCommands".into(), leaves.into());
            if leaves < total {
                let reason = match filter.commands {
                    Some(_) => "filtered",
                    None => "depth-limited",
                };
                let omitted = json!({"reason": reason, "safetyAssumption": "unknown"});
                members.insert("omitted".into(), omitted);
            }
        });
        debug_assert!(members.is_some());
    }
    Ok(document)
}

/// Collects commands.
struct Walk<'a> {
    filter: &'a Filter,
    paths: Vec<String>,
    /// Commands without others below them.
    leaves: usize,
}

impl<'a> Walk<'a> {
    fn new(filter: &'a Filter) -> Self {
        Walk {
            filter,
            paths: Vec::new(),
            leaves: 0,
        }
    }

    /// `above`: the path of the command, which is empty for ati itself.
    fn commands(&mut self, command: &Command, above: &str) -> Map<String, Value> {
        let depth = above.split_whitespace().count();
        let mut commands = Map::new();
        if self.filter.depth.is_some_and(|most| depth >= most) {
            return commands;
        }
        for sub in command.get_subcommands().filter(is_there) {
            let path = format!("{above} {}", sub.get_name());
            let path = path.trim_start();
            if self.filter.wants(path) {
                commands.insert(sub.get_name().to_owned(), self.command(sub, path));
            }
        }
        commands
    }

    fn command(&mut self, command: &Command, path: &str) -> Value {
        self.paths.push(path.to_owned());
        let mut shown = Map::new();
        shown.insert("description".into(), about(command).into());
        if command.get_subcommands().any(|sub| is_there(&sub)) {
            let below = self.commands(command, path);
            if !below.is_empty() {
                shown.insert("commands".into(), below.into());
            }
            return shown.into();
        }
        self.leaves += 1;
        for (key, list) in [
            ("arguments", parameters::arguments(command)),
            ("options", parameters::options(command)),
        ] {
            if !list.is_empty() {
                shown.insert(key.into(), list.into());
            }
        }
        if let Some(effects) = effects::of(path) {
            shown.insert("effects".into(), json!(effects));
        }
        let examples = help::examples(&format!("ati {path}")).unwrap_or_default();
        if !examples.is_empty() {
            let plain = |line: &&str| {
                let words = line.replace("\\\n", " ");
                words.split_whitespace().collect::<Vec<_>>().join(" ")
            };
            shown.insert("examples".into(), examples.iter().map(plain).collect());
        }
        shown.into()
    }
}

/// Whether agents may use it, and whether it does anything.
fn is_there(command: &&Command) -> bool {
    let is_help = command.get_name() == "help";
    !is_help && !command.is_hide_set() && !about(command).ends_with(ABSENT)
}

fn about(command: &Command) -> String {
    command
        .get_about()
        .map(ToString::to_string)
        .unwrap_or_default()
}

fn authentication() -> Value {
    json!({
        "required": false,
        "methods": [{
            "type": "token",
            "envVar": "ATI_SESSION_TOKEN",
            "description": "A session token, where the machine or the proxy of ATI_PROXY_URL wants one",
        }],
        "checkCommand": "ati auth status",
    })
}

fn patterns() -> Value {
    json!([
        {
            "name": "find-and-call-a-tool",
            "description": "Find a tool, see what it takes, and call it",
            "steps": [
                {"command": "ati tool search {words}", "description": "Find tools by words"},
                {"command": "ati tool info {tool}", "description": "Arguments, effects and examples"},
                {"command": "ati run {tool} --{argument} {value}", "description": "Call it"},
            ],
            "variables": {
                "words": {"type": "string", "description": "What the tool should do"},
                "tool": {"type": "string", "description": "A name that the search has found"},
                "argument": {"type": "string", "description": "An argument of the tool"},
                "value": {"type": "string", "description": "Its value"},
            },
        },
        {
            "name": "all-tools-as-atip",
            "description": "Describe every tool that ati can call as ATIP metadata",
            "steps": [{"command": "ati tool export --atip"}],
        },
        {
            "name": "add-a-local-tool",
            "description": "Find programs that describe themselves, and check a manifest for one",
            "steps": [
                {"command": "ati provider scan", "description": "Find tools and shims"},
                {"command": "ati provider validate {manifest}", "description": "Check it"},
            ],
            "variables": {"manifest": {"type": "file", "description": "With handler = \"atip\""}},
        },
    ])
}

/// Tools of the catalogue as commands below `ati run`.
pub fn of_tools(tools: Map<String, Value>) -> Value {
    let run = json!({"description": "Call a tool", "commands": tools});
    json!({
        "atip": VERSION,
        "name": "ati",
        "version": env!("CARGO_PKG_VERSION"),
        "description": env!("CARGO_PKG_DESCRIPTION"),
        "trust": {"source": "native"},
        "commands": {"run": run},
        "authentication": authentication(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::atip::metadata::Metadata;
    use crate::catalog::json_reader::Findings;

    fn ask(filter: &Filter) -> (Value, Metadata) {
        let document = document(filter).unwrap();
        let mut found = Findings::default();
        let metadata = Metadata::read(&document, &mut found).unwrap();
        assert!(found.is_empty(), "{found:?}");
        (document, metadata)
    }

    #[test]
    fn own_metadata_is_valid_and_each_command_has_effects() {
        let (document, metadata) = ask(&Filter::default());
        assert!(document.get("partial").is_none());
        assert!(metadata.commands.len() > 30, "{}", metadata.commands.len());
        for command in &metadata.commands {
            let path = command.path.join(" ");
            assert!(effects::of(&path).is_some(), "no effects for 'ati {path}'");
            assert!(!command.effects.is_empty(), "{path}");
        }
    }

    #[test]
    fn commands_and_options_are_those_of_the_parser() {
        let (_, metadata) = ask(&Filter::default());
        for command in &metadata.commands {
            let mut parser = help::command();
            parser.build();
            let mut found = &parser;
            for word in &command.path {
                found = found.find_subcommand(word).unwrap();
            }
            let known: Vec<String> = found.get_arguments().flat_map(parameters::flags).collect();
            for flag in command.options.iter().flat_map(|option| &option.flags) {
                assert!(known.contains(flag), "{:?} {flag}", command.path);
            }
        }
    }

    #[test]
    fn agent_gets_the_part_that_it_asks_for() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let read = |text: &str| Filter::read(&words(text));
        assert_eq!(read("--agent"), Some(Ok(Filter::default())));
        assert_eq!(read("--agent run"), None);
        assert!(read("--agent --depth=0").unwrap().is_err());
        let filter = read("--agent --commands=tool,provider.scan")
            .unwrap()
            .unwrap();
        let (document, metadata) = ask(&filter);
        let paths: Vec<_> = metadata
            .commands
            .iter()
            .map(|it| it.path.join(" "))
            .collect();
        assert!(paths.contains(&"provider scan".to_owned()), "{paths:?}");
        assert!(paths.contains(&"tool search".to_owned()), "{paths:?}");
        assert!(!paths.contains(&"provider list".to_owned()), "{paths:?}");
        assert_eq!(document["omitted"]["reason"], "filtered");
        assert_eq!(document["includedCommands"], metadata.commands.len());
        let filter = read("--agent --depth 1").unwrap().unwrap();
        let shallow = self::document(&filter).unwrap();
        assert!(shallow["commands"]["tool"].get("commands").is_none());
        assert_eq!(shallow["omitted"]["reason"], "depth-limited");
        let filter = read("--agent --commands=nonsense").unwrap().unwrap();
        assert!(self::document(&filter).is_err());
    }

    #[test]
    fn steps_of_patterns_are_commands() {
        for pattern in patterns().as_array().unwrap() {
            for step in pattern["steps"].as_array().unwrap() {
                let command = step["command"].as_str().unwrap();
                let words = command.split_whitespace();
                help::command().try_get_matches_from(words).unwrap();
            }
        }
    }
}
