//! From an import to a call, `ati auth status`, shell completions.

use std::io::Write;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::good;
use crate::support::ati::{Setup, command, stderr, stdout, tells_nothing, write};
use crate::support::tokens::{claims, shared};
use crate::support::upstream::Upstream;

#[test]
fn auth_status_describes_the_session_token() {
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
            &json!(2),
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
fn completions_exist_for_each_shell() {
    let dir = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let script = good(dir.path(), &["completions", shell]);
        assert!(script.contains("import-openapi"), "{shell}");
    }
}

/// A stand-in for the API of Finnhub.
fn finnhub() -> Upstream {
    Upstream::answering(|received, stream| {
        let body = match received.target.split('?').next().unwrap() {
            "/quote" => json!({"c": 262.52, "d": -1.23, "pc": 263.75}),
            "/stock/insider-transactions" => {
                json!({"symbol": "AAPL", "data": [{"name": "COOK TIMOTHY D", "change": -59751}]})
            }
            _ => json!({"symbol": "AAPL", "companyNewsScore": 0.92}),
        }
        .to_string();
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
        stream.write_all((head + &body).as_bytes()).is_ok()
    })
}

/// A folder into which the shipped document of Finnhub is imported, with this API behind it.
fn imported(api: &Upstream) -> TempDir {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests");
    let document = std::fs::read_to_string(root.join("specs/finnhub.json")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let file = dir.join("finnhub.json");
    write(
        &file,
        document.replace("https://finnhub.io/api/v1", &api.url()),
    );
    good(dir, &["init"]);
    good(dir, &["provider", "import-openapi", file.to_str().unwrap()]);
    folder
}

const QUOTE: [&str; 4] = ["run", "finnhub:quote", "--symbol", "AAPL"];

#[test]
fn imported_document_serves_calls_with_a_key_of_either_source() {
    let api = finnhub();
    let folder = imported(&api);
    let dir = folder.path();
    let info: Value = serde_json::from_str(&good(dir, &["provider", "info", "finnhub"])).unwrap();
    assert_eq!(
        (&info["handler"], &info["auth_type"]),
        (&json!("openapi"), &json!("query"))
    );
    let quote = command(dir)
        .env("ATI_KEY_FINNHUB_API_KEY", "planted-from-environment")
        .args(QUOTE)
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
    let json_quote = [&["--output", "json"], &QUOTE[..]].concat();
    let quote: Value = serde_json::from_str(&good(dir, &json_quote)).unwrap();
    assert_eq!(quote["c"], 262.52);
    let line = "run finnhub:insider-transactions --symbol AAPL --from 2025-01-01 --to 2025-12-31";
    let words: Vec<&str> = line.split(' ').collect();
    let insiders: Value = serde_json::from_str(&good(dir, &words)).unwrap();
    assert_eq!(insiders["data"][0]["change"], -59751);
    assert_eq!(
        api.last().target,
        "/stock/insider-transactions?symbol=AAPL&from=2025-01-01&to=2025-12-31&token=planted-finnhub-key"
    );
    let line = "--output text run finnhub:news-sentiment --symbol AAPL";
    let words: Vec<&str> = line.split(' ').collect();
    assert_eq!(good(dir, &words), "symbol: AAPL\ncompanyNewsScore: 0.92\n");
    let found: Value =
        serde_json::from_str(&good(dir, &["tool", "search", "insider activity"])).unwrap();
    assert_eq!(found[0]["tool"], "finnhub:insider-transactions");
}

#[test]
fn imported_manifest_serves_the_same_calls_through_the_proxy() {
    let api = finnhub();
    let folder = imported(&api);
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    let proxy = Setup::new()
        .credentials(&json!({"finnhub_api_key": "planted-finnhub-key"}))
        .manifest("finnhub", &read("manifests/finnhub.toml"))
        .file("specs/finnhub.json", read("specs/finnhub.json"))
        .start();
    let sandbox = tempfile::tempdir().unwrap();
    let output = command(sandbox.path())
        .env("ATI_PROXY_URL", format!("http://{}", proxy.edge))
        .args(QUOTE)
        .output()
        .unwrap();
    assert!(stdout(&output).contains("262.52"), "{}", stderr(&output));
    tells_nothing("the output", &stdout(&output));
}
