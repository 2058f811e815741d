//! Skills over MCP (SEP-2640): on `/mcp` and `ati mcp serve`, for clients that negotiate it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sha2::Digest as _;

use super::{FILES, folder, with_tokens};
use crate::mcp_server::serve::Served;
use crate::support::ati::{Proxy, Setup, ati};
use crate::support::http::{Client, Response};

const EXTENSION: &str = "io.modelcontextprotocol/skills";

/// foo and bar are installed; baz is in the catalogue, with digests in its index.
fn setup() -> Setup {
    let setup = Setup::new();
    folder(&setup.path().join("skills"), FILES);
    folder(
        &setup.path().join("skills"),
        &[("bare/SKILL.md", b"no front matter")],
    );
    folder(
        &setup.path().join("remote"),
        &[
            (
                "baz/SKILL.md",
                b"---\nname: baz\ndescription: Baz\nlicense: MIT\n---\nBaz\n",
            ),
            ("baz/references/a b.md", b"a b"),
        ],
    );
    let remote = setup.path().join("remote");
    std::fs::create_dir(remote.join("_skillati")).unwrap();
    let index = remote.join("_skillati/catalog.v1.json");
    let words = [
        remote.to_str().unwrap(),
        "--output-file",
        index.to_str().unwrap(),
    ];
    let built = ati(
        setup.path(),
        &[&["skillati", "build-index"], &words[..]].concat(),
    );
    assert!(built.status.success(), "{built:?}");
    let url = format!("file://{}", remote.display());
    setup.env("ATI_SKILL_REGISTRY", url)
}

fn request(method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params})
}

fn knowing() -> Value {
    json!({"protocolVersion": "2025-11-25", "capabilities": {"extensions": {EXTENSION: {}}},
           "clientInfo": {"name": "t", "version": "1"}})
}

fn post(proxy: &Proxy, headers: &[(&str, &str)], body: &Value) -> Response {
    let headers = [&[("content-type", "application/json")], headers].concat();
    let body = body.to_string();
    Client::connect(proxy.edge).send("POST", "/mcp", &headers, body.as_bytes())
}

fn stateless(proxy: &Proxy, token: Option<&str>, method: &str, mut params: Value) -> Response {
    let name = params["uri"].as_str().map(str::to_owned);
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"extensions": {EXTENSION: {}}},
        "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
    });
    let mut headers = vec![
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", method),
    ];
    if let Some(name) = name.as_deref().filter(|_| method == "resources/read") {
        headers.push(("mcp-name", name));
    }
    headers.extend(token.map(|token| ("authorization", token)));
    post(proxy, &headers, &request(method, params))
}

fn uris(result: &Value) -> Vec<&str> {
    let skills = result["skills"].as_array().unwrap().iter();
    skills.map(|skill| skill["uri"].as_str().unwrap()).collect()
}

#[test]
fn listed_digests_are_those_of_the_files_that_are_read() {
    let proxy = setup().start();
    let ask = |method: &str, params: Value| {
        let answer = stateless(&proxy, None, method, params);
        assert_eq!(answer.status, 200, "{method}: {}", answer.text());
        answer.json()["result"].clone()
    };
    let discovered = ask("server/discover", json!({}));
    let capabilities = &discovered["capabilities"];
    assert_eq!(capabilities["extensions"], json!({EXTENSION: {}}));
    assert!(capabilities["resources"].is_object());
    let listed = ask("skills/list", json!({}));
    assert_eq!(
        (
            &listed["resultType"],
            &listed["cacheScope"],
            listed["ttlMs"].is_u64()
        ),
        (&json!("complete"), &json!("private"), true)
    );
    let expected = ["bar", "baz", "foo"].map(|name| format!("skill://{name}/SKILL.md"));
    assert_eq!(uris(&listed), expected);
    let mut files = 0;
    for skill in listed["skills"].as_array().unwrap() {
        let one = ask("skills/get", json!({"uri": skill["uri"]}));
        assert_eq!(one["skill"], *skill);
        for resource in skill["resources"].as_array().unwrap() {
            files += 1;
            let read = ask("resources/read", json!({"uri": resource["uri"]}));
            let content = &read["contents"][0];
            assert_eq!(content["uri"], resource["uri"]);
            let bytes = match content["text"].as_str() {
                Some(text) => text.as_bytes().to_vec(),
                None => STANDARD.decode(content["blob"].as_str().unwrap()).unwrap(),
            };
            let digest = format!("sha256:{}", hex::encode(sha2::Sha256::digest(&bytes)));
            assert_eq!(
                (&resource["digest"], &resource["size"]),
                (&json!(digest), &json!(bytes.len())),
                "{resource}"
            );
        }
    }
    assert!(files >= 9, "{listed}");
    let baz = &listed["skills"][1];
    assert_eq!(
        baz["frontmatter"],
        json!({"name": "baz", "description": "Baz", "license": "MIT"})
    );
    let resources = ask("resources/list", json!({}));
    let resources = resources["resources"].as_array().unwrap();
    assert_eq!(resources.len(), files);
    let document = resources
        .iter()
        .find(|one| one["uri"] == "skill://foo/SKILL.md")
        .unwrap();
    assert_eq!(
        (
            &document["name"],
            &document["description"],
            &document["mimeType"]
        ),
        (&json!("foo"), &json!("Foo things"), &json!("text/markdown"))
    );
}

