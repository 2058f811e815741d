//! What a caller or an upstream may try on a route.

use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use super::{KEY, with_keys};
use crate::support::ati::Setup;
use crate::support::http::Response;
use crate::support::tokens::sign;
use crate::support::upstream::Upstream;

fn from_host(proxy: &crate::support::ati::Proxy, host: &str, path: &str) -> Response {
    let mut client = proxy.client();
    client.write(format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n").as_bytes());
    client.read(false)
}

#[test]
fn exempt_path_does_not_open_a_route_that_is_found_by_its_host() {
    let upstream = Upstream::echo();
    let auth = "auth_type = 'bearer'\nauth_key_name = 'api_key'";
    let proxy = with_keys()
        .route(
            "api",
            &upstream.url(),
            &format!("host_match = 'api.host'\n{auth}"),
        )
        .route(
            "open",
            &upstream.url(),
            &format!("host_match = 'open.host'\nsignature = 'exempt'\n{auth}"),
        )
        .route("npm", &upstream.url(), "path_prefix = '/npm'")
        .route(
            "otel",
            &upstream.url(),
            "path_prefix = '/otel'\nsignature = 'required'",
        )
        .arg("--sig-verify-mode")
        .arg("enforce")
        .start();
    assert_eq!(from_host(&proxy, "api.host", "/npm/x").status, 403);
    assert!(upstream.received().is_empty());
    assert_eq!(from_host(&proxy, "open.host", "/any").status, 200);
    assert_eq!(from_host(&proxy, "other", "/npm/x").status, 200);
    assert_eq!(from_host(&proxy, "other", "/otel/x").status, 403);
    let mut client = proxy.client();
    let signature = sign("GET", "/otel/x");
    let signed = client.send(
        "GET",
        "/otel/x",
        &[("x-sandbox-signature", &signature)],
        b"",
    );
    assert_eq!(signed.status, 200);
}

#[test]
fn path_of_nothing_but_parameters_does_not_hide_a_denied_one() {
    let upstream = Upstream::echo();
    let proxy = Setup::new()
        .route(
            "svc",
            &upstream.url(),
            "path_prefix = '/svc'\ndeny_paths = ['/admin']",
        )
        .start();
    for path in [
        "/svc/;x/admin",
        "/svc/;/admin",
        "/svc/%3bx/admin",
        "/svc/%253bx/admin",
        "/svc/%2561dmin",
    ] {
        assert_eq!(proxy.client().get(path).status, 403, "{path}");
    }
    for path in ["/svc/%c0%ae%c0%ae/admin", "/svc/%ff"] {
        assert_eq!(proxy.client().get(path).status, 400, "{path}");
    }
    assert!(upstream.received().is_empty());
}

#[test]
fn methods_that_echo_the_request_are_refused_in_any_case() {
    let upstream = Upstream::echo();
    let proxy = Setup::new()
        .route("svc", &upstream.url(), "path_prefix = '/svc'")
        .start();
    for method in ["TRACE", "trace", "TrAcE", "TRACK", "track"] {
        let refused = proxy.client().send(method, "/svc/x", &[], b"");
        assert_eq!(refused.status, 405, "{method}");
    }
    assert!(upstream.received().is_empty());
}

#[test]
fn callers_copy_of_a_query_credential_is_not_sent() {
    let upstream = Upstream::echo();
    let proxy = with_keys()
        .route(
            "svc",
            &upstream.url(),
            "path_prefix = '/svc'\nauth_type = 'query'\nauth_key_name = 'api_key'\n\
             auth_query_name = 'api_key'",
        )
        .start();
    proxy
        .client()
        .get("/svc/x?api_key=mine&a=1&api%5Fkey=mine&API_KEY=mine&b=2;api_key=mine");
    let own = KEY.replace('/', "%2F").replace('+', "%2B");
    assert_eq!(upstream.last().target, format!("/x?a=1&b=2&api_key={own}"));
}

#[test]
fn informational_answers_without_end_are_cut_off() {
    let written = Arc::new(AtomicUsize::new(0));
    let counted = written.clone();
    let upstream = Upstream::answering(move |_, stream| {
        while stream
            .write_all(b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n")
            .is_ok()
        {
            counted.fetch_add(1, Ordering::Relaxed);
        }
        false
    });
    let proxy = Setup::new()
        .route("svc", &upstream.url(), "path_prefix = '/svc'")
        .start();
    let mut client = proxy.client();
    client.write(b"GET /svc/x HTTP/1.1\r\nhost: h\r\n\r\n");
    // The answer ends, which it wouldn't without the bound.
    let answer = client.read_until_closed();
    let hints = answer.windows(4).filter(|at| at == b" 103").count();
    assert!(hints <= 100, "{hints}");
    assert!(written.load(Ordering::Relaxed) > 0);
}

#[test]
fn upstream_that_drips_ends_with_the_total_time_of_the_route() {
    let upstream = Upstream::answering(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n");
        while stream.write_all(b"x").is_ok() {
            std::thread::sleep(Duration::from_millis(20));
        }
        false
    });
    let proxy = Setup::new()
        .route(
            "svc",
            &upstream.url(),
            "path_prefix = '/svc'\ntotal_timeout_seconds = 1",
        )
        .start();
    let mut client = proxy.client();
    client.write(b"GET /svc/x HTTP/1.1\r\nhost: h\r\n\r\n");
    client.read_until_closed();
    let line = proxy.log.wait_for("request");
    assert_eq!(line["upstream_error"], "timeout", "{line}");
}

#[test]
fn request_body_to_an_upstream_that_reads_nothing_ends_with_the_total_time() {
    let (done, hold) = mpsc::channel::<()>();
    let hold = std::sync::Mutex::new(hold);
    let upstream = Upstream::raw(move |_stream| {
        let _ = hold.lock().unwrap().recv();
    });
    let proxy = Setup::new()
        .route(
            "svc",
            &upstream.url(),
            "path_prefix = '/svc'\ntotal_timeout_seconds = 1",
        )
        .start();
    let started = Instant::now();
    let mut client = proxy.client();
    client.write(b"POST /svc/x HTTP/1.1\r\nhost: h\r\ncontent-length: 50000000\r\n\r\n");
    let piece = vec![b'x'; 1 << 16];
    while started.elapsed() < Duration::from_secs(60) && client.try_write(&piece).is_ok() {}
    let line = proxy.log.wait_for("request");
    assert_eq!(line["upstream_error"], "timeout", "{line}");
    drop(done);
}
