//! A small HTTP/1.1 client that sends the given bytes unchanged, even if they are invalid.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use serde_json::Value;

use super::PATIENCE;

/// What a client writes to and reads from: a socket, or TLS over one.
pub trait Wire: Read + Write {}
impl<S: Read + Write> Wire for S {}

pub struct Client<S: Wire = TcpStream> {
    reader: BufReader<S>,
    host: String,
}

impl From<TcpStream> for Client {
    fn from(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let host = stream.peer_addr().unwrap().to_string();
        Client::over(stream, host)
    }
}

#[derive(Debug)]
pub struct Response {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Client {
    pub fn connect(address: SocketAddr) -> Self {
        Self::try_connect(address).unwrap()
    }

    pub fn try_connect(address: SocketAddr) -> std::io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Client::over(stream, address.to_string()))
    }
}

impl<S: Wire> Client<S> {
    pub fn over(stream: S, host: impl Into<String>) -> Self {
        Client {
            reader: BufReader::new(stream),
            host: host.into(),
        }
    }

    pub fn get(&mut self, path: &str) -> Response {
        self.send("GET", path, &[], b"")
    }

    /// None where the answer doesn't come, or is cut short.
    pub fn try_get(&mut self, path: &str) -> Option<Response> {
        let request = format!("GET {path} HTTP/1.1\r\nhost: {}\r\n\r\n", self.host);
        self.try_write(request.as_bytes()).ok()?;
        self.try_read(false)
    }

    /// The status, or whether an answer had begun when the connection broke off.
    pub fn try_send(&mut self, method: &str, path: &str, body: &[u8]) -> Result<u16, bool> {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\ncontent-length: {}\r\n\r\n",
            self.host,
            body.len()
        );
        let request = [head.as_bytes(), body].concat();
        self.try_write(&request).map_err(|_| false)?;
        let begun = self.reader.fill_buf().is_ok_and(|bytes| !bytes.is_empty());
        match self.try_read(false) {
            Some(answer) if begun => Ok(answer.status),
            _ => Err(begun),
        }
    }

    /// The bytes that have arrived; waits for at least one.
    pub fn read_some(&mut self) -> Vec<u8> {
        let bytes = self.reader.fill_buf().unwrap().to_vec();
        assert!(!bytes.is_empty(), "the connection ended");
        self.reader.consume(bytes.len());
        bytes
    }

    pub fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Response {
        let mut head = format!("{method} {path} HTTP/1.1\r\nhost: {}\r\n", self.host);
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        if !body.is_empty() {
            head += &format!("content-length: {}\r\n", body.len());
        }
        self.write(format!("{head}\r\n").as_bytes());
        self.write(body);
        self.read(method == "HEAD")
    }

    pub fn write(&mut self, bytes: &[u8]) {
        self.reader.get_mut().write_all(bytes).unwrap();
    }

    pub fn try_write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.reader.get_mut().write_all(bytes)
    }

    pub fn read(&mut self, is_head: bool) -> Response {
        self.try_read(is_head)
            .unwrap_or_else(|| panic!("the connection ended before an answer"))
    }

    /// None where the connection ends first.
    pub fn try_read(&mut self, is_head: bool) -> Option<Response> {
        let status_line = self.line()?;
        let status = status_line.split(' ').nth(1)?.parse().ok()?;
        let mut headers = Vec::new();
        loop {
            let line = self.line()?;
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(':')?;
            headers.push((name.to_lowercase(), value.trim().to_owned()));
        }
        let mut response = Response {
            status,
            headers,
            body: Vec::new(),
        };
        if is_head || status == 204 || status == 304 || status / 100 == 1 {
            return Some(response);
        }
        if response.header("transfer-encoding") == Some("chunked") {
            loop {
                let size = usize::from_str_radix(self.line()?.split(';').next()?, 16).ok()?;
                let mut chunk = vec![0; size + 2];
                self.reader.read_exact(&mut chunk).ok()?;
                if size == 0 {
                    return Some(response);
                }
                response.body.extend_from_slice(&chunk[..size]);
            }
        }
        match response.header("content-length") {
            Some(length) => {
                response.body = vec![0; length.parse().ok()?];
                self.reader.read_exact(&mut response.body).ok()?;
            }
            None => {
                self.reader.read_to_end(&mut response.body).ok()?;
            }
        }
        Some(response)
    }

    /// All bytes until the server closes or resets the connection.
    pub fn read_until_closed(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let ended = self.reader.read_to_end(&mut bytes);
        let timed_out = ended.is_err_and(|e| e.kind() == std::io::ErrorKind::WouldBlock);
        assert!(!timed_out, "the connection stays open");
        bytes
    }

    /// Whether the server has closed its side, without further bytes.
    pub fn is_closed(&mut self) -> bool {
        matches!(self.reader.read(&mut [0; 1]), Ok(0) | Err(_))
    }

    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        match self.reader.read_line(&mut line) {
            Ok(0) | Err(_) => None,
            Ok(_) => Some(line.trim_end_matches(['\r', '\n']).to_owned()),
        }
    }
}

impl Response {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }
}
