//! Managing where tools come from.

use std::path::Path;
use std::process::Output;

use serde_json::{Value, json};

use crate::support::ati::{Setup, command, stderr, stdout, tells_nothing, write};
use crate::support::tokens::{claims, shared};
use crate::support::upstream::Upstream;

fn run(dir: &Path, args: &[&str]) -> Output {
    command(dir).args(args).output().unwrap()
}

fn good(dir: &Path, args: &[&str]) -> String {
    let output = run(dir, args);
    assert!(output.status.success(), "{args:?}: {}", stderr(&output));
    stdout(&output)
}

fn bad(dir: &Path, args: &[&str]) -> String {
    let output = run(dir, args);
    assert!(!output.status.success(), "{args:?}");
    assert_eq!(stdout(&output), "");
    stderr(&output)
}

fn manifest(dir: &Path, name: &str) -> String {
    std::fs::read_to_string(dir.join("manifests").join(name)).unwrap()
}

#[test]
fn manifests_are_written_whole_and_never_over_another() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let said = run(
        dir,
        &[
            "provider",
            "add-mcp",
            "github",
            "--transport",
            "stdio",
            "--command",
            "npx",
            "--args",
            "-y",
            "--args",
            "server",
            "--env",
            "TOKEN=${github_token}",
            "--env",
            "QUOTED=\"quoted\"",
            "--category",
            "dev",
        ],
    );
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
    assert!(
        bad(
            dir,
            &[
                "provider",
                "add-mcp",
                "github",
                "--transport",
                "http",
                "--url",
                "https://x"
            ]
        )
        .contains("Manifest already exists: ")
    );
    assert_eq!(manifest(dir, "github.toml"), text);

    good(
        dir,
        &[
            "provider",
            "add-cli",
            "gcloud",
            "--command",
            "gcloud",
            "--default-args",
            "--format",
            "--default-args",
            "json",
            "--env",
            "CRED=@{gcp}",
            "--timeout",
            "90",
        ],
    );
    let table: toml::Table = manifest(dir, "gcloud.toml").parse().unwrap();
    assert_eq!(table["provider"]["cli_timeout_secs"].as_integer(), Some(90));
    for (args, expected) in [
        (
            &["add-mcp", "x", "--transport", "http"][..],
            "--url is required for HTTP transport",
        ),
        (
            &["add-mcp", "x", "--transport", "stdio"],
            "--command is required for stdio transport",
        ),
        (
            &["add-mcp", "x", "--transport", "smoke"],
            "Unknown transport: smoke (expected http or stdio)",
        ),
        (
            &[
                "add-mcp",
                "x",
                "--transport",
                "http",
                "--url",
                "u",
                "--auth",
                "bearer",
            ],
            "--auth-key is required for bearer auth",
        ),
        (
            &[
                "add-mcp",
                "x",
                "--transport",
                "http",
                "--url",
                "u",
                "--auth",
                "magic",
            ],
            "Unknown auth type: magic",
        ),
        (
            &["add-cli", "x", "--command", "c", "--env", "novalue"],
            "Invalid --env format: novalue (expected KEY=VALUE)",
        ),
        (
            &["add-cli", "x", "--command", "c", "--env", "a b=c"],
            "Invalid --env format",
        ),
        (
            &["add-cli", "../x", "--command", "c"],
            "is no name for a provider",
        ),
        (
            &["add-mcp", "a/b", "--transport", "http", "--url", "u"],
            "is no name for a provider",
        ),
        (&["remove", "../credentials"], "is no name for a provider"),
        (&["remove", "nobody"], "Manifest not found: "),
        (
            &["info", "nobody"],
            "Provider 'nobody' not found. Run 'ati provider list'",
        ),
        (&["unload", "nobody"], "No cached provider 'nobody' found."),
        (&["load"], "OpenAPI mode requires a spec path or URL."),
    ] {
        let mut line = vec!["provider"];
        line.extend(args);
        let said = bad(dir, &line);
        assert!(said.contains(expected), "{expected}: {said}");
    }

    let list: Value = serde_json::from_str(&good(dir, &["provider", "list"])).unwrap();
    assert_eq!(
        list[1],
        json!({"name": "github", "type": "mcp/stdio", "description": "github MCP provider", "auth": "none", "tools": "auto", "internal": false, "source": "permanent"})
    );
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
fn a_provider_for_a_while() {
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
            "[provider]\nname = 'temp'\nbase_url = '{}'\n[[tools]]\nname = 'temp:other'",
            api.url()
        ),
    );
    assert!(run(dir, &["run", "temp:look"]).status.code() == Some(1));
    std::fs::remove_file(dir.join("manifests/mine.toml")).unwrap();
    good(dir, &["provider", "unload", "temp"]);
    assert_eq!(run(dir, &["run", "temp:look"]).status.code(), Some(1));

    // Its time is over: it is gone, and so is its file.
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
fn manifests_are_checked_one_by_one() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (fine, odd, wrong) = (
        dir.join("manifests/fine.toml"),
        dir.join("manifests/odd.toml"),
        dir.join("manifests/wrong.toml"),
    );
    write(
        &fine,
        "[provider]\nname = 'fine'\nbase_url = 'http://h'\nauth_type = 'bearer'\nauth_key_name = 'absent'\n[[tools]]\nname = 't'",
    );
    write(&odd, "[provider]\nname = 'odd'\nbase_ulr = 'http://h'");
    write(
        &wrong,
        "[provider]\nname = 'wrong'\nhandler = 'passthrough'\nbase_url = 'http://h'\negress = 'eu'\ndeny_path = ['/x']",
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
        json!({"file": fine, "ok": true, "problems": [], "warnings": []})
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

    // Editors check against the same fields: every shipped manifest fits, a typo doesn't.
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
    assert!(!validator.is_valid(&as_json("[provider]\nname = 'x'\nbase_ulr = 'y'")));
}

