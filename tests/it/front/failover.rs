//! An edge that ends or breaks off.

use std::io::Write;

use super::{Caddy, enforcing};
use crate::support::eventually;
use crate::support::http::Client;
use crate::support::tokens::sign;
use crate::support::upstream::Upstream;

#[test]
#[ignore = "needs Caddy"]
fn caddy_uses_the_other_edge_when_one_ends() {
    let upstream = Upstream::echo();
    let edge = || {
        enforcing()
            .route("svc", &upstream.url(), "path_prefix = '/svc'")
            .start()
    };
    let (mut one, two) = (edge(), edge());
    let caddy = Caddy::start(&[one.edge, two.edge]);
    let ask = |method: &str, body: &[u8]| {
        let signature = sign(method, "/svc/a");
        let headers = [("X-Sandbox-Signature", signature.as_str())];
        caddy.send(method, "/svc/a", &headers, body)
    };
    let get = || {
        let response = ask("GET", b"");
        assert_eq!(response.status, 200, "{}", response.text());
    };
    (0..10).for_each(|_| get());
    let served = r#"ati_requests_total{method="GET",route="svc",status="2xx"}"#;
    one.settles(served, 5.0);
    two.settles(served, 5.0);

    one.signal("TERM");
    // A GET succeeds during and after the drain. A POST may fail until Caddy has noticed, and then
    // has reached no upstream.
    let mut rounds_without = 0;
    while rounds_without < 10 {
        get();
        ask("POST", b"body");
        rounds_without += usize::from(!one.is_running());
    }
    assert!(one.wait().success());
    eventually("only the other edge", || {
        let all = (0..4).all(|_| ask("POST", b"body").status == 200);
        all.then_some(())
    });
    let served = upstream.received();
    let posts = served.iter().filter(|request| request.method == "POST");
    assert!(posts.clone().all(|post| post.body == b"body"));
    let metrics = Client::connect(two.admin).get("/metrics").text();
    for line in metrics.lines() {
        if line.starts_with(r#"ati_requests_total{method="POST""#) {
            assert!(line.contains(r#"status="2xx""#), "{line}");
        }
    }
}

#[test]
#[ignore = "needs Caddy"]
fn caddy_repeats_no_request_that_an_edge_may_have_received() {
    let healthy = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
    let breaks_off = || {
        Upstream::answering(move |received, stream| {
            received.target == "/health" && stream.write_all(healthy).is_ok()
        })
    };
    let (one, two) = (breaks_off(), breaks_off());
    let caddy = Caddy::start(&[one.address, two.address]);
    for method in ["GET", "POST"] {
        assert_eq!(caddy.send(method, "/once", &[], b"").status, 502);
    }
    let times = |edge: &Upstream| {
        let received = edge.received();
        received.iter().filter(|r| r.target == "/once").count()
    };
    assert_eq!(times(&one) + times(&two), 2);
}
