//! `[audit] routes`: requests to routes leave a line too.

use serde_json::json;

use crate::support::ati::{Setup, ati, stdout};
use crate::support::free_address;
use crate::support::tokens::{SIGNING, sign};
use crate::support::upstream::Upstream;

fn setup(upstream: &Upstream) -> Setup {
    Setup::new()
        .credentials(&json!({"sandbox_signing_shared_secret": SIGNING}))
        .route(
            "up",
            &upstream.url(),
            "path_prefix = '/up'\ndeny_paths = ['/secret']",
        )
        .route(
            "dead",
            &format!("http://{}", free_address()),
            "path_prefix = '/dead'",
        )
        .tools(
            "t",
            &upstream.url(),
            "",
            "[[tools]]\nname = 't:one'\nendpoint = '/one'",
        )
        .arg("--sig-verify-mode")
        .arg("log")
}

#[test]
fn audited_routes_leave_a_line_for_each_request() {
    let upstream = Upstream::echo();
    let proxy = setup(&upstream).conf("[audit]\nroutes = true\n").start();
    let long = format!("/up/{}", "x".repeat(5000));
    for path in [
        "/up/a?key=planted-in-the-query",
        "/up/secret",
        "/dead/x",
        &long,
    ] {
        let signed = sign("GET", path.split('?').next().unwrap());
        let headers = [
            ("x-sandbox-signature", signed.as_str()),
            ("x-sandbox-job-id", "job-42"),
        ];
        proxy.client().send("GET", path, &headers, b"");
    }
    // Neither is a request to a route.
    proxy.client().get("/health");
    proxy.client().get("/nothing");
    assert_eq!(proxy.call(None, "t:one", json!({})).status, 200);

    let lines = proxy.wait_for_audit(5);
    assert_eq!(lines.len(), 5, "{lines:#?}");
    let found = |path: &str| {
        let mut lines = lines.iter();
        lines.find(|line| line["path"] == path).unwrap()
    };
    let line = found("/up/a");
    for (key, value) in [
        ("route", json!("up")),
        ("method", json!("GET")),
        ("status", json!("ok")),
        ("http_status", json!(200)),
        ("job_id", json!("job-42")),
        ("job_id_from", json!("header")),
    ] {
        assert_eq!(line[key], value, "{key} of {line}");
    }
    assert!(line["duration_ms"].is_u64() && line["ts"].is_string());
    assert_eq!(line["request_id"].as_str().unwrap().len(), 36);
    assert!(line.get("tool").is_none() && line.get("error").is_none());
    let denied = found("/up/secret");
    assert_eq!(
        (&denied["http_status"], &denied["error"]),
        (&json!(403), &json!("path_denied"))
    );
    let dead = found("/dead/x");
    assert_eq!(
        (&dead["status"], &dead["error"]),
        (&json!("error"), &json!("upstream: connect"))
    );
    assert!(lines.iter().all(|line| line.to_string().len() < 3000));

    let search = |args: &[&str]| {
        let output = ati(proxy.dir.path(), &[&["audit", "search"], args].concat());
        stdout(&output)
    };
    let of_job: Vec<serde_json::Value> =
        serde_json::from_str(&search(&["--job", "job-42"])).unwrap();
    assert_eq!(of_job.len(), 4);
    let text = search(&["--route", "de*", "--output", "text"]);
    assert!(
        text.contains("[ERR] dead: GET /dead/x (") && text.contains("ms) upstream: connect"),
        "{text}"
    );
    assert!(search(&["--tool", "t:*"]).contains("t:one"));
    let tail = stdout(&ati(
        proxy.dir.path(),
        &["audit", "tail", "--output", "text"],
    ));
    assert_eq!(tail.lines().count(), 5, "{tail}");
}

#[test]
fn routes_are_not_audited_unless_the_conf_file_says_so() {
    let upstream = Upstream::echo();
    let proxy = setup(&upstream).start();
    assert_eq!(proxy.client().get("/up/a").status, 200);
    assert_eq!(proxy.call(None, "t:one", json!({})).status, 200);
    let lines = proxy.wait_for_audit(1);
    assert_eq!(lines[0]["tool"], "t:one");
    assert_eq!(lines.len(), 1);
}
