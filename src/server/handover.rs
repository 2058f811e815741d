//! One process gives its listeners to the next. The sockets never close, so nobody is refused; only one of the two accepts at any time.
//!
//! ```text
//! new: connects to the upgrade socket
//! old: its listeners, by name and address, with their descriptors
//! new: loads everything, starts its workers, then "ready"
//! old: stops accepting, writes down its counts, then "yours", and drains
//! ```
//!
//! A new one that fails on the way closes the connection, and nothing has changed.

use std::io::{BufRead, BufReader, IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg, sockopt::socket_peercred,
};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::UnboundedSender;
use tracing::{info, warn};

use super::listen::bind_unix;
use super::notify;
use crate::config::MOST_LISTENERS;
use crate::error::{Code, Failure};

const VERSION: u32 = 1;
/// The edge's, the admin's and the upgrade socket besides.
const MOST_SOCKETS: usize = MOST_LISTENERS + 4;
const LONGEST_MESSAGE: usize = 64 << 10;
/// A process that runs answers at once.
const ANSWER: Duration = Duration::from_secs(15);
/// A process that starts may have much to read.
const START: Duration = Duration::from_secs(300);
const READY: &str = "ready";
const YOURS: &str = "yours";

/// What the old one says first.
#[derive(Serialize, Deserialize)]
struct Offer {
    version: u32,
    /// Name and configured address, in the order of the descriptors.
    #[serde(default)]
    listeners: Vec<(String, String)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    refused: Option<String>,
}

/// Listeners of a process that ran before this one.
#[derive(Default)]
pub struct Inherited(Vec<(String, String, OwnedFd)>);

impl Inherited {
    /// The listener of this name and address, or under another name at the same fixed address.
    pub fn take(&mut self, name: &str, address: &str) -> Option<OwnedFd> {
        let same = |(_, other, _): &(String, String, OwnedFd)| other == address;
        let place = self
            .0
            .iter()
            .position(|share| share.0 == name && same(share))
            .or_else(|| {
                let fixed = !address.ends_with(":0");
                self.0.iter().position(|share| fixed && same(share))
            })?;
        Some(self.0.swap_remove(place).2)
    }
}

/// The running process, as the new one sees it.
pub struct Predecessor(UnixStream);

impl Predecessor {
    pub fn ask(socket: &Path) -> Result<(Self, Inherited), Failure> {
        let failed = |what: String| {
            let message = format!("can't take over through {}: {what}", socket.display());
            Failure::new(Code::ExecutionFailed, message)
        };
        let stream = UnixStream::connect(socket).map_err(|e| {
            failed(e.to_string())
                .hint("no proxy with this folder and conf runs; start without --upgrade")
        })?;
        let broken = |e: std::io::Error| failed(e.to_string());
        let peer = socket_peercred(&stream).map_err(|e| failed(e.to_string()))?;
        if !is_ours(peer.uid.as_raw()) {
            return Err(failed("it belongs to another user".to_owned()));
        }
        stream.set_read_timeout(Some(ANSWER)).map_err(broken)?;
        stream.set_write_timeout(Some(ANSWER)).map_err(broken)?;
        let (offer, sockets) = receive(&stream).map_err(broken)?;
        if let Some(why) = offer.refused {
            return Err(failed(why));
        }
        if offer.version != VERSION || offer.listeners.len() != sockets.len() {
            return Err(failed("the running proxy is of another version".to_owned()));
        }
        let shares = offer.listeners.into_iter().zip(sockets);
        let shares = shares.map(|((name, address), socket)| (name, address, socket));
        Ok((Predecessor(stream), Inherited(shares.collect())))
    }

    /// Say that everything is ready, and wait until the old one has stopped accepting.
    pub fn take_over(mut self) -> Result<(), Failure> {
        let failed = |what: &str| {
            let message = format!("the running proxy did not hand over: {what}");
            Failure::new(Code::ExecutionFailed, message)
        };
        // Where it died in the meantime, there is nobody left to wait for.
        let _ = writeln!(self.0, "{READY}");
        let mut answer = String::new();
        match BufReader::new(&self.0).read_line(&mut answer) {
            Ok(0) => {
                warn!("the old process is gone");
                Ok(())
            }
            Ok(_) if answer.trim_end() == YOURS => Ok(()),
            Ok(_) => Err(failed(&refusal(&answer))),
            Err(e) => Err(failed(&e.to_string())),
        }
    }
}

