//! What clients of existing deployments observe on the wire.

use crate::support::ati::Setup;
use crate::support::eventually;
use crate::support::http::Client;
use crate::support::tokens::{bearer, claims, key_pair};
use serde_json::json;

#[test]
fn health_of_an_empty_folder_counts_the_file_tools() {
    let proxy = Setup::new().start();
    let response = proxy.client().get("/health");
    assert_eq!(response.status, 200);
    assert_eq!(response.header("content-type"), Some("application/json"));
    assert_eq!(
        response.text(),
        format!(
            r#"{{"status":"ok","version":"{}","tools":2,"providers":1,"skills":0,"auth":"disabled","db":"disabled"}}"#,
            env!("CARGO_PKG_VERSION")
        )
    );
    let head = proxy.client().send("HEAD", "/health", &[], b"");
    assert_eq!(head.status, 200);
    assert_eq!(
        head.header("content-length"),
        response.header("content-length")
    );
}

#[test]
fn manifest_of_an_unknown_handler_is_counted_and_warned_about() {
    let proxy = Setup::new()
        .file(
            "manifests/a.toml",
            r#"
                [provider]
                name = 'a'
                handler = 'clii'
            "#,
        )
        .start();
    // With the one that needs no manifest.
    assert_eq!(proxy.client().get("/health").json()["providers"], 2);
    assert!(proxy.log.text().contains("unknown handler 'clii'"));
}

#[test]
fn jwks_without_a_public_key_is_404() {
    let without = Setup::new().start().client().get("/.well-known/jwks.json");
    assert_eq!(without.status, 404);
    assert_eq!(without.json(), json!({"error": "JWKS not configured"}));

    let (_, public) = key_pair();
    let setup = Setup::new().file("public.pem", public);
    let path = setup.path().join("public.pem");
    let proxy = setup
        .env("ATI_JWT_PUBLIC_KEY", path.to_str().unwrap())
        .start();
    assert_eq!(proxy.client().get("/health").json()["auth"], "jwt");
    let jwks = proxy.client().get("/.well-known/jwks.json").json();
    let key = &jwks["keys"][0];
    assert_eq!(key["kty"], "EC");
    assert_eq!(key["crv"], "P-256");
    assert_eq!(key["kid"], "ati-proxy-1");
    assert!(key["x"].is_string() && key["y"].is_string());
}

#[test]
fn unknown_paths_get_404_and_wrong_methods_405() {
    let proxy = Setup::new().start();
    let mut client = proxy.client();
    let unknown = client.get("/nothing/here");
    assert_eq!(
        (unknown.status, unknown.text().as_str()),
        (404, "not found: passthrough disabled")
    );
    assert_eq!(
        unknown.header("content-type"),
        Some("text/plain; charset=utf-8")
    );
    let wrong = client.send("POST", "/health", &[], b"");
    assert_eq!((wrong.status, wrong.text().as_str()), (405, ""));
    assert_eq!(wrong.header("allow"), Some("GET,HEAD"));
    let wrong = client.get("/call");
    assert_eq!((wrong.status, wrong.header("allow")), (405, Some("POST")));

    let proxy = Setup::new().arg("--enable-passthrough").start();
    assert_eq!(
        proxy.client().get("/nothing").text(),
        "not found: no passthrough route"
    );
}

#[test]
fn endpoints_without_their_settings_say_so_only_after_admission() {
    let (signer, public) = key_pair();
    let setup = Setup::new().file("public.pem", public);
    let path = setup.path().join("public.pem");
    let proxy = setup
        .env("ATI_JWT_PUBLIC_KEY", path.to_str().unwrap())
        .start();
    let token = bearer(&signer, &claims());
    for path in ["/skillati/x", "/skillati/catalog"] {
        let refused = proxy.client().get(path);
        assert_eq!(
            (refused.status, refused.text().as_str()),
            (401, ""),
            "{path}"
        );
        let response = proxy
            .client()
            .send("GET", path, &[("authorization", &token)], b"");
        assert_eq!(response.status, 503, "{path}");
        let error = response.json()["error"].as_str().unwrap().to_owned();
        assert!(error.starts_with("SkillATI is not configured"), "{error}");
    }
    let unknown = proxy.client().get("/nothing");
    assert_eq!(unknown.status, 401);
    let help = proxy
        .client()
        .send("POST", "/help", &[("authorization", &token)], b"{}");
    assert_eq!(help.status, 503);
    assert_eq!(help.json()["content"], "");
    assert!(
        help.json()["error"]
            .as_str()
            .unwrap()
            .starts_with("No _llm.toml manifest found.")
    );
}

