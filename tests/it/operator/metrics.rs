//! What Prometheus gets to know.

use serde_json::json;

use crate::support::ati::Setup;
use crate::support::http::Client;
use crate::support::tokens::{SIGNING, sign, sign_at};
use crate::support::upstream::Upstream;

#[test]
fn verdicts_on_signatures_are_counted_in_every_mode() {
    for mode in ["log", "warn", "enforce"] {
        let upstream = Upstream::echo();
        let proxy = Setup::new()
            .credentials(&json!({"sandbox_signing_shared_secret": SIGNING}))
            .route("up", &upstream.url(), "path_prefix = '/up'")
            .arg("--sig-verify-mode")
            .arg(mode)
            .start();
        let signatures = [
            sign("GET", "/up/x"),
            sign("GET", "/up/y"),
            sign_at(SIGNING, 1_000_000, "GET", "/up/x"),
            sign_at(SIGNING, 2_000_000, "GET", "/up/x"),
        ];
        for signature in &signatures {
            let headers = [("x-sandbox-signature", signature.as_str())];
            proxy.client().send("GET", "/up/x", &headers, b"");
        }
        proxy.client().get("/up/x");
        // Exempt, so not checked.
        proxy.client().get("/health");
        for (reason, count) in [
            ("valid", 1.0),
            ("hmac_mismatch", 1.0),
            ("expired_timestamp", 2.0),
            ("missing_signature", 1.0),
            ("malformed_signature", 0.0),
        ] {
            let labels = format!(r#"mode="{mode}",reason="{reason}""#);
            proxy.settles(&format!("ati_signatures_total{{{labels}}}"), count);
        }
    }
}

#[test]
fn bytes_are_counted_by_route_and_direction() {
    let upstream = Upstream::fixed("HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\nanswer!");
    let proxy = Setup::new()
        .route("up", &upstream.url(), "path_prefix = '/up'")
        .start();
    for _ in 0..2 {
        let answer = proxy.client().send("POST", "/up/x", &[], b"hello");
        assert_eq!(answer.status, 200);
    }
    proxy.settles(r#"ati_bytes_total{direction="in",route="up"}"#, 10.0);
    proxy.settles(r#"ati_bytes_total{direction="out",route="up"}"#, 14.0);
}

#[test]
fn process_metrics_describe_the_process() {
    let proxy = Setup::new().start();
    let _open: Vec<Client> = (0..5).map(|_| proxy.client()).collect();
    let value = |name: &str| proxy.metric(name).unwrap_or_else(|| panic!("{name}"));
    assert!(value("process_resident_memory_bytes") > 1e6);
    assert!(value("process_virtual_memory_bytes") > value("process_resident_memory_bytes"));
    assert!(value("process_threads") >= 2.0);
    assert!(value("process_cpu_seconds_total") >= 0.0);
    assert!(value("process_max_fds") >= value("process_open_fds"));
    proxy.rises_to("process_open_fds", 10.0);
    let now = ati::clock::unix_now() as f64;
    let started = value("process_start_time_seconds");
    assert!(started > now - 300.0 && started <= now + 1.0, "{started}");
}
