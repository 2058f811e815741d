//! Manifests that commands write and check.

use std::path::Path;

use serde_json::{Value, json};

use super::{good, run};
use crate::support::ati::{stderr, stdout, write};

fn bad(dir: &Path, args: &[&str]) -> String {
    let output = run(dir, args);
    assert!(!output.status.success(), "{args:?}");
    assert_eq!(stdout(&output), "");
    stderr(&output)
}

/// The words of a command line in which nothing is quoted.
fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

fn manifest(dir: &Path, name: &str) -> String {
    std::fs::read_to_string(dir.join("manifests").join(name)).unwrap()
}

#[test]
fn provider_add_writes_a_manifest_and_overwrites_none() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let line = "provider add-mcp github --transport stdio --command npx --args -y --args server \
                --env TOKEN=${github_token} --env QUOTED=\"quoted\" --category dev";
    let said = run(dir, &words(line));
    assert!(said.status.success(), "{}", stderr(&said));
    assert_eq!(stdout(&said), "");
    assert!(stderr(&said).contains("saved manifest"));
    let text = manifest(dir, "github.toml");
    let table: toml::Table = text.parse().unwrap();
    let provider = table["provider"].as_table().unwrap();
    assert_eq!(
        provider["description"].as_str(),
        Some("github MCP provider")
    );
    assert_eq!(provider["mcp_args"].as_array().unwrap().len(), 2);
    assert_eq!(provider["mcp_env"]["QUOTED"].as_str(), Some("\"quoted\""));
    let again = "provider add-mcp github --transport http --url https://x";
    assert!(bad(dir, &words(again)).contains("Manifest already exists: "));
    assert_eq!(manifest(dir, "github.toml"), text);

    good(dir, &words(GCLOUD));
    let table: toml::Table = manifest(dir, "gcloud.toml").parse().unwrap();
    assert_eq!(table["provider"]["cli_timeout_secs"].as_integer(), Some(90));
}

const GCLOUD: &str = "provider add-cli gcloud --command gcloud --default-args --format \
                      --default-args json --env CRED=@{gcp} --timeout 90";

#[test]
fn provider_add_takes_the_transport_from_the_options_and_replaces_with_force() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    good(
        dir,
        &words("provider add-mcp m --url http://127.0.0.1:1/mcp"),
    );
    assert!(manifest(dir, "m.toml").contains("mcp_transport = \"http\""));
    let again = words("provider add-mcp m --command server");
    assert!(bad(dir, &again).contains("--force replaces it"));
    good(dir, &[&again[..], &["--force"]].concat());
    assert!(manifest(dir, "m.toml").contains("mcp_transport = \"stdio\""));
    // Both, or neither: it has to be said.
    assert!(bad(dir, &words("provider add-mcp n")).contains("--transport is required"));
    let both = words("provider add-mcp n --command x --url http://127.0.0.1:1");
    assert!(bad(dir, &both).contains("--transport is required"));
    good(dir, &words("provider add-cli c --command one"));
    good(dir, &words("provider add-cli c --command two --force"));
    assert!(manifest(dir, "c.toml").contains("cli_command = \"two\""));
}

#[test]
fn provider_commands_with_bad_arguments_say_why() {
    let dir = tempfile::tempdir().unwrap();
    for (line, expected) in [
        (
            "add-mcp x --transport http",
            "--url is required for HTTP transport",
        ),
        (
            "add-mcp x --transport stdio",
            "--command is required for stdio transport",
        ),
        (
            "add-mcp x --transport smoke",
            "Unknown transport: smoke (expected http or stdio)",
        ),
        (
            "add-mcp x --transport http --url u --auth bearer",
            "--auth-key is required for bearer auth",
        ),
        (
            "add-mcp x --transport http --url u --auth magic",
            "Unknown auth type: magic",
        ),
        (
            "add-cli x --command c --env novalue",
            "Invalid --env format: novalue (expected KEY=VALUE)",
        ),
        ("add-cli ../x --command c", "is no name for a provider"),
        (
            "add-mcp a/b --transport http --url u",
            "is no name for a provider",
        ),
        ("remove ../credentials", "is no name for a provider"),
        ("remove absent", "Manifest not found: "),
        (
            "info absent",
            "Provider 'absent' not found. Run 'ati provider list'",
        ),
        ("unload absent", "No cached provider 'absent' found."),
        ("load", "OpenAPI mode requires a spec path or URL."),
    ] {
        let said = bad(dir.path(), &words(&format!("provider {line}")));
        assert!(said.contains(expected), "{line}: {said}");
    }
    let spaced = [
        "provider",
        "add-cli",
        "x",
        "--command",
        "c",
        "--env",
        "a b=c",
    ];
    let said = bad(dir.path(), &spaced);
    assert!(said.contains("Invalid --env format"), "{said}");
}