#[test]
fn a_token_says_what_it_is_worth() {
    let dir = tempfile::tempdir().unwrap();
    let none = good(dir.path(), &["auth", "status"]);
    assert!(
        none.starts_with(
            "No session token set (ATI_SESSION_TOKEN not configured)\nRunning in unrestricted mode"
        ),
        "{none}"
    );
    let secret = "ab".repeat(32);
    let token = shared(&secret)
        .issue(&ati::auth::token::Claims {
            scope: "tool:a tool:b:* skill:c help".into(),
            job_id: Some("j".into()),
            ..claims()
        })
        .unwrap();
    let status = |env: &[(&str, &str)], args: &[&str]| {
        let output = command(dir.path())
            .env("ATI_SESSION_TOKEN", &token)
            .envs(env.iter().copied())
            .args(args)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        stdout(&output)
    };
    let json: Value =
        serde_json::from_str(&status(&[("ATI_JWT_SECRET", &secret)], &["auth", "status"])).unwrap();
    assert_eq!(
        (
            &json["sub"],
            &json["tool_scopes"],
            &json["help_enabled"],
            &json["expired"],
            &json["signature_verified"]
        ),
        (
            &json!("agent-7"),
            &json!(["tool:a", "tool:b:*"]),
            &json!(true),
            &json!(false),
            &json!(true)
        )
    );
    let text = status(&[("ATI_OUTPUT", "text")], &["auth", "status"]);
    for line in [
        "Agent:    agent-7",
        "Job ID:   j",
        "Scopes:   2 tools, 1 skills, help enabled",
        "Verified: NO (public key not available)",
    ] {
        assert!(text.lines().any(|known| known == line), "{line}:\n{text}");
    }
    let other = status(
        &[("ATI_OUTPUT", "text"), ("ATI_JWT_SECRET", &"cd".repeat(32))],
        &["auth", "status"],
    );
    assert!(other.contains("Verified: NO (it does not hold)"), "{other}");
}

#[test]
fn shells_are_helped() {
    let dir = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let script = good(dir.path(), &["completions", shell]);
        assert!(script.contains("import-openapi"), "{shell}");
    }
}

