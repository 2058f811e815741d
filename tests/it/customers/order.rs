//! Which credential a call uses: the same order for every handler.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};

use super::{has_rows, remove, set, setup, with_database};
use crate::mcp::{particular_server, told};
use crate::support::ati::{Proxy, Setup, stderr, stdout, tool};
use crate::support::database::{Database, on_both_engines};
use crate::support::tokens::{bearer_of, key_pair};
use crate::support::upstream::Upstream;

on_both_engines!(
    every_handler_asks_the_sources_in_the_same_order,
    change_is_used_within_a_second_and_ends_with_its_row,
    row_that_can_not_be_read_is_an_error_and_never_the_shared_one,
    key_of_a_customer_uses_its_credential_as_a_token_does,
);

/// Tools of each handler, and a route, that send the credential `api`. Each tells a part of it that
/// isn't redacted.
fn every_handler(setup: Setup, api: &Upstream, mcp: &Upstream) -> Setup {
    let bearer = "auth_type = 'bearer'\nauth_key_name = 'api'";
    let script = setup.path().join("show");
    std::fs::write(&script, "#!/bin/sh\nprintf '%s' \"$KEY\" | cut -c9-\n").unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let file = setup.path().join("show_file");
    std::fs::write(&file, "#!/bin/sh\ncut -c9- \"$FILE\"\n").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    let (script, file) = (script.display(), file.display());
    let document = json!({
        "openapi": "3.0.0", "info": {"title": "t", "version": "1"},
        "servers": [{"url": api.url()}],
        "paths": {"/o": {"get": {"operationId": "get", "responses": {"200": {"description": "x"}}}}},
    });
    setup
        .tools("http", &api.url(), bearer, &tool("http", ""))
        .file("specs/o.json", document.to_string())
        .manifest(
            "openapi",
            &format!(
                "[provider]\nname = 'openapi'\nhandler = 'openapi'\nbase_url = '{}'\n\
                 openapi_spec = 'o.json'\n{bearer}",
                api.url()
            ),
        )
        .tools(
            "generated",
            &api.url(),
            "auth_type = 'bearer'\n[provider.auth_generator]\ntype = 'command'\ncommand = 'sh'\n\
             args = ['-c', 'printf planted-%s \"$(echo $K | cut -c9-)\"']\n\
             [provider.auth_generator.env]\nK = '${api}'",
            &tool("generated", ""),
        )
        .manifest(
            "program",
            &format!(
                "[provider]\nname = 'program'\ndescription = 'x'\nhandler = 'cli'\n\
                 cli_command = '{script}'\ncli_env = {{ KEY = '${{api}}' }}"
            ),
        )
        .manifest(
            "with_file",
            &format!(
                "[provider]\nname = 'with_file'\ndescription = 'x'\nhandler = 'cli'\n\
                 cli_command = '{file}'\ncli_env = {{ FILE = '@{{api}}' }}"
            ),
        )
        .manifest(
            "mcp",
            &format!(
                "[provider]\nname = 'mcp'\nhandler = 'mcp'\nmcp_transport = 'http'\n\
                 mcp_url = '{}/mcp'\n{bearer}",
                mcp.url()
            ),
        )
        .manifest(
            "files",
            &format!(
                "[provider]\nname = 'files'\nhandler = 'file_manager'\n\
                 upload_default_destination = 's'\n[provider.upload_destinations.s]\n\
                 kind = 's3'\nbucket = 'b'\nendpoint = '{}'\n\
                 access_key_ref = 'api'\nsecret_key_ref = 'api'",
                api.url()
            ),
        )
        .route(
            "r",
            &api.url(),
            &format!("path_prefix = '/r'\nrequire_token = true\n{bearer}"),
        )
}

/// The arguments of an upload.
fn file() -> Value {
    json!({"filename": "x", "content_base64": "eA=="})
}

