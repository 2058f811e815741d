//! Protocol version 2026-07-28.

use serde_json::{Value, json};

use super::{VERSION, ask_stateless, names, post, stateless};
use crate::support::ati::{Proxy, Setup};
use crate::support::upstream::Upstream;

fn started() -> (Upstream, Proxy) {
    let upstream = Upstream::echo();
    let tools = "[[tools]]\nname = 'web:look'\n[tools.response]\nextract = '$.target'\n\
                 [tools.input_schema.properties.region]\ntype = 'string'\nx-mcp-header = 'Region'\n";
    let proxy = Setup::new()
        .tools("web", &upstream.url(), "", tools)
        .start();
    (upstream, proxy)
}

#[test]
fn every_result_says_that_it_is_complete() {
    let (_upstream, proxy) = started();
    let found = ask_stateless(&proxy, "server/discover", json!({})).json()["result"].clone();
    assert_eq!(found["supportedVersions"][0], "2026-07-28");
    assert_eq!(
        (&found["resultType"], &found["cacheScope"]),
        (&json!("complete"), &json!("private"))
    );
    assert!(found["ttlMs"].is_u64() && found["capabilities"]["tools"].is_object());
    let list = ask_stateless(&proxy, "tools/list", json!({})).json();
    assert_eq!(names(&list), ["web:look"]);
    let list = &list["result"];
    assert_eq!(
        (&list["resultType"], &list["cacheScope"]),
        (&json!("complete"), &json!("private"))
    );
    assert!(list["ttlMs"].is_u64());
    for (method, params) in [
        ("ping", json!({})),
        ("tools/call", json!({"name": "web:look", "arguments": {}})),
        (
            "tools/call",
            json!({"name": "web:look", "arguments": {"region": [1]}}),
        ),
    ] {
        let answer = ask_stateless(&proxy, method, params);
        assert_eq!(answer.status, 200);
        assert_eq!(
            answer.json()["result"]["resultType"],
            "complete",
            "{}",
            answer.text()
        );
    }
    let unknown = ask_stateless(&proxy, "resources/list", json!({}));
    assert_eq!(
        (unknown.status, &unknown.json()["error"]["code"]),
        (404, &json!(-32601))
    );
    let missing = ask_stateless(&proxy, "tools/call", json!({"name": "nope"}));
    assert_eq!(
        (missing.status, &missing.json()["error"]["code"]),
        (200, &json!(-32602))
    );
}

#[test]
fn headers_that_contradict_the_body_are_refused() {
    let (upstream, proxy) = started();
    let call = stateless(
        "tools/call",
        json!({"name": "web:look", "arguments": {"region": "eu"}}),
    );
    let (method, name) = (("mcp-method", "tools/call"), ("mcp-name", "web:look"));
    let region = ("mcp-param-region", "eu");
    let good = [VERSION, method, name, region, ("mcp-param-other", "x")];
    assert_eq!(post(&proxy, &good, &call).status, 200);
    let sent = upstream.received().len();
    for wrong in [
        &[VERSION, method][..],
        &[VERSION, name],
        &[method, name],
        &[VERSION, method, ("mcp-name", "web:other")],
        &[VERSION, ("mcp-method", "tools/list"), name],
        &[("mcp-protocol-version", "2025-11-25"), method, name],
        &[VERSION, method, name, ("mcp-param-region", "us")],
    ] {
        let answer = post(&proxy, wrong, &call);
        assert_eq!(
            (answer.status, &answer.json()["error"]["code"]),
            (400, &json!(-32020)),
            "{wrong:?}"
        );
        assert_eq!(answer.json()["id"], 7);
    }
    assert_eq!(upstream.received().len(), sent);
}

#[test]
fn unknown_version_is_told_the_known_ones() {
    let (_upstream, proxy) = started();
    let mut list = stateless("tools/list", json!({}));
    list["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2031-01-01");
    let headers = [
        ("mcp-protocol-version", "2031-01-01"),
        ("mcp-method", "tools/list"),
    ];
    let answer = post(&proxy, &headers, &list);
    assert_eq!(answer.status, 400);
    let error: Value = answer.json()["error"].clone();
    assert_eq!(error["code"], -32022);
    assert_eq!(error["data"]["requested"], "2031-01-01");
    assert!(
        error["data"]["supported"]
            .as_array()
            .unwrap()
            .contains(&json!("2026-07-28"))
    );
    // A header without `_meta`, and the other way round.
    let bare = super::request("tools/list", json!({}));
    let answer = post(&proxy, &[VERSION], &bare);
    assert_eq!(
        (answer.status, &answer.json()["error"]["code"]),
        (400, &json!(-32602))
    );
}
