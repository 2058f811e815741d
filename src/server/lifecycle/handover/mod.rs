//! Hand-over: a running process (the predecessor) gives its listening sockets to a new process (the
//! successor). The sockets never close, so no caller is refused, and at any time at most one of the
//! two processes accepts.
//!
//! They talk over a Unix socket, the upgrade socket, in lines:
//!
//! | from | message | meaning |
//! |---|---|---|
//! | successor | `upgrade` | give me your listeners |
//! | predecessor | an offer, JSON | their names and addresses, with their descriptors; or why not |
//! | successor | `ready <pid>` | everything is loaded, the workers run |
//! | predecessor | `yours` | it no longer accepts, and its rate-limit counters are on disk |
//! | successor | `mine` | **the commit point**: the listeners are the successor's |
//! | predecessor | `told` | systemd knows the successor as the service's main process |
//! | predecessor | `reload` | it got a SIGHUP that the successor has to act on |
//!
//! **Who accepts when.** The predecessor until it sends `yours`; neither between `yours` and
//! `mine`, when callers wait in the sockets' backlogs; the successor from `mine` on. The
//! predecessor then drains. The successor tells systemd that it is ready only after `told`:
//! systemd ignores that message from a process that isn't the main process.
//!
//! **If the successor fails** before `mine`, it closes the connection, and the predecessor goes on
//! accepting or begins again.
//!
//! **If the predecessor refuses**, it sends an offer with a reason. So a connection that ends
//! without a message, together with a process that has ended, means that the predecessor died: the
//! successor takes over at once. If the process lives on, the successor leaves.
//!
//! **If `mine` is late**, the predecessor closes its read side, then reads once more. What arrived
//! before that counts; a later write fails. So exactly one of the two accepts.
//!
//! **Other connections.** `ati status` and `ati reload` send `status` or `reload` in place of
//! `upgrade`, get one line of JSON, and are served next to a hand-over. A process that starts looks
//! whether the socket is in use: it connects, and sends nothing.
//!
//! **Reloads.** The successor reads its files at some time after the offer. A SIGHUP that the
//! predecessor gets after the offer may be about files that the successor has read before, so it is
//! forwarded, once for all that came before `told`, and each one that comes later.

mod predecessor;
mod socket;
mod successor;
pub mod wire;

use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Duration;

pub use predecessor::{Predecessor, PredecessorStream, connect};
pub use socket::{UpgradeSocket, claim_later, serve};
pub use successor::{HandoverListeners, STOPPING, Successor};
pub use wire::{RELOAD, STATUS, send_line};

use crate::error::{Code, Failure};
use crate::server::listen::bind::bind_unix;

/// The name of the upgrade socket among the listeners that are handed over.
pub const UPGRADE: &str = "upgrade";
/// How long a running process may take to answer.
const ANSWER_TIME: Duration = Duration::from_secs(10);

/// A listening socket with the name and the configured address that it is found by.
pub struct NamedSocket {
    pub name: String,
    pub address: String,
    pub socket: OwnedFd,
}

/// The listeners that this process got from its predecessor and hasn't used yet.
#[derive(Default)]
pub struct InheritedListeners(Vec<NamedSocket>);

impl InheritedListeners {
    /// The listener of this name and address, or of another name at the same fixed address.
    pub fn take(&mut self, name: &str, address: &str) -> Option<OwnedFd> {
        let same_address = |listener: &NamedSocket| listener.address == address;
        let mut listeners = self.0.iter();
        let place = listeners
            .position(|listener| listener.name == name && same_address(listener))
            .or_else(|| {
                let fixed = !address.ends_with(":0");
                let mut listeners = self.0.iter();
                listeners.position(|listener| fixed && same_address(listener))
            })?;
        Some(self.0.swap_remove(place).socket)
    }
}

/// Binds the upgrade socket, in a folder that only this user may enter.
pub fn bind_upgrade_socket(path: &Path) -> Result<UnixListener, Failure> {
    if let Some(folder) = path.parent() {
        let made = std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder);
        made.map_err(|e| {
            let message = format!("can't make the folder {}", folder.display());
            Failure::new(Code::ExecutionFailed, message).because(e)
        })?;
    }
    bind_unix(path, 0o600)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    /// Sockets of these names and addresses.
    pub fn named_sockets(list: &[(&str, &str)]) -> Vec<NamedSocket> {
        let named = |(name, address): &(&str, &str)| NamedSocket {
            name: (*name).to_owned(),
            address: (*address).to_owned(),
            socket: UnixStream::pair().unwrap().0.into(),
        };
        list.iter().map(named).collect()
    }

    #[test]
    fn inherited_listener_is_found_by_name_or_by_fixed_address() {
        let mut inherited = InheritedListeners(named_sockets(&[
            ("edge", "127.0.0.1:0"),
            ("admin", "127.0.0.1:0"),
            ("old", "127.0.0.1:443"),
        ]));
        assert!(inherited.take("other", "127.0.0.1:0").is_none());
        assert!(inherited.take("admin", "127.0.0.1:0").is_some());
        assert!(inherited.take("admin", "127.0.0.1:0").is_none());
        assert!(inherited.take("edge", "127.0.0.1:8080").is_none());
        assert!(inherited.take("new", "127.0.0.1:443").is_some());
        assert_eq!(inherited.0.len(), 1);
    }
}
