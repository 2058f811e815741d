//! A caller that writes given bytes, and tells apart what comes back.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::scripted::{GAP, Scripted, find};

/// How long a caller waits for a byte that doesn't come. Both ways have to be equally silent.
const SILENCE: Duration = Duration::from_secs(5);

/// What a caller does, in turn.
#[derive(Clone, Debug)]
pub enum Step {
    Send(Vec<u8>),
    Gap,
    /// Waits until the upstream has so many requests, and so much of the body of the last one.
    UpstreamHas(usize, usize),
    /// Reads until there are so many answers, not counting informational ones.
    Read(usize),
    /// Says that nothing more comes.
    EndWriting,
    /// Closes the connection without reading.
    Leave,
}

/// How the body of an answer was delimited.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Delimited {
    None,
    Length,
    Chunked,
    Close,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Received {
    pub line: String,
    pub status: u16,
    pub headers: Vec<(String, Vec<u8>)>,
    pub body: Vec<u8>,
    pub trailers: Vec<(String, Vec<u8>)>,
    pub delimited: Delimited,
    pub is_whole: bool,
}

impl Received {
    pub fn is_informational(&self) -> bool {
        self.status / 100 == 1 && self.status != 101
    }

    pub fn all(&self, name: &str) -> Vec<String> {
        let matching = self
            .headers
            .iter()
            .filter(|(known, _)| known.eq_ignore_ascii_case(name));
        matching
            .map(|(_, value)| String::from_utf8_lossy(value).into_owned())
            .collect()
    }

    pub fn closes(&self) -> bool {
        let values = self.all("connection");
        values.iter().any(|value| value.to_lowercase() == "close")
    }
}

/// How a connection stands after an exchange.
#[derive(Clone, Debug, PartialEq)]
pub enum End {
    /// A canary was answered on it.
    Open,
    Closed,
    /// Neither closed nor answered.
    Silent,
    /// Bytes that are no answer.
    Unreadable(String),
    /// The caller left.
    Left,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fill {
    More,
    End,
    Silence,
}

pub struct Caller {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Caller {
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(SILENCE)).unwrap();
        stream.set_write_timeout(Some(SILENCE)).unwrap();
        Caller {
            stream,
            buffer: Vec::new(),
        }
    }

    /// Does the steps. `heads` says which requests have the method HEAD. Returns the answers, and
    /// how the connection stands if that is known already.
    pub fn run(
        &mut self,
        steps: &[Step],
        heads: &[bool],
        upstream: &Scripted,
    ) -> (Vec<Received>, Option<End>) {
        let mut received: Vec<Received> = Vec::new();
        let finals =
            |received: &[Received]| received.iter().filter(|h| !h.is_informational()).count();
        for (n, step) in steps.iter().enumerate() {
            let is_last = n + 1 == steps.len();
            match step {
                Step::Send(bytes) => {
                    // A connection that was closed is found out by reading.
                    let _ = self.stream.write_all(bytes);
                }
                Step::Gap => std::thread::sleep(GAP),
                Step::UpstreamHas(requests, bytes) => {
                    // Unless the request was refused.
                    let started = Instant::now();
                    let turn = Duration::from_millis(10);
                    while !upstream.wait_for_body(*requests, *bytes, turn)
                        && !self.has_bytes()
                        && started.elapsed() < SILENCE
                    {}
                }
                Step::Read(wanted) => {
                    while finals(&received) < *wanted {
                        let is_head = heads.get(finals(&received)).copied().unwrap_or(false);
                        match self.read(is_head) {
                            Ok(answer) => {
                                let ends = !answer.is_whole || answer.status == 101;
                                let closes = answer.closes();
                                received.push(answer);
                                if ends {
                                    return (received, Some(self.end()));
                                }
                                if closes
                                    && is_last
                                    && !received[received.len() - 1].is_informational()
                                {
                                    return (received, Some(self.end()));
                                }
                            }
                            Err(end) => return (received, Some(end)),
                        }
                    }
                }
                Step::EndWriting => {
                    let _ = self.stream.shutdown(Shutdown::Write);
                    loop {
                        let is_head = heads.get(finals(&received)).copied().unwrap_or(false);
                        match self.read(is_head) {
                            Ok(answer) => received.push(answer),
                            Err(end) => return (received, Some(end)),
                        }
                    }
                }
                Step::Leave => return (received, Some(End::Left)),
            }
        }
        (received, None)
    }

    /// Sends a canary, and tells whether it was answered.
    pub fn canary(&mut self, head: &str) -> End {
        if self.stream.write_all(head.as_bytes()).is_err() {
            return self.end();
        }
        match self.read(false) {
            Ok(answer) if answer.body == b"canary" && answer.status == 200 => End::Open,
            Ok(answer) => End::Unreadable(format!("instead of a canary: {answer:?}")),
            Err(end) => end,
        }
    }

