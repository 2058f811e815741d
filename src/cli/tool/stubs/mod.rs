//! `ati tool stubs`: a function for each tool that the caller may use, with the types of its
//! schema. Each runs `ati run`, so the code that calls them needs nothing but ati.

mod kind;
mod names;
mod python;
mod typescript;

use serde_json::{Value, json};
use tracing::warn;

use crate::cli::run::is_program;
use crate::cli::{Format, output};
use kind::{Field, fields};

#[derive(clap::Args)]
pub struct Args {
    /// The language
    #[arg(long, value_enum)]
    lang: Language,

    /// Only the tools of this provider
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Language {
    /// Python 3.9 and later
    #[value(alias = "python")]
    Py,
    /// TypeScript for Node.js
    #[value(alias = "typescript")]
    Ts,
}

impl Args {
    pub fn takes(&self, provider: &str) -> bool {
        self.provider.as_ref().is_none_or(|name| name == provider)
    }

    pub fn provider(&self) -> Option<&str> {
        self.provider.as_deref()
    }

    pub fn query(&self) -> Vec<(&str, &str)> {
        let provider = self.provider.iter();
        provider.map(|name| ("provider", name.as_str())).collect()
    }
}

/// A tool as a function.
struct Function<'a> {
    tool: &'a str,
    description: &'a str,
    /// None: a program, which takes words.
    fields: Option<Vec<Field>>,
}

/// `tools`: as `GET /tools` has them.
pub fn print(args: &Args, tools: &[Value], asked: Option<Format>) {
    let functions: Vec<Function<'_>> = tools.iter().filter_map(function).collect();
    if functions.is_empty() {
        warn!("No tools found. 'ati tool list' shows what you may use");
    }
    let source = match args.lang {
        Language::Py => python::module(&functions),
        Language::Ts => typescript::module(&functions),
    };
    output::lines_or_value(
        asked,
        || output::line(source.trim_end()),
        || {
            let lang = match args.lang {
                Language::Py => "py",
                Language::Ts => "ts",
            };
            json!({"lang": lang, "functions": functions.len(), "source": source})
        },
    );
}

fn function(tool: &Value) -> Option<Function<'_>> {
    Some(Function {
        tool: tool["name"].as_str()?,
        description: tool["description"].as_str().unwrap_or_default(),
        fields: (!is_program(tool)).then(|| fields(&tool["input_schema"])),
    })
}

/// Text of an upstream for a comment: its lines, without other control characters.
fn comment_lines(text: &str) -> Vec<String> {
    let clean = |line: &str| line.replace(char::is_control, " ").trim_end().to_owned();
    text.trim().lines().map(clean).collect()
}
