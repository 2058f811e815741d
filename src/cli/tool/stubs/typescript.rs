//! Stubs for TypeScript on Node.js.

use std::fmt::Write as _;

use serde_json::Value;

use super::kind::{Field, Kind};
use super::names::Names;
use super::{Function, comment_lines};

const PREAMBLE: &str = include_str!("preamble.ts");

const RESERVED: &[&str] = &[
    "break",
    "case",
    "catch",
    "class",
    "const",
    "continue",
    "debugger",
    "default",
    "delete",
    "do",
    "else",
    "enum",
    "export",
    "extends",
    "false",
    "finally",
    "for",
    "function",
    "if",
    "import",
    "in",
    "instanceof",
    "new",
    "null",
    "return",
    "super",
    "switch",
    "this",
    "throw",
    "true",
    "try",
    "typeof",
    "var",
    "void",
    "while",
    "with",
    "as",
    "implements",
    "interface",
    "let",
    "package",
    "private",
    "protected",
    "public",
    "static",
    "yield",
    "any",
    "await",
    "async",
    "arguments",
    "eval",
    "undefined",
    "AtiError",
    "spawn",
    "call",
    "run",
    "process",
    "Promise",
    "Error",
    "Buffer",
    "JSON",
    "String",
    "Object",
];

pub fn module(functions: &[Function<'_>]) -> String {
    let mut text = PREAMBLE.to_owned();
    let mut names = Names::new(RESERVED);
    for function in functions {
        let name = names.give(function.tool);
        write_function(&mut text, &name, function);
    }
    text
}

fn write_function(text: &mut String, name: &str, function: &Function<'_>) {
    let fields = function.fields.as_deref();
    text.push('\n');
    write_comment(text, function, fields.unwrap_or_default());
    let tool = literal(function.tool);
    let (parameter, body) = match fields {
        None => (
            "...words: string[]".to_owned(),
            format!("run({tool}, words, \"\")"),
        ),
        Some(fields) => {
            let hint = object(fields);
            let needed = fields.iter().any(|field| field.is_required);
            let default = if needed { "" } else { " = {}" };
            (
                format!("args: {hint}{default}"),
                format!("call({tool}, args)"),
            )
        }
    };
    let _ = writeln!(
        text,
        "export function {name}<T = any>({parameter}): Promise<T> {{\n  return {body} as Promise<T>;\n}}"
    );
}

fn write_comment(text: &mut String, function: &Function<'_>, fields: &[Field]) {
    let mut lines = comment_lines(function.description);
    if lines.is_empty() {
        lines.push(format!("Call the tool {}.", function.tool));
    }
    for field in fields.iter().filter(|field| !field.description.is_empty()) {
        let description = comment_lines(&field.description).join(" ");
        let name = comment_lines(&field.name).join(" ");
        lines.push(format!("- `{name}`: {description}"));
    }
    text.push_str("/**\n");
    for line in lines {
        let _ = writeln!(text, " * {}", line.replace("*/", "*\\/"));
    }
    text.push_str(" */\n");
}

fn object(fields: &[Field]) -> String {
    if fields.is_empty() {
        return "Record<string, unknown>".to_owned();
    }
    let member = |field: &Field| {
        let mark = if field.is_required { "" } else { "?" };
        format!("{}{mark}: {}", literal(&field.name), hint(&field.kind))
    };
    let members: Vec<String> = fields.iter().map(member).collect();
    format!("{{ {} }}", members.join("; "))
}

fn literal(text: &str) -> String {
    Value::from(text).to_string()
}

fn hint(kind: &Kind) -> String {
    match kind {
        Kind::Any => "any".to_owned(),
        Kind::Null => "null".to_owned(),
        Kind::Boolean => "boolean".to_owned(),
        Kind::Integer | Kind::Number => "number".to_owned(),
        Kind::Text => "string".to_owned(),
        Kind::List(item) => format!("Array<{}>", hint(item)),
        Kind::Object(fields) => object(fields),
        Kind::Map => "Record<string, unknown>".to_owned(),
        Kind::Choice(values) => {
            let each: Vec<String> = values.iter().map(Value::to_string).collect();
            each.join(" | ")
        }
        Kind::OneOf(kinds) => {
            let mut each: Vec<String> = kinds.iter().map(hint).collect();
            each.dedup();
            each.join(" | ")
        }
    }
}
