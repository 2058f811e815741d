//! Tokens on `/mcp/{provider}`.

use ati::auth::token::{Namespace, Signer};
use serde_json::json;

use super::*;
use crate::support::tokens::{bearer, claims, key_pair};

pub fn token(signer: &Signer, subject: &str, scope: &str) -> String {
    let mut claims = claims();
    claims.sub = subject.to_owned();
    claims.scope = scope.to_owned();
    bearer(signer, &claims)
}

#[test]
fn caller_sees_and_calls_what_its_scopes_allow_and_no_other_callers_session() {
    let (signer, public) = key_pair();
    let proxy = started(with_program("").jwt(&public));
    let echo = token(&signer, "one", "tool:s:echo");
    let pid = token(&signer, "two", "tool:s:pid");
    let one = Session::open_as(&proxy, Some(&echo));
    let two = Session::open_as(&proxy, Some(&pid));
    assert_eq!(names(&one.ask("tools/list", json!({}))), ["echo"]);
    assert_eq!(names(&two.ask("tools/list", json!({}))), ["pid"]);
    let denied = one.call("pid", json!({}));
    assert_eq!(denied["error"]["code"], -32001);
    assert_eq!(
        denied["error"]["message"],
        "Access denied: 's:pid' is not in your scopes"
    );
    assert_eq!(text(&one.call("echo", json!({"text": "x"}))), "x");
    let mut stolen = Session::open_as(&proxy, Some(&pid));
    stolen.id = one.id.clone();
    for method in ["GET", "DELETE"] {
        assert_eq!(stolen.send(method, b"").status, 404);
    }
    assert_eq!(stolen.post(&request("tools/list", json!({}))).status, 404);
    // A token that was renewed is the same caller's.
    let mut renewed = Session::open_as(&proxy, Some(&echo));
    renewed.id = one.id.clone();
    renewed.bearer = Some(token(&signer, "one", "tool:s:echo tool:s:pid"));
    assert_eq!(names(&renewed.ask("tools/list", json!({}))).len(), 2);
    let lines = proxy.wait_for_audit(2);
    let denied = lines.iter().find(|line| line["tool"] == "s:pid").unwrap();
    assert_eq!(denied["status"], "error");
}

#[test]
fn caller_without_a_scope_of_the_server_gets_nothing_of_it() {
    let (signer, public) = key_pair();
    let proxy = started(with_program("").jwt(&public));
    let none = token(&signer, "one", "tool:other:*");
    let mut session = Session {
        edge: proxy.edge,
        id: String::new(),
        bearer: Some(none),
    };
    let refused = session.post(&initialize()).json();
    assert_eq!(refused["error"]["code"], -32001, "{refused}");
    session.bearer = None;
    assert_eq!(session.post(&initialize()).status, 401);
}

#[test]
fn calls_count_against_their_limit_and_internal_providers_are_absent() {
    let (signer, public) = key_pair();
    let proxy = started(with_program("").jwt(&public));
    let mut limited = claims();
    limited.scope = "tool:s:*".to_owned();
    limited.ati = Some(Namespace {
        v: 1,
        rate: [("tool:s:echo".to_owned(), "1/hour".to_owned())].into(),
        customer_id: None,
        delegation: None,
    });
    let session = Session::open_as(&proxy, Some(&bearer(&signer, &limited)));
    assert_eq!(text(&session.call("echo", json!({"text": "x"}))), "x");
    let over = session.call("echo", json!({"text": "x"}));
    assert_eq!(over["result"]["isError"], true);
    assert!(
        text(&over).starts_with("Error: Rate limit exceeded"),
        "{over}"
    );
    let hidden = with_program("internal = true").start();
    let answer = hidden.client().send(
        "POST",
        "/mcp/s",
        &[JSON],
        initialize().to_string().as_bytes(),
    );
    assert_eq!(answer.status, 404);
}

#[test]
fn page_of_another_site_and_other_methods_are_refused() {
    let proxy = started(with_program(""));
    let body = initialize().to_string();
    let evil = [JSON, ACCEPT, ("origin", "http://evil.example")];
    let answer = proxy
        .client()
        .send("POST", "/mcp/s", &evil, body.as_bytes());
    assert_eq!(answer.status, 403);
    assert_eq!(
        proxy.client().send("PUT", "/mcp/s", &[JSON], b"{}").status,
        405
    );
    let batch = format!("[{body}]");
    let answer = proxy
        .client()
        .send("POST", "/mcp/s", &[JSON], batch.as_bytes());
    assert_eq!(
        (answer.status, &answer.json()["error"]["code"]),
        (400, &json!(-32600))
    );
}
