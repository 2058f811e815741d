//! Where the secrets of a keyring come from.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{edge, litter, names};
use crate::support::ati::{stderr, stdout, write};
use crate::support::upstream::Upstream;

/// A stand-in for `op` that runs this shell script.
fn op(dir: &Path, script: &str) -> String {
    let path = dir.join("op");
    write(&path, format!("#!/bin/sh\n{script}\n"));
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    path.to_str().unwrap().to_owned()
}

fn item(fields: &[(&str, &str)]) -> String {
    let mut list: Vec<Value> = fields
        .iter()
        .map(|(label, value)| json!({"label": label, "value": value}))
        .collect();
    list.push(json!({"label": "notesPlain"}));
    list.push(json!({"value": "without a label"}));
    json!({"id": "x", "fields": list}).to_string()
}

/// A stand-in for 1Password's `op`, its token, and a folder for the keyring.
struct OnePassword {
    dir: TempDir,
    op: String,
}

impl OnePassword {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        write(&dir.path().join("token"), " planted-op-token \n");
        let op = op(dir.path(), "exit 1");
        OnePassword { dir, op }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn home(&self) -> PathBuf {
        self.path("home")
    }

    /// From now on `op` prints an item with these fields, and notes how it was called.
    fn holds(&self, fields: &[(&str, &str)]) {
        let script = format!(
            "echo \"$@\" > {0}; env > {0}.env; cat <<'X'\n{1}\nX",
            self.path("seen").display(),
            item(fields)
        );
        op(self.dir.path(), &script);
    }

    /// `ati edge` on this folder, with 1Password as the source.
    fn edge(&self, home: &Path, args: &[&str]) -> Output {
        let token = self.path("token");
        let source = [
            "--vault",
            "Production Secrets",
            "--item",
            "Edge",
            "--op-path",
            &self.op,
            "--op-token-file",
            token.to_str().unwrap(),
        ];
        edge(home, &[args, &source].concat())
    }

    /// A keyring with the names `api` and `sandbox_signing_shared_secret`.
    fn bootstrap(&self) {
        self.holds(&[
            ("api", "planted-one"),
            ("sandbox_signing_shared_secret", "planted-two"),
        ]);
        let made = self.edge(&self.home(), &["bootstrap-keyring"]);
        assert!(made.status.success(), "{}", stderr(&made));
    }
}

#[test]
fn onepassword_rotation_before_a_bootstrap_fails_and_makes_no_folder() {
    let onepassword = OnePassword::new();
    onepassword.holds(&[("api", "planted-one")]);
    let nowhere = onepassword.path("nowhere");
    let early = onepassword.edge(&nowhere, &["rotate-keyring"]);
    assert!(
        !early.status.success() && stderr(&early).contains("bootstrap-keyring"),
        "{}",
        stderr(&early)
    );
    assert!(!nowhere.exists());
    let unwritable = onepassword.edge(Path::new("/proc/nowhere"), &["bootstrap-keyring"]);
    assert!(!unwritable.status.success());
}

#[test]
fn onepassword_bootstrap_writes_the_keyring_and_its_session_key() {
    let onepassword = OnePassword::new();
    onepassword.holds(&[
        ("api", "planted-one"),
        ("sandbox_signing_shared_secret", "planted-two"),
    ]);
    let home = onepassword.home();
    let made = onepassword.edge(&home, &["bootstrap-keyring"]);
    assert!(made.status.success(), "{}", stderr(&made));
    assert!(
        stdout(&made).starts_with(&format!("wrote {}/keyring.enc (", home.display())),
        "{}",
        stdout(&made)
    );
    assert!(stdout(&made).contains("/.keyring-key (session key)"));
    assert_eq!(
        std::fs::read_to_string(onepassword.path("seen"))
            .unwrap()
            .trim(),
        "item get --vault Production Secrets Edge --format json"
    );
    let env = std::fs::read_to_string(onepassword.path("seen.env")).unwrap();
    assert!(
        env.contains("OP_SERVICE_ACCOUNT_TOKEN=planted-op-token\n"),
        "its value, and not its path"
    );
    assert!(
        env.contains(&format!("ATI_DIR={}\n", home.display())),
        "it runs in the operator's environment: {env}"
    );
    for file in ["keyring.enc", ".keyring-key"] {
        let permissions = std::fs::metadata(home.join(file)).unwrap().permissions();
        assert_eq!(permissions.mode() & 0o777, 0o600);
    }
    assert_eq!(names(&home), ["api", "sandbox_signing_shared_secret"]);
}