    /// Reads to the end of the connection. Bytes before it belong to no request.
    fn end(&mut self) -> End {
        loop {
            if !self.buffer.is_empty() {
                let text = String::from_utf8_lossy(&self.buffer);
                return End::Unreadable(text.into_owned());
            }
            match self.fill() {
                Fill::More => {}
                Fill::End => return End::Closed,
                Fill::Silence => return End::Silent,
            }
        }
    }

    /// One answer, or how the connection ended before it began.
    fn read(&mut self, is_head: bool) -> Result<Received, End> {
        let at = loop {
            if let Some(at) = find(&self.buffer, b"\r\n\r\n") {
                break at + 4;
            }
            match self.fill() {
                Fill::More => {}
                Fill::End if self.buffer.is_empty() => return Err(End::Closed),
                Fill::Silence if self.buffer.is_empty() => return Err(End::Silent),
                other => {
                    let text = String::from_utf8_lossy(&self.buffer).into_owned();
                    return Err(End::Unreadable(format!("{other:?} after {text:?}")));
                }
            }
        };
        let head: Vec<u8> = self.buffer.drain(..at).collect();
        let mut lines = head[..head.len() - 4].split(|byte| *byte == b'\n');
        let line = String::from_utf8_lossy(lines.next().unwrap_or_default());
        let line = line.trim_end_matches('\r').to_owned();
        let status = line.split(' ').nth(1).and_then(|word| word.parse().ok());
        let Some(status) = status else {
            return Err(End::Unreadable(line));
        };
        let mut received = Received {
            line,
            status,
            headers: lines.map(header).collect(),
            body: Vec::new(),
            trailers: Vec::new(),
            delimited: Delimited::None,
            is_whole: true,
        };
        self.read_body(&mut received, is_head);
        Ok(received)
    }

    fn read_body(&mut self, received: &mut Received, is_head: bool) {
        if is_head || received.status == 204 || received.status == 304 || received.status / 100 == 1
        {
            return;
        }
        if !received.all("transfer-encoding").is_empty() {
            received.delimited = Delimited::Chunked;
            received.is_whole = self.read_chunks(received).is_some();
            return;
        }
        let lengths = received.all("content-length");
        let Some(length) = lengths.first().and_then(|text| text.parse().ok()) else {
            received.delimited = Delimited::Close;
            while self.fill() == Fill::More {}
            received.body = std::mem::take(&mut self.buffer);
            return;
        };
        received.delimited = Delimited::Length;
        received.is_whole = self.have(length);
        let there = self.buffer.len().min(length);
        received.body = self.buffer.drain(..there).collect();
    }

    /// None where the connection ends before the last chunk.
    fn read_chunks(&mut self, received: &mut Received) -> Option<()> {
        loop {
            let line = self.line()?;
            let line = String::from_utf8_lossy(&line).into_owned();
            let size = usize::from_str_radix(line.split(';').next()?.trim(), 16).ok()?;
            if size == 0 {
                break;
            }
            let whole = self.have(size + 2);
            let there = self.buffer.len().min(size);
            received.body.extend(self.buffer.drain(..there));
            if !whole {
                return None;
            }
            self.buffer.drain(..2);
        }
        loop {
            let line = self.line()?;
            if line.is_empty() {
                return Some(());
            }
            received.trailers.push(header(&line));
        }
    }

    fn line(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(at) = find(&self.buffer, b"\r\n") {
                let line = self.buffer[..at].to_vec();
                self.buffer.drain(..at + 2);
                return Some(line);
            }
            if self.fill() != Fill::More {
                return None;
            }
        }
    }

    fn have(&mut self, bytes: usize) -> bool {
        while self.buffer.len() < bytes {
            if self.fill() != Fill::More {
                return false;
            }
        }
        true
    }

    /// Whether there is something to read, an end included.
    fn has_bytes(&self) -> bool {
        let _ = self.stream.set_nonblocking(true);
        let there = self.stream.peek(&mut [0]);
        let _ = self.stream.set_nonblocking(false);
        there.is_ok()
    }

    fn fill(&mut self) -> Fill {
        let mut bytes = [0; 1 << 14];
        match self.stream.read(&mut bytes) {
            Ok(0) => Fill::End,
            Ok(count) => {
                self.buffer.extend_from_slice(&bytes[..count]);
                Fill::More
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock || e.kind() == ErrorKind::TimedOut => {
                Fill::Silence
            }
            // A reset is an end, too.
            Err(_) => Fill::End,
        }
    }
}

fn header(line: &[u8]) -> (String, Vec<u8>) {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let at = line.iter().position(|byte| *byte == b':');
    let (name, value) = line.split_at(at.unwrap_or(line.len()));
    let value = value.strip_prefix(b":").unwrap_or(value);
    let value = value.trim_ascii();
    (String::from_utf8_lossy(name).into_owned(), value.to_vec())
}
