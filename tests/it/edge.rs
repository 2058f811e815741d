//! What an operator does with a keyring, and what can go wrong on the way.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Output;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::ati::{Setup, ati, command, stderr, stdout, tells_nothing, write};
use crate::support::skip::skip;
use crate::support::tokens::{SIGNING, sign};
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
    list.push(json!({"value": "nobody's"}));
    json!({"id": "x", "fields": list}).to_string()
}

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

/// Everything in the folder, but for the stand-ins.
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

/// Root rotates in a folder of the appliance's, whose user could have put links there to files that only root may read or write.
#[test]
fn a_rotation_follows_no_link() {
    let dir = tempfile::tempdir().unwrap();
    let (home, theirs) = (dir.path().join("home"), dir.path().join("theirs"));
    let source = dir.path().join("source.json");
    write(&source, json!({"api": "planted-one"}).to_string());
    let source = ["--from-file", source.to_str().unwrap()];
    let made = edge(&home, &[&["bootstrap-keyring"], &source[..]].concat());
    assert!(made.status.success(), "{}", stderr(&made));
    for name in [".keyring.lock", "keyring.enc"] {
        let (path, aside) = (home.join(name), home.join("aside"));
        std::fs::rename(&path, &aside).unwrap();
        write(&theirs, "not for everybody");
        std::os::unix::fs::symlink(&theirs, &path).unwrap();
        let rotate = [&["rotate-keyring", "--no-signal"], &source[..]].concat();
        let rotated = edge(&home, &rotate);
        assert!(!rotated.status.success());
        let said = stderr(&rotated);
        assert!(said.contains(name) && said.contains("a link"), "{said}");
        assert!(path.is_symlink());
        std::fs::rename(&aside, &path).unwrap();
        assert!(edge(&home, &rotate).status.success());
    }
    assert_eq!(std::fs::read(&theirs).unwrap(), b"not for everybody");
}

