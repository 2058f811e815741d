//! `ati provider install-skills`: the skills that a manifest names.

use serde_json::{Value, json};

use super::super::interrupt::Ended;
use super::super::skill::{install, registry_here, source_of};
use super::super::{Format, output};
use crate::config;
use crate::error::{Code, Failure};
use crate::skills::declared_name;

#[derive(clap::Args)]
pub struct Args {
    /// The provider's name
    name: String,

    /// Let a manifest in a skill start programs or open routes
    #[arg(long)]
    allow_provider: bool,
}

/// Skills that are there are left as they are.
pub fn run(args: &Args, asked: Option<Format>) -> Result<u8, Failure> {
    let name = &args.name;
    let declared = declared(name)?;
    if declared.is_empty() {
        let message = format!("Provider '{name}' declares no skills.");
        output::lines_or_value(
            asked,
            || output::line(&message),
            || json!({"provider": name, "skills": []}),
        );
        return Ok(0);
    }
    let options = install::Options {
        name: None,
        all: false,
        allow_provider: args.allow_provider,
        force: false,
        generate: None,
    };
    let mut rows: Vec<Value> = Vec::new();
    for named in &declared {
        let own = declared_name(named);
        if registry_here().get(own).is_some() {
            if matches!(asked, None | Some(Format::Text)) {
                output::line(&format!("Skill '{own}' already installed."));
            }
            rows.push(json!({"name": own, "status": "present"}));
            continue;
        }
        let source = source_of(named).map_err(|failure| {
            let message = format!("the skill '{named}' of provider '{name}' can't be had");
            Failure::new(Code::ExecutionFailed, message)
                .because(failure)
                .hint("a manifest names a folder, a git URL, or a skill of ati's own")
        })?;
        match install::from(source, &options)? {
            Ended::Interrupted(code) => return Ok(code),
            Ended::Done(installed) => {
                if matches!(asked, None | Some(Format::Text)) {
                    install::print(&installed, false, None);
                }
                let names = installed.iter().map(|one| one.name.as_str());
                rows.extend(names.map(|name| json!({"name": name, "status": "installed"})));
            }
        }
    }
    if let Some(format @ (Format::Json | Format::Table)) = asked {
        output::value(&json!({"provider": name, "skills": rows}), format);
    }
    Ok(0)
}

/// What the manifest of a provider names.
fn declared(name: &str) -> Result<Vec<String>, Failure> {
    let mut problems = Vec::new();
    let manifests = config::read_manifests(&config::ati_dir(), &mut problems);
    let manifest = manifests.into_iter().find(|manifest| manifest.name == name);
    let manifest = manifest.ok_or_else(|| {
        let message =
            format!("Provider '{name}' not found. Run 'ati provider list' to see what there is.");
        Failure::new(Code::ProviderNotFound, message)
    })?;
    let skills = manifest.provider.get("skills");
    let skills = skills.and_then(toml::Value::as_array).into_iter().flatten();
    let skills = skills.filter_map(toml::Value::as_str);
    Ok(skills.map(str::to_owned).collect())
}
