//! Loading the keyring: for a server, and for a command.

use crate::config::KeyringSettings;
use crate::error::Problem;
use crate::keyring::{self, Fallback, Keyring, Loaded, Places, SessionKey};

/// The keyring that a server needs. A `keyring.enc` that can't be opened is a problem, unless the
/// operator allows to start without keys.
///
/// Returns the session key too: a one-shot key can be read only once, and the next reload needs it.
pub(super) fn load_for_server(
    settings: &KeyringSettings,
    session_key: Option<&SessionKey>,
    problems: &mut Vec<Problem>,
    warnings: &mut Vec<Problem>,
) -> (Keyring, Option<SessionKey>) {
    if settings.from_environment {
        return (keyring::load_environment(), session_key.cloned());
    }
    let fallback = if settings.allow_empty {
        Fallback::Empty
    } else {
        Fallback::Refuse
    };
    match keyring::load(&settings.places, session_key, fallback) {
        Ok(loaded) => {
            warnings.extend(loaded.warnings);
            (loaded.keyring, loaded.session_key)
        }
        Err(problem) => {
            problems.push(problem);
            (Keyring::empty(), session_key.cloned())
        }
    }
}

/// The keyring files of this machine, for a command: where `keyring.enc` can't be opened, the
/// plaintext credentials are used.
pub fn load_for_command(places: &Places) -> Result<Loaded, Problem> {
    keyring::load(places, None, Fallback::Credentials)
}