#[test]
fn from_the_first_boot_to_a_rotation_with_1password() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    write(&dir.join("token"), " planted-op-token \n");
    let seen = dir.join("seen");
    let script = |item: &str| {
        format!(
            "echo \"$@\" > {0}; env > {0}.env; cat <<'X'\n{item}\nX",
            seen.display()
        )
    };
    let path = op(
        dir,
        &script(&item(&[
            ("api", "planted-one"),
            ("sandbox_signing_shared_secret", "planted-two"),
        ])),
    );
    let token = dir.join("token");
    let source = [
        "--vault",
        "Production Secrets",
        "--item",
        "Edge",
        "--op-path",
        &path,
        "--op-token-file",
        token.to_str().unwrap(),
    ];
    let with = |command: &[&'static str]| {
        let mut all = command.to_vec();
        all.extend(
            source
                .iter()
                .map(|word| -> &'static str { Box::leak((*word).to_owned().into_boxed_str()) }),
        );
        all
    };

    // Before a bootstrap there is nothing to rotate, and no folder is made.
    let nowhere = dir.join("nowhere");
    let early = edge(&nowhere, &with(&["rotate-keyring"]));
    assert!(
        !early.status.success() && stderr(&early).contains("bootstrap-keyring"),
        "{}",
        stderr(&early)
    );
    assert!(!nowhere.exists());

    let home = dir.join("home");
    let made = edge(&home, &with(&["bootstrap-keyring"]));
    assert!(made.status.success(), "{}", stderr(&made));
    assert!(
        stdout(&made).starts_with(&format!("wrote {}/keyring.enc (", home.display())),
        "{}",
        stdout(&made)
    );
    assert!(stdout(&made).contains("/.keyring-key (session key)"));
    assert_eq!(
        std::fs::read_to_string(&seen).unwrap().trim(),
        "item get --vault Production Secrets Edge --format json"
    );
    let env = std::fs::read_to_string(dir.join("seen.env")).unwrap();
    assert!(
        env.contains("OP_SERVICE_ACCOUNT_TOKEN=planted-op-token\n"),
        "its value, and not its path"
    );
    assert!(!env.contains("ATI_"), "{env}");
    for file in ["keyring.enc", ".keyring-key"] {
        assert_eq!(
            std::fs::metadata(home.join(file))
                .unwrap()
                .permissions()
                .mode()
                & 0o777,
            0o600
        );
    }
    assert_eq!(names(&home), ["api", "sandbox_signing_shared_secret"]);
    let key = std::fs::read(home.join(".keyring-key")).unwrap();
    let first = stdout(&edge(&home, &["keyring", "fingerprint"]));
    assert_eq!(first.trim().len(), 16);

    op(
        dir,
        &script(&item(&[
            ("api", "planted-changed"),
            ("new", "planted-three"),
        ])),
    );
    let diff = stdout(&edge(&home, &with(&["keyring", "diff"])));
    assert_eq!(diff, "~ api\n+ new\n- sandbox_signing_shared_secret\n");
    let rotated = edge(&home, &with(&["rotate-keyring", "--no-signal"]));
    assert!(
        stdout(&rotated).contains("--no-signal set; skipping SIGHUP to ati"),
        "{}",
        stdout(&rotated)
    );
    assert_eq!(names(&home), ["api", "new"]);
    assert_ne!(stdout(&edge(&home, &["keyring", "fingerprint"])), first);
    // A service that doesn't run is worth a word, and no failure.
    let inactive = edge(
        &home,
        &with(&["rotate-keyring", "--service", "no-such-service"]),
    );
    assert!(
        inactive.status.success() && stderr(&inactive).contains("is not running"),
        "{}",
        stderr(&inactive)
    );
    // Again is fine, and the session key stays.
    assert!(edge(&home, &with(&["bootstrap-keyring"])).status.success());
    assert_eq!(std::fs::read(home.join(".keyring-key")).unwrap(), key);

    // Whatever goes wrong, the old keyring stays.
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
        op(dir, script);
        let failed = edge(&home, &with(&["rotate-keyring", "--no-signal"]));
        assert!(!failed.status.success());
        assert!(
            stderr(&failed).contains(expected),
            "{expected}: {}",
            stderr(&failed)
        );
        assert_eq!(std::fs::read(home.join("keyring.enc")).unwrap(), before);
    }
    assert!(litter(&home).is_empty(), "{:?}", litter(&home));
    let unwritable = edge(Path::new("/proc/nowhere"), &with(&["bootstrap-keyring"]));
    assert!(!unwritable.status.success());
}

#[test]
fn other_places_where_secrets_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let vault = Upstream::answering(|received, stream| {
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
        std::io::Write::write_all(stream, text.as_bytes()).is_ok()
    });
    let token = dir.join("token");
    write(&token, "planted-vault-token\n");
    let token = token.to_str().unwrap();
    let from = |args: &[&str]| {
        let mut all = vec!["bootstrap-keyring"];
        all.extend(args);
        edge(&dir.join("home"), &all)
    };
    let at = |path: &str| format!("{}{path}", vault.url());
    assert!(
        from(&[
            "--from-vault",
            &at("/v1/secret/data/ati"),
            "--vault-token-file",
            token
        ])
        .status
        .success()
    );
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
        let failed = from(&["--from-vault", &at(path), "--vault-token-file", token]);
        assert!(
            stderr(&failed).contains(expected),
            "{expected}: {}",
            stderr(&failed)
        );
    }
    write(Path::new(token), "planted-wrong");
    let denied = from(&[
        "--from-vault",
        &at("/v1/secret/data/ati"),
        "--vault-token-file",
        token,
    ]);
    assert!(
        stderr(&denied).contains("Vault: permission denied") && denied.status.code() == Some(3),
        "{}",
        stderr(&denied)
    );

    let file = dir.join("source.json");
    for (text, expected) in [
        (r#"{"a": "planted-1", "b": "planted-2"}"#, &["a", "b"][..]),
        (
            "# comment\nexport A=planted-1\n\nB='planted 2'\nC=\"planted=3\"\n",
            &["A", "B", "C"],
        ),
    ] {
        write(&file, text);
        assert!(
            from(&["--from-file", file.to_str().unwrap()])
                .status
                .success()
        );
        assert_eq!(names(&dir.join("home")), expected);
    }
    for (text, expected) in [
        ("{}", "no secrets"),
        ("", "no secrets"),
        ("{\"a\": 1}", "'a' is not a text"),
        ("planted-alone", "line 1: expected NAME=value"),
        ("{", "not a JSON object"),
    ] {
        write(&file, text);
        let failed = from(&["--from-file", file.to_str().unwrap()]);
        assert!(
            stderr(&failed).contains(expected),
            "{expected}: {}",
            stderr(&failed)
        );
    }
    assert!(
        from(&["--from-command", "printf '{\"cmd\": \"planted-%s\"}' $HOME"])
            .status
            .success()
    );
    assert_eq!(names(&dir.join("home")), ["cmd"]);
    assert!(stderr(&from(&["--from-command", "exit 7"])).contains("sh ended with code 7"));
    assert_eq!(from(&[]).status.code(), Some(2));
    assert_eq!(
        from(&["--from-command", "x", "--from-file", "y"])
            .status
            .code(),
        Some(2)
    );
}

