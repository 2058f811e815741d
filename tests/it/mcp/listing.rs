//! Lists of tools: read again when they change, kept across a reload.

use serde_json::json;

use super::{manifest, result, started, with};
use crate::support::ati::{Setup, ati, stderr, stdout, write};
use crate::support::eventually;

#[test]
fn tool_list_that_changes_is_read_again() {
    let proxy = started(with("good", ""));
    assert_eq!(proxy.call(None, "s:new", json!({})).status, 404);
    assert_eq!(result(&proxy, "s:change", json!({})), "changed");
    eventually("the new tool", || {
        (proxy.client().get("/tools/s%3Anew").status == 200).then_some(())
    });
}

#[test]
fn tool_list_is_kept_across_a_reload_of_the_same_server() {
    let proxy = started(with("good", ""));
    eventually("the cache", || {
        proxy.path("cache/tools/s.json").exists().then_some(())
    });
    // A reload keeps the tools, and a command reads them from the cache.
    assert_eq!(proxy.reload()["message"], "reload done");
    assert_eq!(proxy.client().get("/tools/s%3Aecho").status, 200);
    let listed = ati(proxy.dir.path(), &["tool", "info", "s:echo"]);
    assert!(
        stdout(&listed).contains("The tool echo"),
        "{}",
        stderr(&listed)
    );
    // Another command line is another server, with another list.
    write(&proxy.path("manifests/s.toml"), manifest("s", "die", ""));
    assert_eq!(proxy.reload()["message"], "reload done");
    // 503 from the moment in which that server is known to be down.
    let status = proxy.client().get("/tools/s%3Aecho").status;
    assert!(matches!(status, 404 | 503), "{status}");
}

#[test]
fn tool_list_of_a_server_that_a_reload_adds_comes_from_the_cache() {
    let gate = tempfile::NamedTempFile::new().unwrap();
    let more = format!("mcp_env = {{ GATE = '{}' }}", gate.path().display());
    // The same server, while it can be asked.
    let before = Setup::new().manifest("s", &manifest("s", "good", &more));
    std::fs::remove_file(gate.path()).unwrap();
    let before = started(before);
    let cache = before.path("cache/tools/s.json");
    eventually("the cache", || cache.exists().then_some(()));
    let proxy = Setup::new().start();
    write(
        &proxy.path("cache/tools/s.json"),
        std::fs::read(cache).unwrap(),
    );
    write(
        &proxy.path("manifests/s.toml"),
        manifest("s", "good", &more),
    );
    // From now on it doesn't start.
    write(gate.path(), "");
    assert_eq!(proxy.reload()["message"], "reload done");
    assert_eq!(proxy.client().get("/tools/s%3Aecho").status, 200);
}
