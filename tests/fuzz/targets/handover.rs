//! Input: how many descriptors come along; into what pieces the rest is cut; the bytes of an offer.
//! Reading an offer ends, with the descriptors that were sent and no others; an offer that is
//! written is read as it was meant.
#![no_main]

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use ati::server::{NamedSocket, wire};
use ati_fuzz::pieces;
use libfuzzer_sys::fuzz_target;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

/// The kernel takes no more in one message.
const MOST_SENT: usize = 64;
/// Listeners and bytes of an offer that has to arrive.
const MOST_LISTENERS: usize = 16;
const MOST_TEXT: usize = 8 << 10;

fn send(stream: &UnixStream, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_SENT))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(descriptors)));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    let _ = sendmsg(stream, &[IoSlice::new(bytes)], &mut control, flags);
}

fn receive(count: usize, sizes: &[u8], bytes: &[u8]) {
    let (old, new) = UnixStream::pair().expect("a pair of sockets");
    let file = std::fs::File::open("/dev/null").expect("a descriptor");
    let descriptors = vec![file.as_fd(); count];
    for (index, piece) in pieces(bytes, sizes).into_iter().enumerate() {
        let along = if index == 0 { &descriptors[..] } else { &[] };
        send(&old, piece, along);
    }
    drop(old);
    let Ok((offer, sockets)) = wire::receive_offer(&new) else {
        return;
    };
    assert!(sockets.len() <= count);
    let line = serde_json::to_string(&offer).expect("an offer can be written");
    assert_eq!(wire::refusal_reason(&line), offer.refused);
    let again: wire::Offer = serde_json::from_str(&line).expect("and read again");
    assert_eq!(again.version, offer.version);
    assert_eq!(again.pid, offer.pid);
    assert_eq!(pairs(&again), pairs(&offer));
}

fn pairs(offer: &wire::Offer) -> Vec<(&str, &str)> {
    offer
        .listeners
        .iter()
        .map(|one| (one.name.as_str(), one.address.as_str()))
        .collect()
}

/// Names and addresses out of the lines of a text.
fn round_trip(text: &str) {
    let (old, new) = UnixStream::pair().expect("a pair of sockets");
    let listeners: Vec<NamedSocket> = text
        .lines()
        .take(MOST_LISTENERS)
        .map(|line| {
            let (name, address) = line.split_once('=').unwrap_or((line, ""));
            NamedSocket {
                name: name.to_owned(),
                address: address.to_owned(),
                socket: old.as_fd().try_clone_to_owned().expect("a descriptor"),
            }
        })
        .collect();
    wire::send_offer(&old, &listeners).expect("the offer is sent");
    let (offer, sockets) = wire::receive_offer(&new).expect("the offer arrives");
    assert_eq!(sockets.len(), listeners.len());
    let sent: Vec<_> = listeners
        .iter()
        .map(|one| (one.name.as_str(), one.address.as_str()))
        .collect();
    assert_eq!(pairs(&offer), sent);
    wire::send_refusal(&old, text);
    let (offer, _) = wire::receive_offer(&new).expect("the refusal arrives");
    assert_eq!(offer.refused.as_deref(), Some(text));
}

fuzz_target!(|data: &[u8]| {
    let [count, size, bytes @ ..] = data else {
        return;
    };
    receive(usize::from(*count) % MOST_SENT, &[*size, 255, 255], bytes);
    if let Ok(text) = str::from_utf8(bytes) {
        wire::refusal_reason(text);
        if text.len() <= MOST_TEXT {
            round_trip(text);
        }
    }
});
