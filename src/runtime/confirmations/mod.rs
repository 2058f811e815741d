//! Calls that wait for a confirmation. Each is a file in the ATI folder, or a row of the database
//! where there is one, under a digest of its token: removing it is what uses the token up, and only
//! one process can do that.

mod database;
mod folder;
#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::{SecureRandom as _, SystemRandom};
use sha2::{Digest as _, Sha256};

use super::Key;
use crate::error::ConfirmationFault;
use crate::store::{Store, StoreError};

/// Calls of one caller that wait at a time. The oldest makes room for the next.
const MOST_OF_ONE: usize = 64;
/// Calls of all callers together. Beyond that, none can wait.
const MOST: usize = 4096;
/// A token that expired this many seconds ago is forgotten: until then its caller learns why it
/// isn't accepted.
const FORGET_AFTER: u64 = 3600;
/// Longer texts are no tokens.
const LONGEST_TOKEN: usize = 128;
const PREFIX: &str = "ati-confirm_";

/// What a confirmation is for. Another caller, tool or argument is another call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binding {
    pub caller: Key,
    pub tool: String,
    /// A digest of the arguments.
    pub arguments: Key,
}

/// A token for one call.
pub struct IssuedConfirmation {
    pub token: String,
    /// Unix seconds.
    pub expires: u64,
}

/// Why confirmations can't be kept, or looked up.
#[derive(Debug, thiserror::Error)]
pub enum ConfirmationsError {
    /// It may work later.
    #[error(transparent)]
    DatabaseAway(StoreError),
    #[error(transparent)]
    Failed(#[from] io::Error),
}

impl From<StoreError> for ConfirmationsError {
    fn from(error: StoreError) -> Self {
        match error.is_away() {
            true => ConfirmationsError::DatabaseAway(error),
            false => ConfirmationsError::Failed(io::Error::other(error)),
        }
    }
}

pub struct Confirmations(Place);

enum Place {
    Folder(PathBuf),
    Database(Arc<Store>),
}

impl Confirmations {
    /// In files: a reload, a new process and `ati run` all know them.
    pub fn new(ati_dir: &Path) -> Self {
        Confirmations(Place::Folder(ati_dir.join("confirmations")))
    }

    /// Every edge with this database knows them.
    pub fn in_database(store: Arc<Store>) -> Self {
        Confirmations(Place::Database(store))
    }

    /// A token that confirms this call, once, within `time`.
    pub async fn issue(
        &self,
        call: &Binding,
        time: Duration,
    ) -> Result<IssuedConfirmation, ConfirmationsError> {
        match &self.0 {
            Place::Folder(folder) => Ok(folder::issue(folder, call, time).await?),
            Place::Database(store) => database::issue(store, call, time).await,
        }
    }

    /// Uses a token up. One that is for another call stays as it is: its caller may still repeat
    /// the call that it is for, and who only guesses finds none.
    pub async fn consume(
        &self,
        token: &str,
        call: &Binding,
    ) -> Result<Result<(), ConfirmationFault>, ConfirmationsError> {
        if token.len() > LONGEST_TOKEN {
            return Ok(Err(ConfirmationFault::Unknown));
        }
        match &self.0 {
            Place::Folder(folder) => Ok(folder::consume(folder, digest(token), call).await?),
            Place::Database(store) => database::consume(store, digest(token), call).await,
        }
    }
}

fn new_token() -> io::Result<String> {
    let mut random = [0; 32];
    let filled = SystemRandom::new().fill(&mut random);
    filled.map_err(|_| io::Error::other("the system gives no random bytes"))?;
    Ok(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(random)))
}

fn digest(token: &str) -> String {
    hex::encode(Sha256::digest(token.as_bytes()))
}
