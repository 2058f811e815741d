//! Reloads and hand-overs while clients call.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::json;

use super::{JSON, request};
use crate::support::ati::{Proxy, Setup};
use crate::support::eventually;
use crate::support::http::Client;
use crate::support::upstream::Upstream;

/// Clients that call until they are told to stop. A client repeats a call where a kept connection
/// closes before the first byte of an answer, as HTTP allows.
struct Calling {
    over: Arc<AtomicBool>,
    served: Arc<AtomicUsize>,
    clients: Vec<JoinHandle<Vec<String>>>,
}

impl Calling {
    fn start(edge: SocketAddr, count: usize) -> Self {
        let (over, served) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicUsize::new(0)),
        );
        let clients = (0..count).map(|_| {
            let (over, served) = (over.clone(), served.clone());
            std::thread::spawn(move || run(edge, &over, &served))
        });
        let clients = clients.collect();
        Calling {
            over,
            served,
            clients,
        }
    }

    fn wait_for_more(&self) {
        let before = self.served.load(Ordering::Acquire);
        eventually("more calls", || {
            let now = self.served.load(Ordering::Acquire);
            (now > before + self.clients.len()).then_some(())
        });
    }

    fn end(self) {
        self.over.store(true, Ordering::Release);
        let failed: Vec<String> = self
            .clients
            .into_iter()
            .flat_map(|one| one.join().unwrap())
            .collect();
        assert!(
            failed.is_empty(),
            "{} failed: {:?}",
            failed.len(),
            &failed[..failed.len().min(5)]
        );
    }
}

fn run(edge: SocketAddr, over: &AtomicBool, served: &AtomicUsize) -> Vec<String> {
    let body = request("tools/call", json!({"name": "web:look"})).to_string();
    let head = format!(
        "POST /mcp HTTP/1.1\r\nhost: {edge}\r\n{}: {}\r\ncontent-length: {}\r\n\r\n{body}",
        JSON.0,
        JSON.1,
        body.len()
    );
    let (mut failed, mut kept): (_, Option<Client>) = (Vec::new(), None);
    while !over.load(Ordering::Acquire) {
        let reused = kept.is_some();
        let mut client = match kept.take().map_or_else(|| Client::try_connect(edge), Ok) {
            Ok(client) => client,
            Err(e) => {
                failed.push(format!("refused: {e}"));
                continue;
            }
        };
        let answer = match client.try_write(head.as_bytes()) {
            Ok(()) => client.try_read(false),
            Err(_) => None,
        };
        match answer {
            Some(answer) if answer.status == 200 && answer.json()["result"]["isError"] == false => {
                served.fetch_add(1, Ordering::AcqRel);
                kept = Some(client);
            }
            Some(answer) => failed.push(answer.text()),
            None if reused => {}
            None => failed.push("broke off".to_owned()),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    failed
}

fn started() -> (Upstream, Proxy) {
    let upstream = Upstream::echo();
    let proxy = Setup::new()
        .tools("web", &upstream.url(), "", "[[tools]]\nname = 'web:look'\n")
        .start();
    (upstream, proxy)
}

#[test]
fn reload_and_hand_over_lose_no_call() {
    let (_upstream, mut proxy) = started();
    let calling = Calling::start(proxy.edge, 10);
    calling.wait_for_more();
    for _ in 0..3 {
        assert_eq!(proxy.reload()["message"], "reload done");
        calling.wait_for_more();
    }
    let mut former = proxy.upgrade();
    calling.wait_for_more();
    assert!(former.wait().success());
    calling.wait_for_more();
    calling.end();
}

#[test]
#[ignore = "heavy: 50 clients"]
fn reload_and_hand_over_under_fifty_clients_lose_no_call() {
    let (_upstream, mut proxy) = started();
    let calling = Calling::start(proxy.edge, 50);
    calling.wait_for_more();
    for _ in 0..10 {
        assert_eq!(proxy.reload()["message"], "reload done");
        calling.wait_for_more();
    }
    let mut former = proxy.upgrade();
    assert!(former.wait().success());
    calling.wait_for_more();
    calling.end();
}
