//! Who asks at the upgrade socket. The kernel says which process of which user it is; nothing that
//! a process says of itself is believed.
//!
//! | Asks | Gets the listeners |
//! |---|---|
//! | the process that SIGUSR2 started | if it says the invitation that it was given |
//! | another descendant of this process or its predecessor | never, nor any other answer |
//! | a process of the same user | if it runs this program, or the one at its path now |
//! | root's process, where this one isn't root's | always: root can do anything to it |
//!
//! Descendants stay descendants for as long as this process lives, see [`crate::process`].

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::process::{Pid, geteuid};
use tokio::runtime::Handle;

use super::Invitation;
use crate::process::{ProcessId, descends_from};

const ROOT: u32 = 0;

/// The process at the other end of a connection.
#[derive(Debug, Clone, Copy)]
pub struct Peer {
    /// None in another pid namespace: outside of this one's container. No descendant of this
    /// process can be there.
    pid: Option<Pid>,
    uid: u32,
}

/// What is wrong with a process, as the end of a sentence about it.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Distrust {
    #[error("belongs to another user")]
    OtherUser,
    #[error("can't be looked at from here")]
    Invisible,
    #[error("was started by the proxy, and not to take over")]
    Descendant,
    #[error("doesn't say what the proxy gives to a process that it starts to take over")]
    NotInvited,
    #[error("doesn't run the proxy's program, nor the one that is at its path now")]
    OtherProgram,
}

impl Peer {
    /// The process that opened the connection, as the kernel knows it.
    pub fn of(stream: &UnixStream, runtime: &Handle) -> io::Result<Self> {
        let _entered = runtime.enter();
        stream.set_nonblocking(true)?;
        let peer = tokio::net::UnixStream::from_std(stream.try_clone()?)?.peer_cred()?;
        stream.set_nonblocking(false)?;
        Ok(Peer {
            // Across pid namespaces the kernel says 0.
            pid: peer.pid().and_then(Pid::from_raw),
            uid: peer.uid(),
        })
    }

    /// 0 where it isn't known.
    pub fn pid(&self) -> u32 {
        self.pid
            .map_or(0, |pid| pid.as_raw_nonzero().get().unsigned_abs())
    }

    /// The file that it runs, for the log.
    pub fn program(&self) -> Option<PathBuf> {
        std::fs::read_link(self.executable()).ok()
    }

    fn executable(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/exe", self.pid()))
    }
}

/// What a process is checked against.
pub struct Trust {
    invitation: Arc<Invitation>,
    /// The path of this process's program. An upgrade may have put another file there.
    program: Option<PathBuf>,
    own_uid: u32,
    /// This process and its predecessor. What they have started is not trusted.
    parents: Vec<ProcessId>,
}

impl Trust {
    pub fn new(
        invitation: Arc<Invitation>,
        program: Option<PathBuf>,
        predecessor: Option<u32>,
    ) -> Self {
        let predecessor = predecessor.and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        // A predecessor that has ended has left no descendants.
        let predecessor = predecessor.and_then(|pid| ProcessId::of(pid).ok());
        Trust {
            invitation,
            program,
            own_uid: geteuid().as_raw(),
            // Without /proc no process can be looked at: none but an invited one is trusted.
            parents: ProcessId::own().into_iter().chain(predecessor).collect(),
        }
    }

    /// Whether this process is answered at all.
    pub fn admit(&self, peer: &Peer) -> Result<(), Distrust> {
        if !may_ask(peer.uid, self.own_uid) {
            return Err(Distrust::OtherUser);
        }
        if self.invitation.is_for(peer.pid()) {
            return Ok(());
        }
        let Some(pid) = peer.pid else {
            return Ok(());
        };
        match descends_from(pid, &self.parents) {
            Ok(false) => Ok(()),
            Ok(true) => Err(Distrust::Descendant),
            // Where /proc hides other users' processes, it hides root's.
            Err(_) if self.is_above(peer) => Ok(()),
            Err(_) => Err(Distrust::Invisible),
        }
    }