#[test]
fn onepassword_rotation_replaces_the_secrets_and_keeps_the_session_key() {
    let onepassword = OnePassword::new();
    onepassword.bootstrap();
    let home = onepassword.home();
    let key = std::fs::read(home.join(".keyring-key")).unwrap();
    let first = stdout(&edge(&home, &["keyring", "fingerprint"]));
    assert_eq!(first.trim().len(), 16);

    onepassword.holds(&[("api", "planted-changed"), ("new", "planted-three")]);
    let diff = stdout(&onepassword.edge(&home, &["keyring", "diff"]));
    assert_eq!(diff, "~ api\n+ new\n- sandbox_signing_shared_secret\n");
    let rotated = onepassword.edge(&home, &["rotate-keyring", "--no-signal"]);
    assert!(
        stdout(&rotated).contains("--no-signal set; skipping SIGHUP to ati"),
        "{}",
        stdout(&rotated)
    );
    assert_eq!(names(&home), ["api", "new"]);
    assert_ne!(stdout(&edge(&home, &["keyring", "fingerprint"])), first);
    // A service that doesn't run is warned about, and is no failure.
    let service = ["rotate-keyring", "--service", "no-such-service"];
    let inactive = onepassword.edge(&home, &service);
    assert!(
        inactive.status.success() && stderr(&inactive).contains("is not running"),
        "{}",
        stderr(&inactive)
    );
    let again = onepassword.edge(&home, &["bootstrap-keyring"]);
    assert!(again.status.success(), "{}", stderr(&again));
    assert_eq!(std::fs::read(home.join(".keyring-key")).unwrap(), key);
    assert!(litter(&home).is_empty(), "{:?}", litter(&home));
}

#[test]
fn onepassword_failure_keeps_the_old_keyring() {
    let onepassword = OnePassword::new();
    onepassword.bootstrap();
    let home = onepassword.home();
    let before = std::fs::read(home.join("keyring.enc")).unwrap();
    for (script, expected) in [
        (
            "echo nope planted-x >/dev/null; echo 'not signed in' >&2; exit 1",
            "op ended with code 1: not signed in",
        ),
        ("echo 'not json'", "printed no JSON"),
        (
            "echo '{\"fields\": []}'",
            "1Password item 'Edge' in vault 'Production Secrets' has no labeled fields with values",
        ),
        ("kill -9 $$", "op ended with a signal"),
    ] {
        op(onepassword.dir.path(), script);
        let failed = onepassword.edge(&home, &["rotate-keyring", "--no-signal"]);
        assert!(!failed.status.success());
        assert!(
            stderr(&failed).contains(expected),
            "{expected}: {}",
            stderr(&failed)
        );
        assert_eq!(std::fs::read(home.join("keyring.enc")).unwrap(), before);
    }
    assert!(litter(&home).is_empty(), "{:?}", litter(&home));
}

