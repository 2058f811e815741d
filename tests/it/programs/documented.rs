//! The examples of the documentation, as they are written there.

use serde_json::json;

use super::{add_script, failed, here, printed, search_path, setup, through, with_program};
use crate::support::ati::{Setup, stderr, stdout};

/// Prints its words and the length of its token.
const GH: &str = r#"echo "words: $*; token: ${#GH_TOKEN}""#;

/// Prints its words, and the content and the mode of its credential file.
const GCLOUD: &str = r#"
    file=$GOOGLE_APPLICATION_CREDENTIALS
    printf '{"words": "%s", "length": %s, "mode": "%s", "folder": "%s"}' \
        "$*" "$(wc -c < "$file")" "$(stat -c %a "$file")" "$(basename "$(dirname "$file")")"
"#;

/// Adds the providers of the documentation with the documented commands.
fn with_documented_providers() -> Setup {
    let setup = setup();
    add_script(setup.path(), "gh", GH);
    add_script(setup.path(), "gcloud", GCLOUD);
    for command in [
        &[
            "add-cli",
            "gh",
            "--command",
            "gh",
            "--env",
            "GH_TOKEN=${github_token}",
        ][..],
        &[
            "add-cli",
            "gcloud",
            "--command",
            "gcloud",
            "--default-args",
            "--format",
            "--default-args",
            "json",
            "--env",
            "GOOGLE_APPLICATION_CREDENTIALS=@{gcp_service_account}",
            "--timeout",
            "90",
            "--description",
            "Google Cloud SDK",
            "--category",
            "cloud",
        ],
        &["add-cli", "myecho", "--command", "echo"],
    ] {
        let output = here(setup.path())
            .arg("provider")
            .args(command)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        assert_eq!(stdout(&output), "");
        let hint = stderr(&output).contains("remember: ati key set");
        assert_eq!(hint, command[1] != "myecho", "{}", stderr(&output));
    }
    for (name, value) in [
        ("github_token", "planted-gh-token"),
        ("gcp_service_account", "{\"planted-\": 1}"),
    ] {
        let set = here(setup.path())
            .args(["key", "set", name, value])
            .output();
        assert!(set.unwrap().status.success());
    }
    setup
}

#[test]
fn documented_examples_run_here_and_through_the_proxy() {
    let setup = with_documented_providers();
    let dir = setup.path().to_owned();
    let proxy = setup.start();
    for (words, expected) in [
        (
            &["gh", "--", "pr", "list", "--state", "open", "--limit", "5"][..],
            json!("words: pr list --state open --limit 5; token: 16"),
        ),
        (
            &["gh", "pr", "list", "--json", "number,title", "-J"],
            json!("words: pr list --json number,title -J; token: 16"),
        ),
        (&["gh", "--help"], json!("words: --help; token: 16")),
        (&["gh", "-h"], json!("words: -h; token: 16")),
        (
            &["gh", "api", "--output", "table", "--verbose", "-"],
            json!("words: api --output table --verbose -; token: 16"),
        ),
        (&["gh", "-"], json!("words: -; token: 16")),
        (&["gh", "--", "--", "x"], json!("words: -- x; token: 16")),
        (&["gh"], json!("words: ; token: 16")),
        (&["myecho", "--", "hello"], json!("hello")),
        (&["myecho", "hello"], json!("hello")),
        (
            &["gcloud", "--", "projects", "list"],
            json!({"words": "--format json projects list", "length": 15, "mode": "600", "folder": ".creds"}),
        ),
    ] {
        let verbose = words.contains(&"--verbose");
        for mut command in [here(&dir), through(&proxy)] {
            let output = command.arg("run").args(words).output().unwrap();
            assert!(output.status.success(), "{words:?}: {}", stderr(&output));
            assert!(verbose || stderr(&output).is_empty(), "{}", stderr(&output));
            let result: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
            assert_eq!(result, expected, "{words:?}");
        }
    }
    let known = printed(here(&dir).args(["tool", "list"]));
    let rows = known.as_array().unwrap();
    let mut scopes: Vec<_> = rows.iter().map(|row| &row["scope"]).collect();
    scopes.retain(|scope| !scope.as_str().unwrap().starts_with("tool:file_manager:"));
    assert_eq!(scopes, ["tool:gcloud", "tool:gh", "tool:myecho"]);
}

#[test]
fn google_workspace_manifest_runs_with_a_stand_in() {
    let setup = setup();
    add_script(
        setup.path(),
        "gws",
        r#"echo "$* $(cat "$GOOGLE_WORKSPACE_CLI_CREDENTIALS_FILE" | wc -c)""#,
    );
    let shipped = include_str!("../../../manifests/google-workspace.toml");
    let setup = setup.manifest("google-workspace", shipped);
    let dir = setup.path().to_owned();
    let run = [
        "run",
        "google_workspace",
        "--",
        "drive",
        "files",
        "list",
        "--params",
        "{\"pageSize\": 5}",
    ];
    let (output, text) = failed(here(&dir).args(run));
    assert_eq!(output.status.code(), Some(3));
    assert!(
        text.contains("Missing keyring key: google_workspace_credentials"),
        "{text}"
    );
    let proxy = setup
        .credentials(&json!({"google_workspace_credentials": "planted-{}"}))
        .start();
    let expected = json!("drive files list --params {\"pageSize\": 5} 10");
    assert_eq!(printed(here(&dir).args(run)), expected);
    assert_eq!(printed(through(&proxy).args(run)), expected);
}

#[test]
fn real_programs_give_json_or_text() {
    let mut setup = setup();
    for name in ["jq", "git", "curl"] {
        setup = with_program(setup, name, name, "");
    }
    let dir = setup.path().to_owned();
    let proxy = setup.start();
    let health = format!("http://{}/health", proxy.edge);
    for mut command in [here(&dir), through(&proxy)] {
        let filter = ["run", "jq", "-n", "--arg", "a", "$(id)", "{a: $a, n: 1.10}"];
        let made = printed(command.args(filter));
        assert_eq!(made["a"], "$(id)");
    }
    for mut command in [here(&dir), through(&proxy)] {
        let version = printed(command.args(["run", "git", "--version"]));
        assert!(version.as_str().unwrap().starts_with("git version"));
    }
    for mut command in [here(&dir), through(&proxy)] {
        let health = printed(command.args(["run", "curl", "--", "-s", "--output", "-", &health]));
        assert_eq!(health["status"], "ok");
    }
    let output = here(&dir)
        .args(["run", "git", "--no-such-option"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("CLI exited with code 129: "),
        "{}",
        stderr(&output)
    );
}

#[test]
fn program_is_found_in_the_path_of_its_own_variables() {
    let setup = Setup::new();
    add_script(setup.path(), "own", "echo found");
    let path = search_path(setup.path());
    let setup = with_program(
        setup,
        "own",
        "own",
        &format!("cli_env = {{ PATH = '{path}' }}"),
    );
    let proxy = setup.start();
    assert_eq!(super::result(&proxy, "own", &[]), "found");
}
