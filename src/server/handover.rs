//! One process gives its listeners to the next. The sockets never close, so nobody is refused; only one of the two accepts at any time.
//!
//! ```text
//! new: connects to the upgrade socket
//! old: its listeners, by name and address, with their descriptors
//! new: loads everything, starts its workers, then "ready"
//! old: stops accepting, writes down its counts, then "yours"
//! new: "mine", and accepts
//! old: tells systemd who is the service now, then "told", and drains
//! new: tells systemd that it is ready, which believes it from then on
//! old: "reload" for each reload that it is asked for until it ends, and for those since it gave the listeners out
//! ```
//!
//! A new one that fails on the way closes the connection, and the old one goes on, or begins again. An old one that won't, says so: a
//! connection that ends without a word means that it died. "mine" is where it is decided: an old one that has waited long enough shuts its ear
//! first and looks once more then, so that what the new one could say was heard, and one that couldn't say it leaves.

use std::io::{BufRead, BufReader, IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recv, recvmsg, sendmsg,
};
use rustix::process::{Pid, PidfdFlags, pidfd_open, test_kill_process};
use serde::{Deserialize, Serialize};
use tokio::io::AsyncBufReadExt;
use tokio::sync::mpsc::UnboundedSender;
use tracing::{info, warn};

use super::listen::bind_unix;
use super::notify;
use crate::config::MOST_LISTENERS;
use crate::error::{Code, Failure};

const VERSION: u32 = 2;
/// The edge's, the admin's and the upgrade socket besides.
const MOST_SOCKETS: usize = MOST_LISTENERS + 4;
const LONGEST_MESSAGE: usize = 64 << 10;
/// A process that runs answers at once.
const ANSWER: Duration = Duration::from_secs(10);
/// A process that starts may have much to read.
const START: Duration = Duration::from_secs(300);
/// A process that ends has closed its connections a moment before it is gone.
const DYING: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};
const READY: &str = "ready";
const YOURS: &str = "yours";
const MINE: &str = "mine";
const TOLD: &str = "told";
const RELOAD: &str = "reload";

/// A listener with the name and the address that it is known by.
pub type Share = (String, String, OwnedFd);

/// What the old one says first.
#[derive(Serialize, Deserialize)]
struct Offer {
    version: u32,
    pid: u32,
    /// Name and configured address, in the order of the descriptors.
    #[serde(default)]
    listeners: Vec<(String, String)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    refused: Option<String>,
}

/// Listeners of a process that ran before this one.
#[derive(Default)]
pub struct Inherited(Vec<Share>);