/// A stand-in for Vault, which takes the token `planted-vault-token`.
fn vault() -> Upstream {
    Upstream::answering(|received, stream| {
        let (status, body) = match (received.target.as_str(), received.header("x-vault-token")) {
            (_, token) if token != Some("planted-vault-token") => {
                (403, json!({"errors": ["permission denied"]}))
            }
            ("/v1/secret/data/ati", _) => (
                200,
                json!({"data": {"data": {"api": "planted-vaulted"}, "metadata": {"version": 3}}}),
            ),
            ("/v1/secret/data/gone", _) => (
                404,
                json!({"data": {"data": null, "metadata": {"deletion_time": "2026-01-01"}}}),
            ),
            ("/v1/secret/data/odd", _) => (200, json!({"data": {"data": {"n": 5}}})),
            ("/v1/secret/ati", _) => (200, json!({"data": {"api": "planted-v1"}})),
            ("/v1/sealed", _) => (503, json!({"errors": ["Vault is sealed"]})),
            _ => (404, json!({"errors": []})),
        };
        let body = body.to_string();
        let text = format!(
            "HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(text.as_bytes()).is_ok()
    })
}

/// A bootstrap in the folder `home` of this one, from the source that `args` name.
fn bootstrap(dir: &Path, args: &[&str]) -> Output {
    edge(&dir.join("home"), &[&["bootstrap-keyring"], args].concat())
}

#[test]
fn vault_secret_is_read_and_its_errors_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let vault = vault();
    let token = dir.join("token");
    write(&token, "planted-vault-token\n");
    let from = |path: &str| {
        let url = format!("{}{path}", vault.url());
        let file = token.to_str().unwrap();
        bootstrap(dir, &["--from-vault", &url, "--vault-token-file", file])
    };
    assert!(from("/v1/secret/data/ati").status.success());
    assert_eq!(names(&dir.join("home")), ["api"]);
    for (path, expected) in [
        ("/v1/secret/data/nothing", "there is no such secret"),
        (
            "/v1/secret/data/gone",
            "the newest version of this secret is deleted",
        ),
        ("/v1/secret/data/odd", "the value of 'n' is not a text"),
        ("/v1/secret/ati", "its URL has /data/ in it"),
        ("/v1/sealed", "Vault: HTTP 503 Vault is sealed"),
    ] {
        let failed = from(path);
        assert!(
            stderr(&failed).contains(expected),
            "{expected}: {}",
            stderr(&failed)
        );
    }
    write(&token, "planted-wrong");
    let denied = from("/v1/secret/data/ati");
    assert!(
        stderr(&denied).contains("Vault: permission denied") && denied.status.code() == Some(3),
        "{}",
        stderr(&denied)
    );
}

#[test]
fn secrets_are_read_from_a_json_or_env_file() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let file = dir.join("source.json");
    let from = |text: &str| {
        write(&file, text);
        bootstrap(dir, &["--from-file", file.to_str().unwrap()])
    };
    for (text, expected) in [
        (r#"{"a": "planted-1", "b": "planted-2"}"#, &["a", "b"][..]),
        (
            "# comment\nexport A=planted-1\n\nB='planted 2'\nC=\"planted=3\"\n",
            &["A", "B", "C"],
        ),
    ] {
        assert!(from(text).status.success());
        assert_eq!(names(&dir.join("home")), expected);
    }
    for (text, expected) in [
        ("{}", "no secrets"),
        ("", "no secrets"),
        ("{\"a\": 1}", "'a' is not a text"),
        ("planted-alone", "line 1: expected NAME=value"),
        ("{", "not a JSON object"),
    ] {
        let failed = from(text);
        assert!(
            stderr(&failed).contains(expected),
            "{expected}: {}",
            stderr(&failed)
        );
    }
}

#[test]
fn secrets_are_read_from_one_command_or_refused() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let print = ["--from-command", "printf '{\"cmd\": \"planted-%s\"}' $HOME"];
    assert!(bootstrap(dir, &print).status.success());
    assert_eq!(names(&dir.join("home")), ["cmd"]);
    let failed = bootstrap(dir, &["--from-command", "exit 7"]);
    assert!(stderr(&failed).contains("sh ended with code 7"));
    // Exactly one source.
    assert_eq!(bootstrap(dir, &[]).status.code(), Some(2));
    let two = bootstrap(dir, &["--from-command", "x", "--from-file", "y"]);
    assert_eq!(two.status.code(), Some(2));
}
