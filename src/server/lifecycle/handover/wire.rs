//! The messages of a hand-over, as they are sent.

use std::io::{self, BufReader, IoSlice, IoSliceMut, Read, Take, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};

use super::NamedSocket;
use crate::config::MOST_LISTENERS;

/// What a connection is for: its first line.
pub const UPGRADE: &str = "upgrade";
pub const STATUS: &str = "status";

pub const READY: &str = "ready";
pub const YOURS: &str = "yours";
pub const MINE: &str = "mine";
pub const TOLD: &str = "told";
/// To a successor, a reload that it has to make. As a first line, `ati reload`.
pub const RELOAD: &str = "reload";

/// Processes of different versions don't hand over to each other.
pub const VERSION: u32 = 3;
/// The configured listeners, and room for the edge's, the admin's and the upgrade socket.
const MOST_SOCKETS: usize = MOST_LISTENERS + 4;
const MOST_BYTES: usize = 64 << 10;

/// The predecessor's first message. Also its refusal, at any time before `yours`.
#[derive(Serialize, Deserialize)]
pub struct Offer {
    pub version: u32,
    pub pid: u32,
    /// In the order of the descriptors that come with the message.
    #[serde(default)]
    pub listeners: Vec<OfferedListener>,
    /// Why nothing is handed over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// A listener's name and configured address. A pair on the wire.
#[derive(Clone, Serialize, Deserialize)]
#[serde(from = "(String, String)", into = "(String, String)")]
pub struct OfferedListener {
    pub name: String,
    pub address: String,
}

impl From<(String, String)> for OfferedListener {
    fn from((name, address): (String, String)) -> Self {
        OfferedListener { name, address }
    }
}

impl From<OfferedListener> for (String, String) {
    fn from(listener: OfferedListener) -> Self {
        (listener.name, listener.address)
    }
}

impl Offer {
    fn to_line(&self) -> io::Result<Vec<u8>> {
        let mut text = serde_json::to_vec(self)?;
        text.push(b'\n');
        Ok(text)
    }
}

/// In one write, so that it arrives whole or not at all.
pub fn send_line(mut stream: &UnixStream, line: &str) -> io::Result<()> {
    stream.write_all(format!("{line}\n").as_bytes())
}

/// Reads lines, of [`MOST_BYTES`] in all: a peer that ends none must not fill the memory.
pub fn line_reader(stream: &UnixStream) -> BufReader<Take<&UnixStream>> {
    BufReader::new(stream.take(MOST_BYTES as u64))
}

/// Sends the names, addresses and descriptors of the listeners.
pub fn send_offer(stream: &UnixStream, listeners: &[NamedSocket]) -> io::Result<()> {
    let offered = |listener: &NamedSocket| OfferedListener {
        name: listener.name.clone(),
        address: listener.address.clone(),
    };
    let offer = Offer {
        version: VERSION,
        pid: std::process::id(),
        listeners: listeners.iter().map(offered).collect(),
        refused: None,
    };
    let sockets: Vec<_> = listeners.iter().map(|one| one.socket.as_fd()).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_SOCKETS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&sockets)) {
        return Err(io::Error::other("it has too many listeners"));
    }
    let text = offer.to_line()?;
    sendmsg(
        stream,
        &[IoSlice::new(&text)],
        &mut control,
        SendFlags::NOSIGNAL,
    )?;
    Ok(())
}

/// Sends the reason why nothing is handed over. A successor that has ended needs none, so failures
/// are ignored.
pub fn send_refusal(mut stream: &UnixStream, why: &str) {
    let offer = Offer {
        version: VERSION,
        pid: std::process::id(),
        listeners: Vec::new(),
        refused: Some(why.to_owned()),
    };
    let _ = offer.to_line().and_then(|text| stream.write_all(&text));
}

/// The reason in a refusal.
pub fn refusal_reason(line: &str) -> Option<String> {
    serde_json::from_str::<Offer>(line).ok()?.refused
}

pub fn receive_offer(stream: &UnixStream) -> io::Result<(Offer, Vec<OwnedFd>)> {
    let mut text = Vec::new();
    let mut sockets = Vec::new();
    while !text.ends_with(b"\n") {
        let mut piece = vec![0; MOST_BYTES];
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
        if read.bytes == 0 || text.len() > MOST_BYTES {
            return Err(io::Error::other("it closed the connection"));
        }
    }
    let offer = serde_json::from_slice(&text)?;
    Ok((offer, sockets))
}

#[cfg(test)]
mod tests {
    use std::io::BufRead as _;

    use super::super::tests::named_sockets;
    use super::*;

    #[test]
    fn offered_descriptors_arrive_with_their_names() {
        let (old, new) = UnixStream::pair().unwrap();
        let list = [
            ("edge", "127.0.0.1:0"),
            ("admin", "127.0.0.1:0"),
            ("tls", "[::]:443"),
        ];
        send_offer(&old, &named_sockets(&list)).unwrap();
        let (offer, sockets) = receive_offer(&new).unwrap();
        assert_eq!(sockets.len(), 3);
        let names: Vec<_> = offer
            .listeners
            .iter()
            .map(|one| one.name.as_str())
            .collect();
        assert_eq!(names, ["edge", "admin", "tls"]);
    }

    #[test]
    fn offered_listener_is_a_pair_on_the_wire() {
        let offer = r#"{"version":3,"pid":1,"listeners":[["edge","127.0.0.1:0"]]}"#;
        let read: Offer = serde_json::from_str(offer).unwrap();
        assert_eq!(read.listeners[0].address, "127.0.0.1:0");
        assert_eq!(serde_json::to_string(&read).unwrap(), offer);
    }

    #[test]
    fn line_without_an_end_is_read_up_to_a_limit() {
        let (mut old, new) = UnixStream::pair().unwrap();
        let writer = std::thread::spawn(move || {
            // Fails when the other end is closed.
            while old.write_all(&[b'x'; 4096]).is_ok() {}
        });
        let mut line = String::new();
        line_reader(&new).read_line(&mut line).unwrap();
        assert_eq!(line.len(), MOST_BYTES);
        drop(new);
        writer.join().unwrap();
    }

    #[test]
    fn offer_that_is_garbage_or_cut_off_is_an_error() {
        let (mut old, new) = UnixStream::pair().unwrap();
        old.write_all(b"hello\n").unwrap();
        assert!(receive_offer(&new).is_err());
        let (old, new) = UnixStream::pair().unwrap();
        drop(old);
        assert!(receive_offer(&new).is_err());
    }
}
