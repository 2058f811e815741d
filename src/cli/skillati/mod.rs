//! `ati skillati` and `ati skill fetch`: skills of a remote catalogue, from the proxy or from the
//! registry itself.

mod build_index;
mod examples;
mod show;

pub use examples::EXAMPLES;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use super::local::Local;
use super::remote::Remote;
use super::{Format, problem_failure, runtime};
use crate::error::{Code, Failure, RemoteSkillError};
use crate::skills::Grants;
use crate::skills::remote::{Access, Answer, RemoteSkills, Viewer};

#[derive(clap::Subcommand)]
pub enum Command {
    /// List the skills of the catalogue that you may see
    Catalog {
        /// Only the 25 that match most of these words
        #[arg(long, value_name = "WORDS")]
        search: Option<String>,
    },
    /// Show the instructions of a skill
    Read {
        /// The skill's name
        name: String,
    },
    /// List the files of a skill
    Resources {
        /// The skill's name
        name: String,
        /// Only files whose path begins so, like references/
        #[arg(long, value_name = "PATH")]
        prefix: Option<String>,
    },
    /// Show a file of a skill
    Cat {
        /// The skill's name
        name: String,
        /// The file's path in the skill; ../OTHER/PATH is one of another skill
        path: String,
    },
    /// List the references of a skill
    Refs {
        /// The skill's name
        name: String,
    },
    /// Show a reference of a skill
    Ref {
        /// The skill's name
        name: String,
        /// The reference's name, as `refs` lists it
        reference: String,
    },
    /// Make the index of a folder of skills, to publish it with them
    BuildIndex(build_index::Args),
}

pub fn run(command: Command, format: Format) -> Result<u8, Failure> {
    if let Command::BuildIndex(args) = &command {
        return build_index::run(args, format);
    }
    if is_disabled() {
        let message = "Skills are pre-installed in this environment. Use the host's own Skill \
                       tool instead of fetching them (ATI_SKILL_FETCH_DISABLED is set)";
        return Err(Failure::new(Code::ExecutionFailed, message));
    }
    let value = match Remote::from_environment()? {
        Some(remote) => of_proxy(&remote, &command)?,
        None => of_registry(&command)?,
    };
    show::print(&command, &value, format)?;
    Ok(0)
}

fn is_disabled() -> bool {
    let value = std::env::var("ATI_SKILL_FETCH_DISABLED").unwrap_or_default();
    matches!(value.trim().to_ascii_lowercase().as_str(), "1" | "true")
}

fn of_proxy(remote: &Remote, command: &Command) -> Result<Value, Failure> {
    let segment = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let below = |name: &str, rest: &str| format!("skillati/{}{rest}", segment(name));
    match command {
        Command::Catalog { search } => {
            let query = search.as_deref().map(|words| ("search", words));
            remote.get("skillati/catalog", query.as_slice())
        }
        Command::Read { name } => remote.get(&below(name, ""), &[]),
        Command::Resources { name, prefix } => {
            let query = prefix.as_deref().map(|prefix| ("prefix", prefix));
            remote.get(&below(name, "/resources"), query.as_slice())
        }
        Command::Cat { name, path } => remote.get(&below(name, "/file"), &[("path", path)]),
        Command::Refs { name } => remote.get(&below(name, "/refs"), &[]),
        Command::Ref { name, reference } => {
            let rest = format!("/ref/{}", segment(reference));
            remote.get(&below(name, &rest), &[])
        }
        Command::BuildIndex(_) => Ok(Value::Null),
    }
}

fn of_registry(command: &Command) -> Result<Value, Failure> {
    let local = Local::load()?;
    let identity = local.identity.clone();
    let mut snapshot = local.into_snapshot();
    if Access::needs_keys(&snapshot.settings.skill_registry) {
        let (with_keys, warnings) = snapshot
            .with_command_keyring()
            .map_err(|problem| problem_failure(Code::MissingKey, &problem))?;
        for warning in warnings {
            tracing::debug!("{warning}");
        }
        snapshot = with_keys;
    }
    let find = |name: &str| snapshot.keyring.get(name).cloned();
    let access = Access::new(&snapshot.settings.skill_registry, &snapshot.clients, find);
    let access = access.map_err(failure)?.for_command();
    let (scopes, catalog) = (&identity.scopes, &snapshot.catalog);
    let viewer = Viewer {
        grants: Grants::to_see(scopes, catalog),
        installed: snapshot.skills.visible(scopes, catalog),
    };
    let reader = RemoteSkills::default().reader(access);
    let answered = runtime()?.block_on(async {
        match command {
            Command::Catalog { search } => reader.catalog(&viewer, search.as_deref()).await,
            Command::Read { name } => reader.read(&viewer, name).await,
            Command::Resources { name, prefix } => {
                reader.resources(&viewer, name, prefix.as_deref()).await
            }
            Command::Cat { name, path } => reader.file_at(&viewer, name, path).await,
            Command::Refs { name } => reader.references(&viewer, name).await,
            Command::Ref { name, reference } => reader.reference(&viewer, name, reference).await,
            Command::BuildIndex(_) => Err(RemoteSkillError::NotConfigured),
        }
    });
    answered
        .as_ref()
        .map(Answer::value)
        .map_err(|e| failure(e.clone()))
}

fn failure(error: RemoteSkillError) -> Failure {
    let hint = match &error {
        RemoteSkillError::NotConfigured => {
            "set ATI_PROXY_URL to read the catalogue of a proxy: docs/skillati.md"
        }
        RemoteSkillError::NoSuchSkill(_) => "ati skill fetch catalog lists those that you may see",
        RemoteSkillError::NoSuchPath { .. } => "ati skill fetch resources lists the files",
        RemoteSkillError::NoGcsCredentials(_) => {
            "ati key set gcp_credentials < service-account.json"
        }
        _ => return Failure::from_error(error.code(), error),
    };
    Failure::from_error(error.code(), error).hint(hint)
}