    /// Whether this process, which is answered, gets the listeners.
    pub fn admit_successor(&self, peer: &Peer, invitation: Option<&str>) -> Result<(), Distrust> {
        if invitation.is_some() || self.invitation.is_for(peer.pid()) {
            let said = invitation.unwrap_or_default();
            let invited = self.invitation.admits(peer.pid(), said);
            return invited.then_some(()).ok_or(Distrust::NotInvited);
        }
        if peer.pid.is_none() {
            return Err(Distrust::Invisible);
        }
        if self.is_above(peer) {
            return Ok(());
        }
        let theirs = std::fs::metadata(peer.executable()).map_err(|_| Distrust::Invisible)?;
        let own = std::fs::metadata("/proc/self/exe").ok();
        let replaced = self.program.as_deref().and_then(file_at);
        let mut good = own.iter().chain(replaced.iter());
        if good.any(|file| is_same_file(file, &theirs)) {
            Ok(())
        } else {
            Err(Distrust::OtherProgram)
        }
    }

    /// Root, where this process isn't root's: it can do anything to it, and what it runs can't be
    /// looked at.
    fn is_above(&self, peer: &Peer) -> bool {
        peer.uid == ROOT && self.own_uid != ROOT
    }
}

fn may_ask(uid: u32, own: u32) -> bool {
    uid == own || uid == ROOT
}

fn file_at(path: &Path) -> Option<Metadata> {
    std::fs::metadata(path).ok()
}

fn is_same_file(one: &Metadata, other: &Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::process::{Child, Command, Stdio};

    use rustix::process::{getpid, getppid};

    use super::*;

    fn trust(program: Option<&Path>) -> Trust {
        Trust::new(Arc::default(), program.map(Path::to_owned), None)
    }

    fn peer(pid: u32) -> Peer {
        Peer {
            pid: Pid::from_raw(i32::try_from(pid).unwrap()),
            uid: geteuid().as_raw(),
        }
    }

    fn sleeping(command: &mut Command) -> Child {
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        command.spawn().unwrap()
    }

    #[tokio::test]
    async fn peer_is_the_process_that_the_kernel_names() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let _client = UnixStream::connect(&path).unwrap();
        let (stream, _) = listener.accept().unwrap();
        let peer = Peer::of(&stream, &Handle::current()).unwrap();
        assert_eq!(peer.pid(), std::process::id());
        assert_eq!(peer.uid, geteuid().as_raw());
        assert_eq!(peer.program(), std::env::current_exe().ok());
    }

    #[test]
    fn own_user_and_root_may_ask() {
        assert!(may_ask(1000, 1000) && may_ask(0, 1000) && may_ask(0, 0));
        assert!(!may_ask(1001, 1000) && !may_ask(1000, 0));
    }

    #[test]
    fn descendant_is_not_admitted_unless_it_was_invited() {
        let trust = trust(None);
        let mut child = sleeping(&mut Command::new("cat"));
        let descendant = peer(child.id());
        assert_eq!(trust.admit(&descendant), Err(Distrust::Descendant));
        trust.invitation.send_to(&mut child).unwrap();
        assert_eq!(trust.admit(&descendant), Ok(()));
        // It is asked for what it was given, whatever it runs.
        for said in [None, Some(""), Some("guess")] {
            let admitted = trust.admit_successor(&descendant, said);
            assert_eq!(admitted, Err(Distrust::NotInvited), "{said:?}");
        }
        child.wait().unwrap();
        trust.invitation.withdraw(child.id());
        assert!(trust.admit(&descendant).is_err());
        // A stranger is answered, and so is one outside of this container, which gets no listeners.
        for pid in [getppid(), None] {
            let stranger = Peer { pid, ..descendant };
            assert_eq!(trust.admit(&stranger), Ok(()));
            assert!(trust.admit_successor(&stranger, None).is_err());
        }
    }

    #[test]
    fn successor_runs_this_program_or_the_one_at_its_path() {
        let same = peer(getpid().as_raw_nonzero().get().unsigned_abs());
        assert_eq!(trust(None).admit_successor(&same, None), Ok(()));
        let guessed = trust(None).admit_successor(&same, Some("guess"));
        assert_eq!(guessed, Err(Distrust::NotInvited));
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("program");
        std::fs::copy("/bin/cat", &program).unwrap();
        let mut child = sleeping(&mut Command::new(&program));
        let other = peer(child.id());
        let refused = trust(None).admit_successor(&other, None);
        assert_eq!(refused, Err(Distrust::OtherProgram));
        let other_path = trust(Some(Path::new("/bin/cat")));
        let refused = other_path.admit_successor(&other, None);
        assert_eq!(refused, Err(Distrust::OtherProgram));
        let replaced = trust(Some(&program));
        assert_eq!(replaced.admit_successor(&other, None), Ok(()));
        drop(child.stdin.take());
        child.wait().unwrap();
        let gone = replaced.admit_successor(&other, None);
        assert_eq!(gone, Err(Distrust::Invisible));
    }
}