/// The listeners that a successor may have, until they are closed.
pub struct Estate(Mutex<Option<Vec<(String, String, OwnedFd)>>>);

impl Estate {
    pub fn new(shares: Vec<(String, String, OwnedFd)>) -> Arc<Self> {
        Arc::new(Estate(Mutex::new(Some(shares))))
    }

    /// Nothing is left to hand over, and nothing keeps the sockets open.
    pub fn close(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    fn send(&self, stream: &UnixStream) -> std::io::Result<()> {
        let shares = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(shares) = shares.as_ref() else {
            return refuse(stream, "it is stopping");
        };
        let offer = Offer {
            version: VERSION,
            listeners: shares
                .iter()
                .map(|(name, address, _)| (name.clone(), address.clone()))
                .collect(),
            refused: None,
        };
        let sockets: Vec<_> = shares.iter().map(|(.., socket)| socket.as_fd()).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_SOCKETS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !control.push(SendAncillaryMessage::ScmRights(&sockets)) {
            return refuse(stream, "it has too many listeners");
        }
        let text = line(&offer)?;
        sendmsg(
            stream,
            &[IoSlice::new(&text)],
            &mut control,
            SendFlags::NOSIGNAL,
        )?;
        Ok(())
    }
}

/// A successor that is ready, and waits for our word.
pub struct Successor {
    pub pid: u32,
    stream: UnixStream,
}

impl Successor {
    /// From now on the listeners are its own.
    pub fn yours(mut self) {
        if let Err(e) = writeln!(self.stream, "{YOURS}") {
            warn!("the new process can't be told: {e}");
        }
    }
}

/// Wait for successors, on a thread of its own, until one is ready.
pub fn offer(
    socket: UnixListener,
    estate: Arc<Estate>,
    ready: UnboundedSender<Successor>,
) -> std::io::Result<()> {
    socket.set_nonblocking(false)?;
    let wait = move || {
        for stream in socket.incoming() {
            let asked = stream.and_then(|stream| {
                let pid = negotiate(&stream, &estate)?;
                Ok(Successor { pid, stream })
            });
            match asked {
                Ok(successor) => {
                    let _ = ready.send(successor);
                    return;
                }
                Err(e) => warn!("nothing was handed over, and everything goes on: {e}"),
            }
        }
    };
    std::thread::Builder::new()
        .name("upgrade".into())
        .spawn(wait)?;
    Ok(())
}

/// Give the listeners to whoever asks, and wait until it is ready.
fn negotiate(stream: &UnixStream, estate: &Estate) -> std::io::Result<u32> {
    stream.set_read_timeout(Some(START))?;
    stream.set_write_timeout(Some(ANSWER))?;
    let peer = socket_peercred(stream)?;
    let pid = peer.pid.as_raw_nonzero().get().unsigned_abs();
    if !is_ours(peer.uid.as_raw()) {
        return refuse(stream, "another user may not have them").map(|()| 0);
    }
    if notify::is_supervised() && !in_our_cgroup(pid) {
        let why = "systemd supervises it, and would not know the new process; use systemctl kill --kill-whom=main -s SIGUSR2 on its unit";
        return refuse(stream, why).map(|()| 0);
    }
    info!(pid, "a new process asks for the listeners");
    estate.send(stream)?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer)?;
    if answer.trim_end() != READY {
        return Err(std::io::Error::other("the new process did not get ready"));
    }
    Ok(pid)
}

fn refuse(stream: &UnixStream, why: &str) -> std::io::Result<()> {
    let offer = Offer {
        version: VERSION,
        listeners: Vec::new(),
        refused: Some(why.to_owned()),
    };
    let mut stream = stream;
    stream.write_all(&line(&offer)?)?;
    Err(std::io::Error::other(why.to_owned()))
}

