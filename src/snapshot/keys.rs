//! Loading the keyring: for a server, and for a command.

use crate::config::KeyringSettings;
use crate::error::Problem;
use crate::keyring::{self, Fallback, KeptKeys, Keyring, Loaded, Places};

/// The keyring that a server needs. A `keyring.enc` that can't be opened is a problem, unless the
/// operator allows to start without keys.
pub(super) fn load_for_server(
    settings: &KeyringSettings,
    kept: &KeptKeys,
    problems: &mut Vec<Problem>,
    warnings: &mut Vec<Problem>,
) -> Keyring {
    if settings.from_environment {
        return keyring::load_environment();
    }
    let fallback = if settings.allow_empty {
        Fallback::Empty
    } else {
        Fallback::Refuse
    };
    match keyring::load(&settings.places, kept, fallback) {
        Ok(loaded) => {
            warnings.extend(loaded.warnings);
            loaded.keyring
        }
        Err(problem) => {
            problems.push(problem);
            Keyring::empty()
        }
    }
}

/// The keyring files of this machine, for a command: where `keyring.enc` can't be opened, the
/// plaintext credentials are used.
pub fn load_for_command(places: &Places) -> Result<Loaded, Problem> {
    keyring::load(places, &KeptKeys::default(), Fallback::Credentials)
}
