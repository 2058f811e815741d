//! `ati skill validate`.

use std::path::{Path, PathBuf};

use serde_json::json;

use super::super::local::Local;
use super::super::{Format, output};
use super::{not_found, place};
use crate::error::Failure;
use crate::skills::{Format as SkillFormat, Installed, Skill, folder};

#[derive(clap::Args)]
pub struct Args {
    /// The name of an installed skill, or a folder
    name: String,

    /// Whether the tools that it is bound to are there
    #[arg(long)]
    check_tools: bool,

    /// Fail where a tool or a skill that it needs is missing
    #[arg(long)]
    strict: bool,
}

/// What was found out about a skill.
struct Report<'a> {
    skill: &'a Skill,
    /// Tools that are there, and that aren't; none where they weren't looked for.
    tools: Option<(Vec<&'a str>, Vec<&'a str>)>,
    dependencies: Vec<(&'a str, bool)>,
    /// Folders that are skipped because of this one.
    same_name: Vec<PathBuf>,
}

pub fn run(args: &Args, asked: Option<Format>) -> Result<u8, Failure> {
    let installed = find(&args.name)?;
    let skill = installed.skill.as_ref().map_err(|fault| {
        let path = installed.path.display();
        Failure::invalid(format!("{path}: {fault}"))
    })?;
    let all = place::all();
    let is_installed = all.iter().any(|one| one.path == installed.path);
    if let Some(used) = installed.shadowed_by(&all).filter(|_| is_installed) {
        let (path, used) = (installed.path.display(), used.display());
        let message = format!(
            "{path}: skipped: {used} has the same name, '{}'",
            skill.name
        );
        return Err(Failure::invalid(message));
    }
    let same = |one: &&Installed| {
        let name = one
            .skill
            .as_ref()
            .is_ok_and(|other| other.name == skill.name);
        name && is_installed && one.path != installed.path
    };
    let same_name = all.iter().filter(same).map(|one| one.path.clone());
    let tools = match args.check_tools {
        false => None,
        true => {
            let catalog = Local::load_catalog()?;
            let tools = skill.bindings.tools.iter().map(String::as_str);
            Some(tools.partition(|tool| catalog.find(tool).is_some()))
        }
    };
    let dependencies = skill.bindings.depends_on.iter().map(String::as_str);
    let dependencies = dependencies.map(|name| {
        let there = place::find(name).is_some_and(|one| one.skill.is_ok());
        (name, there)
    });
    let report = Report {
        skill,
        tools,
        dependencies: dependencies.collect(),
        same_name: same_name.collect(),
    };
    output::lines_or_value(asked, || report.print(), || report.as_json());
    let lacks = report.dependencies.iter().any(|(_, there)| !there)
        || report
            .tools
            .as_ref()
            .is_some_and(|(_, unknown)| !unknown.is_empty());
    Ok(u8::from(args.strict && lacks))
}

fn find(name: &str) -> Result<Installed, Failure> {
    if let Some(installed) = place::find(name) {
        return Ok(installed);
    }
    match Path::new(name).canonicalize() {
        Ok(path) if path.is_dir() => Ok(Installed {
            skill: folder::read(&path),
            path,
        }),
        _ => Err(not_found(name)),
    }
}

impl Report<'_> {
    fn print(&self) {
        let skill = self.skill;
        output::line(&format!("Skill: {}", skill.name));
        output::line(&format!("Version: {}", output::printable(&skill.version)));
        output::line(&format!("Format: {}", skill.format.as_str()));
        match skill.document_size {
            Some((bytes, lines)) => {
                output::line(&format!("SKILL.md: {bytes} bytes, {lines} lines"))
            }
            None => output::line("SKILL.md: not there"),
        }
        output::line(match skill.format {
            SkillFormat::Anthropic => "Frontmatter: present (Anthropic spec)",
            SkillFormat::LegacyToml | SkillFormat::Inferred => "Frontmatter: absent",
        });
        for path in &self.same_name {
            output::line(&format!("Same name, skipped: {}", path.display()));
        }
        match &self.tools {
            Some((valid, unknown)) => {
                if !valid.is_empty() {
                    output::line(&format!("Valid tool bindings ({}):", valid.len()));
                    valid
                        .iter()
                        .for_each(|tool| output::line(&format!("  + {tool}")));
                }
                if !unknown.is_empty() {
                    output::line(&format!("Unknown tool bindings ({}):", unknown.len()));
                    for tool in unknown {
                        let tool = output::printable(tool);
                        output::line(&format!("  ! {tool} — not found in manifests"));
                    }
                }
            }
            None if skill.bindings.tools.is_empty() => {}
            None => {
                let count = skill.bindings.tools.len();
                output::line(&format!(
                    "Tool bindings: {count} (use --check-tools to validate)"
                ));
            }
        }
        if !self.dependencies.is_empty() {
            output::line("Dependencies:");
            for (name, there) in &self.dependencies {
                let state = if *there { "installed" } else { "NOT FOUND" };
                output::line(&format!("  {} — {state}", output::printable(name)));
            }
        }
    }

    fn as_json(&self) -> serde_json::Value {
        let skill = self.skill;
        let mut report = json!({
            "name": skill.name,
            "version": skill.version,
            "format": skill.format.as_str(),
            "bytes": skill.document_size.map(|(bytes, _)| bytes),
            "lines": skill.document_size.map(|(_, lines)| lines),
            "frontmatter": skill.format == SkillFormat::Anthropic,
            "tools": skill.bindings.tools,
            "dependencies": self
                .dependencies
                .iter()
                .map(|(name, there)| json!({"name": name, "installed": there}))
                .collect::<Vec<_>>(),
        });
        if !self.same_name.is_empty() {
            report["same_name"] = json!(self.same_name);
        }
        if let Some((valid, unknown)) = &self.tools {
            report["valid_tools"] = json!(valid);
            report["unknown_tools"] = json!(unknown);
        }
        report
    }
}
