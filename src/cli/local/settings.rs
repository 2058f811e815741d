use crate::cli::audit;
use crate::config::{
    Environment, FileSettings, KeyringSettings, Settings, SkillRegistrySettings, ToolSettings,
};
use crate::egress;
use crate::keyring::Places;

/// The settings of a command: the environment, and defaults for everything else.
pub fn settings(env: &Environment) -> Settings {
    Settings {
        ati_dir: env.ati_dir.clone(),
        keyring: KeyringSettings {
            places: Places {
                dir: env.ati_dir.clone(),
                one_shot: env.key_file.clone(),
                consume: true,
            },
            from_environment: false,
            allow_empty: false,
        },
        guard: env.guard,
        egress: egress::Settings {
            downloads: env.downloads.clone(),
            ..egress::Settings::default()
        },
        audit_file: audit::path(env),
        jwt: env.jwt(),
        tools: ToolSettings {
            max_captured_bytes: env.max_captured_bytes,
            ..ToolSettings::default()
        },
        skill_registry: SkillRegistrySettings::default().with_environment(&env.skill_registry),
        files: FileSettings {
            // One call of one caller, with files that are on the disk already.
            spool_bytes: u64::MAX,
            ..FileSettings::default()
        },
        ..Settings::default()
    }
}
