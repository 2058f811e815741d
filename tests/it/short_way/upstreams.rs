//! Upstreams that close, stall or are left, and callers that stall.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::caller::{Caller, Step};
use super::scripted::{Answer, Scripted, Then, When};
use super::{on, routes, signed};
use crate::support::ati::Proxy;
use crate::support::eventually;
use crate::support::upstream::Upstream;

fn start() -> (Proxy, Scripted) {
    let upstream = Scripted::start();
    let proxy = routes(signed(on()), 0, &upstream.url()).start();
    (proxy, upstream)
}

fn answer(text: &str, then: Then) -> Answer {
    Answer {
        when: When::Whole,
        pieces: vec![text.as_bytes().to_vec()],
        then,
        is_cut_for_head: true,
    }
}

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// The status, and how often the upstream got the request.
fn after_a_stale_connection(method: &str, body: &str, then: Then) -> (u16, usize) {
    let (proxy, upstream) = start();
    let mut caller = Caller::connect(proxy.edge);
    let request = |method: &str, body: &str| {
        let length = body.len();
        format!("{method} /open0/x HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n{body}")
    };
    upstream.play(&[answer(OK, Then::Keep)]);
    let first = [Step::Send(request("GET", "").into_bytes()), Step::Read(1)];
    assert_eq!(caller.run(&first, &[], &upstream).0[0].status, 200);
    // The kept connection ends when it is used again, without a byte of an answer.
    upstream.play(&[answer("", then), answer(OK, Then::Keep)]);
    let second = [
        Step::Send(request(method, body).into_bytes()),
        Step::Read(1),
    ];
    let (received, _) = caller.run(&second, &[method == "HEAD"], &upstream);
    let first = &upstream.seen()[0];
    assert_eq!(first.connection, 1, "the kept connection is used first");
    (received[0].status, upstream.seen().len())
}

#[test]
fn kept_connection_that_closes_on_use_is_replaced_for_idempotent_requests() {
    for method in ["GET", "HEAD", "OPTIONS"] {
        for then in [Then::Close, Then::Reset] {
            let outcome = after_a_stale_connection(method, "", then);
            assert_eq!(outcome, (200, 2), "{method} {then:?}");
        }
    }
}

#[test]
fn kept_connection_that_closes_on_use_never_sends_a_post_twice() {
    for (method, body) in [("POST", ""), ("POST", "body"), ("PATCH", "body")] {
        for then in [Then::Close, Then::Reset] {
            let outcome = after_a_stale_connection(method, body, then);
            assert_eq!(outcome, (502, 1), "{method} {body:?} {then:?}");
        }
    }
}

#[test]
fn kept_connection_that_closed_while_idle_serves_no_request() {
    for method in ["GET", "POST"] {
        let (proxy, upstream) = start();
        let mut caller = Caller::connect(proxy.edge);
        upstream.play(&[answer(OK, Then::Close)]);
        let request = format!("{method} /open0/x HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n");
        let steps = [Step::Send(request.into_bytes()), Step::Read(1)];
        assert_eq!(caller.run(&steps, &[], &upstream).0[0].status, 200);
        eventually("the end of the kept connection", || {
            (upstream.open_connections() == 0).then_some(())
        });
        upstream.play(&[answer(OK, Then::Keep)]);
        let (received, _) = caller.run(&steps, &[], &upstream);
        assert_eq!(received[0].status, 200, "{method}");
        assert_eq!(upstream.seen().len(), 1, "{method}");
        assert_eq!(upstream.seen()[0].connection, 2, "{method}");
    }
}

#[test]
fn caller_that_leaves_while_it_waits_frees_the_upstream() {
    for body in ["", "body"] {
        let (proxy, upstream) = start();
        upstream.play(&[Answer {
            when: When::Never,
            ..answer("", Then::Close)
        }]);
        let mut caller = Caller::connect(proxy.edge);
        let length = body.len();
        let request =
            format!("PUT /open0/x HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n{body}");
        let steps = [
            Step::Send(request.into_bytes()),
            Step::UpstreamHas(1, length),
            Step::Leave,
        ];
        caller.run(&steps, &[], &upstream);
        proxy.settles(r#"ati_in_flight{route="open0"}"#, 1.0);
        drop(caller);
        eventually("the end of the upstream's connection", || {
            (upstream.open_connections() == 0).then_some(())
        });
        proxy.settles(r#"ati_in_flight{route="open0"}"#, 0.0);
    }
}

#[test]
fn upstream_that_says_nothing_is_504_also_on_a_kept_connection() {
    let first = Arc::new(AtomicUsize::new(0));
    let count = first.clone();
    let upstream =
        Upstream::answering(
            move |_, stream| match count.fetch_add(1, Ordering::SeqCst) {
                0 => stream.write_all(OK.as_bytes()).is_ok(),
                // Reads the next request, which never comes.
                _ => true,
            },
        );
    let proxy = on()
        .route(
            "svc",
            &upstream.url(),
            "path_prefix = '/svc'\nsignature = 'exempt'\nread_timeout_seconds = 1",
        )
        .start();
    let mut client = proxy.client();
    assert_eq!(client.get("/svc/x").status, 200);
    let started = Instant::now();
    let late = client.get("/svc/x");
    assert_eq!(late.status, 504, "{}", late.text());
    assert!(started.elapsed() >= Duration::from_secs(1));
    assert!(client.is_closed());
    upstream.wait_until_left();
}

#[test]
fn caller_that_reads_nothing_frees_the_upstream() {
    let upstream = Upstream::answering(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n");
        while stream.write_all(&[b'x'; 1 << 16]).is_ok() {}
        false
    });
    let more = "path_prefix = '/svc'\nsignature = 'exempt'\nmax_response_bytes = 0";
    let proxy = on()
        .conf("[limits]\nstall_seconds = 1\n[server]\nworkers = 1\n")
        .route("svc", &upstream.url(), more)
        .start();
    let mut greedy = proxy.client();
    greedy.write(b"GET /svc/x HTTP/1.1\r\nHost: h\r\n\r\n");
    greedy.read_some();
    upstream.wait_until_left();
    proxy.settles(r#"ati_in_flight{route="svc"}"#, 0.0);
}

#[test]
fn head_that_never_ends_is_cut_off_after_requests_that_were_served() {
    let upstream = Upstream::fixed(OK);
    let proxy = on()
        .conf(
            r#"
                [limits]
                header_seconds = 1
                keepalive_seconds = 1
            "#,
        )
        .route("svc", &upstream.url(), "path_prefix = '/svc'")
        .start();
    for served in [0, 1, 3] {
        let mut client = proxy.client();
        for _ in 0..served {
            assert_eq!(client.get("/svc/x").status, 200);
        }
        let started = Instant::now();
        client.write(b"GET /svc/x HTTP/1.1\r\nx: ");
        // A byte now and then: each read is quick, the head never ends.
        while client.try_write(b"a").is_ok() {
            assert!(started.elapsed() < Duration::from_secs(20), "still open");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    // A head that ends in time is served, however many pieces it came in.
    let mut client = proxy.client();
    for byte in b"GET /svc/x HTTP/1.1\r\nHost: h\r\n\r\n" {
        client.write(&[*byte]);
    }
    assert_eq!(client.read(false).status, 200);
}