#[test]
fn scopes_hold_and_other_spellings_lead_nowhere() {
    let (proxy, token) = with_tokens(setup());
    let foo = token("skill:foo");
    let listed = stateless(&proxy, Some(&foo), "skills/list", json!({})).json();
    assert_eq!(uris(&listed["result"]), ["skill://foo/SKILL.md"]);
    let code = |method: &str, uri: &str| {
        let answer = stateless(&proxy, Some(&foo), method, json!({"uri": uri}));
        answer.json()["error"]["code"].as_i64()
    };
    for uri in [
        "skill://bar/SKILL.md",
        "skill://baz/SKILL.md",
        "skill://bare/SKILL.md",
        "skill://absent/SKILL.md",
        "skill://foo/../bar/SKILL.md",
        "skill://foo/%2e%2e/bar/SKILL.md",
        "skill://foo/scripts/absent.sh",
        "file:///etc/passwd",
        "",
    ] {
        assert_eq!(code("skills/get", uri), Some(-32602), "{uri}");
        assert_eq!(code("resources/read", uri), Some(-32602), "{uri}");
    }
    for method in ["skills/get", "resources/read"] {
        let message = stateless(&proxy, Some(&foo), method, json!({"name": "foo"})).json()["error"]
            ["message"]
            .clone();
        assert!(
            message.as_str().unwrap().contains("'uri' is missing"),
            "{message}"
        );
    }
    assert_eq!(code("skills/get", "skill://foo/SKILL.md"), None);
    assert_eq!(code("resources/read", "skill://foo/scripts/run.sh"), None);
}

#[test]
fn client_that_does_not_negotiate_finds_no_such_methods() {
    let proxy = setup().start();
    let plain = json!({"protocolVersion": "2025-11-25", "capabilities": {}});
    let begun = post(&proxy, &[], &request("initialize", plain));
    assert_eq!(begun.header("mcp-session-id"), None);
    assert_eq!(
        begun.json()["result"]["capabilities"],
        json!({"tools": {"listChanged": false}})
    );
    for method in [
        "skills/list",
        "skills/get",
        "resources/list",
        "resources/read",
    ] {
        let answer = post(&proxy, &[], &request(method, json!({}))).json();
        assert_eq!(answer["error"]["code"], -32601, "{method}");
    }
    let begun = post(&proxy, &[], &request("initialize", knowing()));
    let capabilities = &begun.json()["result"]["capabilities"];
    assert_eq!(capabilities["extensions"], json!({EXTENSION: {}}));
    let session = begun.header("mcp-session-id").unwrap().to_owned();
    let session = [("mcp-session-id", session.as_str())];
    let listed = post(&proxy, &session, &request("skills/list", json!({}))).json();
    assert_eq!(uris(&listed["result"]).len(), 3);
    let tools = post(&proxy, &session, &request("tools/list", json!({}))).json();
    assert!(tools["result"]["tools"].is_array());
}

#[test]
fn program_serves_skills_of_this_machine_and_of_a_proxy() {
    let setup = setup();
    let registry = format!("file://{}", setup.path().join("remote").display());
    let mut command = crate::support::ati::command(setup.path());
    command
        .args(["mcp", "serve"])
        .env("ATI_SKILL_REGISTRY", registry);
    let here = Served::start(&mut command);
    let empty = tempfile::tempdir().unwrap();
    let proxy = setup.start();
    let mut command = crate::support::ati::command(empty.path());
    command.args(["mcp", "serve"]);
    command.env("ATI_PROXY_URL", format!("http://{}", proxy.edge));
    let through = Served::start(&mut command);
    for mut served in [here, through] {
        let mut ask = |method: &str, params: Value| {
            served.send(&request(method, params));
            served.answer()
        };
        let unknown = ask("skills/list", json!({}));
        assert_eq!(unknown["error"]["code"], -32601, "{unknown}");
        let begun = ask("initialize", knowing());
        let capabilities = &begun["result"]["capabilities"];
        assert_eq!(capabilities["extensions"], json!({EXTENSION: {}}));
        let listed = ask("skills/list", json!({}));
        assert_eq!(uris(&listed["result"]).len(), 3, "{listed}");
        let read = ask(
            "resources/read",
            json!({"uri": "skill://baz/references/a%20b.md"}),
        );
        assert_eq!(read["result"]["contents"][0]["text"], "a b");
    }
}