#[test]
fn killed_at_any_point_a_rotation_leaves_the_old_or_the_new() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let file = dir.join("source.json");
    let source = |n: usize| {
        json!({"generation": format!("planted-{n}"), "filler": "planted".repeat(2000)}).to_string()
    };
    write(&file, source(0));
    let file_text = file.to_str().unwrap();
    assert!(
        edge(dir, &["bootstrap-keyring", "--from-file", file_text])
            .status
            .success()
    );
    let fingerprint = || {
        let output = edge(dir, &["keyring", "fingerprint"]);
        assert!(output.status.success(), "{}", stderr(&output));
        stdout(&output)
    };
    let mut current = fingerprint();
    let (mut kept, mut replaced) = (0, 0);
    for n in 1..=200u64 {
        write(&file, source(n as usize));
        let mut child = command(dir)
            .args([
                "edge",
                "rotate-keyring",
                "--no-signal",
                "--from-file",
                file_text,
                "--ati-dir",
                dir.to_str().unwrap(),
            ])
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        // Somewhere between its first step and its last.
        std::thread::sleep(Duration::from_micros(
            n.wrapping_mul(2_654_435_761) % 30_000,
        ));
        let _ = child.kill();
        child.wait().unwrap();
        if n % 10 == 0 {
            let now = fingerprint();
            if now == current {
                kept += 1
            } else {
                replaced += 1
            }
            current = now;
        }
        let mode = std::fs::metadata(dir.join("keyring.enc"))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    assert!(kept + replaced == 20 && replaced > 0, "{kept} {replaced}");
    assert!(
        edge(
            dir,
            &["rotate-keyring", "--no-signal", "--from-file", file_text]
        )
        .status
        .success()
    );
    assert!(litter(dir).is_empty(), "{:?}", litter(dir));
}