/// The walk-through of a stock research, against a stand-in.
#[test]
fn three_calls_make_a_research() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests");
    let document = std::fs::read_to_string(root.join("specs/finnhub.json")).unwrap();
    let api = Upstream::answering(|received, stream| {
        let body = match received.target.split('?').next().unwrap() {
            "/quote" => json!({"c": 262.52, "d": -1.23, "pc": 263.75}),
            "/stock/insider-transactions" => {
                json!({"symbol": "AAPL", "data": [{"name": "COOK TIMOTHY D", "change": -59751}]})
            }
            _ => json!({"symbol": "AAPL", "companyNewsScore": 0.92}),
        }
        .to_string();
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
        std::io::Write::write_all(stream, (head + &body).as_bytes()).is_ok()
    });
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let file = dir.join("finnhub.json");
    write(
        &file,
        document.replace("https://finnhub.io/api/v1", &api.url()),
    );
    good(dir, &["init"]);
    good(dir, &["provider", "import-openapi", file.to_str().unwrap()]);
    let info: Value = serde_json::from_str(&good(dir, &["provider", "info", "finnhub"])).unwrap();
    assert_eq!(
        (&info["handler"], &info["auth_type"]),
        (&json!("openapi"), &json!("query"))
    );
    // The key by the command, or by the environment.
    let quote = command(dir)
        .env("ATI_KEY_FINNHUB_API_KEY", "planted-from-environment")
        .args(["run", "finnhub:quote", "--symbol", "AAPL"])
        .output()
        .unwrap();
    assert!(stdout(&quote).contains("262.52"), "{}", stderr(&quote));
    assert_eq!(
        api.last().target,
        "/quote?symbol=AAPL&token=planted-from-environment"
    );
    good(
        dir,
        &["key", "set", "finnhub_api_key", "planted-finnhub-key"],
    );
    let quote: Value = serde_json::from_str(&good(
        dir,
        &[
            "--output",
            "json",
            "run",
            "finnhub:quote",
            "--symbol",
            "AAPL",
        ],
    ))
    .unwrap();
    assert_eq!(quote["c"], 262.52);
    let insiders: Value = serde_json::from_str(&good(
        dir,
        &[
            "run",
            "finnhub:insider-transactions",
            "--symbol",
            "AAPL",
            "--from",
            "2025-01-01",
            "--to",
            "2025-12-31",
        ],
    ))
    .unwrap();
    assert_eq!(insiders["data"][0]["change"], -59751);
    assert_eq!(
        api.last().target,
        "/stock/insider-transactions?symbol=AAPL&from=2025-01-01&to=2025-12-31&token=planted-finnhub-key"
    );
    let text = good(
        dir,
        &[
            "--output",
            "text",
            "run",
            "finnhub:news-sentiment",
            "--symbol",
            "AAPL",
        ],
    );
    assert_eq!(text, "symbol: AAPL\ncompanyNewsScore: 0.92\n");
    let found: Value =
        serde_json::from_str(&good(dir, &["tool", "search", "insider activity"])).unwrap();
    assert_eq!(found[0]["tool"], "finnhub:insider-transactions");
    // Unchanged through the proxy.
    let proxy = Setup::new()
        .credentials(&json!({"finnhub_api_key": "planted-finnhub-key"}))
        .manifest(
            "finnhub",
            &std::fs::read_to_string(dir.join("manifests/finnhub.toml")).unwrap(),
        )
        .file(
            "specs/finnhub.json",
            std::fs::read(dir.join("specs/finnhub.json")).unwrap(),
        )
        .start();
    let sandbox = tempfile::tempdir().unwrap();
    let output = command(sandbox.path())
        .env("ATI_PROXY_URL", format!("http://{}", proxy.edge))
        .args(["run", "finnhub:quote", "--symbol", "AAPL"])
        .output()
        .unwrap();
    assert!(stdout(&output).contains("262.52"), "{}", stderr(&output));
    tells_nothing("the output", &stdout(&output));
}

#[test]
fn what_was_meant_for_a_while_stops_nobody_and_ends() {
    let api = Upstream::echo();
    let created = ati::telemetry::audit::timestamp(std::time::SystemTime::now());
    let document =
        json!({"openapi": "3.0.0", "paths": {"/x": {"get": {"operationId": "look"}}}}).to_string();
    let cached = |name: &str, more: Value| {
        let mut all = json!({"name": name, "provider_type": "openapi", "base_url": api.url(), "auth_type": "none", "created_at": created, "ttl_seconds": 3600, "spec_content": document});
        all.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        all.to_string()
    };
    let setup = Setup::new()
        .tools("fine", &api.url(), "", "[[tools]]\nname = 'fine'")
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
        )
        .file(
            "cache/providers/brief.json",
            cached("brief", json!({"ttl_seconds": 3})),
        );
    let dir = setup.path().to_path_buf();
    let listed = run(&dir, &["tool", "list"]);
    assert!(listed.status.success(), "{}", stderr(&listed));
    assert_eq!(stderr(&listed), "");
    let proxy = setup.start();
    assert_eq!(proxy.call(None, "fine", json!({})).status, 200);
    assert_eq!(proxy.call(None, "brief:look", json!({})).status, 200);
    crate::support::eventually("the end of a while", || {
        (proxy.call(None, "brief:look", json!({})).status == 404).then_some(())
    });
    // Managing needs no token.
    let output = command(&dir)
        .env("ATI_JWT_SECRET", "ab".repeat(32))
        .args(["provider", "list"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
}
