//! The help texts as a whole: the definitions of all commands, with the options that every command
//! has in a group of their own, and with examples.

mod examples;

use clap::{Arg, ArgAction, Command, CommandFactory};

use super::Cli;
use examples::EXAMPLES;

/// The heading of the options that every command has.
pub const GLOBAL: &str = "Global options";

/// The parser of the command line.
pub fn command() -> Command {
    let root = Cli::command()
        .disable_help_flag(true)
        .disable_version_flag(true)
        .args(super::agent::options())
        .arg(global("help", 'h', ArgAction::Help).help("Print help"))
        .arg(global("version", 'V', ArgAction::Version).help("Print the version"));
    with_examples(root, "ati")
}

fn global(name: &'static str, short: char, action: ArgAction) -> Arg {
    Arg::new(name)
        .short(short)
        .long(name)
        .action(action)
        .global(true)
        .help_heading(GLOBAL)
}

fn with_examples(mut command: Command, path: &str) -> Command {
    if let Some(examples) = examples(path) {
        let lines: Vec<String> = examples.iter().map(|line| format!("  {line}")).collect();
        let text = format!("Examples:\n{}", lines.join("\n"));
        let after = |own: Option<&clap::builder::StyledStr>| match own {
            Some(own) => format!("{own}\n\n{text}"),
            None => text.clone(),
        };
        let long = command.get_after_long_help().map(|own| after(Some(own)));
        let short = after(command.get_after_help());
        command = command.after_help(short);
        if let Some(long) = long {
            command = command.after_long_help(long);
        }
    }
    let subs: Vec<String> = command
        .get_subcommands()
        .map(|sub| sub.get_name().to_owned())
        .collect();
    for sub in subs {
        let path = format!("{path} {sub}");
        command = command.mut_subcommand(sub, |sub| with_examples(sub, &path));
    }
    command
}

/// Lines to type for a command.
pub fn examples(path: &str) -> Option<&'static [&'static str]> {
    let mut rows = EXAMPLES
        .iter()
        .chain(super::assist::EXAMPLES)
        .chain(super::sandbox::EXAMPLES)
        .chain(super::skill::EXAMPLES)
        .chain(super::skillati::EXAMPLES);
    // One command with two names.
    let path = path.replace("ati skill fetch", "ati skillati");
    rows.find(|(known, _)| *known == path)
        .map(|(_, lines)| *lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls `check` with every command that people see, and with its path.
    fn walk(command: &Command, path: &str, check: &mut impl FnMut(&Command, &str)) {
        check(command, path);
        for sub in command.get_subcommands() {
            if sub.get_name() != "help" && !sub.is_hide_set() {
                walk(sub, &format!("{path} {}", sub.get_name()), check);
            }
        }
    }

    fn built() -> Command {
        let mut root = command();
        root.build();
        root
    }

    #[test]
    fn definitions_are_consistent() {
        command().debug_assert();
    }

    #[test]
    fn every_command_and_argument_is_described() {
        let mut missing = Vec::new();
        walk(&built(), "ati", &mut |command, path| {
            if command.get_about().is_none() {
                missing.push(path.to_owned());
            }
            let arguments = command.get_arguments().filter(|arg| !arg.is_hide_set());
            for arg in arguments.filter(|arg| arg.get_help().is_none()) {
                missing.push(format!("{path}: {}", arg.get_id()));
            }
        });
        assert!(missing.is_empty(), "without a text: {missing:#?}");
    }

    #[test]
    fn every_command_has_an_example() {
        let mut missing = Vec::new();
        walk(&built(), "ati", &mut |command, path| {
            let help = command.clone().render_help().to_string();
            if !help.contains("Examples:\n  ") {
                missing.push(path.to_owned());
            }
        });
        assert!(missing.is_empty(), "without an example: {missing:#?}");
    }

    #[test]
    fn every_example_can_be_typed() {
        let mut typed = 0;
        walk(&built(), "ati", &mut |_, path| {
            for line in examples(path).unwrap_or_default() {
                let line = line.replace("\\\n", " ");
                let line = line.split(" # ").next().unwrap();
                let at = line.find("ati ").unwrap();
                let words = words(&line[at..]);
                let matches = command().try_get_matches_from(&words);
                assert!(matches.is_ok(), "{line}\n{}", matches.unwrap_err());
                typed += 1;
            }
        });
        assert!(typed > 40, "{typed}");
    }

    /// The words of one command, as a shell would split the examples above.
    fn words(line: &str) -> Vec<String> {
        let mut words = vec![String::new()];
        let mut quote = None;
        for c in line.chars() {
            match (quote, c) {
                (None, '<' | '>' | '|' | ')') => break,
                (None, '\'' | '"') => quote = Some(c),
                (Some(open), c) if c == open => quote = None,
                (None, ' ') => words.push(String::new()),
                (_, c) => words.last_mut().unwrap().push(c),
            }
        }
        words.retain(|word| !word.is_empty());
        words
    }

    #[test]
    fn global_options_stand_in_a_group_of_their_own_at_the_end() {
        walk(&built(), "ati", &mut |command, path| {
            let help = command.clone().render_help().to_string();
            let (own, global) = help.split_once(GLOBAL).expect(path);
            for option in ["--output", "--json", "--verbose", "--help", "--version"] {
                let listed = |text: &str| {
                    text.lines().any(|line| {
                        line.trim_start()
                            .trim_start_matches("-J, ")
                            .trim_start_matches("-h, ")
                            .trim_start_matches("-V, ")
                            .strip_prefix(option)
                            .is_some_and(|rest| !rest.starts_with('-'))
                    })
                };
                assert!(listed(global) && !listed(own), "{path} {option}:\n{help}");
            }
            // Other groups come before.
            assert!(!global.contains("\nOptions:"), "{path}");
        });
    }
}
