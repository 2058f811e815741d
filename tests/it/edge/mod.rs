//! `ati edge`: keyrings that are made, rotated and compared.

mod entry;
mod rotation;
mod sources;

use std::path::Path;
use std::process::Output;

use crate::support::ati::{ati, stderr, stdout, tells_nothing};

fn edge(dir: &Path, args: &[&str]) -> Output {
    let dir_text = dir.to_str().unwrap();
    let mut all = vec!["edge"];
    all.extend(args);
    all.extend(["--ati-dir", dir_text]);
    let output = ati(dir, &all);
    tells_nothing("stdout", &stdout(&output));
    tells_nothing("stderr", &stderr(&output));
    output
}

fn names(dir: &Path) -> Vec<String> {
    let output = edge(dir, &["keyring", "list"]);
    assert!(output.status.success(), "{}", stderr(&output));
    stdout(&output).lines().map(str::to_owned).collect()
}

/// Files in the folder that don't belong there, such as temporary ones.
fn litter(dir: &Path) -> Vec<String> {
    let known = [
        "op",
        "token",
        "keyring.enc",
        ".keyring-key",
        ".keyring.lock",
        "source.json",
        "manifests",
        "specs",
        "skills",
        "config.toml",
    ];
    let entries = std::fs::read_dir(dir)
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap());
    entries
        .filter(|name| !known.contains(&name.as_str()))
        .collect()
}
