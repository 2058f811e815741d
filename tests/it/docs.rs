//! The documentation agrees with the code, and every shipped file loads.

use std::path::Path;

use crate::support::ati::{ati, command, stderr, stdout, write};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn reference_pages_are_what_the_code_says() {
    let dir = tempfile::tempdir().unwrap();
    let output = ati(dir.path(), &["reference", dir.path().to_str().unwrap()]);
    assert!(output.status.success(), "{}", stderr(&output));
    for page in [
        "commands.md",
        "environment.md",
        "metrics.md",
        "errors.md",
        "manifest.md",
    ] {
        let made = std::fs::read_to_string(dir.path().join(page)).unwrap();
        let kept =
            std::fs::read_to_string(root().join("docs/reference").join(page)).unwrap_or_default();
        assert!(
            made == kept,
            "docs/reference/{page} is stale: run `make docs`"
        );
    }
}

#[test]
fn links_between_pages_lead_somewhere() {
    let mut pages = Vec::new();
    for folder in [
        ".",
        "docs",
        "docs/reference",
        "caddy",
        "bench",
        "keyrings",
        "examples",
        "ati-client/python",
    ] {
        let entries = std::fs::read_dir(root().join(folder));
        pages.extend(
            entries
                .into_iter()
                .flatten()
                .map(|entry| entry.unwrap().path())
                .filter(|path| path.extension().is_some_and(|ext| ext == "md")),
        );
    }
    for page in pages {
        let text = std::fs::read_to_string(&page).unwrap();
        for target in text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next())
        {
            let file = target.split('#').next().unwrap();
            if file.is_empty() || file.contains("://") {
                continue;
            }
            assert!(
                page.parent().unwrap().join(file).exists(),
                "{}: {target}",
                page.display()
            );
        }
    }
}

#[test]
fn the_shipped_manifests_load() {
    let dir = tempfile::tempdir().unwrap();
    let keys = [
        "example_api_key",
        "finnhub_api_key",
        "cerebras_api_key",
        "github_token",
        "google_workspace_credentials",
        "fal_api_key",
        "sandbox_signing_shared_secret",
    ];
    let keys: serde_json::Map<String, serde_json::Value> = keys
        .map(|key| (key.to_owned(), "x".into()))
        .into_iter()
        .collect();
    write(
        &dir.path().join("credentials"),
        serde_json::Value::Object(keys).to_string(),
    );
    for (from, to) in [("manifests", "manifests"), ("manifests/specs", "specs")] {
        for entry in std::fs::read_dir(root().join(from)).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                let copy = dir.path().join(to).join(path.file_name().unwrap());
                write(&copy, std::fs::read(&path).unwrap());
            }
        }
    }
    let output = command(dir.path())
        .args([
            "check",
            "--enable-passthrough",
            "--sig-verify-mode",
            "enforce",
        ])
        .env("ATI_JWT_SECRET", "ab".repeat(32))
        .output()
        .unwrap();
    let report: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert!(output.status.success(), "{report}");
    assert_eq!(report["loaded"]["routes"], 1);
    assert_eq!(report["loaded"]["tools"], 24);
    // A program that may be there or not, and nothing else.
    let warnings = report["warnings"].as_array().unwrap();
    for warning in warnings {
        let message = warning["message"].as_str().unwrap();
        let later = message.contains("is not part of this build");
        assert!(later || message.starts_with("'gws': "), "{warning}");
    }
    assert_eq!(warnings.len(), 1, "{warnings:?}");
}

#[test]
fn the_shipped_conf_loads() {
    let dir = tempfile::tempdir().unwrap();
    let conf = root().join("conf/ati.toml");
    let args = ["check", "--strict", "--conf", conf.to_str().unwrap()];
    let output = ati(dir.path(), &args);
    assert!(
        output.status.success(),
        "{}{}",
        stdout(&output),
        stderr(&output)
    );
}
