//! `ati assist`, `ati plan` and `POST /help`, against a stand-in for language models.

mod bad;
mod execute;
mod generate;
mod here;
mod llm;
mod plan;
mod proxy;
mod resume;
mod terminal;
mod workflow;

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::support::ati::{command, stderr, stdout, write};

pub const QUOTE: &str = "Use these:\n\n```bash\nati run market:quote --symbol AAPL\n\
                         ati run market:insiders --symbol AAPL\n```\n";

/// Tools of two providers, and the language model of `_llm.toml` at `llm`.
pub fn folder(llm: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    market(dir.path(), "http://127.0.0.1:1");
    manifest(dir.path(), "_llm", &llm_manifest(llm));
    write(
        &dir.path().join("credentials"),
        r#"{"cerebras_api_key": "planted-cerebras", "market_key": "planted-market"}"#,
    );
    dir
}

pub fn llm_manifest(base_url: &str) -> String {
    format!(
        r#"
            [provider]
            name = "_llm"
            base_url = "{base_url}/v1"
            auth_type = "bearer"
            auth_key_name = "cerebras_api_key"
            internal = true
            [[tools]]
            name = "_chat_completion"
            endpoint = "/chat/completions"
            method = "POST"
        "#
    )
}

pub fn manifest(dir: &Path, name: &str, text: &str) {
    write(&dir.join(format!("manifests/{name}.toml")), text);
}

pub fn market(dir: &Path, base_url: &str) {
    manifest(dir, "market", &market_manifest(base_url));
    let vault = r#"
        [provider]
        name = "vault"
        base_url = "http://127.0.0.1:1"
        [[tools]]
        name = "vault:open"
        description = "Opens the vault of Gringotts"
    "#;
    manifest(dir, "vault", vault);
}

pub fn market_manifest(base_url: &str) -> String {
    format!(
        r#"
            [provider]
            name = "market"
            category = "finance"
            base_url = "{base_url}"
            auth_type = "bearer"
            auth_key_name = "market_key"
            [[tools]]
            name = "market:quote"
            description = "The price of a share"
            tags = ["stock"]
            endpoint = "/quote"
            [tools.input_schema]
            type = "object"
            required = ["symbol"]
            properties = {{ symbol = {{ type = "string", description = "Ticker" }} }}
            [[tools]]
            name = "market:insiders"
            description = "What insiders bought and sold"
            endpoint = "/insiders"
            [tools.input_schema]
            type = "object"
            required = ["symbol"]
            properties = {{ symbol = {{ type = "string" }} }}
            [[tools]]
            name = "market:order"
            description = "Buys shares"
            endpoint = "/order"
            method = "POST"
            [tools.input_schema]
            type = "object"
            required = ["symbol"]
            properties = {{ symbol = {{ type = "string" }}, count = {{ type = "integer" }}, note = {{ type = "string" }} }}
        "#
    )
}

pub fn run(command: &mut Command, args: &[&str]) -> Output {
    command.args(args).output().unwrap()
}

pub fn assist(dir: &Path, args: &[&str]) -> Output {
    run(&mut command(dir), &[&["assist"], args].concat())
}

/// The one line of JSON that a question gives.
pub fn answer(output: &Output) -> Value {
    assert!(output.status.success(), "{}", stderr(output));
    let text = stdout(output);
    assert_eq!(text.lines().count(), 1, "{text}");
    serde_json::from_str(&text).unwrap()
}

pub fn code(output: &Output) -> Option<i32> {
    output.status.code()
}
