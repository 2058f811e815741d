//! What runs a function: its interpreter, a script that is made once, and the values of a call as
//! the interpreter's own arguments. No value is ever a part of a script.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::function::{Function, Interpreter, Kind, Parameter};
use super::{Runfile, load, quote};

/// Bytes of one argument, which the system limits.
const LONGEST_VALUE: usize = (128 << 10) - 1;
/// Where PowerShell finds its values: it takes arguments for a part of the script.
const VALUES: &str = "ATI_RUNFILE_VALUES";

/// A function, ready to be run.
#[derive(Debug)]
pub struct Command {
    pub interpreter: Interpreter,
    script: String,
    /// Where it runs.
    pub folder: PathBuf,
    /// Plain variables.
    pub env: Vec<(String, String)>,
    /// The name of the function, which a shell calls `$0`.
    name: String,
}

/// The words of one call.
pub struct Filled {
    pub words: Vec<String>,
    pub env: Vec<(String, String)>,
}

/// Why arguments can't be given to a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unfit {
    pub name: String,
    pub what: String,
    pub missing: bool,
}

impl Command {
    /// `folder` is that of the Runfile.
    pub fn new(runfile: &Runfile, function: &Arc<Function>, folder: &std::path::Path) -> Self {
        // Checked when the file was loaded.
        let before = load::order(runfile, function).unwrap_or_default();
        let through_shell = function.interpreter.is_shell() || !before.is_empty();
        let interpreter = match through_shell && !function.interpreter.is_shell() {
            true => Interpreter::Bash,
            false => function.interpreter,
        };
        let script = match through_shell {
            true => shell_script(runfile, function, &before, interpreter),
            false => foreign_script(function),
        };
        let text = |path: &std::path::Path| path.to_string_lossy().into_owned();
        Command {
            interpreter,
            script,
            folder: function
                .cd
                .clone()
                .unwrap_or_else(|| function.folder.clone()),
            env: vec![
                ("__RUNFILE_DIR__".to_owned(), text(folder)),
                ("__SOURCE_DIR__".to_owned(), text(&function.folder)),
            ],
            name: function.name.clone(),
        }
    }

    /// The interpreter's words for a call with these arguments.
    pub fn fill(&self, function: &Function, args: &Map<String, Value>) -> Result<Filled, Unfit> {
        let values = values(function, args)?;
        let script = self.script.clone();
        let before = match self.interpreter {
            Interpreter::Bash | Interpreter::Sh => {
                vec!["-c".to_owned(), script, self.name.clone()]
            }
            Interpreter::Python => vec!["-c".to_owned(), script],
            // Behind `--`, nothing is an option of theirs.
            Interpreter::Node | Interpreter::Ruby => {
                vec!["-e".to_owned(), script, "--".to_owned()]
            }
            Interpreter::Pwsh => {
                let words = ["-NoProfile", "-NonInteractive", "-Command", &script];
                return Ok(Filled {
                    words: words.map(str::to_owned).to_vec(),
                    env: vec![(VALUES.to_owned(), Value::from(values).to_string())],
                });
            }
        };
        Ok(Filled {
            words: before.into_iter().chain(values).collect(),
            env: Vec::new(),
        })
    }
}

/// The values in the order of their positions. What is left out at the end isn't given; what is
/// left out before another value is an empty text.
fn values(function: &Function, args: &Map<String, Value>) -> Result<Vec<String>, Unfit> {
    let mut values: Vec<String> = Vec::new();
    for parameter in &function.parameters {
        let given = args.get(&parameter.name).filter(|value| !value.is_null());
        let mut texts = Vec::new();
        match (given, &parameter.default) {
            (Some(Value::Array(items)), _) if parameter.is_rest => {
                for item in items {
                    texts.push(text_of(parameter, item)?);
                }
            }
            (Some(value), _) => texts.push(text_of(parameter, value)?),
            (None, Some(default)) => texts.push(default.clone()),
            (None, None) if parameter.required => {
                return Err(Unfit {
                    name: parameter.name.clone(),
                    what: "it is missing".to_owned(),
                    missing: true,
                });
            }
            (None, None) => {}
        }
        if !texts.is_empty() {
            // Positions of parameters that are not given, or that no parameter has.
            let before = parameter.position - 1;
            values.resize(values.len().max(before), String::new());
            values.extend(texts);
        }
    }
    Ok(values)
}

