//! An upstream that plays a script, byte for byte, and keeps what it got.

use std::collections::{BTreeSet, VecDeque};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use crate::support::PATIENCE;

/// Between two writes, so that they are likely to be read separately. No result depends on it.
pub const GAP: Duration = Duration::from_micros(250);

/// A request to this path is answered whatever the script says, and isn't part of what was seen.
pub const CANARY: &str = "canary";

/// When an answer begins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum When {
    /// After the head and this much of the body.
    Early(usize),
    /// After the whole request.
    Whole,
    /// When the other side has left.
    Never,
}

/// What becomes of the connection after an answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Then {
    Keep,
    Close,
    Reset,
}

#[derive(Clone, Debug)]
pub struct Answer {
    pub when: When,
    pub pieces: Vec<Vec<u8>>,
    pub then: Then,
    /// To a HEAD, nothing is sent after the first empty line of a final answer.
    pub is_cut_for_head: bool,
}

impl Answer {
    /// Without the body that an answer to HEAD hasn't got.
    fn cut_for_head(&mut self) {
        let bytes = self.pieces.concat();
        let mut end = 0;
        while let Some(at) = find(&bytes[end..], b"\r\n\r\n") {
            let is_final = !bytes[end..].starts_with(b"HTTP/1.1 1");
            end += at + 4;
            if is_final {
                break;
            }
        }
        let mut left = if end == 0 { bytes.len() } else { end };
        for piece in &mut self.pieces {
            piece.truncate(left);
            left -= piece.len();
        }
    }
}

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The how manieth connection it came on.
    pub connection: usize,
    pub head: Vec<u8>,
    /// Without the framing of chunks.
    pub body: Vec<u8>,
    /// Whether all of it came.
    pub is_whole: bool,
}

#[derive(Default)]
struct State {
    script: VecDeque<Answer>,
    seen: Vec<Seen>,
    /// The connections that canaries came on.
    canaries: Vec<usize>,
    connections: usize,
    /// Answers that are being played.
    playing: usize,
    /// Connections that the other side has not closed.
    open: BTreeSet<usize>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.state.lock().unwrap());
        self.changed.notify_all();
        result
    }
}

pub struct Scripted {
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

impl Scripted {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared: Arc<Shared> = Arc::default();
        let theirs = shared.clone();
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                stream.set_nodelay(true).unwrap();
                let shared = theirs.clone();
                let number = shared.change(|state| {
                    state.connections += 1;
                    state.open.insert(state.connections);
                    state.connections
                });
                std::thread::spawn(move || {
                    let mut connection = Connection {
                        stream,
                        buffer: Vec::new(),
                        number,
                        shared: &shared,
                    };
                    while connection.serve() == Some(Then::Keep) {}
                    drop(connection);
                    shared.change(|state| state.open.remove(&number));
                });
            }
        });
        Scripted { address, shared }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The answers to the next requests. Forgets what was seen.
    pub fn play(&self, script: &[Answer]) {
        self.shared.change(|state| {
            state.script = script.iter().cloned().collect();
            state.seen.clear();
            state.canaries.clear();
        });
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.shared.state.lock().unwrap().seen.clone()
    }

    pub fn canaries(&self) -> Vec<usize> {
        self.shared.state.lock().unwrap().canaries.clone()
    }

    pub fn open_connections(&self) -> usize {
        self.shared.state.lock().unwrap().open.len()
    }

    pub fn is_open(&self, connection: usize) -> bool {
        self.shared.state.lock().unwrap().open.contains(&connection)
    }

    /// Waits until no answer is being played: what was to be closed is closed.
    pub fn wait_until_played(&self) -> bool {
        self.wait(PATIENCE, |state| state.playing == 0)
    }

    /// Waits until the last request has this many bytes of a body.
    pub fn wait_for_body(&self, requests: usize, bytes: usize, patience: Duration) -> bool {
        self.wait(patience, |state| {
            state.seen.len() >= requests
                && state.seen.last().map_or(0, |seen| seen.body.len()) >= bytes
        })
    }

    fn wait(&self, patience: Duration, mut until: impl FnMut(&State) -> bool) -> bool {
        let end = Instant::now() + patience;
        let mut state = self.shared.state.lock().unwrap();
        while !until(&state) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state = self.shared.changed.wait_timeout(state, left).unwrap().0;
        }
        true
    }
}

struct Connection<'a> {
    stream: TcpStream,
    buffer: Vec<u8>,
    number: usize,
    shared: &'a Shared,
}

