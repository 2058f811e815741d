//! The shipped keyrings/ folder: the names in it, and its way from the example to a running proxy.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ati::keyring::SIGNING_SECRET;
use serde_json::Value;

use crate::support::ati::{Proxy, Setup, ati, stderr, stdout, write};
use crate::support::eventually;
use crate::support::upstream::Upstream;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_path_buf()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

fn example() -> serde_json::Map<String, Value> {
    serde_json::from_str(&read("keyrings/example.json")).unwrap()
}

/// The keys that a manifest refers to: by a field that names one, or by `${name}` in a text.
fn references(value: &toml::Value, field: &str, found: &mut BTreeSet<String>) {
    /// What a generator fills in itself.
    const VARIABLES: [&str; 4] = ["JWT_SUB", "JWT_SCOPE", "TOOL_NAME", "TIMESTAMP"];
    match value {
        toml::Value::Table(table) => table
            .iter()
            .for_each(|(name, value)| references(value, name, found)),
        toml::Value::Array(list) => list
            .iter()
            .for_each(|value| references(value, field, found)),
        toml::Value::String(text) => {
            if matches!(field, "auth_key_name" | "auth_secret_name") {
                found.insert(text.clone());
            }
            for part in text.split("${").skip(1) {
                let (name, _) = part.split_once('}').unwrap();
                if !VARIABLES.contains(&name) {
                    found.insert(name.to_owned());
                }
            }
        }
        _ => {}
    }
}

#[test]
fn example_keyring_has_exactly_the_keys_that_shipped_manifests_refer_to() {
    let mut wanted = BTreeSet::from([SIGNING_SECRET.to_owned()]);
    let mut manifests = 0;
    for folder in ["manifests", "deploy/manifests"] {
        for entry in std::fs::read_dir(root().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|ending| ending == "toml") {
                let text = std::fs::read_to_string(&path).unwrap();
                references(
                    &toml::from_str::<toml::Value>(&text).unwrap(),
                    "",
                    &mut wanted,
                );
                manifests += 1;
            }
        }
    }
    assert!(manifests > 10);
    let given: BTreeSet<String> = example().keys().cloned().collect();
    assert_eq!(given, wanted);
    for (name, value) in example() {
        assert!(value.as_str().unwrap().contains("replace-me"), "{name}");
    }
}

#[test]
fn git_takes_the_example_keyring_and_ignores_real_ones() {
    let dir = tempfile::tempdir().unwrap();
    let keyrings = dir.path().join("keyrings");
    let shipped = [".gitignore", "README.md", "example.json"];
    for name in shipped {
        write(&keyrings.join(name), read(&format!("keyrings/{name}")));
    }
    for name in [
        "production.json",
        "keyring.enc",
        ".keyring-key",
        "credentials",
        "eu/x.json",
    ] {
        write(&keyrings.join(name), "{}");
    }
    let git = |args: &[&str]| -> String {
        let output = Command::new("git")
            .args(args)
            .current_dir(dir.path())
            .output();
        let output = output.expect("git");
        assert!(output.status.success(), "{}", stderr(&output));
        stdout(&output)
    };
    git(&["init", "-q"]);
    git(&["add", "-A"]);
    let added = git(&["ls-files", "keyrings"]);
    let added: Vec<&str> = added.lines().collect();
    assert_eq!(added, shipped.map(|name| format!("keyrings/{name}")));
}

fn edge(dir: &Path, args: &[&str]) -> Output {
    let output = ati(
        dir,
        &[&["edge"], args, &["--ati-dir", dir.to_str().unwrap()]].concat(),
    );
    assert!(output.status.success(), "{args:?}: {}", stderr(&output));
    output
}

/// The example, with a real value for one key.
fn source(path: &Path, openai: &str) {
    let mut keyring = example();
    keyring["openai_api_key"] = openai.into();
    write(path, Value::Object(keyring).to_string());
}

/// What the upstream gets for a request to the route of OpenAI.
fn sent(proxy: &Proxy, api: &Upstream) -> String {
    let response = proxy.client().get("/openai/v1/models");
    assert_eq!(response.status, 200, "{}", response.text());
    api.last().header("authorization").unwrap().to_owned()
}

#[test]
fn example_keyring_is_sealed_loaded_and_rotated_while_a_proxy_runs() {
    let api = Upstream::echo();
    let manifest = read("deploy/manifests/openai.toml");
    let line = |line: &str| match line.starts_with("base_url") {
        true => format!("base_url = \"{}\"", api.url()),
        false => line.to_owned(),
    };
    let manifest: Vec<String> = manifest.lines().map(line).collect();
    let setup = Setup::new()
        .manifest("openai", &manifest.join("\n"))
        .arg("--enable-passthrough");
    let file = setup.path().join("production.json");
    let from = ["--from-file", file.to_str().unwrap()];

    source(&file, "planted-first");
    edge(setup.path(), &[&["bootstrap-keyring"], &from[..]].concat());
    let listed = stdout(&edge(setup.path(), &["keyring", "list"]));
    let names: Vec<String> = example().keys().cloned().collect();
    assert_eq!(listed.lines().collect::<Vec<_>>(), names);

    let proxy = setup.start();
    let dir = proxy.dir.path();
    assert_eq!(sent(&proxy, &api), "Bearer planted-first");

    // With the signal and the check of the command itself.
    source(&file, "planted-second");
    let diff = stdout(&edge(dir, &[&["keyring", "diff"], &from[..]].concat()));
    assert_eq!(diff.trim(), "~ openai_api_key");
    write(&proxy.path("pid"), proxy.pid().to_string());
    let pid = proxy.path("pid");
    let admin = format!("http://{}", proxy.admin);
    let verified = ["--pid-file", pid.to_str().unwrap(), "--verify", &admin];
    edge(
        dir,
        &[&["rotate-keyring"], &from[..], &verified[..]].concat(),
    );
    assert_eq!(sent(&proxy, &api), "Bearer planted-second");

    // With a signal of another tool.
    source(&file, "planted-third");
    edge(
        dir,
        &[&["rotate-keyring", "--no-signal"], &from[..]].concat(),
    );
    assert_eq!(sent(&proxy, &api), "Bearer planted-second");
    proxy.signal("HUP");
    eventually("the third key", || {
        (sent(&proxy, &api) == "Bearer planted-third").then_some(())
    });
}