impl Inherited {
    /// The listener of this name and address, or under another name at the same fixed address.
    pub fn take(&mut self, name: &str, address: &str) -> Option<OwnedFd> {
        let same = |(_, other, _): &Share| other == address;
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
pub struct Predecessor {
    stream: UnixStream,
    pid: u32,
}

impl Predecessor {
    pub fn ask(socket: &Path) -> Result<(Self, Inherited), Failure> {
        let failed = |what: String| {
            let message = format!("can't take over through {}: {what}", socket.display());
            Failure::new(Code::ExecutionFailed, message)
        };
        let nobody = |e: std::io::Error| {
            failed(e.to_string())
                .hint("no proxy with this folder and conf runs; start without --upgrade")
        };
        let owner = std::fs::metadata(socket).map_err(nobody)?.uid();
        if owner != rustix::process::geteuid().as_raw() && owner != 0 {
            return Err(failed("it belongs to another user".to_owned()));
        }
        let stream = UnixStream::connect(socket).map_err(nobody)?;
        let broken = |e: std::io::Error| failed(e.to_string());
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
        let pid = offer.pid;
        Ok((Predecessor { stream, pid }, Inherited(shares.collect())))
    }

    /// Say that everything is ready, and wait for as long as it takes the old one to stop accepting. From then on it is us who accept. The
    /// old one has more to say, unless it has died.
    pub fn take_over(self) -> Result<Option<LastWords>, Failure> {
        let failed = |what: &str| {
            let message = format!("the running proxy did not hand over: {what}");
            Failure::new(Code::ExecutionFailed, message)
        };
        let died = || {
            warn!("the old process has died");
            Ok(None)
        };
        // Where this fails, what there is to read says why.
        let _ = say(&self.stream, &format!("{READY} {}", std::process::id()));
        let _ = self.stream.set_read_timeout(None);
        let mut answer = String::new();
        match BufReader::new(&self.stream).read_line(&mut answer) {
            Ok(0) if lives(self.pid) => Err(failed("it closed the connection")),
            Ok(0) => died(),
            Ok(_) if answer.trim_end() == YOURS => match say(&self.stream, MINE) {
                Ok(()) => Ok(Some(LastWords(self.stream))),
                // We were so late that it accepts again, and two of us would.
                Err(_) if lives(self.pid) => Err(failed("it no longer waits for us")),
                Err(_) => died(),
            },
            Ok(_) => Err(failed(&refusal(&answer))),
            Err(e) => Err(failed(&e.to_string())),
        }
    }
}

/// What the old one has to say while it drains.
pub struct LastWords(UnixStream);

impl LastWords {
    /// Wait until systemd believes us. The old one knows that the listeners are ours, so whatever keeps it from saying this is no reason not
    /// to go on.
    pub async fn told(self) -> Option<Reloads> {
        let hear = async {
            self.0.set_nonblocking(true)?;
            let stream = tokio::net::UnixStream::from_std(self.0)?;
            let mut lines = tokio::io::BufReader::new(stream).lines();
            let told = lines.next_line().await?.is_some_and(|line| line == TOLD);
            Ok::<_, std::io::Error>(told.then_some(Reloads(lines)))
        };
        let heard = tokio::time::timeout(ANSWER, hear).await;
        let reloads = heard.ok().and_then(Result::ok).flatten();
        if reloads.is_none() {
            warn!("the old process didn't say that systemd knows of this one");
        }
        reloads
    }
}

/// Whoever wants a reload may still ask the old one.
pub struct Reloads(tokio::io::Lines<tokio::io::BufReader<tokio::net::UnixStream>>);

impl Reloads {
    /// The next one; false where the old one has ended.
    pub async fn next(&mut self) -> bool {
        matches!(self.0.next_line().await, Ok(Some(line)) if line == RELOAD)
    }
}

/// In one piece, so that it is heard whole or not at all.
fn say(mut stream: &UnixStream, words: &str) -> std::io::Result<()> {
    stream.write_all(format!("{words}\n").as_bytes())
}

/// Whether it hasn't ended, and isn't about to.
fn lives(pid: u32) -> bool {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
        return false;
    };
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(process) => {
            let ended = poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&DYING));
            !ended.is_ok_and(|count| count > 0)
        }
        Err(Errno::SRCH) => false,
        Err(_) => test_kill_process(pid).is_ok(),
    }
}

/// The listeners that a successor may have, until they are closed.
pub struct Estate(Mutex<State>);

struct State {
    shares: Option<Vec<Share>>,
    /// Who has them, and isn't ready yet.
    pending: Option<UnixStream>,
    /// Whether a reload was asked for after whoever had them last began to read.
    reload: bool,
}

impl Estate {
    pub fn new(shares: Vec<Share>) -> Arc<Self> {
        Arc::new(Estate(Mutex::new(State {
            shares: Some(shares),
            pending: None,
            reload: false,
        })))
    }

    /// Nothing is left to hand over, and nothing keeps the sockets open. Who was about to take them is told.
    pub fn close(&self) {
        let mut state = self.lock();
        state.shares = None;
        if let Some(pending) = state.pending.take() {
            refuse(&pending, STOPPING);
        }
    }

    /// We read everything again; a successor that has begun may have read it before.
    pub fn reload(&self) {
        self.lock().reload = true;
    }

    pub fn has_reloaded(&self) -> bool {
        self.lock().reload
    }

