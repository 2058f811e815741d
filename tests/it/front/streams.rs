//! WebSockets, uploads and answers are streamed.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};

use tungstenite::{ClientRequestBuilder, Message};

use super::{Caddy, enforcing};
use crate::support::tokens::sign;
use crate::support::upstream::Upstream;
use crate::support::{PATIENCE, eventually};

#[test]
#[ignore = "needs Caddy"]
fn caddy_passes_websockets() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            std::thread::spawn(move || {
                let mut socket = tungstenite::accept(stream).unwrap();
                while let Ok(message) = socket.read() {
                    if message.is_text() || message.is_binary() {
                        let _ = socket.send(message);
                    }
                }
            });
        }
    });
    let more = "path_prefix = '/ws'\nforward_websockets = true";
    let proxy = enforcing()
        .route("ws", &format!("http://{address}"), more)
        .start();
    let caddy = Caddy::start(&[proxy.edge]);
    let url = format!("ws://{}/ws/room", caddy.address);
    let request = ClientRequestBuilder::new(url.parse().unwrap())
        .with_header("X-Sandbox-Signature", sign("GET", "/ws/room"));
    let stream = TcpStream::connect(caddy.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let (mut socket, _) = tungstenite::client(request, stream).unwrap();
    for size in [0, 125, 126, 65_536, 1 << 20] {
        socket.send(Message::Binary(vec![7; size].into())).unwrap();
        assert_eq!(socket.read().unwrap().len(), size);
    }
    socket.send(Message::Text("hello é".into())).unwrap();
    assert_eq!(socket.read().unwrap().to_text().unwrap(), "hello é");
    socket.close(None).unwrap();
    while socket.read().is_ok() {}
}

const LARGE: usize = 64 << 20;

/// Half of a large body arrives before the other half is sent, and all of it arrives unchanged.
#[test]
#[ignore = "needs Caddy"]
fn caddy_streams_a_large_upload() {
    let arrived = Arc::new(AtomicUsize::new(0));
    let counted = arrived.clone();
    let upstream = Upstream::raw(move |mut stream| {
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") {
            if stream.read(&mut byte).unwrap_or(0) == 0 {
                return;
            }
            head.push(byte[0]);
        }
        let mut digest = ring::digest::Context::new(&ring::digest::SHA256);
        let mut buffer = vec![0; 1 << 16];
        let mut total = 0;
        while total < LARGE {
            let Ok(count @ 1..) = stream.read(&mut buffer) else {
                return;
            };
            digest.update(&buffer[..count]);
            total += count;
            counted.store(total, Ordering::SeqCst);
        }
        let mut text = String::new();
        for byte in digest.finish().as_ref() {
            write!(text, "{byte:02x}").unwrap();
        }
        let answer = format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{text}",
            text.len()
        );
        let _ = stream.write_all(answer.as_bytes());
    });
    let proxy = enforcing()
        .route("svc", &upstream.url(), "path_prefix = '/svc'")
        .start();
    let caddy = Caddy::start(&[proxy.edge]);

    let body: Vec<u8> = (0..LARGE)
        .map(|i| (i % 251) as u8 ^ (i >> 16) as u8)
        .collect();
    let mut client = caddy.client();
    let head = format!(
        "POST /svc/up HTTP/1.1\r\nhost: localhost\r\ncontent-length: {LARGE}\r\nx-sandbox-signature: {}\r\n\r\n",
        sign("POST", "/svc/up")
    );
    client.write(head.as_bytes());
    client.write(&body[..LARGE / 2]);
    // The rest of the first half fits into socket buffers.
    eventually("the first half", || {
        (arrived.load(Ordering::SeqCst) > LARGE / 4).then_some(())
    });
    client.write(&body[LARGE / 2..]);
    let mut wanted = String::new();
    for byte in ring::digest::digest(&ring::digest::SHA256, &body).as_ref() {
        write!(wanted, "{byte:02x}").unwrap();
    }
    let response = client.read(false);
    assert_eq!((response.status, response.text()), (200, wanted));
}

#[test]
#[ignore = "needs Caddy"]
fn caddy_streams_an_answer() {
    let (go, went) = mpsc::channel::<()>();
    let went = std::sync::Mutex::new(went);
    let upstream = Upstream::answering(move |_, stream| {
        let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n";
        stream.write_all(head.as_bytes()).unwrap();
        // Waits until the caller has read the first part.
        went.lock().unwrap().recv_timeout(PATIENCE).unwrap();
        stream.write_all(b"3\r\ntwo\r\n0\r\n\r\n").is_ok()
    });
    let proxy = enforcing()
        .route("svc", &upstream.url(), "path_prefix = '/svc'")
        .start();
    let caddy = Caddy::start(&[proxy.edge]);
    let mut client = caddy.client();
    let head = format!(
        "GET /svc/events HTTP/1.1\r\nhost: localhost\r\nx-sandbox-signature: {}\r\n\r\n",
        sign("GET", "/svc/events")
    );
    client.write(head.as_bytes());
    let mut answer = Vec::new();
    while !answer.ends_with(b"3\r\none\r\n") {
        answer.extend(client.read_some());
    }
    go.send(()).unwrap();
    while !answer.ends_with(b"3\r\ntwo\r\n0\r\n\r\n") {
        answer.extend(client.read_some());
    }

    // An answer of known length is streamed too; here the test plays the edge.
    let (go, went) = mpsc::channel::<()>();
    let went = std::sync::Mutex::new(went);
    let edge = Upstream::answering(move |received, stream| {
        let head = "HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\none";
        stream.write_all(head.as_bytes()).unwrap();
        if received.target != "/health" {
            went.lock().unwrap().recv_timeout(PATIENCE).unwrap();
        }
        stream.write_all(b"two").is_ok()
    });
    let caddy = Caddy::start(&[edge.address]);
    let mut client = caddy.client();
    client.write(b"GET /svc/events HTTP/1.1\r\nhost: localhost\r\n\r\n");
    let mut answer = Vec::new();
    while !answer.ends_with(b"one") {
        answer.extend(client.read_some());
    }
    go.send(()).unwrap();
    while !answer.ends_with(b"onetwo") {
        answer.extend(client.read_some());
    }
}
