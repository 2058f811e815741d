//! Who may see and call what, and where clients get tokens.

use ati::auth::token::Claims;
use serde_json::json;

use super::{names, post, request};
use crate::support::ati::{Proxy, Setup};
use crate::support::http::Response;
use crate::support::tokens::{bearer, claims, key_pair};
use crate::support::upstream::Upstream;

const TOOLS: &str =
    "[[tools]]\nname = 'a:one'\n[[tools]]\nname = 'b:two'\n[[tools]]\nname = 'open'\nscope = ''\n";

fn call(proxy: &Proxy, token: &str, tool: &str) -> Response {
    let headers = [("authorization", token)];
    post(
        proxy,
        &headers,
        &request("tools/call", json!({"name": tool})),
    )
}

#[test]
fn tokens_of_different_scopes_see_and_call_different_tools() {
    let upstream = Upstream::echo();
    let (signer, public) = key_pair();
    let proxy = Setup::new()
        .jwt(&public)
        .tools("web", &upstream.url(), "", TOOLS)
        .start();
    let token = |scope: &str| {
        bearer(
            &signer,
            &Claims {
                scope: scope.into(),
                ..claims()
            },
        )
    };
    let (one, two) = (token("tool:a:*"), token("tool:b:two"));
    let list = |token: &str| {
        let answer = post(
            &proxy,
            &[("authorization", token)],
            &request("tools/list", json!({})),
        );
        names(&answer.json())
    };
    assert_eq!(list(&one), ["a:one", "open"]);
    assert_eq!(list(&two), ["b:two", "open"]);
    assert_eq!(
        call(&proxy, &one, "a:one").json()["result"]["isError"],
        false
    );
    let denied = call(&proxy, &one, "b:two");
    assert_eq!(denied.status, 200);
    let error = &denied.json()["error"];
    assert_eq!(error["code"], -32001);
    assert_eq!(
        error["message"],
        "Access denied: 'b:two' is not in your scopes"
    );
    // Neither the search nor its way of calling goes around that.
    let find = json!({"name": "find_tools", "arguments": {"query": "two"}});
    let headers = [("authorization", one.as_str())];
    let search = |params| {
        super::post_to(
            &proxy,
            "/mcp?tools=search",
            &headers,
            &request("tools/call", params),
        )
        .text()
    };
    assert!(!search(find).contains("b:two"));
    let across = search(json!({"name": "call_tool", "arguments": {"name": "b:two"}}));
    assert!(
        across.contains("Access denied") && across.contains("\"isError\":true"),
        "{across}"
    );
    assert_eq!(upstream.received().len(), 1);
    let audit = proxy.wait_for_audit(3);
    assert_eq!(audit[1]["status"], "error");
    let anonymous = post(&proxy, &[], &request("ping", json!({})));
    assert_eq!((anonymous.status, anonymous.text().as_str()), (401, ""));
    let challenge = anonymous.header("www-authenticate").unwrap();
    assert!(!challenge.contains("resource_metadata"), "{challenge}");
}

#[test]
fn expired_token_within_the_leeway_still_lists_and_calls_nothing() {
    let upstream = Upstream::echo();
    let (signer, public) = key_pair();
    let proxy = Setup::new()
        .jwt(&public)
        .tools("web", &upstream.url(), "", TOOLS)
        .start();
    let exp = ati::clock::unix_now() - 5;
    let token = bearer(
        &signer,
        &Claims {
            exp,
            iat: exp - 60,
            ..claims()
        },
    );
    let error = call(&proxy, &token, "a:one").json()["error"].clone();
    assert_eq!(
        (&error["code"], &error["message"]),
        (
            &json!(-32001),
            &json!(format!("Scopes have expired (expired at {exp})"))
        )
    );
}

#[test]
fn metadata_is_public_where_an_authorization_server_is_named() {
    let (_, public) = key_pair();
    let proxy = Setup::new()
        .jwt(&public)
        .credentials(&json!({"sandbox_signing_shared_secret": crate::support::tokens::SIGNING}))
        .arg("--sig-verify-mode")
        .arg("enforce")
        .conf("[mcp]\nauthorization_servers = ['https://login.example.com']\n[signature]\nexempt_paths = ['/mcp']\n")
        .start();
    for path in ["", "/mcp", "/mcp/github"] {
        let path = format!("/.well-known/oauth-protected-resource{path}");
        let answer = proxy.client().get(&path);
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        let metadata = answer.json();
        assert_eq!(
            metadata["authorization_servers"],
            json!(["https://login.example.com"])
        );
        let resource = metadata["resource"].as_str().unwrap();
        assert!(
            resource.starts_with(&format!("http://{}/mcp", proxy.edge)),
            "{resource}"
        );
    }
    assert_eq!(
        proxy
            .client()
            .get("/.well-known/oauth-protected-resource/x")
            .status,
        403
    );
    let refused = post(&proxy, &[], &request("ping", json!({})));
    assert_eq!(refused.status, 401);
    let challenge = refused.header("www-authenticate").unwrap();
    let url = format!(
        "resource_metadata=\"http://{}/.well-known/oauth-protected-resource\"",
        proxy.edge
    );
    assert!(
        challenge.starts_with("Bearer ") && challenge.contains(&url),
        "{challenge}"
    );
}

#[test]
fn metadata_is_an_unknown_path_otherwise_and_yields_to_a_route() {
    let proxy = Setup::new().start();
    let path = "/.well-known/oauth-protected-resource";
    assert_eq!(proxy.client().get(path).status, 404);
    let upstream = Upstream::echo();
    let proxy = Setup::new()
        .route("known", &upstream.url(), "path_prefix = '/.well-known'")
        .conf("[mcp]\nauthorization_servers = ['https://login.example.com']\n")
        .start();
    assert_eq!(proxy.client().get(path).json()["method"], "GET");
}