    fn send(&self, stream: &UnixStream) -> std::io::Result<()> {
        let mut state = self.lock();
        state.reload = false;
        let Some(shares) = state.shares.as_ref() else {
            return Err(std::io::Error::other(STOPPING));
        };
        let offer = Offer {
            version: VERSION,
            pid: std::process::id(),
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
            return Err(std::io::Error::other("it has too many listeners"));
        }
        let text = line(&offer)?;
        sendmsg(
            stream,
            &[IoSlice::new(&text)],
            &mut control,
            SendFlags::NOSIGNAL,
        )?;
        state.pending = stream.try_clone().ok();
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const STOPPING: &str = "it is stopping";

/// A successor that is ready, and waits for our word.
pub struct Successor {
    pub pid: u32,
    stream: UnixStream,
    /// Tells whoever listens for successors whether there will be another.
    taken: mpsc::Sender<bool>,
}

impl Successor {
    /// Whether it still waits.
    pub fn is_there(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let peeked = recv(&self.stream, &mut [0_u8; 1][..], flags);
        matches!(peeked, Err(Errno::AGAIN))
    }

    /// Give it the listeners, and hear that it has them. False where it hasn't: they are still ours.
    pub fn yours(&mut self) -> bool {
        let mine = self.takes_within(ANSWER);
        let _ = self.taken.send(mine);
        mine
    }

    fn takes_within(&self, patience: Duration) -> bool {
        let mut reader = BufReader::new(&self.stream);
        let mut answer = String::new();
        let heard = say(&self.stream, YOURS)
            .and_then(|()| self.stream.set_read_timeout(Some(patience)))
            .and_then(|()| reader.read_line(&mut answer));
        if heard.is_err() {
            // From here on it can't say so any more, and notices. What it said before still counts: it accepts.
            let _ = self.stream.shutdown(Shutdown::Read);
            let _ = reader.read_line(&mut answer);
        }
        answer.trim_end() == MINE
    }

    /// systemd knows of it.
    pub fn told(&self) {
        self.tell(TOLD);
    }

    /// Somebody has asked us for it, and it isn't ours to do any more.
    pub fn reload(&self) {
        self.tell(RELOAD);
    }

    fn tell(&self, words: &str) {
        if let Err(e) = say(&self.stream, words) {
            warn!("the new process doesn't hear '{words}': {e}");
        }
    }

    /// We go on.
    pub fn refuse(self, why: &str) {
        refuse(&self.stream, why);
        let _ = self.taken.send(false);
    }
}

/// Wait for successors, on a thread of its own, until one has taken over.
pub fn offer(
    socket: UnixListener,
    estate: Arc<Estate>,
    ready: UnboundedSender<Successor>,
) -> std::io::Result<()> {
    socket.set_nonblocking(false)?;
    let wait = move || {
        for stream in socket.incoming() {
            let Ok(stream) = stream else { continue };
            let asked = negotiate(&stream, &estate);
            estate.lock().pending = None;
            let pid = match asked {
                Ok(pid) => pid,
                Err(e) => {
                    refuse(&stream, &e.to_string());
                    warn!("nothing was handed over, and everything goes on: {e}");
                    continue;
                }
            };
            let (taken, verdict) = mpsc::channel();
            let successor = Successor { pid, stream, taken };
            if let Err(unsent) = ready.send(successor) {
                unsent.0.refuse(STOPPING);
            }
            if verdict.recv().unwrap_or(false) {
                return;
            }
        }
    };
    std::thread::Builder::new()
        .name("upgrade".into())
        .spawn(wait)?;
    Ok(())
}

/// Give the listeners to whoever asks, and wait until it is ready. Only our own user can have opened the socket.
fn negotiate(stream: &UnixStream, estate: &Estate) -> std::io::Result<u32> {
    stream.set_read_timeout(Some(START))?;
    stream.set_write_timeout(Some(ANSWER))?;
    info!("a new process asks for the listeners");
    estate.send(stream)?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer)?;
    let pid = answer.trim_end().strip_prefix(READY);
    let pid = pid.and_then(|pid| pid.trim().parse().ok());
    let pid = pid.ok_or_else(|| std::io::Error::other("the new process did not get ready"))?;
    if notify::is_supervised() && !in_our_cgroup(pid) {
        let why = "systemd supervises it, and would not know the new process; use systemctl kill --kill-whom=main -s SIGUSR2 on its unit";
        return Err(std::io::Error::other(why));
    }
    Ok(pid)
}

/// Say why not; whoever is gone needn't know.
fn refuse(stream: &UnixStream, why: &str) {
    let offer = Offer {
        version: VERSION,
        pid: std::process::id(),
        listeners: Vec::new(),
        refused: Some(why.to_owned()),
    };
    let mut stream = stream;
    let _ = line(&offer).and_then(|text| stream.write_all(&text));
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
    use std::io::Read;

    fn shares(list: &[(&str, &str)]) -> Vec<Share> {
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
        assert_eq!(estate.send(&old).unwrap_err().to_string(), STOPPING);
        // One that has them already, and isn't ready.
        let estate = Estate::new(shares(&[("edge", "127.0.0.1:0")]));
        estate.send(&old).unwrap();
        assert_eq!(receive(&new).unwrap().1.len(), 1);
        estate.close();
        let (offer, sockets) = receive(&new).unwrap();
        assert_eq!(offer.refused.as_deref(), Some(STOPPING));
        assert!(sockets.is_empty());
    }

    fn waiting() -> (Successor, UnixStream, mpsc::Receiver<bool>) {
        let (stream, other) = UnixStream::pair().unwrap();
        let (taken, verdict) = mpsc::channel();
        (
            Successor {
                pid: 1,
                stream,
                taken,
            },
            other,
            verdict,
        )
    }

    #[test]
    fn a_successor_that_is_gone_gets_nothing() {
        let (mut successor, other, verdict) = waiting();
        assert!(successor.is_there());
        drop(other);
        assert!(!successor.is_there());
        assert!(!successor.yours());
        assert!(!verdict.recv().unwrap());
        let (mut successor, mut other, verdict) = waiting();
        other.write_all(b"mine\n").unwrap();
        assert!(successor.yours());
        assert!(verdict.recv().unwrap());
    }

    #[test]
    fn a_late_answer_counts_where_it_could_be_given_and_can_not_be_given_later() {
        // No time at all, but it has said so.
        let (successor, mut other, _) = waiting();
        other.write_all(b"mine\n").unwrap();
        assert!(successor.takes_within(Duration::ZERO));
        successor.told();
        successor.reload();
        let mut heard = String::new();
        drop(successor);
        other.read_to_string(&mut heard).unwrap();
        assert_eq!(heard, "yours\ntold\nreload\n");
        // It hasn't, and is told so when it tries.
        let (successor, other, _) = waiting();
        assert!(!successor.takes_within(Duration::from_millis(1)));
        let late = Predecessor {
            stream: other,
            pid: std::process::id(),
        };
        let error = late.take_over().err().unwrap().to_string();
        assert!(error.contains("no longer waits"), "{error}");
    }

    #[tokio::test]
    async fn the_old_one_passes_reloads_on_until_it_ends() {
        for (said, told, reloads) in [
            ("told\n", true, 0),
            ("told\nreload\nreload\n", true, 2),
            ("reload\n", false, 0),
            ("", false, 0),
        ] {
            let (stream, mut other) = UnixStream::pair().unwrap();
            other.write_all(said.as_bytes()).unwrap();
            drop(other);
            let heard = LastWords(stream).told().await;
            assert_eq!(heard.is_some(), told, "{said}");
            let mut count = 0;
            if let Some(mut heard) = heard {
                while heard.next().await {
                    count += 1;
                }
            }
            assert_eq!(count, reloads, "{said}");
        }
    }

    #[test]
    fn a_reload_is_a_successors_business_once_it_has_begun() {
        let (old, _new) = UnixStream::pair().unwrap();
        let estate = Estate::new(shares(&[("edge", "127.0.0.1:0")]));
        estate.reload();
        estate.send(&old).unwrap();
        assert!(!estate.has_reloaded());
        estate.reload();
        assert!(estate.has_reloaded());
    }

    #[test]
    fn only_a_death_without_a_word_is_a_death() {
        let ask = |said: &[u8], pid: u32| {
            let (stream, mut other) = UnixStream::pair().unwrap();
            other.write_all(said).unwrap();
            drop(other);
            Predecessor { stream, pid }.take_over()
        };
        let (alive, dead) = (std::process::id(), i32::MAX as u32);
        // It lives, and closed the connection: before, or after it had waited for us.
        assert!(ask(b"", alive).is_err());
        assert!(ask(b"yours\n", alive).is_err());
        assert!(ask(b"", dead).is_ok_and(|last| last.is_none()));
        assert!(ask(b"yours\n", dead).is_ok_and(|last| last.is_none()));
        // One that has ended, and that nobody has counted yet.
        let mut child = std::process::Command::new("true").spawn().unwrap();
        assert!(ask(b"", child.id()).is_ok());
        child.wait().unwrap();
        let refused = br#"{"version":1,"pid":1,"refused":"it is stopping"}"#;
        let error = ask(&[refused, &b"\n"[..]].concat(), 1).err().unwrap();
        assert!(error.to_string().contains("it is stopping"));
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