#[test]
fn provider_list_info_and_remove_show_what_was_added() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let github = "provider add-mcp github --transport stdio --command npx --category dev";
    good(dir, &words(github));
    good(dir, &words(GCLOUD));
    let list: Value = serde_json::from_str(&good(dir, &["provider", "list"])).unwrap();
    let expected = json!({
        "name": "github", "type": "mcp/stdio", "description": "github MCP provider",
        "auth": "none", "tools": "auto", "internal": false, "source": "permanent",
    });
    assert_eq!(list[1], expected);
    assert_eq!(
        (&list[0]["type"], &list[0]["tools"]),
        (&json!("cli"), &json!("1"))
    );
    let info: Value = serde_json::from_str(&good(dir, &["provider", "info", "gcloud"])).unwrap();
    assert_eq!(
        (&info["handler"], &info["cli_command"]),
        (&json!("cli"), &json!("gcloud"))
    );
    good(dir, &["provider", "remove", "github"]);
    assert!(!dir.join("manifests/github.toml").exists());
    good(dir, &["provider", "remove", "gcloud"]);
    assert!(good(dir, &["provider", "list"]).starts_with("No providers configured. Run "));
}

#[test]
fn provider_validate_reports_each_manifest() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (fine, odd, wrong) = (
        dir.join("manifests/fine.toml"),
        dir.join("manifests/odd.toml"),
        dir.join("manifests/wrong.toml"),
    );
    write(
        &fine,
        r#"
            [provider]
            name = 'fine'
            base_url = 'http://h'
            auth_type = 'bearer'
            auth_key_name = 'absent'

            [[tools]]
            name = 't'
        "#,
    );
    write(
        &odd,
        r#"
            [provider]
            name = 'odd'
            base_ulr = 'http://h'
        "#,
    );
    write(
        &wrong,
        r#"
            [provider]
            name = 'wrong'
            handler = 'passthrough'
            base_url = 'http://h'
            egress = 'eu'
            deny_path = ['/x']
        "#,
    );
    let (fine, odd, wrong) = (
        fine.to_str().unwrap(),
        odd.to_str().unwrap(),
        wrong.to_str().unwrap(),
    );
    good(dir, &["provider", "validate", fine, odd]);
    assert_eq!(
        run(dir, &["provider", "validate", "--strict", odd])
            .status
            .code(),
        Some(2)
    );
    let output = run(dir, &["provider", "validate", fine, odd, wrong]);
    assert_eq!(output.status.code(), Some(2));
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(
        report[0],
        json!({"file": fine, "kind": "manifest", "ok": true, "problems": [], "warnings": []})
    );
    assert!(
        report[1]["warnings"][0]
            .as_str()
            .unwrap()
            .contains("did you mean 'base_url'?"),
        "{report}"
    );
    assert_eq!(
        report[2]["problems"].as_array().unwrap().len(),
        2,
        "{report}"
    );

    // The JSON schema for editors: every shipped manifest fits it, a typo doesn't.
    let schema: Value = serde_json::from_str(&good(dir, &["provider", "schema"])).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let as_json = |text: &str| serde_json::to_value(text.parse::<toml::Table>().unwrap()).unwrap();
    for entry in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests")).unwrap()
    {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|ext| ext == "toml") {
            let manifest = as_json(&std::fs::read_to_string(&path).unwrap());
            let errors: Vec<String> = validator
                .iter_errors(&manifest)
                .map(|e| e.to_string())
                .collect();
            assert!(errors.is_empty(), "{}: {errors:?}", path.display());
        }
    }
    assert!(!validator.is_valid(&as_json(
        r#"
            [provider]
            name = 'x'
            base_ulr = 'y'
        "#
    )));
}