#[test]
fn virtual_keys_without_a_store_get_503() {
    let proxy = Setup::new().start();
    let key = [("authorization", "Ati-Key ati-key_x")];
    let response = proxy.client().send("GET", "/tools", &key, b"");
    assert_eq!((response.status, response.text().as_str()), (503, ""));
    assert_eq!(proxy.client().get("/admin/keys").status, 503);

    let proxy = Setup::new().env("ATI_ADMIN_TOKEN", "adm1n-token").start();
    assert_eq!(proxy.client().get("/admin/keys").status, 401);
    let admin = [("authorization", "Bearer adm1n-token")];
    let response = proxy.client().send("GET", "/admin/keys", &admin, b"");
    assert_eq!(response.status, 503);
    assert_eq!(
        response.json(),
        json!({"error": "admin endpoints require ATI_DB_URL + ATI_ADMIN_TOKEN"})
    );
    assert!(!proxy.log.text().contains("adm1n-token"));
}

#[test]
fn connection_is_kept_until_a_long_body_is_refused() {
    let proxy = Setup::new().start();
    let mut client = proxy.client();
    for path in ["/health", "/nothing", "/health", "/tools"] {
        client.get(path);
    }
    // A long body that isn't read closes the connection, after the whole answer.
    let refused = client.send("POST", "/nothing", &[], &vec![b'x'; 200_000]);
    assert_eq!(refused.status, 404);
    assert_eq!(refused.header("connection"), Some("close"));
    assert!(client.is_closed());
}

#[test]
fn admin_listener_serves_health_readiness_and_metrics() {
    let proxy = Setup::new().start();
    proxy.client().get("/health");
    proxy.client().send("BREW", "/health", &[], b"");
    let mut admin = Client::connect(proxy.admin);
    assert_eq!(admin.get("/healthz").text(), "ok\n");
    assert_eq!(admin.get("/ready").status, 200);
    assert_eq!(admin.get("/nope").status, 404);
    assert_eq!(admin.send("POST", "/metrics", &[], b"").status, 405);
    for series in [
        r#"ati_requests_total{method="GET",route="/health",status="2xx"} 1"#,
        r#"ati_requests_total{method="other",route="/health",status="4xx"} 1"#,
        r#"ati_refusals_total{reason="method_not_allowed"} 1"#,
        r#"ati_connections{listener="edge"}"#,
        r#"ati_in_flight{route="/health"} 0"#,
        r#"ati_reloads_total{outcome="ok"} 0"#,
        r#"ati_build_info{version="#,
        r#"ati_request_duration_seconds_count{route="/health"} 2"#,
        "ati_keyring_loaded_timestamp_seconds",
    ] {
        eventually(series, || {
            let metrics = Client::connect(proxy.admin).get("/metrics").text();
            metrics.contains(series).then_some(())
        });
    }
    // The edge doesn't serve what the admin listener serves.
    assert_eq!(proxy.client().get("/metrics").status, 404);
}

#[test]
fn access_log_has_one_line_per_request_without_its_query() {
    let proxy = Setup::new().start();
    proxy.client().get("/health?api_key=hunter2");
    let line = proxy.log.wait_for("request");
    assert_eq!(line["method"], "GET");
    assert_eq!(line["path"], "/health");
    assert_eq!(line["status"], 200);
    assert_eq!(line["route"], "/health");
    assert_eq!(proxy.log.find_all("request").len(), 1);
    assert!(!proxy.log.text().contains("hunter2"));

    let start = proxy.log.wait_for("ATI proxy server starting");
    for field in [
        "version",
        "addr",
        "auth",
        "ati_dir",
        "tools",
        "providers",
        "mcp",
        "openapi",
        "skills",
        "keyring",
        "db",
        "passthrough",
        "sig_verify_mode",
        "sig_verify_secret",
    ] {
        assert!(!start[field].is_null(), "{field}");
    }
    assert_eq!(start["addr"], proxy.edge.to_string());
}

#[test]
fn logs_switched_off_are_not_written() {
    let proxy = Setup::new()
        .conf(
            r#"
                [log]
                access = false
                signatures = false
            "#,
        )
        .start();
    proxy.client().get("/tools");
    proxy.reload();
    assert!(proxy.log.find_all("request").is_empty());
    assert!(proxy.log.find_all("sig_verify").is_empty());

    let mut proxy = Setup::new().env("RUST_LOG", "error").start();
    proxy.client().get("/tools");
    proxy.signal("TERM");
    proxy.wait();
    assert_eq!(proxy.log.whole_text(), "");
}
