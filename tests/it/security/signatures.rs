//! Signatures of requests, in each mode.

use ati::clock::unix_now;
use serde_json::json;

use super::{SIGNATURE, es256, signed_setup};
use crate::support::ati::Setup;
use crate::support::eventually;
use crate::support::tokens::{SIGNING, bearer, claims, sign, sign_at};

#[test]
fn enforce_mode_refuses_each_bad_signature_by_name() {
    let (proxy, signer, _) = es256(signed_setup("enforce"));
    let token = bearer(&signer, &claims());
    let ask = |signature: Option<&str>, token: Option<&str>| {
        let mut headers = Vec::new();
        headers.extend(signature.map(|value| (SIGNATURE, value)));
        headers.extend(token.map(|value| ("authorization", value)));
        proxy.client().send("GET", "/tools", &headers, b"")
    };
    let refused = |signature: Option<&str>| {
        let response = ask(signature, Some(&token));
        assert_eq!(response.status, 403);
        assert_eq!(
            response.header("content-type"),
            Some("text/plain; charset=utf-8")
        );
        response.text()
    };
    assert_eq!(refused(None), "missing_signature");
    assert_eq!(
        refused(Some(&format!("t={},s=zz", unix_now()))),
        "malformed_signature"
    );
    assert_eq!(refused(Some(&sign("GET", "/other"))), "hmac_mismatch");
    let old = refused(Some(&sign_at(SIGNING, unix_now() - 61, "GET", "/tools")));
    let drift = old.strip_prefix("expired_timestamp_drift=");
    let drift = drift.and_then(|text| text.strip_suffix('s')?.parse::<u64>().ok());
    // 61 seconds, and those between the signature and its check.
    assert!(
        drift.is_some_and(|drift| (61..90).contains(&drift)),
        "{old}"
    );

    let good = sign("GET", "/tools");
    assert_eq!(ask(Some(&good), Some(&token)).status, 200);
    assert_eq!(ask(Some(&good), None).status, 401);
    // An unsigned request learns nothing about tokens.
    assert_eq!(ask(None, None).status, 403);

    let record = proxy.log.wait_for("sig_verify");
    assert_eq!(record["mode"], "enforce");
    assert_eq!(record["job_id"], "none");
    eventually("the records as scripts grep them", || {
        proxy
            .log
            .text()
            .contains(r#""reason":"valid""#)
            .then_some(())
    });
    assert!(!proxy.log.text().contains(SIGNING));
    proxy.settles(r#"ati_refusals_total{reason="hmac_mismatch"}"#, 1.0);
}

#[test]
fn warn_and_log_modes_admit_unsigned_requests_and_record_them() {
    let proxy = signed_setup("warn").start();
    let response = proxy.client().get("/nothing");
    assert_eq!(response.status, 404);
    assert_eq!(
        response.header("x-signature-status"),
        Some("missing_signature")
    );
    let good = sign("GET", "/nothing");
    let headers = [(SIGNATURE, good.as_str()), ("x-sandbox-job-id", "job-42")];
    let response = proxy.client().send("GET", "/nothing", &headers, b"");
    assert_eq!(response.header("x-signature-status"), Some("valid"));
    assert_eq!(
        proxy.client().get("/health").header("x-signature-status"),
        None
    );
    assert_eq!(proxy.log.wait_for_nth("sig_verify", 1)["job_id"], "job-42");

    let proxy = signed_setup("log").start();
    let response = proxy.client().get("/nothing");
    assert_eq!(response.header("x-signature-status"), None);
    assert_eq!(
        proxy.log.wait_for("sig_verify")["reason"],
        "missing_signature"
    );
}

#[test]
fn signature_exemptions_replace_the_defaults() {
    let proxy = signed_setup("enforce")
        .arg("--sig-exempt-paths")
        .arg("/open/*")
        .start();
    assert_eq!(proxy.client().get("/open/x").status, 404);
    assert_eq!(proxy.client().get("/health").status, 403);
}

#[test]
fn enforce_mode_without_a_secret_stops_the_start() {
    for credentials in [json!({}), json!({"sandbox_signing_shared_secret": ""})] {
        let output = Setup::new()
            .credentials(&credentials)
            .arg("--sig-verify-mode")
            .arg("enforce")
            .output();
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success());
        assert!(text.contains("sandbox_signing_shared_secret"), "{text}");
    }
}