fn refusal(answer: &str) -> String {
    let offer = serde_json::from_str::<Offer>(answer).ok();
    let why = offer.and_then(|offer| offer.refused);
    why.unwrap_or_else(|| "it said what we don't understand".to_owned())
}

fn line(offer: &Offer) -> std::io::Result<Vec<u8>> {
    let mut text = serde_json::to_vec(offer)?;
    text.push(b'\n');
    Ok(text)
}

fn receive(stream: &UnixStream) -> std::io::Result<(Offer, Vec<OwnedFd>)> {
    let mut text = Vec::new();
    let mut sockets = Vec::new();
    while !text.ends_with(b"\n") {
        let mut piece = vec![0; LONGEST_MESSAGE];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_SOCKETS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let read = recvmsg(
            stream,
            &mut [IoSliceMut::new(&mut piece)],
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        )?;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(found) = message {
                sockets.extend(found);
            }
        }
        text.extend_from_slice(&piece[..read.bytes]);
        if read.bytes == 0 || text.len() > LONGEST_MESSAGE {
            return Err(std::io::Error::other("it closed the connection"));
        }
    }
    let offer = serde_json::from_slice(&text)?;
    Ok((offer, sockets))
}

fn is_ours(uid: u32) -> bool {
    uid == rustix::process::geteuid().as_raw() || uid == 0
}

/// systemd takes a new main process only from the unit's own group.
fn in_our_cgroup(pid: u32) -> bool {
    let of = |process: &str| std::fs::read_to_string(format!("/proc/{process}/cgroup")).ok();
    let ours = of("self");
    ours.is_some() && ours == of(&pid.to_string())
}

/// The socket that successors ask at, in a folder that only we may enter.
pub fn listen(path: &Path) -> Result<UnixListener, Failure> {
    if let Some(folder) = path.parent() {
        let made = std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder);
        made.map_err(|e| {
            let message = format!("{} can't be made: {e}", folder.display());
            Failure::new(Code::ExecutionFailed, message)
        })?;
    }
    bind_unix(path, 0o600)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(list: &[(&str, &str)]) -> Vec<(String, String, OwnedFd)> {
        list.iter()
            .map(|(name, address)| {
                let socket = UnixStream::pair().unwrap().0;
                ((*name).to_owned(), (*address).to_owned(), socket.into())
            })
            .collect()
    }

    #[test]
    fn descriptors_arrive_with_their_names() {
        let (old, new) = UnixStream::pair().unwrap();
        let list = [
            ("edge", "127.0.0.1:0"),
            ("admin", "127.0.0.1:0"),
            ("tls", "[::]:443"),
        ];
        Estate::new(shares(&list)).send(&old).unwrap();
        let (offer, sockets) = receive(&new).unwrap();
        assert_eq!(sockets.len(), 3);
        let names: Vec<_> = offer
            .listeners
            .iter()
            .map(|(name, _)| name.as_str())
            .collect();
        assert_eq!(names, ["edge", "admin", "tls"]);
    }

    #[test]
    fn a_closed_estate_is_refused_with_a_reason() {
        let (old, new) = UnixStream::pair().unwrap();
        let estate = Estate::new(shares(&[("edge", "127.0.0.1:0")]));
        estate.close();
        assert!(estate.send(&old).is_err());
        let (offer, sockets) = receive(&new).unwrap();
        assert_eq!(offer.refused.as_deref(), Some("it is stopping"));
        assert!(sockets.is_empty());
    }

    #[test]
    fn garbage_is_an_error_and_not_a_wait() {
        let (mut old, new) = UnixStream::pair().unwrap();
        old.write_all(b"hello\n").unwrap();
        assert!(receive(&new).is_err());
        let (old, new) = UnixStream::pair().unwrap();
        drop(old);
        assert!(receive(&new).is_err());
    }

    #[test]
    fn listeners_are_found_by_name_or_by_a_fixed_address() {
        let mut inherited = Inherited(shares(&[
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
