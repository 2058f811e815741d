//! SkillATI: skills of a remote catalogue, on `/skillati`, on the command line and over MCP.

mod bucket;
mod command_line;
mod gcs;
mod mcp;
mod routes;
mod s3;

use std::path::Path;

use serde_json::Value;

use crate::support::ati::{Proxy, Setup};
use crate::support::http::{Client, Response};
use crate::support::tokens::{bearer, claims, key_pair};

/// Writes the files of a folder of skills.
fn folder(root: &Path, files: &[(&str, &[u8])]) {
    for (path, content) in files {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
}

/// Two skills: foo refers to bar, and bar is bound to a tool.
const FILES: &[(&str, &[u8])] = &[
    (
        "foo/SKILL.md",
        b"---\nname: foo\ndescription: Foo things\nwhen_to_use: For foo\n---\n\n\
          Run ${ATI_SKILL_DIR}/scripts/run.sh, read bar/references/r.md.\n",
    ),
    ("foo/scripts/run.sh", b"#!/bin/sh\n"),
    ("foo/assets/logo.bin", &[0xff, 0, 1]),
    ("foo/.hidden", b"x"),
    (
        "bar/SKILL.md",
        b"---\nname: bar\ndescription: Bar sanctions\n---\nBar\n",
    ),
    (
        "bar/skill.toml",
        b"[skill]\nname = 'bar'\ntools = ['web:look']\nkeywords = ['kyc']\n",
    ),
    ("bar/references/r.md", b"reference\n"),
    ("bar/references/deep/d.md", b"deep\n"),
];

/// A proxy with the skills above in a folder.
fn with_folder() -> Setup {
    let setup = Setup::new();
    folder(&setup.path().join("remote"), FILES);
    let url = format!("file://{}", setup.path().join("remote").display());
    setup.env("ATI_SKILL_REGISTRY", url)
}

fn get(proxy: &Proxy, path: &str) -> Response {
    Client::connect(proxy.edge).get(path)
}

/// The body of a 200.
fn json(proxy: &Proxy, path: &str) -> Value {
    let answer = get(proxy, path);
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    answer.json()
}

/// Status and text of an error.
fn refusal(proxy: &Proxy, path: &str) -> (u16, String) {
    let answer = get(proxy, path);
    let text = answer.json()["error"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    (answer.status, text)
}

fn names(catalogue: &Value) -> Vec<&str> {
    let skills = catalogue["skills"].as_array().unwrap().iter();
    skills
        .map(|skill| skill["name"].as_str().unwrap())
        .collect()
}

/// A started proxy that checks tokens, and a maker of tokens with these scopes.
fn with_tokens(setup: Setup) -> (Proxy, impl Fn(&str) -> String) {
    let (signer, public) = key_pair();
    let proxy = setup.jwt(&public).start();
    let token = move |scope: &str| {
        let scope = scope.to_owned();
        bearer(&signer, &ati::auth::token::Claims { scope, ..claims() })
    };
    (proxy, token)
}

fn get_as(proxy: &Proxy, token: &str, path: &str) -> Response {
    let headers = [("authorization", token)];
    Client::connect(proxy.edge).send("GET", path, &headers, b"")
}