fn text_of(parameter: &Parameter, value: &Value) -> Result<String, Unfit> {
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let unfit = |what: String| Unfit {
        name: parameter.name.clone(),
        what,
        missing: false,
    };
    // Numbers and truth values of JSON have nothing that could be run.
    let is_simple = matches!(value, Value::Number(_) | Value::Bool(_));
    if let Some(evaluated) = parameter.evaluated
        && !is_simple
        && !evaluated.is_plain(&text)
    {
        return Err(unfit(format!("it has to be {}", evaluated.wanted())));
    }
    if text.contains('\0') {
        let what = "it has a NUL byte, which no argument of a program can have";
        return Err(unfit(what.to_owned()));
    }
    if text.len() > LONGEST_VALUE {
        return Err(unfit(format!(
            "it has {} bytes; one argument of a program has at most {LONGEST_VALUE} (128 KiB)",
            text.len()
        )));
    }
    Ok(text)
}

/// The function, with all that it may call.
fn shell_script(
    runfile: &Runfile,
    function: &Arc<Function>,
    before: &[&Arc<Function>],
    interpreter: Interpreter,
) -> String {
    let mut script = String::new();
    if function.stops_at_errors {
        script += match interpreter {
            Interpreter::Bash => "set -eo pipefail\n",
            _ => "set -e\n",
        };
    }
    for assignment in &runfile.assignments {
        let _ = writeln!(script, "{assignment}");
    }
    for other in called(runfile, function, before) {
        define(&mut script, other, interpreter);
    }
    let _ = write!(script, "__run__() {{\n{}}}\n", shell_body(function));
    for other in before {
        let _ = writeln!(script, "{}", shell_name(&other.name));
    }
    script += "__run__ \"$@\"\n";
    script
}

/// The functions whose names stand in the text of this one, and in theirs.
fn called<'r>(
    runfile: &'r Runfile,
    function: &'r Arc<Function>,
    before: &[&'r Arc<Function>],
) -> Vec<&'r Arc<Function>> {
    let mut found: HashSet<&str> = before.iter().map(|one| one.name.as_str()).collect();
    let mut open: Vec<&Arc<Function>> = before.to_vec();
    open.push(function);
    while let Some(one) = open
        .pop()
        .filter(|_| found.len() <= runfile.functions.len())
    {
        if !one.interpreter.is_shell() {
            continue;
        }
        for other in &runfile.functions {
            if !found.contains(other.name.as_str()) && names(&one.body, &other.name) {
                found.insert(&other.name);
                open.push(other);
            }
        }
    }
    let all = runfile.functions.iter();
    all.filter(|one| found.contains(one.name.as_str()))
        .collect()
}

/// Whether a name stands in a text as a word.
fn names(text: &str, name: &str) -> bool {
    let part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':' | '-');
    let mapped = shell_name(name);
    [name, mapped.as_str()].iter().any(|name| {
        text.match_indices(name).any(|(at, found)| {
            let before = text[..at].chars().next_back();
            let after = text[at + found.len()..].chars().next();
            !before.is_some_and(part) && !after.is_some_and(part)
        })
    })
}

/// A name that every shell allows for a function.
fn shell_name(name: &str) -> String {
    name.replace(':', "__").replace('-', "_")
}

fn define(script: &mut String, function: &Function, interpreter: Interpreter) {
    let name = shell_name(&function.name);
    let body = shell_body(function);
    let _ = match &function.cd {
        // In a process of its own, so that the folder of the caller stays.
        Some(cd) => {
            let cd = quoted(&cd.to_string_lossy());
            write!(script, "{name}() (\ncd {cd} || exit\n{body})\n")
        }
        None => write!(script, "{name}() {{\n{body}}}\n"),
    };
    if name != function.name && interpreter == Interpreter::Bash {
        let _ = writeln!(script, "{}() {{ {name} \"$@\"; }}", function.name);
    }
}

/// The lines between the braces of a shell function.
fn shell_body(function: &Function) -> String {
    if !function.interpreter.is_shell() {
        let program = function.interpreter.program();
        let script = quoted(&foreign_script(function));
        return match function.interpreter {
            Interpreter::Python => format!("{program} -c {script} \"$@\"\n"),
            Interpreter::Node | Interpreter::Ruby => format!("{program} -e {script} -- \"$@\"\n"),
            // Its values come by a variable, which a shell can't make.
            _ => "echo 'a PowerShell function can only be called as a tool' >&2; return 1\n"
                .to_owned(),
        };
    }
    let mut body = String::new();
    for parameter in function.parameters.iter().filter(|one| one.is_variable) {
        let (name, at) = (&parameter.name, parameter.position);
        let _ = match (&parameter.default, parameter.is_rest) {
            (_, true) => {
                let skipped = at - 1;
                write!(
                    body,
                    "local {name}=''\nif [ $# -gt {skipped} ]; then \
                     {name}=$(shift {skipped}; printf '%s' \"$*\"); fi\n"
                )
            }
            (Some(default), false) => {
                let default = quoted(default);
                writeln!(
                    body,
                    "local {name}={default}\nif [ $# -ge {at} ]; then {name}=\"${{{at}}}\"; fi"
                )
            }
            (None, false) => writeln!(body, "local {name}=\"${{{at}-}}\""),
        };
    }
    let variables = || function.parameters.iter().filter(|one| one.is_variable);
    let single = variables().filter(|one| !one.is_rest);
    let single: Vec<&str> = single.map(|one| one.name.as_str()).collect();
    let rest = variables().find(|one| one.is_rest);
    // Only bash can expand a part of all values; and a variable that is set anew is another one.
    let is_bash = function.interpreter == Interpreter::Bash;
    let rest = rest.filter(|one| is_bash && !function.body.contains(&format!("{}=", one.name)));
    let rest = rest.map(|one| (one.name.as_str(), one.position));
    // A function without a command is a mistake to a shell.
    let text = quote::keep_whole(&function.body, &single, rest);
    let _ = writeln!(body, ":\n{text}");
    body
}

