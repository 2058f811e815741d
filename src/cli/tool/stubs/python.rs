//! Stubs for Python 3.9 and later.

use std::fmt::Write as _;

use serde_json::Value;

use super::kind::{Field, Kind};
use super::names::Names;
use super::{Function, comment_lines};

const PREAMBLE: &str = include_str!("preamble.py");

/// What functions can't be called: keywords, and what the preamble and `builtins` define.
const RESERVED: &[&str] = &[
    "False",
    "None",
    "True",
    "and",
    "as",
    "assert",
    "async",
    "await",
    "break",
    "class",
    "continue",
    "def",
    "del",
    "elif",
    "else",
    "except",
    "finally",
    "for",
    "from",
    "global",
    "if",
    "import",
    "in",
    "is",
    "lambda",
    "nonlocal",
    "not",
    "or",
    "pass",
    "raise",
    "return",
    "try",
    "while",
    "with",
    "yield",
    "match",
    "case",
    "type",
    "AtiError",
    "Any",
    "Dict",
    "List",
    "Literal",
    "Optional",
    "Union",
    "annotations",
    "json",
    "os",
    "subprocess",
    "dict",
    "str",
    "int",
    "float",
    "bool",
    "list",
    "print",
    "open",
    "input",
    "super",
    "Exception",
    "property",
    "object",
    "isinstance",
    "len",
];

pub fn module(functions: &[Function<'_>]) -> String {
    let mut text = PREAMBLE.to_owned();
    let mut names = Names::new(RESERVED);
    for function in functions {
        let name = names.give(function.tool);
        text.push_str("\n\n");
        match &function.fields {
            Some(fields) => write_function(&mut text, &name, function, fields),
            None => write_program(&mut text, &name, function),
        }
    }
    text
}

fn write_function(text: &mut String, name: &str, function: &Function<'_>, fields: &[Field]) {
    let mut names = Names::new(RESERVED);
    let named: Vec<(String, &Field)> = fields
        .iter()
        .map(|field| (names.give(&field.name), field))
        .collect();
    if named.is_empty() {
        return write_open(text, name, function);
    }
    let _ = write!(text, "def {name}(\n    *,\n");
    for (parameter, field) in &named {
        let hint = hint(&field.kind);
        let _ = match field.is_required {
            true => writeln!(text, "    {parameter}: {hint},"),
            false => writeln!(text, "    {parameter}: Optional[{hint}] = None,"),
        };
    }
    text.push_str(") -> Any:\n");
    let documented = named
        .iter()
        .filter(|(_, field)| !field.description.is_empty());
    let documented: Vec<(&str, &str)> = documented
        .map(|(parameter, field)| (parameter.as_str(), field.description.as_str()))
        .collect();
    write_docstring(text, function, &documented);
    let _ = write!(text, "    return _call({}", literal(function.tool));
    for is_required in [true, false] {
        text.push_str(", {");
        let each = named
            .iter()
            .filter(|(_, field)| field.is_required == is_required);
        let each: Vec<String> = each
            .map(|(parameter, field)| format!("{}: {parameter}", literal(&field.name)))
            .collect();
        text.push_str(&each.join(", "));
        text.push('}');
    }
    text.push_str(")\n");
}

/// A tool that doesn't say what it takes: any arguments by name, as `ati run` takes them.
fn write_open(text: &mut String, name: &str, function: &Function<'_>) {
    let _ = writeln!(text, "def {name}(**args: Any) -> Any:");
    write_docstring(text, function, &[]);
    let tool = literal(function.tool);
    let _ = writeln!(text, "    return _call({tool}, args, {{}})");
}

fn write_program(text: &mut String, name: &str, function: &Function<'_>) {
    let _ = writeln!(text, "def {name}(*words: str) -> Any:");
    write_docstring(text, function, &[]);
    let tool = literal(function.tool);
    let _ = writeln!(text, "    return _run({tool}, list(words), None)");
}

fn write_docstring(text: &mut String, function: &Function<'_>, parameters: &[(&str, &str)]) {
    let mut lines = comment_lines(function.description);
    if lines.is_empty() {
        lines.push(format!("Call the tool {}.", function.tool));
    }
    if !parameters.is_empty() {
        lines.push(String::new());
    }
    for (parameter, description) in parameters {
        let description = comment_lines(description).join(" ");
        lines.push(format!("{parameter}: {description}"));
    }
    let escaped = |line: &String| line.replace('\\', "\\\\").replace('"', "\\\"");
    let lines: Vec<String> = lines.iter().map(escaped).collect();
    let _ = match lines.as_slice() {
        [only] => writeln!(text, "    \"\"\"{only}\"\"\""),
        lines => {
            let body = lines.join("\n    ").replace("\n    \n", "\n\n");
            writeln!(text, "    \"\"\"{body}\n    \"\"\"")
        }
    };
}

/// A text as Python writes it, which is as JSON does.
fn literal(text: &str) -> String {
    Value::from(text).to_string()
}

fn hint(kind: &Kind) -> String {
    match kind {
        Kind::Any => "Any".to_owned(),
        Kind::Null => "None".to_owned(),
        Kind::Boolean => "bool".to_owned(),
        Kind::Integer => "int".to_owned(),
        Kind::Number => "float".to_owned(),
        Kind::Text => "str".to_owned(),
        Kind::List(item) => format!("List[{}]", hint(item)),
        Kind::Object(_) | Kind::Map => "Dict[str, Any]".to_owned(),
        Kind::Choice(values) => {
            let each: Vec<String> = values.iter().map(choice).collect();
            format!("Literal[{}]", each.join(", "))
        }
        Kind::OneOf(kinds) => {
            let mut each: Vec<String> = kinds.iter().map(hint).collect();
            each.dedup();
            format!("Union[{}]", each.join(", "))
        }
    }
}

fn choice(value: &Value) -> String {
    match value {
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Null => "None".to_owned(),
        other => other.to_string(),
    }
}
