use std::path::Path;

use super::value::{Plain, raw_section};
use crate::config::{Environment, Flags};
use crate::keyring::Places;

raw_section! {
    /// `[keyring]`.
    RawKeyring {
        from_environment: Plain<bool>,
        allow_empty: Plain<bool>,
    }
}

#[derive(Debug, Clone)]
pub struct KeyringSettings {
    pub places: Places,
    pub from_environment: bool,
    pub allow_empty: bool,
}

impl RawKeyring {
    pub(in crate::config) fn resolve(
        self,
        flags: &Flags,
        env: &Environment,
        ati_dir: &Path,
    ) -> KeyringSettings {
        KeyringSettings {
            places: Places {
                dir: ati_dir.to_path_buf(),
                one_shot: env.key_file.clone(),
                consume: true,
            },
            from_environment: flags.env_keys || self.from_environment.unwrap_or(false),
            allow_empty: flags.allow_empty_keyring || self.allow_empty.unwrap_or(false),
        }
    }
}
