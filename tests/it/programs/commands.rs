//! Programs in `ati tool`, `ati provider`, `ati check` and `ati doctor`.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{here, printed, setup, through, with_program, with_script};
use crate::support::ati::{stderr, stdout};

const HELP: &str = r#"
    case "$*" in
        --help) printf 'Usage: tool [options]\n\033[1mbold\033[0m %s\n' "${TOKEN-none}${PLAIN-none}";;
        *) exit 1;;
    esac
"#;

#[test]
fn info_shows_the_help_of_a_program() {
    let env = "cli_env = { TOKEN = '${absent}', PLAIN = 'x' }";
    let setup = with_script(setup(), "tool", HELP, env);
    let setup = with_script(
        setup,
        "words",
        "[ \"$1\" = help ] && yes | head -5000; [ \"$1\" = help ]",
        "",
    );
    let setup = with_script(setup, "hangs", "cat; sleep 600", "");
    let setup = with_program(setup, "missing", "no-such-program", "");
    let dir = setup.path().to_owned();
    let info = |name: &str| printed(here(&dir).args(["tool", "info", name]));
    let told = info("tool");
    // No credential is needed, and none is given.
    assert_eq!(told["help_text"], "Usage: tool [options]\nbold nonex");
    for (key, value) in [
        ("handler", json!("cli")),
        ("input_schema", Value::Null),
        ("scope", json!("tool:tool")),
        ("base_url", json!("")),
        ("description", json!("The program tool")),
    ] {
        assert_eq!(told[key], value, "{key}");
    }
    assert_eq!(info("words")["help_text"].as_str().unwrap().len(), 3000 - 1);
    let begun = Instant::now();
    assert!(info("hangs").get("help_text").is_none());
    assert!(info("missing").get("help_text").is_none());
    assert!(begun.elapsed() < Duration::from_secs(20));
    let text = here(&dir)
        .args(["--output", "text", "tool", "info", "tool"])
        .output()
        .unwrap();
    let text = stdout(&text);
    for line in [
        "Tool:        tool\n",
        "Handler:     cli\n",
        "Command:     tool\n",
        "\nCLI Usage (from --help):\nUsage: tool [options]\n",
        "\nUsage:\n  ati run tool -- <args>...\n",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(!text.contains("Endpoint:"), "{text}");
    // A proxy tells its own: it starts no program for that.
    let proxy = setup.start();
    let told = printed(through(&proxy).args(["tool", "info", "tool"]));
    assert_eq!(told["handler"], "cli");
    assert!(told.get("help_text").is_none());
}

#[test]
fn providers_that_are_programs_are_shown_as_such() {
    let more = "cli_default_args = ['--format', 'json']\ncli_timeout_secs = 90\ncategory = 'cloud'";
    let setup = with_program(setup(), "gcloud", "gcloud", more);
    let dir = setup.path();
    let list = printed(here(dir).args(["provider", "list"]));
    assert_eq!(
        (&list[0]["type"], &list[0]["tools"], &list[0]["auth"]),
        (&json!("cli"), &json!("1"), &json!("none"))
    );
    let info = printed(here(dir).args(["provider", "info", "gcloud"]));
    for (key, value) in [
        ("handler", json!("cli")),
        ("cli_command", json!("gcloud")),
        ("cli_default_args", json!(["--format", "json"])),
        ("cli_timeout_secs", json!(90)),
        ("category", json!("cloud")),
    ] {
        assert_eq!(info[key], value, "{key}");
    }
    let file = dir.join("manifests/gcloud.toml");
    let valid = here(dir)
        .args(["provider", "validate", "--strict"])
        .arg(&file)
        .output()
        .unwrap();
    assert!(valid.status.success(), "{}", stdout(&valid));
    std::fs::write(
        &file,
        "[provider]\nname = 'x'\nhandler = 'cli'\ncli_command = 'x'\ncli_timeout_secs = 0",
    )
    .unwrap();
    let invalid = here(dir)
        .args(["provider", "validate"])
        .arg(&file)
        .output()
        .unwrap();
    assert_eq!(invalid.status.code(), Some(2));
    assert!(stdout(&invalid).contains("cli_timeout_secs: it has to be at least 1"));
}

#[test]
fn check_finds_a_program_that_is_missing() {
    let setup = with_program(setup(), "here", "sh", "");
    let good = here(setup.path())
        .args(["check", "--strict"])
        .output()
        .unwrap();
    let before = stdout(&good);
    assert!(!before.contains("cli_command"), "{before}");
    let setup = with_program(setup, "gone", "no-such-program", "cli_cwd = '/nonexistent'");
    for (args, code) in [(&["check"][..], 0), (&["check", "--strict"], 2)] {
        let output = here(setup.path()).args(args).output().unwrap();
        let text = stdout(&output);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{text} {}",
            stderr(&output)
        );
        let report: Value = serde_json::from_str(&text).unwrap();
        let warnings: Vec<&Value> = report["warnings"].as_array().unwrap().iter().collect();
        let about =
            |key: &str| warnings.iter().find(|it| it["key"] == key).unwrap()["message"].clone();
        assert_eq!(
            about("provider.cli_command"),
            "'no-such-program': no such program in PATH"
        );
        assert_eq!(about("provider.cli_cwd"), "'/nonexistent': no such folder");
    }
    let doctor = here(setup.path())
        .args(["doctor", "--offline"])
        .output()
        .unwrap();
    let text = stdout(&doctor);
    assert!(
        text.contains("'gone', cli_command: 'no-such-program'"),
        "{text}"
    );
}

#[test]
fn manifest_of_a_program_loads_without_a_warning() {
    let setup = with_program(setup(), "good", "sh", "cli_env = { A = 'x' }");
    let proxy = setup.start();
    assert!(
        !proxy.log.text().contains("good.toml"),
        "{}",
        proxy.log.text()
    );
    let listed = proxy.client().get("/tools").json();
    assert_eq!(listed[0]["name"], "good");
    assert_eq!(
        (&listed[0]["method"], &listed[0]["handler"]),
        (&json!("Get"), &json!("cli"))
    );
}