/// What each handler sent, without the `planted-` that all values begin with.
fn sent(proxy: &Proxy, token: &str, api: &Upstream, mcp: &Upstream) -> Vec<(&'static str, Value)> {
    let call = |name: &str, args: Value| {
        let answer = proxy.call(Some(token), name, args);
        assert_eq!(answer.status, 200, "{name}: {}", answer.text());
        answer.json()["result"].clone()
    };
    let over = |upstream: &Upstream| {
        let last = upstream.last();
        json!(
            last.header("authorization")
                .and_then(|it| it.strip_prefix("Bearer planted-"))
        )
    };
    let mut all = Vec::new();
    for name in ["http", "openapi:get", "generated"] {
        call(name, json!({}));
        all.push((name, over(api)));
    }
    call("file_manager:upload", file());
    let signed = api.last();
    let signed = signed.header("authorization").unwrap();
    let (_, id) = signed.split_once("Credential=planted-").unwrap();
    all.push(("upload", json!(id.split('/').next())));
    all.push(("program", call("program", json!([]))));
    all.push(("with_file", call("with_file", json!([]))));
    call("mcp:who", json!({}));
    all.push(("mcp", over(mcp)));
    let answer = proxy
        .client()
        .send("GET", "/r/x", &[("authorization", token)], b"");
    assert_eq!(answer.status, 200, "{}", answer.text());
    all.push(("route", over(api)));
    all
}

fn echo() -> (Upstream, Upstream) {
    let mcp = particular_server(
        |_, _, _| None,
        |_, message, stream| {
            let answer = told(message, "done");
            std::io::Write::write_all(stream, answer.as_bytes()).is_ok()
        },
    );
    (Upstream::echo(), mcp)
}

fn every_handler_asks_the_sources_in_the_same_order(database: &mut Database) {
    let (api, mcp) = echo();
    let (signer, public) = key_pair();
    let keyring = json!({"api": "planted-entry", "api@acme": "planted-own-entry"});
    let setup = every_handler(setup(database), &api, &mcp);
    let proxy = setup.jwt(&public).credentials(&keyring).start();
    proxy.log.wait_for("tools listed");
    let check = |customer: Option<&str>, expected: &str| {
        for (handler, value) in sent(&proxy, &bearer_of(&signer, customer), &api, &mcp) {
            assert_eq!(value, expected, "{handler} of {customer:?}");
        }
    };
    check(Some("acme"), "own-entry");
    check(Some("globex"), "entry");
    check(None, "entry");
    // The shared row comes before the keyring's entry, and behind the customer's.
    set(&proxy, database, "api", None, "planted-row");
    has_rows(&proxy, 1);
    check(Some("acme"), "own-entry");
    check(Some("globex"), "row");
    check(None, "row");
    set(&proxy, database, "api", Some("acme"), "planted-own-row");
    has_rows(&proxy, 2);
    check(Some("acme"), "own-row");
    check(Some("globex"), "row");
    check(None, "row");
    remove(&proxy, database, "api", None);
    has_rows(&proxy, 1);
    check(Some("acme"), "own-row");
    check(Some("globex"), "entry");
    // Nothing of a row lies on a disk in plain text once the program has ended.
    let kept = std::fs::read_dir(proxy.path(".creds"))
        .into_iter()
        .flatten();
    for file in kept.flatten() {
        let text = std::fs::read_to_string(file.path()).unwrap_or_default();
        assert!(!text.contains("row"), "{text}");
    }
}

fn change_is_used_within_a_second_and_ends_with_its_row(database: &mut Database) {
    let api = Upstream::echo();
    let (signer, public) = key_pair();
    let bearer = "auth_type = 'bearer'\nauth_key_name = 'api'";
    let proxy = setup(database)
        .jwt(&public)
        .tools("http", &api.url(), bearer, &tool("http", ""))
        .start();
    let token = bearer_of(&signer, Some("acme"));
    let ask = || {
        let answer = proxy.call(Some(&token), "http", json!({}));
        match answer.status {
            200 => api.last().header("authorization").map(str::to_owned),
            502 => None,
            other => panic!("{other}: {}", answer.text()),
        }
    };
    assert_eq!(ask(), None);
    for value in ["planted-one", "planted-two"] {
        set(&proxy, database, "api", Some("acme"), value);
        let told = std::time::Instant::now();
        let expected = Some(format!("Bearer {value}"));
        crate::support::eventually("the new value", || (ask() == expected).then_some(()));
        assert!(told.elapsed().as_millis() < 1000, "{:?}", told.elapsed());
    }
    // A reload keeps what the database has.
    proxy.reload();
    assert_eq!(ask().as_deref(), Some("Bearer planted-two"));
    remove(&proxy, database, "api", Some("acme"));
    crate::support::eventually("the removal", || ask().is_none().then_some(()));
}

