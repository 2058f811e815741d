//! `ati skill init`: the beginning of a new skill.

use serde_json::json;
use toml::Value;

use super::super::{Format, file_failure, output};
use super::place::{self, Staging, check_name};
use crate::error::{Code, Failure};
use crate::skills::{DOCUMENT, METADATA, REFERENCES};

#[derive(clap::Args)]
pub struct Args {
    /// The skill's name
    name: String,

    /// The tools that it is about, with commas between them
    #[arg(long, value_name = "TOOLS", value_delimiter = ',')]
    tools: Vec<String>,

    /// The provider that it is about
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    provider: Vec<String>,
}

pub fn run(args: &Args, asked: Option<Format>) -> Result<u8, Failure> {
    let name = check_name(&args.name)?;
    let target = place::folder().join(name);
    let staging = Staging::open()?;
    if target.symlink_metadata().is_ok() {
        return Err(Failure::invalid(format!(
            "Skill '{name}' exists already: {}",
            target.display()
        )));
    }
    let staged = staging.path(name);
    let failed = |e| file_failure(Code::ExecutionFailed, &target, e);
    std::fs::create_dir_all(staged.join(REFERENCES)).map_err(failed)?;
    std::fs::write(staged.join(DOCUMENT), document(name)).map_err(failed)?;
    if !args.tools.is_empty() || !args.provider.is_empty() {
        std::fs::write(staged.join(METADATA), metadata(name, args)).map_err(failed)?;
    }
    staging.commit(&[name.to_owned()], &[])?;
    output::lines_or_value(
        asked,
        || {
            output::line(&format!(
                "Scaffolded skill '{name}' at {}",
                target.display()
            ))
        },
        || json!({"status": "created", "name": name, "directory": target}),
    );
    Ok(0)
}

fn document(name: &str) -> String {
    format!(
        "---\n\
         name: \"{name}\"\n\
         description: \"What this skill is for, and when an agent should read it.\"\n\
         metadata:\n  version: \"0.1.0\"\n\
         ---\n\n\
         # {name}\n\n\
         How to do it, step by step, with the commands to type:\n\n\
         ```bash\nati tool search \"...\"\n```\n\n\
         Documents that are needed only now and then belong into references/.\n"
    )
}

fn metadata(name: &str, args: &Args) -> String {
    let list = |values: &[String]| {
        let texts = values.iter().map(|text| text.trim().to_owned());
        let texts = texts.filter(|text| !text.is_empty());
        Value::Array(texts.map(Value::String).collect())
    };
    format!(
        "[skill]\nname = \"{name}\"\nversion = \"0.1.0\"\ntools = {}\nproviders = {}\n",
        list(&args.tools),
        list(&args.provider)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skills::{Format as SkillFormat, Skill};

    #[test]
    fn what_is_written_is_a_skill_with_front_matter() {
        let args = Args {
            name: "x".into(),
            tools: vec!["a:b".into(), " c\"d ".into()],
            provider: vec!["p".into()],
        };
        for name in ["x", "true", "123", "null", "a-b"] {
            let (document, metadata) = (document(name), metadata(name, &args));
            let skill = Skill::parse("f", Some(document.as_bytes()), Some(&metadata)).unwrap();
            assert_eq!(
                (skill.name.as_str(), skill.format),
                (name, SkillFormat::Anthropic)
            );
            assert_eq!(skill.bindings.tools, ["a:b", "c\"d"]);
            assert_eq!(skill.bindings.providers, ["p"]);
        }
    }
}
