//! The help texts as a whole: the definitions of all commands, with the options that every command
//! has in a group of their own, and with examples.

use clap::{Arg, ArgAction, Command, CommandFactory};

use super::Cli;

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
        .chain(super::skill::EXAMPLES)
        .chain(super::skillati::EXAMPLES);
    // One command with two names.
    let path = path.replace("ati skill fetch", "ati skillati");
    rows.find(|(known, _)| *known == path)
        .map(|(_, lines)| *lines)
}

/// Lines to type, by command. A test parses each of them.
const EXAMPLES: &[(&str, &[&str])] = &[
    (
        "ati",
        &[
            "ati init --example                     # a tool and a route to try, and what to type",
            "ati tool search \"stock price\"          # which tools are there?",
            "ati run market:quote --symbol AAPL     # call one",
        ],
    ),
    (
        "ati run",
        &[
            "ati run market:quote --help",
            "ati run market:quote --symbol AAPL",
            "ati run market:search --query \"red hat\" --limit 5 --output table",
        ],
    ),
    (
        "ati sign",
        &["ati sign GET https://ati.example.com/openai/v1/models"],
    ),
    ("ati status", &["ati status", "ati -J status"]),
    ("ati reload", &["ati reload"]),
    ("ati tool", &["ati tool list", "ati tool info market:quote"]),
    (
        "ati tool list",
        &[
            "ati tool list",
            "ati --output table tool list --provider github",
        ],
    ),
    (
        "ati tool info",
        &["ati --output text tool info market:quote"],
    ),
    (
        "ati tool export",
        &[
            "ati tool export --atip",
            "ati tool export --atip --provider github > github.json",
        ],
    ),
    ("ati tool search", &["ati tool search insider trades"]),
    (
        "ati provider",
        &[
            "ati provider list",
            "ati provider import-openapi https://petstore3.swagger.io/api/v3/openapi.json",
        ],
    ),
    (
        "ati provider add-mcp",
        &[
            "ati provider add-mcp linear --transport http --url https://mcp.linear.app/mcp \\\n      \
             --auth bearer --auth-key linear_key",
            "ati provider add-mcp files --transport stdio --command npx --args -y \\\n      \
             --args @modelcontextprotocol/server-filesystem --args /srv/files",
        ],
    ),
    (
        "ati provider add-cli",
        &["ati provider add-cli gh --command gh --env 'GH_TOKEN=${github_token}'"],
    ),
    (
        "ati provider import-openapi",
        &[
            "ati provider import-openapi https://petstore3.swagger.io/api/v3/openapi.json",
            "ati provider import-openapi ./billing.yaml --name billing --dry-run",
        ],
    ),
    (
        "ati provider inspect-openapi",
        &[
            "ati provider inspect-openapi ./billing.yaml",
            "ati -J provider inspect-openapi ./billing.yaml --include-tags invoices",
        ],
    ),
    (
        "ati provider list",
        &[
            "ati --output table provider list",
            "ati provider list --live",
        ],
    ),
    (
        "ati provider scan",
        &[
            "ati provider scan",
            "ati provider scan --probe --path ~/.local/bin",
        ],
    ),
    ("ati provider info", &["ati provider info github"]),
    ("ati provider remove", &["ati provider remove billing"]),
    (
        "ati provider load",
        &[
            "ati provider load https://petstore3.swagger.io/api/v3/openapi.json --ttl 600",
            "ati provider load --mcp --transport http --url https://mcp.linear.app/mcp",
        ],
    ),
    (
        "ati provider unload",
        &["ati provider unload petstore3_swagger"],
    ),
    (
        "ati provider validate",
        &["ati provider validate ~/.ati/manifests/*.toml --strict"],
    ),
    (
        "ati provider schema",
        &["ati provider schema > manifest.schema.json"],
    ),
    ("ati auth", &["ati auth status"]),
    ("ati auth status", &["ati --output text auth status"]),
    (
        "ati audit",
        &["ati audit tail", "ati audit search --since 1h"],
    ),
    (
        "ati audit tail",
        &["ati audit tail -n 50", "ati --output text audit tail"],
    ),
    (
        "ati audit search",
        &["ati audit search --tool 'github:*' --since 7d"],
    ),
    (
        "ati proxy",
        &[
            "ati proxy --enable-passthrough --admin 127.0.0.1:9090",
            "ati proxy --conf /etc/ati/ati.toml --sig-verify-mode enforce",
        ],
    ),
    (
        "ati check",
        &[
            "ati check",
            "ati --output text check --conf /etc/ati/ati.toml --strict",
        ],
    ),
    (
        "ati doctor",
        &[
            "ati doctor",
            "ati -J doctor --conf /etc/ati/ati.toml --offline",
        ],
    ),
    (
        "ati demo",
        &[
            "ati demo             # until Ctrl-C, with lines to paste",
            "ati demo --check     # sends them itself",
        ],
    ),
    (
        "ati init",
        &["ati init", "ati init --example", "ati init --proxy --es256"],
    ),
    ("ati key", &["ati key set github_token -", "ati key list"]),
    (
        "ati key set",
        &[
            "ati key set github_token - < token.txt",
            "ati key set github_token ghp_abc123",
        ],
    ),
    ("ati key list", &["ati key list", "ati -J key list"]),
    ("ati key remove", &["ati key remove github_token"]),
    (
        "ati edge",
        &[
            "ati edge bootstrap-keyring --vault Production --item ati-edge",
            "ati edge keyring list",
        ],
    ),
    (
        "ati edge bootstrap-keyring",
        &[
            "ati edge bootstrap-keyring --vault Production --item ati-edge",
            "ati edge bootstrap-keyring --ati-dir /var/lib/ati --from-file - < secrets.json",
        ],
    ),
    (
        "ati edge rotate-keyring",
        &[
            "ati edge rotate-keyring --vault Production --item ati-edge",
            "ati edge rotate-keyring --from-file secrets.json --verify http://127.0.0.1:9090",
        ],
    ),
    (
        "ati edge keyring",
        &["ati edge keyring list", "ati edge keyring fingerprint"],
    ),
    (
        "ati edge keyring list",
        &["ati edge keyring list --ati-dir /var/lib/ati"],
    ),
    (
        "ati edge keyring diff",
        &["ati edge keyring diff --from-file secrets.json"],
    ),
    (
        "ati edge keyring fingerprint",
        &["ati edge keyring fingerprint --ati-dir /var/lib/ati"],
    ),
    (
        "ati edge keyring set",
        &["ati edge keyring set github_token < token.txt"],
    ),
    (
        "ati edge keyring remove",
        &["ati edge keyring remove github_token"],
    ),
    (
        "ati token",
        &["ati token issue --sub agent-7 --scope 'tool:github:*'"],
    ),
    (
        "ati token keygen",
        &["ati token keygen", "ati token keygen --algorithm HS256"],
    ),
    (
        "ati token issue",
        &[
            "ati token issue --sub agent-7 --scope 'tool:github:* help' --ttl 1h",
            "ati token issue --sub agent-7 --scope 'tool:*' --rate 'tool:*=100/hour'",
        ],
    ),
    (
        "ati token inspect",
        &["ati token inspect \"$ATI_SESSION_TOKEN\""],
    ),
    (
        "ati token validate",
        &["ati token validate \"$ATI_SESSION_TOKEN\""],
    ),
    ("ati version", &["ati version", "ati -J version"]),
    (
        "ati completions",
        &[
            "source <(ati completions bash)",
            "ati completions zsh > ~/.zfunc/_ati",
            "ati completions fish > ~/.config/fish/completions/ati.fish",
        ],
    ),
    ("ati mcp", &["ati mcp serve # what an MCP client starts"]),
    ("ati runfile", &["ati runfile inspect"]),
    (
        "ati runfile inspect",
        &["ati runfile inspect", "ati runfile inspect ~/project"],
    ),
    (
        "ati mcp serve",
        &[
            "ati mcp serve",
            "ATI_PROXY_URL=https://ati.example.com ati mcp serve --search",
            "ati mcp serve --search",
            "ati mcp serve --runfile ~/project/Runfile --readonly",
        ],
    ),
    (
        "ati man",
        &[
            "ati man | man -l -",
            "ati man token issue | man -l -",
            "ati man --dir /usr/local/share/man/man1",
        ],
    ),
];

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

    /// A command that says that it isn't there yet.
    fn is_later(command: &Command) -> bool {
        let about = command.get_about().map(ToString::to_string);
        about.is_some_and(|about| about.ends_with("(not in this version)"))
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
            if !is_later(command) && !help.contains("Examples:\n  ") {
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
