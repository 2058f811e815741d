//! Input: the longest line; the sizes in which the rest is read; what a server writes. Lines come
//! out as they went in, however they are cut and however often a read is given up; a line that is
//! too long ends it. Each line is classified, and what ati answers is one line of JSON.
#![no_main]

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use ati::exec::mcp::lines::{BoundedLines, LineError};
use ati::exec::mcp::message::{ServerMessage, classify};
use ati_fuzz::{check_answer, is_same_id, pieces};
use libfuzzer_sys::fuzz_target;
use tokio::io::{AsyncRead, ReadBuf};

/// Gives one piece at a time, and keeps its reader waiting before each.
struct Pipe<'a> {
    pieces: std::vec::IntoIter<&'a [u8]>,
    has_waited: bool,
}

impl AsyncRead for Pipe<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.has_waited = !self.has_waited;
        if self.has_waited {
            return Poll::Pending;
        }
        if let Some(piece) = self.pieces.next() {
            buffer.put_slice(piece);
        }
        Poll::Ready(Ok(()))
    }
}

/// The lines, and whether they ended with one that is too long. Each read that has to wait is given
/// up, as rmcp does it, and begun anew.
fn read(mut lines: BoundedLines<Pipe<'_>>) -> (Vec<Vec<u8>>, bool) {
    let mut found = Vec::new();
    let mut context = Context::from_waker(Waker::noop());
    loop {
        let next = pin!(lines.next()).poll(&mut context);
        match next {
            Poll::Pending => {}
            Poll::Ready(Ok(Some(line))) => found.push(line.into_bytes()),
            Poll::Ready(Ok(None)) => return (found, false),
            Poll::Ready(Err(LineError::TooLong(_))) => return (found, true),
            Poll::Ready(Err(LineError::Io(e))) => panic!("{e}"),
        }
    }
}

/// The same, the simple way.
fn expected(text: &[u8], longest: usize) -> (Vec<Vec<u8>>, bool) {
    let mut lines: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
    let too_long = lines.iter().position(|line| line.len() > longest);
    lines.truncate(too_long.unwrap_or(lines.len()));
    let whole = lines.into_iter().filter(|line| line.ends_with(b"\n"));
    (whole.map(<[u8]>::to_vec).collect(), too_long.is_some())
}

fn check_line(line: &[u8]) {
    match classify(line) {
        ServerMessage::Request(answer) => check_answer(line, &answer),
        ServerMessage::Message(message) => {
            let again = serde_json::to_vec(&message).expect("a message can be written");
            let is_message = matches!(classify(&again), ServerMessage::Message(_));
            assert!(is_message, "{}", String::from_utf8_lossy(&again));
            let again: serde_json::Value = serde_json::from_slice(&again).expect("it is JSON");
            // An answer that is no JSON as a whole becomes an error with its id.
            if let Ok(text) = serde_json::from_slice::<serde_json::Value>(line)
                && !text["id"].is_null()
            {
                assert!(is_same_id(&text["id"], &again["id"]));
            }
        }
        ServerMessage::Progress(_) | ServerMessage::Ignored | ServerMessage::Garbage => {}
    }
}

fuzz_target!(|data: &[u8]| {
    let [longest, size, text @ ..] = data else {
        return;
    };
    let longest = 1 + usize::from(*longest) * 8;
    let pipe = Pipe {
        pieces: pieces(text, &[*size, 1, 7]).into_iter(),
        has_waited: false,
    };
    let (lines, too_long) = read(BoundedLines::new(pipe, longest));
    assert_eq!(
        (&lines, too_long),
        (&expected(text, longest).0, expected(text, longest).1)
    );
    for line in text.split(|byte| *byte == b'\n') {
        check_line(line.trim_ascii());
    }
});
