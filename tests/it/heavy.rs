//! Large bodies and many connections. Run by `make test-full`.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::support::ati::{Proxy, Setup};
use crate::support::eventually;
use crate::support::http::Client;
use crate::support::upstream::Upstream;

const SIZE: u64 = 2 << 30;
const CHUNK: usize = 1 << 20;

/// Memory of the process in MiB: now, and at its peak.
fn memory(proxy: &Proxy) -> (u64, u64) {
    let status = std::fs::read_to_string(format!("/proc/{}/status", proxy.pid())).unwrap();
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        kib / 1024
    };
    (field("VmRSS:"), field("VmHWM:"))
}

fn read_head(stream: &mut TcpStream) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|n| n > 0) {
        head.push(byte[0]);
    }
}

#[test]
#[ignore = "heavy"]
fn two_gibibytes_each_way_are_streamed_in_constant_memory() {
    let swallowed = Arc::new(AtomicU64::new(0));
    let counted = swallowed.clone();
    let sink = Upstream::raw(move |mut stream| {
        read_head(&mut stream);
        let mut buffer = vec![0; CHUNK];
        let mut total = 0;
        while total < SIZE {
            match stream.read(&mut buffer) {
                Ok(0) | Err(_) => return,
                Ok(n) => total += n as u64,
            }
        }
        counted.store(total, Ordering::SeqCst);
        stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
            .unwrap();
    });
    let source = Upstream::raw(|mut stream| {
        read_head(&mut stream);
        stream
            .write_all(format!("HTTP/1.1 200 OK\r\ncontent-length: {SIZE}\r\n\r\n").as_bytes())
            .unwrap();
        let chunk = vec![7; CHUNK];
        for _ in 0..SIZE / CHUNK as u64 {
            if stream.write_all(&chunk).is_err() {
                return;
            }
        }
    });
    let unlimited = "max_request_bytes = 0\nmax_response_bytes = 0";
    let proxy = Setup::new()
        .route(
            "sink",
            &sink.url(),
            &format!("path_prefix = '/sink'\n{unlimited}"),
        )
        .route(
            "source",
            &source.url(),
            &format!("path_prefix = '/source'\n{unlimited}"),
        )
        .start();
    proxy.client().get("/health");
    let (before, _) = memory(&proxy);

    let mut client = proxy.client();
    client.write(
        format!("POST /sink/x HTTP/1.1\r\nhost: x\r\ncontent-length: {SIZE}\r\n\r\n").as_bytes(),
    );
    let chunk = vec![7; CHUNK];
    for _ in 0..SIZE / CHUNK as u64 {
        client.write(&chunk);
    }
    assert_eq!(client.read(false).text(), "ok");
    assert_eq!(swallowed.load(Ordering::SeqCst), SIZE);

    let mut client = proxy.client();
    client.write(b"GET /source/x HTTP/1.1\r\nhost: x\r\n\r\n");
    let mut received = 0;
    while received < SIZE {
        received += client.read_some().len() as u64;
    }
    let (_, peak) = memory(&proxy);
    assert!(peak < before + 32, "from {before} MiB to {peak} MiB");
}

#[test]
#[ignore = "heavy"]
fn thousands_of_idle_connections_are_released_when_closed() {
    let upstream = Upstream::echo();
    let sockets = Upstream::raw(|mut stream| {
        read_head(&mut stream);
        let answer =
            "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n\r\n";
        stream.write_all(answer.as_bytes()).unwrap();
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    });
    let proxy = Setup::new()
        .conf(
            r#"
                [log]
                access = false
                signatures = false
            "#,
        )
        .route("svc", &upstream.url(), "path_prefix = '/svc'")
        .route(
            "ws",
            &sockets.url(),
            "path_prefix = '/ws'\nforward_websockets = true",
        )
        .start();
    proxy.client().get("/svc/x");
    let at_rest = proxy.descriptors();

    // Each sends a request at once: a connection that stays silent is closed.
    let idle: Vec<Client> = (0..2000)
        .map(|_| {
            let mut client = proxy.client();
            assert_eq!(client.get("/svc/x").status, 200);
            client
        })
        .collect();
    let tunnels: Vec<Client> = (0..500)
        .map(|_| {
            let mut client = proxy.client();
            client.write(
                b"GET /ws/x HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\nconnection: Upgrade\r\n\
                  sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\nsec-websocket-version: 13\r\n\r\n",
            );
            assert_eq!(client.read(false).status, 101);
            client
        })
        .collect();
    proxy.settles(r#"ati_in_flight{route="ws"}"#, 500.0);
    assert_eq!(proxy.client().get("/svc/x").status, 200);
    let (with_all, _) = memory(&proxy);
    assert!(with_all < 400, "{with_all} MiB");

    drop(idle);
    drop(tunnels);
    proxy.settles(r#"ati_in_flight{route="ws"}"#, 0.0);
    // A few connections to the upstream are kept for the next request.
    eventually("descriptors back", || {
        (proxy.descriptors() <= at_rest + 16).then_some(())
    });
    sockets.wait_until_left();
}
