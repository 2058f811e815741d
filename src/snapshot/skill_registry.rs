use super::Snapshot;
use crate::error::{Problem, RemoteSkillError};
use crate::skills::remote::Access;

/// A registry that can't be used answers 503: the operator learns it at the start.
pub fn check(snapshot: &Snapshot, warnings: &mut Vec<Problem>) {
    let settings = &snapshot.settings.skill_registry;
    let find = |name: &str| snapshot.keyring.get(name).cloned();
    let Err(error) = Access::new(settings, &snapshot.clients, find) else {
        return;
    };
    let problem = Problem::new(format!("{error}; /skillati answers 503"));
    warnings.push(match error {
        RemoteSkillError::NotConfigured => return,
        RemoteSkillError::NoGcsCredentials(name) | RemoteSkillError::NoS3Credentials(name) => {
            problem.missing_credential(name)
        }
        _ => problem.key("ATI_SKILL_REGISTRY"),
    });
}
