//! One message and perhaps a descriptor over a Unix socket, from a process to the one that it has
//! started. The socket is the standard input of that process: a descriptor with any other number
//! could not be taken over without unsafe code.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::io::fcntl_dupfd_cloexec;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use rustix::stdio::{dup2_stdin, stdin};
use zeroize::Zeroizing;

/// The kernel takes fewer bytes of arguments and variables than this.
pub const LONGEST: usize = 64 << 20;

/// Announces a message of this length. The descriptor comes along.
pub fn announce(
    stream: &UnixStream,
    length: usize,
    with: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let header = (length as u64).to_le_bytes();
    let descriptors: Vec<BorrowedFd<'_>> = with.into_iter().collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
    }
    let parts = [IoSlice::new(&header)];
    let sent = sendmsg(stream, &parts, &mut control, SendFlags::NOSIGNAL)?;
    if sent == header.len() {
        Ok(())
    } else {
        Err(io::ErrorKind::WriteZero.into())
    }
}

/// The message that was announced, and the descriptor.
pub fn receive(mut stream: &UnixStream) -> io::Result<(Zeroizing<Vec<u8>>, Option<OwnedFd>)> {
    let mut header = [0; 8];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let read = loop {
        let mut parts = [IoSliceMut::new(&mut header)];
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::WAITALL;
        match recvmsg(stream, &mut parts, &mut control, flags) {
            Err(rustix::io::Errno::INTR) => {}
            read => break read?,
        }
    };
    if read.bytes != header.len() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let mut descriptor = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(mut found) = message {
            descriptor = found.next();
        }
    }
    let length = usize::try_from(u64::from_le_bytes(header)).unwrap_or(usize::MAX);
    if length > LONGEST {
        return Err(io::Error::other("a message is too long"));
    }
    let mut message = Zeroizing::new(vec![0; length]);
    stream.read_exact(&mut message)?;
    Ok((message, descriptor))
}

/// The socket that this process was started with as its standard input, where there is nothing from
/// now on.
pub fn take() -> io::Result<UnixStream> {
    let control = fcntl_dupfd_cloexec(stdin(), 3)?;
    dup2_stdin(File::open("/dev/null")?)?;
    Ok(UnixStream::from(control))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn message_arrives_with_its_descriptor() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"content").unwrap();
        announce(&ours, 3, Some(file.as_fd())).unwrap();
        ours.write_all(b"abc").unwrap();
        let (message, descriptor) = receive(&theirs).unwrap();
        assert_eq!(*message, b"abc");
        let received = File::from(descriptor.unwrap());
        assert_eq!(received.metadata().unwrap().len(), 7);
        announce(&ours, 0, None).unwrap();
        assert!(receive(&theirs).unwrap().1.is_none());
        announce(&ours, LONGEST + 1, None).unwrap();
        assert!(receive(&theirs).is_err());
        drop(ours);
        assert!(receive(&theirs).is_err());
    }
}
