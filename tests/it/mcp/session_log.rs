//! What the log says about sessions at debug level.

use super::*;

#[test]
fn session_that_opens_ends_and_is_opened_again_is_logged() {
    let proxy = started(with("good", "").env("RUST_LOG", "debug"));
    let opened = proxy.log.wait_for("MCP session opened");
    assert_eq!(opened["level"], "DEBUG");
    assert_eq!(opened["provider"], "s");
    assert_eq!(opened["protocol"], "2025-06-18");
    proxy.call(None, "s:crash", json!({}));
    assert_eq!(result(&proxy, "s:echo", json!({"text": "again"})), "again");
    let ended = proxy.log.wait_for("MCP session ended");
    assert_eq!(ended["session"], opened["session"]);
    let error = ended["error"].as_str().unwrap();
    assert!(error.contains("the server ended"), "{error}");
    let second = proxy.log.wait_for_nth("MCP session opened", 1);
    assert_ne!(second["session"], opened["session"]);
}

#[test]
fn session_that_fails_to_open_is_logged_with_its_error() {
    let proxy = with("die", "").env("RUST_LOG", "debug").start();
    let failed = proxy.log.wait_for("MCP session not opened");
    assert_eq!(failed["provider"], "s");
    let error = failed["error"].as_str().unwrap();
    assert!(error.contains("its last words: I can't go on"), "{error}");
}

#[test]
fn sessions_leave_no_line_in_the_log_at_its_default_level() {
    let proxy = started(with("good", ""));
    assert_eq!(result(&proxy, "s:echo", json!({"text": "quiet"})), "quiet");
    assert!(proxy.log.find_all("MCP session").is_empty());
}
