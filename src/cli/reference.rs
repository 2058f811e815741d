//! The pages of docs/reference, generated from the code that they describe.

use std::fmt::Write as _;
use std::path::PathBuf;

use super::assist;
use super::file_failure;
use crate::config::{VARIABLES, fields};
use crate::error::{Code, Failure};
use crate::files;
use crate::telemetry::metrics::{CATALOGUE, MetricRow};

#[derive(clap::Args)]
pub struct Args {
    /// Folder to write to
    dir: PathBuf,
}

pub fn run(args: &Args) -> Result<u8, Failure> {
    let pages = [
        ("commands.md", commands()),
        ("environment.md", environment()),
        ("metrics.md", metrics()),
        ("errors.md", errors()),
        ("manifest.md", manifest()),
    ];
    for (name, text) in pages {
        let path = args.dir.join(name);
        files::write_atomic(&path, text.as_bytes(), 0o644)
            .map_err(|e| file_failure(Code::ExecutionFailed, &path, e))?;
    }
    Ok(0)
}

const MADE: &str = "<!-- Made by `make docs` from the code. Edit the code. -->\n\n";

fn commands() -> String {
    let mut text = format!("{MADE}# Commands\n");
    let mut root = super::help::command().term_width(100);
    root.build();
    describe(&mut root, "ati", &mut text);
    text
}

fn describe(command: &mut clap::Command, name: &str, text: &mut String) {
    let help = command.render_long_help().to_string();
    let help: Vec<&str> = help.lines().map(str::trim_end).collect();
    let _ = write!(
        text,
        "\n## {name}\n\n```text\n{}\n```\n",
        help.join("\n").trim_end()
    );
    for sub in command.get_subcommands_mut() {
        if sub.get_name() != "help" && !sub.is_hide_set() {
            let name = format!("{name} {}", sub.get_name());
            describe(sub, &name, text);
        }
    }
}

fn environment() -> String {
    let mut text = format!(
        "{MADE}# Environment variables\n\n| Variable | Default | Meaning |\n|---|---|---|\n"
    );
    let mut all = [VARIABLES, assist::VARIABLES].concat();
    all.sort();
    for (name, default, meaning) in all {
        let _ = writeln!(text, "| `{name}` | {default} | {meaning} |");
    }
    text
}

fn metrics() -> String {
    let mut text = format!(
        "{MADE}# Metrics\n\nServed on the admin listener under `/metrics`. `status` is the class \
         (`2xx`), or `none` where the caller\nleft before an answer; `route` is a provider's name, \
         a built-in's path, or `unmatched`.\n\n\
         | Metric | Kind | Labels | Meaning |\n|---|---|---|---|\n"
    );
    for MetricRow {
        name,
        kind,
        labels,
        help,
    } in CATALOGUE
    {
        let labels = labels.join(", ");
        let _ = writeln!(text, "| `{name}` | {kind} | {labels} | {help} |");
    }
    text
}

fn manifest() -> String {
    let mut text = format!(
        "{MADE}# Manifests\n\nA file has one `[provider]` table and, for HTTP tools, a \
         `[[tools]]` table for each tool.\n`ati provider validate FILE` checks a manifest; \
         `ati provider schema` prints a JSON Schema for editors.\n\
         More about each kind: [tools](../tools.md), \
         [OpenAPI](../openapi.md), [passthrough](../passthrough.md).\n"
    );
    for group in fields::GROUPS {
        let note = group.note().map(|note| format!("{note}\n\n"));
        let _ = write!(
            text,
            "\n## {}\n\n{}| Field | Type | Default | Meaning |\n|---|---|---|---|\n",
            group.title,
            note.unwrap_or_default()
        );
        for field in group.fields {
            let kind = field.kind.words();
            let _ = writeln!(
                text,
                "| `{}` | {kind} | {} | {} |",
                field.name, field.default, field.meaning
            );
        }
    }
    text
}

fn errors() -> String {
    let mut text = format!(
        "{MADE}# Error codes\n\nWhere the output is JSON, a failed command prints one line on \
         stderr: `{{\"error\":{{\"code\",\"message\",\"exit_code\"}}}}`, unless that is a terminal.\n\
         It may have `hint` (what to do) and, of a proxy's answer, `status` and `request_id`.\nWith `--verbose` it has \
         `chain` too, the list of causes, outermost first.\n\n| Code | Exit code |\n|---|---|\n"
    );
    for code in Code::ALL {
        let _ = writeln!(text, "| `{}` | {} |", code.as_str(), code.exit_code());
    }
    text
}