/// A text for a shell, whatever it holds.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// The script of a language that is no shell: variables for the parameters of the head, the body.
fn foreign_script(function: &Function) -> String {
    let mut script = String::new();
    let variables = function.parameters.iter().filter(|one| one.is_variable);
    let variables: Vec<String> = variables
        .filter_map(|parameter| variable(parameter, function.interpreter))
        .collect();
    let folders = ["__RUNFILE_DIR__", "__SOURCE_DIR__"].into_iter();
    let folders: Vec<&str> = folders
        .filter(|name| function.body.contains(name))
        .collect();
    match function.interpreter {
        Interpreter::Python => {
            for name in folders {
                let _ = writeln!(script, "import os as __os; {name} = __os.environ['{name}']");
            }
            if !variables.is_empty() {
                script += "import sys as __sys, json as __json\n";
            }
        }
        Interpreter::Node => {
            for name in folders {
                let _ = writeln!(script, "const {name} = process.env.{name};");
            }
        }
        Interpreter::Ruby => {
            for name in folders {
                let _ = writeln!(script, "{name} = ENV['{name}']");
            }
            if !variables.is_empty() {
                script += "require 'json'\n";
            }
        }
        Interpreter::Pwsh => {
            // The body is read as a block, and gets its values as they are.
            let body = function.body.replace('\'', "''");
            let _ = write!(
                script,
                "$values = @(ConvertFrom-Json $env:{VALUES}); \
                 & ([scriptblock]::Create('{body}')) @values; exit $LASTEXITCODE"
            );
            return script;
        }
        Interpreter::Bash | Interpreter::Sh => {}
    }
    for line in variables {
        let _ = writeln!(script, "{line}");
    }
    script += &function.body;
    script
}

/// A declaration of a variable that holds one value, with its type.
fn variable(parameter: &Parameter, interpreter: Interpreter) -> Option<String> {
    let (name, at) = (&parameter.name, parameter.position);
    // Node has no name of a script in front of the values, as Ruby hasn't.
    let from_zero = at - 1;
    Some(match interpreter {
        Interpreter::Python => {
            if parameter.is_rest {
                return Some(format!("{name} = __sys.argv[{at}:]"));
            }
            let value = format!("__sys.argv[{at}]");
            let typed = match parameter.kind {
                Kind::String => value,
                Kind::Integer => format!("int({value})"),
                Kind::Number => format!("float({value})"),
                Kind::Boolean => format!("{value}.lower() in ('true', '1', 'yes')"),
                Kind::Object => format!("__json.loads({value})"),
            };
            format!("{name} = ({typed}) if len(__sys.argv) > {at} else None")
        }
        Interpreter::Node => {
            if parameter.is_rest {
                return Some(format!("const {name} = process.argv.slice({at});"));
            }
            let value = format!("process.argv[{at}]");
            let typed = match parameter.kind {
                Kind::String => value.clone(),
                Kind::Integer | Kind::Number => format!("Number({value})"),
                Kind::Boolean => format!("['true', '1', 'yes'].includes({value}.toLowerCase())"),
                Kind::Object => format!("JSON.parse({value})"),
            };
            format!("const {name} = process.argv.length > {at} ? {typed} : undefined;")
        }
        Interpreter::Ruby => {
            if parameter.is_rest {
                return Some(format!("{name} = ARGV[{from_zero}..] || []"));
            }
            let value = format!("ARGV[{from_zero}]");
            let typed = match parameter.kind {
                Kind::String => value,
                Kind::Integer => format!("{value}.to_i"),
                Kind::Number => format!("{value}.to_f"),
                Kind::Boolean => format!("%w[true 1 yes].include?({value}.downcase)"),
                Kind::Object => format!("JSON.parse({value})"),
            };
            format!("{name} = ARGV.length > {from_zero} ? {typed} : nil")
        }
        Interpreter::Bash | Interpreter::Sh | Interpreter::Pwsh => return None,
    })
}
