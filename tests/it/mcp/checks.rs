//! `ati check` and `ati doctor` on MCP servers.

use std::path::Path;

use serde_json::{Value, json};

use super::{manifest, with};
use crate::support::ati::{Proxy, Setup, ati, stdout, tells_nothing};
use crate::support::free_address;
use crate::support::upstream::Upstream;

fn over_url(name: &str, url: &str) -> String {
    format!(
        r#"
            [provider]
            name = "{name}"
            handler = "mcp"
            mcp_transport = "http"
            mcp_url = "{url}"
        "#
    )
}

/// A program that isn't there, one that can't be executed, and a URL that is none.
fn broken() -> Setup {
    let absent = r#"
        [provider]
        name = "absent"
        handler = "mcp"
        mcp_command = "npxx"
        mcp_args = ["-y", "some-server"]
    "#;
    let setup = Setup::new().file("plain", "not a program");
    let plain = setup.path().join("plain");
    let plain = format!(
        "[provider]\nname = \"plain\"\nhandler = \"mcp\"\nmcp_command = \"{}\"\n",
        plain.display()
    );
    setup
        .manifest("absent", absent)
        .manifest("plain", &plain)
        .manifest("odd", &over_url("odd", "mcp.example.com/mcp"))
}

fn check(dir: &Path, args: &[&str]) -> (Option<i32>, Value) {
    let output = ati(dir, &[&["check"], args].concat());
    let report = serde_json::from_str(&stdout(&output)).unwrap();
    (output.status.code(), report)
}

fn doctor(dir: &Path, args: &[&str]) -> (Option<i32>, Vec<Value>) {
    let output = ati(dir, &[&["doctor", "--json"], args].concat());
    tells_nothing("the doctor", &stdout(&output));
    let found: Value = serde_json::from_str(&stdout(&output)).unwrap();
    (output.status.code(), found.as_array().unwrap().clone())
}

fn says(found: &[Value], status: &str, message: &str) -> bool {
    found.iter().any(|one| {
        one["check"] == "mcp"
            && one["status"] == status
            && one["message"].as_str().unwrap().contains(message)
    })
}

#[test]
fn check_warns_about_servers_that_cannot_work() {
    let setup = broken();
    let (code, report) = check(setup.path(), &[]);
    assert_eq!(code, Some(0), "{report}");
    let warning = |key: &str, message: &str| {
        let mut warnings = report["warnings"].as_array().unwrap().iter();
        warnings.any(|one| {
            one["key"] == key
                && one["message"].as_str().unwrap().contains(message)
                && one["file"].as_str().is_some()
        })
    };
    for (key, message) in [
        ("provider.mcp_command", "'npxx': no such program in PATH"),
        (
            "provider.mcp_command",
            "plain': no file that can be executed",
        ),
        ("provider.mcp_url", "mcp_url is no http or https URL"),
    ] {
        assert!(warning(key, message), "{message}: {report:#}");
    }
    let (code, report) = check(setup.path(), &["--strict"]);
    assert_eq!(code, Some(2), "{report}");
}

#[test]
fn check_of_a_good_server_finds_nothing_and_contacts_none() {
    let dead = format!("http://{}/mcp", free_address());
    let setup = with("good", "").manifest("dead", &over_url("dead", &dead));
    let (_, report) = check(setup.path(), &[]);
    let warnings = report["warnings"].as_array().unwrap().iter();
    let about: Vec<_> = warnings
        .filter(|one| one.to_string().contains("mcp_"))
        .collect();
    assert!(about.is_empty(), "{about:?}");
}

#[test]
fn doctor_names_servers_that_cannot_work_and_the_fix() {
    let up = Upstream::fixed("HTTP/1.1 405 X\r\ncontent-length: 0\r\n\r\n");
    let address = free_address();
    let dead = format!("http://{address}/mcp?key=planted-key");
    let setup = broken()
        .manifest("s", &manifest("s", "good", ""))
        .manifest("up", &over_url("up", &format!("{}/mcp", up.url())))
        .manifest("dead", &over_url("dead", &dead));
    let (code, found) = doctor(setup.path(), &[]);
    assert_eq!(code, Some(1));
    for message in [
        "'absent', mcp_command: 'npxx': no such program in PATH",
        "no file that can be executed",
        "'odd', mcp_url: the URL of this tool can't be used",
        &format!("'dead' at {address}: connection refused or unreachable"),
    ] {
        assert!(says(&found, "fail", message), "{message}: {found:#?}");
    }
    assert!(says(&found, "ok", "'up' at "), "{found:#?}");
    assert!(!found.iter().any(|one| one.to_string().contains("'s'")));
    let mut problems = found.iter().filter(|one| one["status"] != "ok");
    assert!(problems.all(|one| one["fix"].is_string()), "{found:#?}");
    // Offline, the address isn't tried.
    let (_, found) = doctor(setup.path(), &["--offline"]);
    assert!(!says(&found, "fail", "'dead'"), "{found:#?}");
}

#[test]
fn doctor_tells_what_the_running_proxy_knows() {
    let proxy: Proxy = with("good", "")
        .manifest("dead", &manifest("dead", "die", ""))
        .start();
    // Both first attempts are over.
    assert_eq!(proxy.call(None, "s:echo", json!({"text": "x"})).status, 200);
    assert_eq!(proxy.call(None, "dead:x", json!({})).status, 503);
    let admin = format!("http://{}", proxy.admin);
    let (code, found) = doctor(proxy.dir.path(), &["--offline", "--admin-url", &admin]);
    assert_eq!(code, Some(1));
    assert!(
        says(&found, "ok", "'s' is ready, with 12 tools"),
        "{found:#?}"
    );
    assert!(
        says(
            &found,
            "fail",
            "'dead' is down: MCP transport error: [dead] the server ended"
        ),
        "{found:#?}"
    );
}
