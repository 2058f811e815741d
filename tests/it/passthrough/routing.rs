//! Which route a request takes, and with which path.

use crate::support::ati::Setup;
use crate::support::http::Client;
use crate::support::upstream::Upstream;

#[test]
fn denied_path_in_any_spelling_is_refused() {
    let upstream = Upstream::echo();
    let proxy = Setup::new()
        .route(
            "svc",
            &upstream.url(),
            "path_prefix = '/svc'\ndeny_paths = ['/admin/*']",
        )
        .start();
    for path in [
        "/svc/admin/x",
        "/svc//admin/x",
        "/svc/x/../admin/x",
        "/svc/%61dmin/x",
        "/svc/x/%2e%2e/admin/x",
        "/svc/admin%2fx",
        "/svc%2fadmin/x",
        "/svc/admin/%2e%2e/admin/x",
        "/svc/./admin/x",
        "/svc/admin//x",
    ] {
        let response = proxy.client().get(path);
        assert!(
            [400, 403].contains(&response.status),
            "{path}: {}",
            response.status
        );
        if response.status == 403 {
            assert_eq!(response.text(), "forbidden: path denied by policy");
        }
    }
    assert!(upstream.received().is_empty());
    proxy.client().get("/svc/@scope%2fpkg?x=%2e%2e");
    assert_eq!(upstream.last().target, "/@scope%2fpkg?x=%2e%2e");
}

#[test]
fn routes_match_host_and_prefix_and_rewrite_the_path() {
    let (one, two) = (Upstream::echo(), Upstream::echo());
    let proxy = Setup::new()
        .route(
            "one",
            &format!("{}/base/", one.url()),
            "path_prefix = '/one'\npath_replace = ['/old', '/new']",
        )
        .route(
            "whole",
            &one.url(),
            r#"
                path_prefix = '/whole'
                strip_prefix = false
                host_override = 'virtual.example'
            "#,
        )
        .route("two", &two.url(), "host_match = 'Two.Example'")
        .start();
    let ask = |host: &str, path: &str| {
        let mut client = proxy.client();
        client.write(format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n").as_bytes());
        client.read(false)
    };
    assert_eq!(
        ask("x", "/one/old/a?q=1").json()["target"],
        "/base/new/a?q=1"
    );
    assert_eq!(ask("x", "/one").json()["target"], "/base/");
    assert_eq!(ask("x", "/whole/a").json()["target"], "/whole/a");
    assert_eq!(one.last().header("host"), Some("virtual.example"));
    assert_eq!(ask("two.example:8090", "/one/a").json()["target"], "/one/a");
    assert_eq!(two.received().len(), 1);
    assert_eq!(ask("two.example", "/health").json()["status"], "ok");
    assert_eq!(ask("x", "/onely").status, 404);
    assert_eq!(proxy.log.wait_for("ATI proxy")["passthrough"], 3);
    proxy.settles(
        r#"ati_requests_total{method="GET",route="two",status="2xx"}"#,
        1.0,
    );
}

#[test]
fn ten_thousand_routes_are_all_found_and_unused_ones_have_no_series() {
    let upstream = Upstream::echo();
    let mut setup = Setup::new();
    for n in 0..10_000 {
        setup = setup.route(
            &format!("r{n}"),
            &upstream.url(),
            &format!("path_prefix = '/r{n}/x'"),
        );
    }
    let proxy = setup.start();
    let mut client = proxy.client();
    for n in [0, 1, 4_999, 9_999] {
        assert_eq!(client.get(&format!("/r{n}/x/y")).json()["target"], "/y");
    }
    // Routes without requests have no series.
    let metrics = Client::connect(proxy.admin).get("/metrics").text();
    assert!(
        metrics.lines().count() < 1_000,
        "{}",
        metrics.lines().count()
    );
}