#[test]
fn a_rotation_is_verified_or_rolled_back() {
    let api = Upstream::echo();
    let setup = Setup::new();
    let dir = setup.path().to_path_buf();
    let file = dir.join("source.json");
    let file_text = file.to_str().unwrap();
    let source = |key: &str, signing: Option<&str>| {
        let mut all = json!({"key": key});
        if let Some(signing) = signing {
            all["sandbox_signing_shared_secret"] = json!(signing);
        }
        all.to_string()
    };
    write(&file, source("planted-first", Some(SIGNING)));
    assert!(
        edge(&dir, &["bootstrap-keyring", "--from-file", file_text])
            .status
            .success()
    );
    let proxy = setup
        .route(
            "svc",
            &api.url(),
            "path_prefix = '/svc'\nauth_type = 'bearer'\nauth_key_name = 'key'",
        )
        .arg("--sig-verify-mode")
        .arg("enforce")
        .start();
    write(&dir.join("pid"), proxy.pid().to_string());
    let pid_file = dir.join("pid");
    // A stand-in for systemd.
    let bin = dir.join("bin");
    write(
        &bin.join("systemctl"),
        format!("#!/bin/sh\n[ \"$1\" = show ] && echo {}\n", proxy.pid()),
    );
    std::fs::set_permissions(bin.join("systemctl"), PermissionsExt::from_mode(0o755)).unwrap();
    let admin = format!("http://{}", proxy.admin);
    let rotate = |target: &[&str]| {
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
        let output = command(&dir)
            .env("PATH", path)
            .args([
                "edge",
                "rotate-keyring",
                "--from-file",
                file_text,
                "--ati-dir",
                dir.to_str().unwrap(),
                "--verify",
                &admin,
            ])
            .args(target)
            .output()
            .unwrap();
        tells_nothing("the rotation", &(stdout(&output) + &stderr(&output)));
        output
    };
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = proxy.client();
            while !stop.load(Ordering::Relaxed) {
                let response = client.send(
                    "GET",
                    "/svc/x",
                    &[("x-sandbox-signature", &sign("GET", "/svc/x"))],
                    b"",
                );
                assert_eq!(response.status, 200);
            }
        });
        for (n, target) in [
            vec!["--pid-file", pid_file.to_str().unwrap()],
            vec!["--service", "ati"],
        ]
        .iter()
        .enumerate()
        {
            write(&file, source(&format!("planted-good-{n}"), Some(SIGNING)));
            let good = rotate(target);
            assert!(good.status.success(), "{}", stderr(&good));
            assert!(
                stdout(&good).contains(&format!("(pid {})", proxy.pid()))
                    && stdout(&good).contains("verified: "),
                "{}",
                stdout(&good)
            );
            let sealed = std::fs::read(dir.join("keyring.enc")).unwrap();
            // Enforce mode without a signing secret: the proxy refuses it.
            write(&file, source("planted-bad", None));
            let bad = rotate(target);
            assert!(!bad.status.success());
            assert!(
                stderr(&bad).contains(
                    "rolled back to the old keyring: the proxy could not load the new keyring"
                ),
                "{}",
                stderr(&bad)
            );
            assert_eq!(std::fs::read(dir.join("keyring.enc")).unwrap(), sealed);
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(api.saw(|received| received.header("authorization") == Some("Bearer planted-good-1")));
    assert!(!api.saw(|received| received.header("authorization") == Some("Bearer planted-bad")));
    let keyring: Value = serde_json::from_str(
        &crate::support::http::Client::connect(proxy.admin)
            .get("/keyring")
            .text(),
    )
    .unwrap();
    assert_eq!(
        keyring["fingerprint"].as_str().unwrap(),
        stdout(&edge(&dir, &["keyring", "fingerprint"])).trim()
    );
    // Nobody there: nothing is changed.
    write(&file, source("planted-other", Some(SIGNING)));
    let before = std::fs::read(dir.join("keyring.enc")).unwrap();
    let nobody = ati(
        &dir,
        &[
            "edge",
            "rotate-keyring",
            "--from-file",
            file_text,
            "--ati-dir",
            dir.to_str().unwrap(),
            "--verify",
            "http://127.0.0.1:1",
        ],
    );
    assert!(!nobody.status.success());
    assert_eq!(std::fs::read(dir.join("keyring.enc")).unwrap(), before);
}

