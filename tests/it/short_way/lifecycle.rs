//! Reloads, hand-overs and drains while requests are on the short way.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::Duration;

use serde_json::{Value, json};

use super::on;
use crate::support::ati::{Proxy, write};
use crate::support::http::Client;
use crate::support::tokens::{SIGNING, sign};
use crate::support::upstream::Upstream;
use crate::support::{PATIENCE, eventually};

fn keyring(n: usize) -> Value {
    json!({"sandbox_signing_shared_secret": SIGNING, "key": format!("planted-key-{n}")})
}

/// One signed route with a credential, to an upstream that answers with what it got.
fn start(upstream: &Upstream, more: &str) -> Proxy {
    let conf = format!("[log]\naccess = false\nsignatures = false\n{more}");
    let route = "path_prefix = '/svc'\nauth_type = 'bearer'\nauth_key_name = 'key'";
    on().credentials(&keyring(0))
        .arg("--sig-verify-mode")
        .arg("enforce")
        .route("svc", &upstream.url(), route)
        .conf(&conf)
        .start()
}

/// `count` requests at once, and their answers: the numbers of the keys that the upstream got. What
/// a client may send again without harm is no failure: nothing came, on a connection that was used
/// before, or an answer announced that it is the last one.
fn pipelined(
    client: &mut Client,
    count: usize,
    reused: bool,
) -> Result<(Vec<usize>, bool), String> {
    let signature = sign("GET", "/svc/x");
    let request =
        format!("GET /svc/x HTTP/1.1\r\nHost: h\r\nX-Sandbox-Signature: {signature}\r\n\r\n");
    if client.try_write(request.repeat(count).as_bytes()).is_err() && reused {
        return Ok((Vec::new(), true));
    }
    let mut keys = Vec::new();
    for n in 0..count {
        let Some(answer) = client.try_read(false) else {
            return match n == 0 && reused {
                true => Ok((keys, true)),
                false => Err(format!(
                    "no answer to request {n} of {count}, reused: {reused}"
                )),
            };
        };
        if answer.status != 200 {
            return Err(format!("status {}: {}", answer.status, answer.text()));
        }
        let sent = answer.json()["authorization"][0]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let key = sent.rsplit('-').next().and_then(|text| text.parse().ok());
        keys.push(key.ok_or(format!("sent with {sent:?}"))?);
        if answer.header("connection") == Some("close") {
            return Ok((keys, true));
        }
    }
    Ok((keys, false))
}

/// Callers that go on until the flag is set. None of them may fail, or get an answer that was asked
/// for with an older key than the one that was known to be in use before.
struct Load<'a> {
    edge: SocketAddr,
    known: &'a AtomicUsize,
    over: &'a AtomicBool,
    served: &'a AtomicUsize,
    failures: &'a Mutex<Vec<String>>,
}

impl Load<'_> {
    fn run(&self, at_once: usize) {
        let mut kept: Option<Client> = None;
        while !self.over.load(Ordering::SeqCst) {
            let reused = kept.is_some();
            let mut client = match kept.take() {
                Some(client) => client,
                None => match Client::try_connect(self.edge) {
                    Ok(client) => client,
                    Err(e) => return self.fail(format!("refused: {e}")),
                },
            };
            let known = self.known.load(Ordering::SeqCst);
            match pipelined(&mut client, at_once, reused) {
                Ok((keys, ends)) => {
                    if let Some(old) = keys.iter().find(|key| **key < known) {
                        self.fail(format!("key {old} after {known} was in use"));
                    }
                    self.served.fetch_add(keys.len(), Ordering::SeqCst);
                    kept = (!ends).then_some(client);
                }
                Err(failure) => self.fail(failure),
            }
            // Without a pause the load would starve the other tests.
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn fail(&self, what: String) {
        self.failures.lock().unwrap().push(what);
    }
}

/// Runs `work` while callers ask, each with another number of requests at once.
fn under_load(edge: SocketAddr, work: impl FnOnce(&AtomicUsize, &AtomicUsize)) {
    let (known, served) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let (over, failures) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for at_once in [1, 1, 2, 4] {
            let (known, over, served, failures) = (&known, &over, &served, &failures);
            scope.spawn(move || {
                let load = Load {
                    edge,
                    known,
                    over,
                    served,
                    failures,
                };
                load.run(at_once);
            });
        }
        // Also when it panics: the scope waits for the callers.
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(&known, &served)));
        over.store(true, Ordering::SeqCst);
        if let Err(panic) = done {
            std::panic::resume_unwind(panic);
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(
        failures.is_empty(),
        "{}: {:?}",
        failures.len(),
        &failures[..failures.len().min(5)]
    );
}

#[test]
fn twenty_reloads_under_load_lose_no_request_and_send_no_old_key() {
    let upstream = Upstream::echo();
    let proxy = start(&upstream, "");
    under_load(proxy.edge, |known, served| {
        for n in 1..=20 {
            write(&proxy.path("credentials"), keyring(n).to_string());
            assert_eq!(proxy.reload()["message"], "reload done");
            // From its line on, no request is sent with an older key.
            known.store(n, Ordering::SeqCst);
            let before = served.load(Ordering::SeqCst);
            eventually("requests after the reload", || {
                (served.load(Ordering::SeqCst) > before + 40).then_some(())
            });
        }
    });
}

#[test]
fn hand_over_under_load_loses_no_pipelined_request_and_sends_no_old_key() {
    let upstream = Upstream::echo();
    let mut proxy = start(&upstream, "[server]\ndrain_seconds = 5\n");
    let edge = proxy.edge;
    let mut formers = Vec::new();
    under_load(edge, |known, served| {
        for n in 1..=2 {
            write(&proxy.path("credentials"), keyring(n).to_string());
            assert_eq!(proxy.reload()["message"], "reload done");
            known.store(n, Ordering::SeqCst);
            formers.push(proxy.upgrade());
            let before = served.load(Ordering::SeqCst);
            eventually("requests after the hand-over", || {
                (served.load(Ordering::SeqCst) > before + 200).then_some(())
            });
        }
    });
    for former in &mut formers {
        assert_eq!(former.wait().code(), Some(0));
    }
}

#[test]
fn drain_lets_pipelined_requests_finish() {
    let (go, went) = mpsc::channel::<()>();
    let went = Mutex::new(went);
    let upstream = Upstream::answering(move |received, stream| {
        if received.target == "/held" {
            went.lock().unwrap().recv_timeout(PATIENCE).unwrap();
        }
        let answer = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}",
            received.target.len(),
            received.target
        );
        stream.write_all(answer.as_bytes()).is_ok()
    });
    let mut proxy = on()
        .route("svc", &upstream.url(), "path_prefix = '/svc'")
        .start();
    let mut client = proxy.client();
    assert_eq!(client.get("/svc/first").text(), "/first");
    let request = |path: &str| format!("GET /svc{path} HTTP/1.1\r\nHost: h\r\n\r\n");
    client.write((request("/held") + &request("/second") + &request("/third")).as_bytes());
    proxy.settles(r#"ati_in_flight{route="svc"}"#, 1.0);
    proxy.signal("TERM");
    proxy.log.wait_for("draining");
    go.send(()).unwrap();
    for expected in ["/held", "/second", "/third"] {
        let answer = client.read(false);
        assert_eq!((answer.status, answer.text().as_str()), (200, expected));
    }
    assert!(client.is_closed());
    assert_eq!(proxy.wait().code(), Some(0));
}
