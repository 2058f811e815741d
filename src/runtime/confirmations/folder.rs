//! Confirmations as files, named by a digest of their token.

use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Binding, FORGET_AFTER, IssuedConfirmation, MOST, MOST_OF_ONE, digest, new_token};
use crate::clock::unix_now;
use crate::error::ConfirmationFault;
use crate::files;

/// The content of a file.
#[derive(Serialize, Deserialize)]
struct Pending {
    tool: String,
    /// In hex.
    arguments: String,
}

/// The name of a file: `<expires>-<caller>-<digest of the token>`.
struct Entry {
    path: PathBuf,
    expires: u64,
    caller: String,
    digest: String,
}

pub async fn issue(
    folder: &Path,
    call: &Binding,
    time: Duration,
) -> io::Result<IssuedConfirmation> {
    let (folder, call) = (folder.to_path_buf(), call.clone());
    blocking(move || write(&folder, &call, time)).await?
}

pub async fn consume(
    folder: &Path,
    digest: String,
    call: &Binding,
) -> io::Result<Result<(), ConfirmationFault>> {
    let (folder, call) = (folder.to_path_buf(), call.clone());
    blocking(move || take(&folder, &digest, &call)).await?
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| io::Error::other("the work was broken off"))
}

fn write(folder: &Path, call: &Binding, time: Duration) -> io::Result<IssuedConfirmation> {
    files::create_private_dir(folder)?;
    let now = unix_now();
    make_room(folder, &hex::encode(call.caller), now)?;
    let token = new_token()?;
    let expires = now + time.as_secs();
    let name = format!("{expires}-{}-{}", hex::encode(call.caller), digest(&token));
    let pending = Pending {
        tool: call.tool.clone(),
        arguments: hex::encode(call.arguments),
    };
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(folder.join(name))?;
    file.write_all(&serde_json::to_vec(&pending)?)?;
    Ok(IssuedConfirmation { token, expires })
}

/// Removes what is forgotten, and the oldest of a caller that has too many.
fn make_room(folder: &Path, caller: &str, now: u64) -> io::Result<()> {
    let (old, mut live): (Vec<_>, Vec<_>) = entries(folder)?
        .into_iter()
        .partition(|entry| entry.expires + FORGET_AFTER < now);
    for entry in &old {
        remove(&entry.path)?;
    }
    // Those that have expired wait for nothing.
    let mut count = live.iter().filter(|entry| entry.expires > now).count();
    live.retain(|entry| entry.caller == caller);
    live.sort_by_key(|entry| entry.expires);
    let too_many = (live.len() + 1).saturating_sub(MOST_OF_ONE);
    for entry in live.iter().take(too_many) {
        let was_there = remove(&entry.path)?;
        count -= usize::from(was_there && entry.expires > now);
    }
    if count >= MOST {
        return Err(io::Error::other("too many calls wait for a confirmation"));
    }
    Ok(())
}

fn take(folder: &Path, digest: &str, call: &Binding) -> io::Result<Result<(), ConfirmationFault>> {
    let mut all = match entries(folder) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
        all => all?,
    }
    .into_iter();
    let Some(entry) = all.find(|entry| entry.digest == digest) else {
        return Ok(Err(ConfirmationFault::Unknown));
    };
    if entry.caller != hex::encode(call.caller) {
        return Ok(Err(ConfirmationFault::OtherCaller));
    }
    let pending = match std::fs::read(&entry.path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            return Ok(Err(ConfirmationFault::Unknown));
        }
        read => serde_json::from_slice::<Pending>(&read?)?,
    };
    if pending.tool != call.tool {
        return Ok(Err(ConfirmationFault::OtherTool));
    }
    if pending.arguments != hex::encode(call.arguments) {
        return Ok(Err(ConfirmationFault::ChangedArguments));
    }
    if unix_now() >= entry.expires {
        return Ok(Err(ConfirmationFault::Expired));
    }
    // The commit point: of several that come this far, one removes the file.
    match remove(&entry.path)? {
        true => Ok(Ok(())),
        false => Ok(Err(ConfirmationFault::Unknown)),
    }
}

fn entries(folder: &Path) -> io::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for file in std::fs::read_dir(folder)? {
        let file = file?;
        let name = file.file_name();
        let parts = name.to_str().map(|name| name.split('-'));
        let Some(mut parts) = parts else { continue };
        if let (Some(expires), Some(caller), Some(digest)) =
            (parts.next(), parts.next(), parts.next())
            && let Ok(expires) = expires.parse()
        {
            entries.push(Entry {
                path: file.path(),
                expires,
                caller: caller.to_owned(),
                digest: digest.to_owned(),
            });
        }
    }
    Ok(entries)
}

/// Whether it was there.
fn remove(path: &Path) -> io::Result<bool> {
    match std::fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}
