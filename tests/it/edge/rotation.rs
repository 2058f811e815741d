//! Rotations that fail, are killed, or are rolled back.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use serde_json::json;

use super::{edge, litter, names};
use crate::support::ati::{Proxy, Setup, command, stderr, stdout, tells_nothing, write};
use crate::support::http::Client;
use crate::support::skip::skip;
use crate::support::tokens::{SIGNING, sign};
use crate::support::upstream::Upstream;

/// Root rotates in a folder that belongs to the user `ati`, who could have put symlinks there to
/// files that only root may read or write.
#[test]
fn rotation_through_a_symlink_is_refused() {
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
fn rotation_killed_at_any_point_leaves_a_whole_keyring() {
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
    let rotate = || {
        let mut command = command(dir);
        command
            .args(["edge", "rotate-keyring", "--no-signal", "--from-file"])
            .args([file_text, "--ati-dir", dir.to_str().unwrap()])
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    };
    // How long a whole rotation takes, on this machine and under its present load.
    let whole = || {
        let started = Instant::now();
        assert!(rotate().status().unwrap().success());
        started.elapsed()
    };
    let mut length = whole();
    let mut current = fingerprint();
    let (mut kept, mut replaced) = (0, 0);
    for n in 1..=200u64 {
        write(&file, source(n as usize));
        let mut child = rotate().spawn().unwrap();
        // Spread over the time that a rotation takes, and a little longer.
        let part = n.wrapping_mul(2_654_435_761) % 1000;
        std::thread::sleep(length.mul_f64(part as f64 / 800.0));
        let _ = child.kill();
        child.wait().unwrap();
        if n % 10 == 0 {
            let now = fingerprint();
            if now == current {
                kept += 1
            } else {
                replaced += 1
            }
            length = whole();
            current = fingerprint();
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

/// A source file with this key and, perhaps, a signing secret.
fn source(file: &Path, key: &str, signing: Option<&str>) {
    let mut all = json!({"key": key});
    if let Some(signing) = signing {
        all["sandbox_signing_shared_secret"] = json!(signing);
    }
    write(file, all.to_string());
}

/// An enforcing proxy whose keyring was made from the file `source.json` of its folder.
fn proxy_with_keyring(api: &Upstream) -> Proxy {
    let setup = Setup::new();
    let file = setup.path().join("source.json");
    source(&file, "planted-first", Some(SIGNING));
    let args = ["bootstrap-keyring", "--from-file", file.to_str().unwrap()];
    assert!(edge(setup.path(), &args).status.success());
    setup
        .route(
            "svc",
            &api.url(),
            r#"
                path_prefix = '/svc'
                auth_type = 'bearer'
                auth_key_name = 'key'
            "#,
        )
        .arg("--sig-verify-mode")
        .arg("enforce")
        .start()
}

/// Rotates from `source.json` and has this proxy verify it. `systemctl` is a stand-in that names
/// the proxy's process.
fn rotate(proxy: &Proxy, target: &[&str]) -> Output {
    let bin = proxy.path("bin");
    write(
        &bin.join("systemctl"),
        format!("#!/bin/sh\n[ \"$1\" = show ] && echo {}\n", proxy.pid()),
    );
    std::fs::set_permissions(bin.join("systemctl"), PermissionsExt::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let output = command(proxy.dir.path())
        .env("PATH", path)
        .args(["edge", "rotate-keyring", "--from-file"])
        .arg(proxy.path("source.json"))
        .arg("--ati-dir")
        .arg(proxy.dir.path())
        .args(["--verify", &format!("http://{}", proxy.admin)])
        .args(target)
        .output()
        .unwrap();
    tells_nothing("the rotation", &(stdout(&output) + &stderr(&output)));
    output
}

#[test]
fn rotation_refused_by_the_proxy_is_rolled_back() {
    let api = Upstream::echo();
    let proxy = proxy_with_keyring(&api);
    let (file, keyring) = (proxy.path("source.json"), proxy.path("keyring.enc"));
    let pid_file = proxy.path("pid");
    write(&pid_file, proxy.pid().to_string());
    let targets = [
        ["--pid-file", pid_file.to_str().unwrap()],
        ["--service", "ati"],
    ];
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = proxy.client();
            while !stop.load(Ordering::Relaxed) {
                let signature = sign("GET", "/svc/x");
                let headers = [("x-sandbox-signature", signature.as_str())];
                assert_eq!(client.send("GET", "/svc/x", &headers, b"").status, 200);
            }
        });
        for (n, target) in targets.iter().enumerate() {
            source(&file, &format!("planted-good-{n}"), Some(SIGNING));
            let good = rotate(&proxy, target);
            assert!(good.status.success(), "{}", stderr(&good));
            assert!(
                stdout(&good).contains(&format!("(pid {})", proxy.pid()))
                    && stdout(&good).contains("verified: "),
                "{}",
                stdout(&good)
            );
            let sealed = std::fs::read(&keyring).unwrap();
            // Enforce mode without a signing secret: the proxy refuses it.
            source(&file, "planted-bad", None);
            let bad = rotate(&proxy, target);
            assert!(!bad.status.success());
            let reason = "the proxy could not load the new keyring";
            let expected = format!("rolled back to the old keyring: {reason}");
            assert!(stderr(&bad).contains(&expected), "{}", stderr(&bad));
            let why = "sandbox_signing_shared_secret";
            assert!(stderr(&bad).contains(why), "{}", stderr(&bad));
            assert_eq!(std::fs::read(&keyring).unwrap(), sealed);
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(api.saw(|received| received.header("authorization") == Some("Bearer planted-good-1")));
    assert!(!api.saw(|received| received.header("authorization") == Some("Bearer planted-bad")));
    let shown = Client::connect(proxy.admin).get("/keyring").json();
    let fingerprint = stdout(&edge(proxy.dir.path(), &["keyring", "fingerprint"]));
    assert_eq!(shown["fingerprint"], fingerprint.trim());
}

#[test]
fn rotation_without_a_proxy_to_verify_it_changes_nothing() {
    let api = Upstream::echo();
    let proxy = proxy_with_keyring(&api);
    let file = proxy.path("source.json");
    source(&file, "planted-other", Some(SIGNING));
    let before = std::fs::read(proxy.path("keyring.enc")).unwrap();
    let args = [
        "rotate-keyring",
        "--from-file",
        file.to_str().unwrap(),
        "--verify",
        "http://127.0.0.1:1",
    ];
    assert!(!edge(proxy.dir.path(), &args).status.success());
    assert_eq!(std::fs::read(proxy.path("keyring.enc")).unwrap(), before);
}

#[test]
fn rotation_on_a_read_only_disk_keeps_the_keyring() {
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
    // In a mount namespace the folder is read-only.
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
fn rotation_with_a_bad_source_or_pid_file_changes_nothing() {
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
    // A pid file is read before anything is changed, and a pid that isn't ati's is not signalled.
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
fn keyring_written_by_root_belongs_to_the_folders_owner() {
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