#[test]
fn a_disk_that_can_not_be_written_keeps_what_it_has() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("home");
    let file = dir.path().join("source.json");
    write(&file, r#"{"a": "planted-old"}"#);
    let file = file.to_str().unwrap();
    assert!(
        edge(&home, &["bootstrap-keyring", "--from-file", file])
            .status
            .success()
    );
    let before = std::fs::read(home.join("keyring.enc")).unwrap();
    // A mount of its own, read only, in a namespace of its own.
    let home_text = home.to_str().unwrap();
    let script = format!(
        "mount --bind '{home_text}' '{home_text}' && mount -o remount,ro,bind '{home_text}' || exit 99; exec '{}' edge rotate-keyring --no-signal --from-file '{file}' --ati-dir '{home_text}'",
        crate::support::ati::BINARY
    );
    let output = std::process::Command::new("unshare")
        .args(["--mount", "sh", "-c", &script])
        .output();
    let Some(output) = output.ok().filter(|output| {
        output.status.code() != Some(99) && output.status.code() != Some(1)
            || !stderr(output).contains("unshare")
    }) else {
        return skip("this machine allows no mount namespaces");
    };
    assert!(!output.status.success());
    assert!(
        stderr(&output).contains("Read-only file system"),
        "{}",
        stderr(&output)
    );
    assert_eq!(std::fs::read(home.join("keyring.enc")).unwrap(), before);
    assert!(litter(&home).is_empty(), "{:?}", litter(&home));
    assert_eq!(names(&home), ["a"]);
}

#[test]
fn a_source_that_is_not_what_it_should_be_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("home");
    let file = dir.path().join("source.json");
    let text = file.to_str().unwrap();
    write(&file, r#"{"a": "planted-old"}"#);
    assert!(
        edge(&home, &["bootstrap-keyring", "--from-file", text])
            .status
            .success()
    );
    let before = std::fs::read(home.join("keyring.enc")).unwrap();
    for (content, expected) in [
        ("api: planted-c2VjcmV0==", "line 1: expected NAME=value"),
        (
            r#"[{"name":"x","value":"planted-c2VjcmV0=="}]"#,
            "line 1: expected NAME=value",
        ),
        ("A=\"planted-open", "a quote is not closed"),
        (r#"{"a": "planted-1", "b": ""}"#, "an empty value for 'b'"),
    ] {
        write(&file, content);
        let refused = edge(
            &home,
            &["rotate-keyring", "--no-signal", "--from-file", text],
        );
        assert!(!refused.status.success());
        assert!(
            stderr(&refused).contains(expected),
            "{expected}: {}",
            stderr(&refused)
        );
        assert_eq!(std::fs::read(home.join("keyring.enc")).unwrap(), before);
    }
    // Whom to signal is known before anything is changed, and a number that is somebody else's by now is left alone.
    write(&file, r#"{"a": "planted-new"}"#);
    let pid = dir.path().join("pid");
    write(&pid, "garbage");
    let refused = edge(
        &home,
        &[
            "rotate-keyring",
            "--from-file",
            text,
            "--pid-file",
            pid.to_str().unwrap(),
        ],
    );
    assert!(!refused.status.success());
    assert_eq!(std::fs::read(home.join("keyring.enc")).unwrap(), before);
    write(&pid, std::process::id().to_string());
    let other = edge(
        &home,
        &[
            "rotate-keyring",
            "--from-file",
            text,
            "--pid-file",
            pid.to_str().unwrap(),
        ],
    );
    assert!(
        other.status.success() && stderr(&other).contains("is not ati"),
        "{}",
        stderr(&other)
    );
}

#[test]
fn edge_keyring_written_by_root_belongs_to_the_owner_of_the_folder() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("home");
    std::fs::create_dir(&home).unwrap();
    if std::os::unix::fs::chown(&home, Some(65534), Some(65534)).is_err() {
        return skip("only root may give a folder to another user");
    }
    let file = dir.path().join("source.json");
    write(&file, r#"{"a": "planted-new"}"#);
    let made = edge(
        &home,
        &["bootstrap-keyring", "--from-file", file.to_str().unwrap()],
    );
    assert!(made.status.success(), "{}", stderr(&made));
    for name in ["keyring.enc", ".keyring-key"] {
        let owner = std::fs::metadata(home.join(name)).unwrap().uid();
        assert_eq!(owner, 65534, "{name}");
    }
}
