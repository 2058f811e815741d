//! The lines of docs/admission.md that sign a request, run as they stand there.

use std::path::Path;
use std::process::Command;

use super::{HEX, setup};
use crate::support::ati::{BINARY, stdout};

/// The blocks of code in this language that sign a request.
fn blocks(language: &str) -> Vec<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/admission.md");
    let page = std::fs::read_to_string(page).unwrap();
    let begin = format!("```{language}\n");
    let blocks: Vec<String> = page
        .split(&begin)
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap().to_owned())
        .filter(|code| code.contains("/tools"))
        .collect();
    assert!(!blocks.is_empty(), "docs/admission.md has no {language}");
    blocks
}

/// Writes each block to a file with this name, and runs `program` on it. It must print the tools
/// of an edge in enforce mode.
fn runs(language: &str, program: &[&str], file: &str) {
    let (_api, edge) = setup("enforce");
    let proxy = edge.start();
    for block in blocks(language) {
        let dir = tempfile::tempdir().unwrap();
        let code = block.replace("127.0.0.1:8090", &proxy.edge.to_string());
        assert_ne!(
            code, block,
            "the block doesn't name the edge's usual address"
        );
        let path = dir.path().join(file);
        std::fs::write(&path, code).unwrap();
        let folder = Path::new(BINARY).parent().unwrap().to_str().unwrap();
        let output = Command::new(program[0])
            .args(&program[1..])
            .arg(&path)
            .env(
                "PATH",
                format!("{folder}:{}", std::env::var("PATH").unwrap()),
            )
            .env("ATI_SANDBOX_SECRET", HEX)
            .env("ATI_DIR", dir.path())
            .env("GOCACHE", dir.path().join("cache"))
            .env("GOFLAGS", "-mod=mod")
            .output()
            .unwrap_or_else(|e| panic!("{}: {e}", program[0]));
        let text = stdout(&output);
        assert!(text.contains("shop:find"), "{block}\n{text}\n{output:?}");
    }
}

#[test]
fn lines_for_the_shell_sign_a_request() {
    assert!(blocks("sh").len() >= 2, "with ati, and with openssl");
    runs("sh", &["sh", "-eu"], "sign.sh");
}

#[test]
fn lines_for_python_sign_a_request() {
    runs("python", &["python3"], "sign.py");
}

#[test]
fn lines_for_node_sign_a_request() {
    runs("js", &["node"], "sign.mjs");
}

#[test]
#[ignore = "Go has hundreds of megabytes; make test-full installs it"]
fn lines_for_go_sign_a_request() {
    runs("go", &["go", "run"], "sign.go");
}