impl Connection<'_> {
    /// Reads one request and plays one answer.
    fn serve(&mut self) -> Option<Then> {
        let head = self.read_head()?;
        let line = head.split(|byte| *byte == b'\r').next()?;
        if line.windows(CANARY.len()).any(|at| at == CANARY.as_bytes()) {
            self.shared.change(|state| state.canaries.push(self.number));
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\ncanary";
            return self.stream.write_all(answer).is_ok().then_some(Then::Keep);
        }
        let framing = Framing::of(&head);
        let is_head = head.starts_with(b"HEAD ");
        let (index, answer) = self.shared.change(|state| {
            state.seen.push(Seen {
                connection: self.number,
                head,
                body: Vec::new(),
                is_whole: false,
            });
            state.playing += 1;
            (state.seen.len() - 1, state.script.pop_front())
        });
        let mut answer = answer.unwrap_or_else(|| Answer {
            when: When::Whole,
            pieces: vec![b"HTTP/1.1 500 No Script\r\ncontent-length: 0\r\n\r\n".to_vec()],
            then: Then::Keep,
            is_cut_for_head: true,
        });
        if is_head && answer.is_cut_for_head {
            answer.cut_for_head();
        }
        let then = self.play(index, framing, &answer);
        self.end(&then);
        self.shared.change(|state| state.playing -= 1);
        then
    }

    fn play(&mut self, index: usize, mut framing: Framing, answer: &Answer) -> Option<Then> {
        let wanted = match answer.when {
            When::Early(bytes) => bytes,
            When::Whole => usize::MAX,
            When::Never => {
                // The answer is not being played while it waits for the other side.
                self.shared.change(|state| state.playing -= 1);
                while self.read_body(index, &mut framing, usize::MAX).is_some() && self.fill() {}
                self.shared.change(|state| state.playing += 1);
                return None;
            }
        };
        self.read_body(index, &mut framing, wanted)?;
        for (n, piece) in answer.pieces.iter().enumerate() {
            if n > 0 {
                std::thread::sleep(GAP);
            }
            self.stream.write_all(piece).ok()?;
        }
        if answer.then == Then::Keep && answer.when != When::Whole {
            self.read_body(index, &mut framing, usize::MAX)?;
        }
        Some(answer.then)
    }

    /// Closes the connection, if that is what comes next.
    fn end(&mut self, then: &Option<Then>) {
        match then {
            Some(Then::Keep) => {}
            Some(Then::Reset) => {
                let socket = socket2::SockRef::from(&self.stream);
                let _ = socket.set_linger(Some(Duration::ZERO));
            }
            Some(Then::Close) | None => {
                // What is still unread would turn the end into a reset.
                let _ = self.stream.shutdown(Shutdown::Write);
            }
        }
        if matches!(then, Some(Then::Close)) {
            let limit = Some(Duration::from_millis(200));
            let _ = self.stream.set_read_timeout(limit);
            let _ = std::io::copy(&mut self.stream, &mut std::io::sink());
        }
    }

    fn read_head(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(at) = find(&self.buffer, b"\r\n\r\n") {
                return Some(self.buffer.drain(..at + 4).collect());
            }
            if !self.fill() {
                return None;
            }
        }
    }

    /// Reads up to so much of the body, or all of it. None where the connection ends first.
    fn read_body(&mut self, index: usize, framing: &mut Framing, wanted: usize) -> Option<()> {
        let mut got = 0;
        loop {
            let (bytes, is_whole) = framing.take(&mut self.buffer);
            got += bytes.len();
            self.shared.change(|state| {
                // The script may have been replaced since.
                if let Some(seen) = state.seen.get_mut(index) {
                    seen.body.extend_from_slice(&bytes);
                    seen.is_whole = is_whole;
                }
            });
            if is_whole || got >= wanted {
                return Some(());
            }
            if !self.fill() {
                return None;
            }
        }
    }

    fn fill(&mut self) -> bool {
        let mut bytes = [0; 1 << 14];
        match self.stream.read(&mut bytes) {
            Ok(0) | Err(_) => false,
            Ok(count) => {
                self.buffer.extend_from_slice(&bytes[..count]);
                true
            }
        }
    }
}

/// How the body of a request ends, as the upstream reads it: strictly.
enum Framing {
    Length(usize),
    Chunks,
    End,
}

impl Framing {
    fn of(head: &[u8]) -> Self {
        let text = String::from_utf8_lossy(head).to_lowercase();
        let value = |name: &str| {
            text.split("\r\n")
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
                .map(|value| value.trim().to_owned())
        };
        if value("transfer-encoding").is_some() {
            return Framing::Chunks;
        }
        let length = value("content-length").and_then(|value| value.parse().ok());
        Framing::Length(length.unwrap_or(0))
    }

    /// What there is of the body, without its framing, and whether that is the end.
    fn take(&mut self, buffer: &mut Vec<u8>) -> (Vec<u8>, bool) {
        match self {
            Framing::Length(left) => {
                let bytes: Vec<u8> = buffer.drain(..buffer.len().min(*left)).collect();
                *left -= bytes.len();
                (bytes, *left == 0)
            }
            Framing::Chunks => {
                let mut found = Vec::new();
                while let Some(at) = find(buffer, b"\r\n") {
                    let line = String::from_utf8_lossy(&buffer[..at]).into_owned();
                    let size = line.split(';').next().unwrap_or_default().trim();
                    let Ok(size) = usize::from_str_radix(size, 16) else {
                        *self = Framing::End;
                        return (found, false);
                    };
                    if size == 0 {
                        // The trailers end with an empty line.
                        let Some(end) = find(&buffer[at..], b"\r\n\r\n") else {
                            return (found, false);
                        };
                        buffer.drain(..at + end + 4);
                        *self = Framing::End;
                        return (found, true);
                    }
                    if buffer.len() < at + 2 + size + 2 {
                        return (found, false);
                    }
                    found.extend_from_slice(&buffer[at + 2..at + 2 + size]);
                    buffer.drain(..at + 2 + size + 2);
                }
                (found, false)
            }
            Framing::End => (Vec::new(), true),
        }
    }
}

pub fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|at| at == what)
}
