//! Providers that are loaded for a limited time.

use serde_json::{Value, json};

use super::{good, run};
use crate::support::ati::{Setup, command, stderr, tool, write};
use crate::support::upstream::Upstream;

#[test]
fn provider_load_lasts_until_unloaded_or_expired() {
    let api = Upstream::echo();
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let document = json!({"openapi": "3.0.0", "info": {"title": "T", "version": "1"}, "servers": [{"url": api.url()}],
        "paths": {"/x": {"get": {"operationId": "look"}}}});
    let file = dir.join("temp.json");
    write(&file, document.to_string());
    let file = file.to_str().unwrap();
    let loaded: Value = serde_json::from_str(&good(
        dir,
        &[
            "provider",
            "load",
            file,
            "--auth-query",
            "key",
            "--ttl",
            "600",
        ],
    ))
    .unwrap();
    assert_eq!(
        (
            &loaded["status"],
            &loaded["tools_count"],
            &loaded["auth"]["query_name"],
            &loaded["setup_commands"]
        ),
        (
            &json!("needs_auth"),
            &json!(1),
            &json!("key"),
            &json!(["ati key set temp_api_key <your-api-key>"])
        )
    );
    good(dir, &["key", "set", "temp_api_key", "planted-temporary"]);
    good(dir, &["run", "temp:look"]);
    assert_eq!(api.last().target, "/x?key=planted-temporary");
    let list: Value = serde_json::from_str(&good(dir, &["provider", "list"])).unwrap();
    assert_eq!(list[0]["source"], "cached");
    assert!(list[0]["remaining_seconds"].as_u64().unwrap() <= 600);
    // A manifest of the same name hides it.
    write(
        &dir.join("manifests/mine.toml"),
        format!(
            r#"
                [provider]
                name = 'temp'
                base_url = '{}'

                [[tools]]
                name = 'temp:other'
            "#,
            api.url()
        ),
    );
    assert!(run(dir, &["run", "temp:look"]).status.code() == Some(1));
    std::fs::remove_file(dir.join("manifests/mine.toml")).unwrap();
    good(dir, &["provider", "unload", "temp"]);
    assert_eq!(run(dir, &["run", "temp:look"]).status.code(), Some(1));

    // An expired provider is gone, and so is its file.
    let cached = dir.join("cache/providers/old.json");
    let created = "2020-01-01T00:00:00.000000+00:00";
    write(&cached, json!({"name": "old", "provider_type": "openapi", "created_at": created, "ttl_seconds": 60, "spec_content": "{}"}).to_string());
    write(&dir.join("cache/providers/broken.json"), "{");
    assert!(good(dir, &["provider", "list"]).starts_with("No providers configured."));
    assert!(!cached.exists());

    let mcp: Value = serde_json::from_str(&good(
        dir,
        &[
            "provider",
            "load",
            "--mcp",
            "--name",
            "m",
            "--transport",
            "stdio",
            "--command",
            "c",
            "--env",
            "T=${token}",
        ],
    ))
    .unwrap();
    assert_eq!(
        (&mcp["status"], &mcp["env_vars"]["T"]),
        (
            &json!("needs_keys"),
            &json!({"keyring_ref": "token", "resolved": false})
        )
    );
    good(dir, &["provider", "load", file, "--save", "--name", "kept"]);
    assert!(dir.join("manifests/kept.toml").exists() && dir.join("specs/kept.json").exists());
}

#[test]
fn broken_cached_providers_are_ignored_and_brief_ones_expire() {
    let api = Upstream::echo();
    let document =
        json!({"openapi": "3.0.0", "paths": {"/x": {"get": {"operationId": "look"}}}}).to_string();
    let cached = |name: &str, more: Value| {
        let created = ati::telemetry::audit::timestamp(std::time::SystemTime::now());
        let mut all = json!({"name": name, "provider_type": "openapi", "base_url": api.url(), "auth_type": "none", "created_at": created, "ttl_seconds": 3600, "spec_content": document});
        all.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        all.to_string()
    };
    let setup = Setup::new()
        .tools("fine", &api.url(), "", &tool("fine", ""))
        .file(
            "cache/providers/magic.json",
            cached("magic", json!({"auth_type": "magic"})),
        )
        .file(
            "cache/providers/number.json",
            cached("number", json!({"base_url": 5})),
        )
        .file(
            "cache/providers/route.json",
            cached("route", json!({"provider_type": "passthrough"})),
        )
        .file(
            "cache/providers/other.json",
            cached("name\n\u{1b}[31m", json!({})),
        );
    let dir = setup.path().to_path_buf();
    let listed = run(&dir, &["tool", "list"]);
    assert!(listed.status.success(), "{}", stderr(&listed));
    assert_eq!(stderr(&listed), "");
    // Long enough for a start on a loaded machine.
    let brief = cached("brief", json!({"ttl_seconds": 8}));
    let proxy = setup.file("cache/providers/brief.json", brief).start();
    assert_eq!(proxy.call(None, "fine", json!({})).status, 200);
    assert_eq!(proxy.call(None, "brief:look", json!({})).status, 200);
    crate::support::eventually("the end of the lifetime", || {
        (proxy.call(None, "brief:look", json!({})).status == 404).then_some(())
    });
    // The provider commands need no token.
    let output = command(&dir)
        .env("ATI_JWT_SECRET", "ab".repeat(32))
        .args(["provider", "list"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
}
