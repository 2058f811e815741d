//! `ati run` and `ati tool`.

mod arguments;
mod commands;
mod failures;
mod lossless;
mod output;
mod over_tls;
mod rates;
mod suggestions;
mod usage;

use std::path::Path;
use std::process::Output;

use serde_json::{Value, json};

use crate::support::ati::{command, stderr, stdout, write};

const TOOLS: &str = r#"
    [[tools]]
    name = 'shop:find'
    description = 'Find things'
    endpoint = '/find'
    tags = ['search']
    hint = 'be brief'
    examples = ['ati run shop:find --q hat']
    [tools.input_schema]
    type = 'object'
    required = ['q']
    [tools.input_schema.properties.q]
    type = 'string'
    [tools.input_schema.properties.maxResults]
    type = 'integer'

    [[tools]]
    name = 'shop:buy'
    description = 'Buy things'
    endpoint = '/buy'
    method = 'POST'
"#;

fn manifest(base_url: &str) -> String {
    format!(
        r#"
            [provider]
            name = 'shop'
            description = 'A shop'
            category = 'retail'
            base_url = '{base_url}'
            auth_type = 'bearer'
            auth_key_name = 'api'
            {TOOLS}
        "#
    )
}

fn here(dir: &Path, env: &[(&str, &str)], args: &[&str]) -> Output {
    command(dir)
        .envs(env.iter().copied())
        .args(args)
        .output()
        .unwrap()
}

fn result(output: &Output) -> Value {
    assert!(output.status.success(), "{}", stderr(output));
    assert_eq!(stderr(output), "", "silent on success");
    serde_json::from_str(&stdout(output)).unwrap()
}

fn failure(output: &Output) -> (i32, String, String) {
    assert_eq!(stdout(output), "");
    let text = stderr(output);
    let line = text
        .lines()
        .find(|line| line.starts_with("{\"error\""))
        .unwrap_or_else(|| panic!("{text}"));
    let error = &serde_json::from_str::<Value>(line).unwrap()["error"];
    assert_eq!(error["exit_code"], output.status.code().unwrap());
    let text = |key: &str| error[key].as_str().unwrap().to_owned();
    (output.status.code().unwrap(), text("code"), text("message"))
}

/// A folder with the shop's manifest and its key.
fn folder(base_url: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    write(&dir.path().join("manifests/shop.toml"), manifest(base_url));
    write(
        &dir.path().join("credentials"),
        json!({"api": "planted-key-1234"}).to_string(),
    );
    dir
}
