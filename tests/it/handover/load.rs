//! Hand-overs and reloads under load.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tungstenite::Message;

use crate::support::PATIENCE;
use crate::support::ati::{Proxy, Setup};
use crate::support::http::Client;
use crate::support::upstream::Upstream;

/// Runs until the flag is set. Returns how many requests were served, and what failed.
type Work = Box<dyn Fn(&AtomicBool) -> (usize, Vec<String>) + Send>;

/// Requests to a route, tool calls and WebSockets. Callers repeat a request where a kept connection
/// closes before the first byte of an answer.
struct Load {
    over: Arc<AtomicBool>,
    threads: Vec<std::thread::JoinHandle<(usize, Vec<String>)>>,
}

impl Load {
    fn start(proxy: &Proxy) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let edge = proxy.edge;
        let mut threads = Vec::new();
        let mut spawn = |work: Work| {
            let over = over.clone();
            threads.push(std::thread::spawn(move || work(&over)));
        };
        for index in 0..4 {
            spawn(Box::new(move |over| {
                requests(over, edge, index % 2 == 0, |client| {
                    client.try_send("GET", "/api/x", b"")
                })
            }));
        }
        for index in 0..2 {
            let call = br#"{"tool_name":"t_one","args":{}}"#;
            spawn(Box::new(move |over| {
                requests(over, edge, index == 0, |client| {
                    client.try_send("POST", "/call", call)
                })
            }));
        }
        for _ in 0..2 {
            spawn(Box::new(move |over| sockets(over, edge)));
        }
        Load { over, threads }
    }

    /// How many requests each caller had served. Panics if one failed.
    fn end(self) -> Vec<usize> {
        self.over.store(true, Ordering::Release);
        let mut failures = Vec::new();
        let mut served = Vec::new();
        for thread in self.threads {
            let (count, failed) = thread.join().unwrap();
            served.push(count);
            failures.extend(failed);
        }
        assert!(
            failures.is_empty(),
            "{} failed: {:#?}",
            failures.len(),
            &failures[..failures.len().min(10)]
        );
        served
    }
}

fn requests(
    over: &AtomicBool,
    edge: std::net::SocketAddr,
    keep: bool,
    ask: impl Fn(&mut Client) -> Result<u16, bool>,
) -> (usize, Vec<String>) {
    let (mut count, mut failures) = (0, Vec::new());
    let mut kept: Option<Client> = None;
    while !over.load(Ordering::Acquire) {
        let reused = kept.is_some();
        let mut client = match kept.take() {
            Some(client) => client,
            None => match Client::try_connect(edge) {
                Ok(client) => client,
                Err(e) => {
                    failures.push(format!("refused: {e}"));
                    continue;
                }
            },
        };
        match ask(&mut client) {
            Ok(200) => {
                count += 1;
                kept = keep.then_some(client);
            }
            Ok(status) => failures.push(format!("status {status}")),
            // A kept connection closed before the first byte of an answer: a client may repeat
            // that.
            Err(false) if reused => {}
            Err(begun) => failures.push(format!("broke off, begun: {begun}, reused: {reused}")),
        }
        // Without a pause the load would starve the other tests.
        std::thread::sleep(Duration::from_millis(2));
    }
    (count, failures)
}

/// Echoes over one WebSocket after another. Each ends with a Close from either side.
fn sockets(over: &AtomicBool, edge: std::net::SocketAddr) -> (usize, Vec<String>) {
    let (mut count, mut failures) = (0, Vec::new());
    'next: while !over.load(Ordering::Acquire) {
        let stream = match std::net::TcpStream::connect_timeout(&edge, PATIENCE) {
            Ok(stream) => stream,
            Err(e) => {
                failures.push(format!("WebSocket refused: {e}"));
                continue;
            }
        };
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut socket = match tungstenite::client(format!("ws://{edge}/ws/echo"), stream) {
            Ok((socket, _)) => socket,
            Err(e) => {
                failures.push(format!("no WebSocket: {e}"));
                continue;
            }
        };
        loop {
            let said = socket.send(Message::text("hello"));
            let heard = said.and_then(|()| socket.read());
            match heard {
                Ok(Message::Text(text)) if text.as_str() == "hello" => count += 1,
                Ok(Message::Close(_)) | Err(tungstenite::Error::ConnectionClosed) => continue 'next,
                // The Close came during the write.
                Err(tungstenite::Error::Protocol(
                    tungstenite::error::ProtocolError::SendAfterClosing,
                )) => continue 'next,
                other => {
                    failures.push(format!("WebSocket ended with {other:?}"));
                    continue 'next;
                }
            }
            if over.load(Ordering::Acquire) {
                let _ = socket.close(None);
                return (count, failures);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    (count, failures)
}

fn echo() -> std::net::SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            std::thread::spawn(move || {
                let Ok(mut socket) = tungstenite::accept(stream) else {
                    return;
                };
                while let Ok(message) = socket.read() {
                    if message.is_text() && socket.send(message).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

/// Mixed load of this length, with hand-overs and reloads spread over it.
fn endures(length: Duration, upgrades: u32, reloads: u32) {
    let upstream = Upstream::fixed(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}",
    );
    let mut proxy = Setup::new()
        .conf(
            r#"
                [server]
                drain_seconds = 2
                [log]
                access = false
                signatures = false
            "#,
        )
        .route("api", &upstream.url(), "path_prefix = \"/api\"")
        .route(
            "ws",
            &format!("http://{}", echo()),
            "path_prefix = \"/ws\"\nforward_websockets = true",
        )
        .tools(
            "t",
            &upstream.url(),
            "",
            r#"
                [[tools]]
                name = "t_one"
                description = "d"
                endpoint = "/"
                method = "GET"
            "#,
        )
        .start();
    let load = Load::start(&proxy);
    let started = Instant::now();
    let mut formers = Vec::new();
    let (mut upgraded, mut reloaded) = (0, 0);
    // A hand-over on a loaded machine may take longer than its share of the time.
    while started.elapsed() < length || upgraded < upgrades || reloaded < reloads {
        let part = started.elapsed().as_secs_f64() / length.as_secs_f64();
        if upgraded < upgrades && f64::from(upgraded + 1) / f64::from(upgrades + 1) < part {
            formers.push(proxy.upgrade());
            upgraded += 1;
        }
        if reloaded < reloads && f64::from(reloaded + 1) / f64::from(reloads + 1) < part {
            assert_eq!(proxy.reload()["message"], "reload done");
            reloaded += 1;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let served = load.end();
    assert_eq!((upgraded, reloaded), (upgrades, reloads));
    assert!(served.iter().all(|count| *count > 10), "{served:?}");
    for former in &mut formers {
        assert_eq!(former.wait().code(), Some(0));
    }
}

#[test]
fn hand_over_under_load_loses_no_request() {
    endures(Duration::from_secs(6), 1, 2);
}

#[test]
#[ignore = "takes a minute"]
fn three_hand_overs_and_ten_reloads_in_a_minute_lose_no_request() {
    endures(Duration::from_secs(60), 3, 10);
}