fn row_that_can_not_be_read_is_an_error_and_never_the_shared_one(database: &mut Database) {
    let (api, mcp) = echo();
    let (signer, public) = key_pair();
    let keyring = json!({"api": "planted-entry", "api@acme": "planted-own-entry"});
    let first = setup(database).start();
    set(&first, database, "api", Some("acme"), "planted-own-row");
    drop(first);
    // Another master key than the row's.
    let setup = every_handler(setup(database), &api, &mcp).env("ATI_MASTER_KEY", super::master(2));
    let proxy = setup.jwt(&public).credentials(&keyring).start();
    proxy.log.wait_for("tools listed");
    proxy
        .log
        .wait_for("credentials are encrypted with a master key that this process doesn't have");
    for (_, value) in sent(&proxy, &bearer_of(&signer, Some("globex")), &api, &mcp) {
        assert_eq!(value, "entry");
    }
    let token = bearer_of(&signer, Some("acme"));
    let before = (api.received().len(), mcp.received().len());
    for name in [
        "http",
        "openapi:get",
        "generated",
        "program",
        "with_file",
        "mcp:who",
        "file_manager:upload",
    ] {
        let args = match name {
            "program" | "with_file" => json!([]),
            "file_manager:upload" => file(),
            _ => json!({}),
        };
        let answer = proxy.call(Some(&token), name, args);
        assert_eq!(answer.status, 502, "{name}: {}", answer.text());
        let error = answer.json()["error"].as_str().unwrap().to_owned();
        let expected = "the credential 'api' of customer 'acme' can't be read";
        assert!(error.contains(expected), "{name}: {error}");
    }
    let headers = [("authorization", token.as_str())];
    let answer = proxy.client().send("GET", "/r/x", &headers, b"");
    assert_eq!(answer.status, 503);
    assert_eq!(
        answer.text(),
        "service unavailable: this route's credential can't be read"
    );
    assert_eq!((api.received().len(), mcp.received().len()), before);
}

fn key_of_a_customer_uses_its_credential_as_a_token_does(database: &mut Database) {
    let api = Upstream::echo();
    let bearer = "auth_type = 'bearer'\nauth_key_name = 'api'";
    let guarded = format!("path_prefix = '/r'\nrequire_token = true\n{bearer}");
    let proxy = setup(database)
        .credentials(&json!({"api": "planted-entry"}))
        .tools("p", &api.url(), bearer, &tool("p", ""))
        .route("r", &api.url(), &guarded)
        .start();
    set(&proxy, database, "api", Some("acme"), "planted-own-row");
    has_rows(&proxy, 1);
    for (customer, expected) in [
        (Some("acme"), "planted-own-row"),
        (Some("globex"), "planted-entry"),
        (None, "planted-entry"),
    ] {
        let mut issue = with_database(proxy.dir.path(), database);
        let alias = customer.unwrap_or("none");
        issue.args(["--output", "json", "admin", "keys", "issue", "user", alias]);
        issue.args(["--tool", "p"]);
        issue.args(customer.iter().flat_map(|id| ["--customer", id]));
        let output = issue.output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        let issued: Value = serde_json::from_str(&stdout(&output)).unwrap();
        let key = format!("Ati-Key {}", issued["raw_key"].as_str().unwrap());
        let answer = proxy.call(Some(&key), "p", json!({}));
        assert_eq!(answer.status, 200, "{}", answer.text());
        let expected = format!("Bearer {expected}");
        assert_eq!(api.last().header("authorization"), Some(expected.as_str()));
        let headers = [("authorization", key.as_str())];
        assert_eq!(
            proxy.client().send("GET", "/r/x", &headers, b"").status,
            200
        );
        assert_eq!(api.last().header("authorization"), Some(expected.as_str()));
    }
    let mut issue = with_database(proxy.dir.path(), database);
    issue.args(["admin", "keys", "issue", "user", "x", "--customer", "a@b"]);
    assert_eq!(issue.output().unwrap().status.code(), Some(2));
}
