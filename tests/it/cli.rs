//! The commands, as a person or a script uses them.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::Value;

use crate::support::ati::{ati, command, stderr, stdout, write};

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn version_is_that_of_the_package() {
    let dir = folder();
    let expected = format!("ati {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(stdout(&ati(dir.path(), &["version"])), expected);
    assert_eq!(stdout(&ati(dir.path(), &["--version"])), expected);
}

#[test]
fn usage_errors_exit_with_2() {
    let dir = folder();
    for args in [
        &["nonsense"][..],
        &["token", "issue"],
        &["--output", "xml", "version"],
    ] {
        assert_eq!(ati(dir.path(), args).status.code(), Some(2), "{args:?}");
    }
    let output = command(dir.path())
        .env("ATI_OUTPUT", "xml")
        .arg("version")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn key_command_sets_lists_and_removes_keys() {
    let dir = folder();
    let empty = stdout(&ati(dir.path(), &["key", "list"]));
    assert_eq!(
        empty,
        "No keys stored. Run `ati key set <name> <value>` to add one.\n"
    );
    for (name, value) in [("b_key", "sk-1234567890cdef"), ("a_key", "abc")] {
        let output = ati(dir.path(), &["key", "set", name, value]);
        assert!(output.status.success());
        assert_eq!(stdout(&output), "");
        assert!(stderr(&output).contains("saved key"));
        assert!(!stderr(&output).contains(value));
    }
    let file = dir.path().join("credentials");
    assert_eq!(mode(&file), 0o600);
    assert_eq!(
        std::fs::read_to_string(&file).unwrap(),
        "{\n  \"a_key\": \"abc\",\n  \"b_key\": \"sk-1234567890cdef\"\n}\n"
    );
    let listed = stdout(&ati(dir.path(), &["key", "list"]));
    assert_eq!(
        listed,
        format!("{:<30} ***\n{:<30} sk-1...cdef\n", "a_key", "b_key")
    );
    assert!(stderr(&ati(dir.path(), &["key", "remove", "a_key"])).contains("removed key"));
    let missing = ati(dir.path(), &["key", "remove", "a_key"]);
    assert_eq!(missing.status.code(), Some(1));
    assert_eq!(stdout(&missing), "");
    assert!(
        stderr(&missing).contains("ati command failed: Key 'a_key' not found."),
        "{}",
        stderr(&missing)
    );
}

#[test]
fn key_value_of_a_dash_is_read_from_stdin() {
    use std::io::Write;
    let dir = folder();
    let mut child = command(dir.path())
        .args(["key", "set", "piped", "-"])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(b"from-stdin\n")
        .unwrap();
    assert!(child.wait().unwrap().success());
    let text = std::fs::read_to_string(dir.path().join("credentials")).unwrap();
    assert_eq!(json(&text)["piped"], "from-stdin");
}

#[test]
fn key_set_on_a_broken_credentials_file_fails_and_keeps_it() {
    let dir = folder();
    let file = dir.path().join("credentials");
    write(&file, r#"{"k": "s3cret""#);
    let output = ati(dir.path(), &["key", "set", "x", "y"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(stdout(&output), "");
    let text = stderr(&output);
    assert!(
        text.contains("ati command failed") && !text.contains("s3cret"),
        "{text}"
    );
    let error = json(text.lines().last().unwrap());
    assert_eq!(error["error"]["code"], "input.invalid_value");
    assert_eq!(error["error"]["exit_code"], 2);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), r#"{"k": "s3cret""#);
}

#[test]
fn token_command_issues_inspects_and_validates() {
    let dir = folder();
    let secret = stdout(&ati(
        dir.path(),
        &["token", "keygen", "--algorithm", "HS256"],
    ));
    let secret = secret.trim();
    assert_eq!(secret.len(), 64);
    let issued = ati(
        dir.path(),
        &[
            "token",
            "issue",
            "--sub",
            "sandbox:job-42",
            "--scope",
            "tool:github:* help",
            "--expires",
            "3h",
            "--secret",
            secret,
            "--rate",
            "tool:github:*=10/hour",
            "--iss",
            "me",
        ],
    );
    assert!(issued.status.success(), "{}", stderr(&issued));
    let token = stdout(&issued).trim().to_owned();
    let claims = json(&stdout(&ati(dir.path(), &["token", "inspect", &token])));
    assert_eq!(claims["sub"], "sandbox:job-42");
    assert_eq!(claims["aud"], "ati-proxy");
    assert_eq!(claims["iss"], "me");
    assert_eq!(
        claims["ati"],
        serde_json::json!({"v": 1, "rate": {"tool:github:*": "10/hour"}})
    );
    assert_eq!(
        claims["scopes"],
        serde_json::json!(["tool:github:*", "help"])
    );
    assert_eq!(
        claims["exp"].as_u64().unwrap() - claims["iat"].as_u64().unwrap(),
        3 * 3600
    );
    assert_eq!(claims["jti"].as_str().unwrap().len(), 36);

    let valid = ati(
        dir.path(),
        &["token", "validate", &token, "--secret", secret],
    );
    assert!(valid.status.success());
    assert_eq!(stdout(&valid), "");
    assert!(stderr(&valid).contains("VALID"));
    let other = "00".repeat(32);
    let invalid = ati(
        dir.path(),
        &["token", "validate", &token, "--secret", &other],
    );
    assert_eq!(invalid.status.code(), Some(1));
    assert!(
        stderr(&invalid).contains("INVALID — "),
        "{}",
        stderr(&invalid)
    );
    let audience = command(dir.path())
        .args(["token", "validate", &token, "--secret", secret])
        .env("ATI_JWT_ACCEPTED_AUDIENCES", "other")
        .output()
        .unwrap();
    assert_eq!(audience.status.code(), Some(1));
}

#[test]
fn token_issue_with_only_a_private_key_signs() {
    let dir = folder();
    let keys = stdout(&ati(dir.path(), &["token", "keygen"]));
    let at = keys.find("-----BEGIN PUBLIC KEY-----").unwrap();
    let (private, public) = (
        dir.path().join("private.pem"),
        dir.path().join("public.pem"),
    );
    write(&private, &keys[..at]);
    write(&public, &keys[at..]);
    let issue = ["token", "issue", "--sub", "a", "--scope", "*"];
    let by_flag = ati(
        dir.path(),
        &[&issue[..], &["--key", private.to_str().unwrap()]].concat(),
    );
    let by_env = command(dir.path())
        .args(issue)
        .env("ATI_JWT_PRIVATE_KEY", &private)
        .output()
        .unwrap();
    for output in [by_flag, by_env] {
        let token = stdout(&output).trim().to_owned();
        let valid = ati(
            dir.path(),
            &[
                "token",
                "validate",
                &token,
                "--key",
                public.to_str().unwrap(),
            ],
        );
        assert!(valid.status.success(), "{}", stderr(&valid));
    }
    let wrong = ati(
        dir.path(),
        &[&issue[..], &["--key", public.to_str().unwrap()]].concat(),
    );
    assert_eq!(wrong.status.code(), Some(2));
    assert!(stderr(&wrong).contains("public half"));
}

#[test]
fn token_issue_without_a_key_or_with_a_bad_rate_is_refused() {
    let dir = folder();
    let issue = ["token", "issue", "--sub", "a", "--scope", "*"];
    let output = ati(dir.path(), &issue);
    assert_eq!(output.status.code(), Some(3));
    for word in ["--key", "--secret", "ATI_JWT_PRIVATE_KEY", "ATI_JWT_SECRET"] {
        assert!(stderr(&output).contains(word), "{word}");
    }
    let empty = command(dir.path())
        .args(issue)
        .env("ATI_JWT_SECRET", "")
        .output()
        .unwrap();
    assert_eq!(empty.status.code(), Some(2));
    let rate = ati(
        dir.path(),
        &[&issue[..], &["--secret", "00", "--rate", "tool:x=lots"]].concat(),
    );
    assert_eq!(rate.status.code(), Some(2));
    let idle = ["--secret", "00", "--rate", "github:search=5/hour"];
    let idle = ati(dir.path(), &[&issue[..], &idle].concat());
    assert_eq!(idle.status.code(), Some(2));
    assert!(stderr(&idle).contains("'github:search' can match no tool"));
}

#[test]
fn init_makes_a_folder_that_serves() {
    let dir = folder();
    assert!(ati(dir.path(), &["init"]).status.success());
    for name in ["manifests", "specs", "skills"] {
        assert!(dir.path().join(name).is_dir());
    }
    let config = dir.path().join("config.toml");
    assert!(
        std::fs::read_to_string(&config)
            .unwrap()
            .contains("# port = 8090")
    );

    let output = ati(dir.path(), &["init", "--proxy"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(stdout(&output), "");
    assert_eq!(mode(&config), 0o600);
    let first = std::fs::read_to_string(&config).unwrap();
    let table: toml::Table = first.parse().unwrap();
    assert_eq!(table["proxy"]["jwt"]["algorithm"].as_str(), Some("HS256"));
    assert_eq!(table["proxy"]["jwt"]["secret"].as_str().unwrap().len(), 64);

    // The key in use stays, unless --force is given.
    assert!(ati(dir.path(), &["init", "--proxy"]).status.success());
    assert!(
        ati(dir.path(), &["init", "--proxy", "--es256"])
            .status
            .success()
    );
    assert_eq!(std::fs::read_to_string(&config).unwrap(), first);
    assert!(
        ati(dir.path(), &["init", "--proxy", "--es256", "--force"])
            .status
            .success()
    );
    assert_eq!(
        std::fs::read_to_string(dir.path().join("config.toml.bak")).unwrap(),
        first
    );
    assert_eq!(mode(&dir.path().join("jwt-private.pem")), 0o600);

    // The written config is enough to issue and to verify tokens.
    let issued = ati(
        dir.path(),
        &["token", "issue", "--sub", "a", "--scope", "*"],
    );
    let token = stdout(&issued).trim().to_owned();
    assert!(
        ati(dir.path(), &["token", "validate", &token])
            .status
            .success()
    );
    let checked = json(&stdout(&ati(dir.path(), &["check"])));
    assert_eq!(checked["loaded"]["auth"], "jwt");
}

#[test]
fn init_does_not_overwrite_a_handwritten_config() {
    let dir = folder();
    let config = dir.path().join("config.toml");
    write(&config, "[mine]\nx = 1\n");
    let output = ati(dir.path(), &["init", "--proxy"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("--force"));
    assert_eq!(std::fs::read_to_string(&config).unwrap(), "[mine]\nx = 1\n");
}

#[test]
fn check_reports_all_problems_of_all_files_at_once() {
    let dir = folder();
    let conf = dir.path().join("conf.toml");
    write(
        &conf,
        r#"
            [server]
            prot = 1
            [signature]
            mode = "loud"
        "#,
    );
    let output = ati(dir.path(), &["check", "--conf", conf.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    let report = json(&stdout(&output));
    let keys: Vec<&str> = report["problems"]
        .as_array()
        .unwrap()
        .iter()
        .map(|problem| problem["key"].as_str().unwrap())
        .collect();
    assert_eq!(keys, ["server.prot", "signature.mode"]);
    write(&dir.path().join("manifests/z.toml"), "[provider");
    let both = stdout(&ati(
        dir.path(),
        &["check", "--conf", conf.to_str().unwrap()],
    ));
    assert!(
        both.contains("server.prot") && both.contains("z.toml"),
        "{both}"
    );
    std::fs::remove_file(dir.path().join("manifests/z.toml")).unwrap();
    assert_eq!(report["problems"][0]["file"], conf.to_str().unwrap());

    // Problems of several files are reported together.
    write(&dir.path().join("manifests/a.toml"), "[provider");
    write(&dir.path().join("credentials"), "nonsense");
    write(&dir.path().join("one-shot"), "kept");
    let output = command(dir.path())
        .args(["check", "--output", "text"])
        .env("ATI_JWT_SECRET", "zz")
        .output()
        .unwrap();
    let text = stdout(&output);
    for part in [
        "ATI_JWT_SECRET: not valid hex",
        "a.toml: line 1",
        "credentials: not a JSON object",
        "not ok",
    ] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    assert!(dir.path().join("one-shot").exists());
}

#[test]
fn init_leaves_existing_key_files_alone() {
    let dir = folder();
    write(&dir.path().join("jwt-public.pem"), "mine");
    assert!(ati(dir.path(), &["init", "--proxy"]).status.success());
    assert_eq!(
        std::fs::read_to_string(dir.path().join("jwt-public.pem")).unwrap(),
        "mine"
    );
    let other = folder();
    write(&other.path().join("jwt-public.pem"), "mine");
    assert_eq!(
        ati(other.path(), &["init", "--proxy", "--es256"])
            .status
            .code(),
        Some(2)
    );
    assert_eq!(
        std::fs::read_to_string(other.path().join("jwt-public.pem")).unwrap(),
        "mine"
    );
}

#[test]
fn token_secret_of_the_environment_precedes_the_config() {
    let dir = folder();
    assert!(
        ati(dir.path(), &["init", "--proxy", "--es256"])
            .status
            .success()
    );
    let with_secret = |args: &[&str]| {
        command(dir.path())
            .args(args)
            .env("ATI_JWT_SECRET", "cd".repeat(32))
            .output()
            .unwrap()
    };
    let token = stdout(&with_secret(&[
        "token", "issue", "--sub", "a", "--scope", "*",
    ]))
    .trim()
    .to_owned();
    assert!(with_secret(&["token", "validate", &token]).status.success());
}

#[test]
fn check_with_strict_fails_on_warnings() {
    let dir = folder();
    write(
        &dir.path().join("manifests/a.toml"),
        r#"
            [provider]
            name = "a"
            handler = "cli"
        "#,
    );
    assert!(ati(dir.path(), &["check"]).status.success());
    assert_eq!(
        ati(dir.path(), &["check", "--strict"]).status.code(),
        Some(2)
    );
}

#[test]
fn demo_check_passes_and_leaves_no_files() {
    let dir = folder();
    let output = command(dir.path())
        .args(["demo", "--check"])
        .env("TMPDIR", dir.path())
        .output()
        .unwrap();
    let text = stdout(&output);
    assert!(output.status.success(), "{text}\n{}", stderr(&output));
    assert!(text.contains("curl -i"));
    assert!(text.contains(" as promised"));
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}
