//! Answers about remote skills for people; JSON is printed as it came.

use serde_json::Value;

use super::Command;
use crate::cli::{Format, output};
use crate::error::{Code, Failure};

pub fn print(command: &Command, value: &Value, format: Format) -> Result<(), Failure> {
    if format == Format::Json {
        output::pretty(value);
        return Ok(());
    }
    let text = |key: &str| value[key].as_str().unwrap_or_default();
    match command {
        Command::Catalog { .. } => catalog(&value["skills"], format),
        Command::Read { .. } => {
            let head = format!(
                "Base directory for this skill: {}\n\n{}\n\n",
                text("skill_directory"),
                text("description")
            );
            output::exact(&head);
            output::exact(text("content"));
            end_line(text("content"));
        }
        Command::Resources { .. } => list(&value["resources"]),
        Command::Refs { .. } => list(&value["references"]),
        Command::Cat { .. } | Command::Ref { .. } => {
            if value["encoding"].is_string() {
                let message = "Binary files require --output json";
                return Err(Failure::new(Code::InvalidValue, message));
            }
            output::exact(text("content"));
            end_line(text("content"));
        }
        Command::BuildIndex(_) => {}
    }
    Ok(())
}

fn end_line(content: &str) {
    if !content.ends_with('\n') {
        output::exact("\n");
    }
}

fn list(names: &Value) {
    for name in names.as_array().into_iter().flatten() {
        output::line(&output::printable(name.as_str().unwrap_or_default()));
    }
}

fn catalog(skills: &Value, format: Format) {
    let skills = skills.as_array().map(Vec::as_slice).unwrap_or_default();
    let text =
        |skill: &Value, key: &str| output::printable(skill[key].as_str().unwrap_or_default());
    if skills.is_empty() {
        return output::line("No skills found.");
    }
    if format == Format::Table {
        let rows = skills
            .iter()
            .map(|skill| vec![text(skill, "name"), text(skill, "description")]);
        return output::table(&["NAME", "DESCRIPTION"], rows);
    }
    for skill in skills {
        let line = format!("{:30} {}", text(skill, "name"), text(skill, "description"));
        output::line(line.trim_end());
    }
}
