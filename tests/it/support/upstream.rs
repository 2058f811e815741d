//! Upstreams on loopback: they record requests, and answer as the test says.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::json;

use super::eventually;

/// A request as an upstream received it.
#[derive(Debug, Clone)]
pub struct Received {
    pub method: String,
    pub target: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub peer: SocketAddr,
}

impl Received {
    pub fn all(&self, name: &str) -> Vec<&str> {
        let matching = self.headers.iter().filter(|(known, _)| known == name);
        matching.map(|(_, value)| value.as_str()).collect()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let all = self.all(name);
        assert!(all.len() < 2, "{name} came {} times", all.len());
        all.first().copied()
    }
}

pub struct Upstream {
    pub address: SocketAddr,
    received: Arc<Mutex<Vec<Received>>>,
    open: Arc<AtomicUsize>,
}

type Answer = dyn Fn(&Received, &mut TcpStream) -> bool + Send + Sync;

impl Upstream {
    /// Answers every request with a description of it, as JSON.
    pub fn echo() -> Self {
        Self::answering(|received, stream| {
            let body = json!({
                "method": received.method,
                "target": received.target,
                "authorization": received.all("authorization"),
                "length": received.body.len(),
            })
            .to_string();
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            let body = if received.method == "HEAD" {
                String::new()
            } else {
                body
            };
            stream.write_all((head + &body).as_bytes()).is_ok()
        })
    }

    /// Answers every request with these bytes, and keeps the connection.
    pub fn fixed(answer: impl Into<Vec<u8>>) -> Self {
        let answer = answer.into();
        Self::answering(move |_, stream| stream.write_all(&answer).is_ok())
    }

    /// `answer` writes the answer, and returns whether the connection is kept.
    pub fn answering(
        answer: impl Fn(&Received, &mut TcpStream) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self::answering_at("127.0.0.1:0", answer)
    }

    pub fn answering_at(
        address: &str,
        answer: impl Fn(&Received, &mut TcpStream) -> bool + Send + Sync + 'static,
    ) -> Self {
        let received: Arc<Mutex<Vec<Received>>> = Arc::default();
        let answer: Arc<Answer> = Arc::new(answer);
        let theirs = received.clone();
        Self::start(address, received, move |stream, peer| {
            let mut reader = BufReader::new(stream);
            while let Some(request) = read_request(&mut reader, peer) {
                theirs.lock().unwrap().push(request.clone());
                if !answer(&request, reader.get_mut()) {
                    return;
                }
            }
        })
    }

    /// Hands each connection to `serve`.
    pub fn raw(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Self {
        Self::start("127.0.0.1:0", Arc::default(), move |stream, _| {
            serve(stream);
        })
    }

    fn start(
        address: &str,
        received: Arc<Mutex<Vec<Received>>>,
        serve: impl Fn(TcpStream, SocketAddr) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let open = Arc::new(AtomicUsize::new(0));
        let counted = open.clone();
        let serve = Arc::new(serve);
        std::thread::spawn(move || {
            while let Ok((stream, peer)) = listener.accept() {
                let (serve, counted) = (serve.clone(), counted.clone());
                counted.fetch_add(1, Ordering::SeqCst);
                std::thread::spawn(move || {
                    stream.set_nodelay(true).unwrap();
                    serve(stream, peer);
                    counted.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Upstream {
            address,
            received,
            open,
        }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }

    pub fn last(&self) -> Received {
        self.received().last().expect("a request").clone()
    }

    /// Whether one of the requests so far was like this.
    pub fn saw(&self, like: impl Fn(&Received) -> bool) -> bool {
        self.received.lock().unwrap().iter().any(like)
    }

    pub fn open_connections(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    pub fn wait_until_left(&self) {
        eventually("the end of every upstream connection", || {
            (self.open_connections() == 0).then_some(())
        });
    }
}

fn read_request(reader: &mut BufReader<TcpStream>, peer: SocketAddr) -> Option<Received> {
    let line = read_line(reader)?;
    let mut words = line.split(' ');
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = Vec::new();
    loop {
        let line = read_line(reader)?;
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':')?;
        headers.push((name.to_lowercase(), value.trim().to_owned()));
    }
    let mut received = Received {
        method,
        target,
        headers,
        body: Vec::new(),
        peer,
    };
    if received.header("transfer-encoding") == Some("chunked") {
        loop {
            let size = usize::from_str_radix(&read_line(reader)?, 16).ok()?;
            let mut chunk = vec![0; size + 2];
            reader.read_exact(&mut chunk).ok()?;
            if size == 0 {
                break;
            }
            received.body.extend_from_slice(&chunk[..size]);
        }
    } else if let Some(length) = received.header("content-length") {
        let mut body = vec![0; length.parse().ok()?];
        reader.read_exact(&mut body).ok()?;
        received.body = body;
    }
    Some(received)
}

fn read_line(reader: &mut BufReader<TcpStream>) -> Option<String> {
    let mut line = String::new();
    match reader.read_line(&mut line) {
        Ok(0) | Err(_) => None,
        Ok(_) => Some(line.trim_end_matches(['\r', '\n']).to_owned()),
    }
}
