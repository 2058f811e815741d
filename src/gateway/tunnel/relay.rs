use std::io;
use std::time::Duration;

use pingora_core::protocols::Stream;
use pingora_http::ResponseHeader;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;
use tokio::time::Instant;

use super::frames::Frames;
use crate::gateway::ctx::Tunnelled;

const BUFFER: usize = 32 << 10;
/// Close with 1001, going away; to the upstream masked, as a client must (a mask of zeros is one).
const GOING_AWAY: [u8; 4] = [0x88, 0x02, 0x03, 0xe9];
const GOING_AWAY_MASKED: [u8; 8] = [0x88, 0x82, 0, 0, 0, 0, 0x03, 0xe9];
/// How long the other side has to answer ati's Close, and to end a frame that is under way.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Send the 101, then bytes both ways until either side ends or ati closes its tunnels.
pub(super) async fn run(
    caller: Stream,
    upstream: Stream,
    answer: &ResponseHeader,
    from_caller: Vec<u8>,
    from_upstream: Vec<u8>,
    closing: watch::Receiver<bool>,
) -> Tunnelled {
    let (mut caller_read, mut caller_write) = tokio::io::split(caller);
    let (mut upstream_read, mut upstream_write) = tokio::io::split(upstream);
    let mut head = b"HTTP/1.1 101 Switching Protocols\r\n".to_vec();
    answer.header_to_h1_wire(&mut head);
    head.extend_from_slice(b"\r\n");
    if write(&mut caller_write, &head).await.is_err() {
        return Tunnelled::default();
    }
    let mut passed = Tunnelled::default();
    let up = copy(
        &mut caller_read,
        &mut upstream_write,
        from_caller,
        &GOING_AWAY_MASKED,
        closing.clone(),
        &mut passed.from_caller,
    );
    let down = copy(
        &mut upstream_read,
        &mut caller_write,
        from_upstream,
        &GOING_AWAY,
        closing,
        &mut passed.to_caller,
    );
    // After one side's end the other has a moment to send the rest.
    {
        tokio::pin!(up, down);
        tokio::select! {
            _ = &mut up => {
                let _ = tokio::time::timeout(CLOSE_TIMEOUT, down).await;
            }
            _ = &mut down => {
                let _ = tokio::time::timeout(CLOSE_TIMEOUT, up).await;
            }
        }
    }
    passed
}

async fn copy(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    early: Vec<u8>,
    close: &[u8],
    mut closing: watch::Receiver<bool>,
    passed: &mut u64,
) -> io::Result<()> {
    let mut frames = Frames::default();
    let mut buffer = early;
    let mut close_sent = false;
    let mut end = None;
    loop {
        if !buffer.is_empty() {
            frames.follow(&buffer);
            *passed += buffer.len() as u64;
            write(to, &buffer).await?;
            buffer.clear();
        }
        if *closing.borrow_and_update() && !close_sent && frames.at_boundary() {
            close_sent = true;
            write(to, close).await?;
        }
        buffer.reserve(BUFFER);
        tokio::select! {
            read = from.read_buf(&mut buffer) => {
                // After ati's Close only the other side's Close is awaited.
                if read? == 0 {
                    return to.shutdown().await;
                }
                if close_sent {
                    buffer.clear();
                }
            }
            changed = closing.changed(), if end.is_none() => {
                if changed.is_ok() {
                    end = Some(Instant::now() + CLOSE_TIMEOUT);
                }
            }
            () = deadline(end) => return Ok(()),
        }
    }
}

/// Never, if there is no deadline yet.
async fn deadline(end: Option<Instant>) {
    match end {
        Some(end) => tokio::time::sleep_until(end).await,
        None => std::future::pending().await,
    }
}

async fn write(to: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<()> {
    to.write_all(bytes).await?;
    to.flush().await
}
