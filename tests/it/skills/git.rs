//! Skills of git repositories, with the real git.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};

use super::{failure, installed, quiet, skill, write};
use crate::support::ati::{ati, command, stderr};
use crate::support::eventually;

fn git(dir: &Path, args: &[&str]) -> String {
    let output = Command::new("git")
        .current_dir(dir)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("HOME", "/nonexistent")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .args(["-c", "user.name=t", "-c", "user.email=t@example.com"])
        .args([
            "-c",
            "init.defaultBranch=main",
            "-c",
            "protocol.file.allow=always",
        ])
        .args(args)
        .output()
        .unwrap();
    assert!(output.status.success(), "{args:?}: {}", stderr(&output));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// A repository with two skills below `skills/`, and two commits. The first one's id.
fn repository(root: &Path) -> String {
    std::fs::create_dir_all(root).unwrap();
    git(root, &["init", "--quiet", "."]);
    skill(&root.join("skills"), "alpha", "version one", "");
    skill(&root.join("skills"), "beta", "other", "");
    write(
        &root.join("SKILL.md"),
        "---\nname: of-the-root\n---\nroot\n",
    );
    git(root, &["add", "-A"]);
    git(root, &["commit", "--quiet", "-m", "one"]);
    let first = git(root, &["rev-parse", "HEAD"]);
    skill(&root.join("skills"), "alpha", "version two", "");
    git(root, &["commit", "--quiet", "-a", "-m", "two"]);
    first
}

#[test]
fn repository_is_installed_at_its_head_or_at_a_pin_in_both_spellings() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("ati");
    let root = home.path().join("tools.git");
    let first = repository(&root);
    let url = root.to_str().unwrap();
    let install = |source: &str, more: &[&str]| {
        quiet(ati(&dir, &[&["skill", "install", source], more].concat()))
    };
    let shown = |name: &str| quiet(ati(&dir, &["skill", "show", name]));
    install(&format!("{url}#skills/alpha"), &[]);
    assert_eq!(shown("alpha"), "version two\n");
    let short = &first[..8];
    for spelling in [
        format!("{url}@{short}#skills/alpha"),
        format!("{url}#skills/alpha@{short}"),
        format!("{url}@{first}#skills/alpha"),
        format!("file://{url}@{short}#skills/alpha"),
    ] {
        quiet(ati(&dir, &["skill", "remove", "alpha"]));
        install(&spelling, &[]);
        assert_eq!(shown("alpha"), "version one\n", "{spelling}");
        let recorded = std::fs::read_to_string(dir.join("skills/alpha/skill.toml")).unwrap();
        assert!(
            recorded.contains(&format!("pinned_sha = \"{first}\"")),
            "{recorded}"
        );
        assert!(recorded.contains("#skills/alpha\""), "{recorded}");
    }
    // A pin stays, whatever the repository has now.
    assert_eq!(
        quiet(ati(&dir, &["skill", "update", "alpha"])),
        "'alpha' is up to date.\n"
    );
    assert_eq!(
        install(&format!("{url}#skills"), &["--all"]),
        "Installed 'alpha'\nInstalled 'beta'\nInstalled 2 skill(s).\n"
    );
    assert_eq!(shown("alpha"), "version two\n");
    // Without a pin the source goes on.
    skill(&root.join("skills"), "alpha", "version three", "");
    git(&root, &["commit", "--quiet", "-a", "-m", "three"]);
    let updated = quiet(ati(&dir, &["skill", "update", "alpha"]));
    assert!(updated.ends_with("  M SKILL.md\n"), "{updated}");
    assert_eq!(shown("alpha"), "version three\n");
    install(url, &[]);
    assert_eq!(installed(&dir), ["alpha", "beta", "of-the-root"]);
    quiet(ati(&dir, &["skill", "remove", "of-the-root"]));
    quiet(ati(
        &dir,
        &["skill", "install", "--from-git", url, "--name", "renamed"],
    ));
    assert!(dir.join("skills/renamed/SKILL.md").exists());
    assert!(!dir.join("skills/renamed/.git").exists());
}

#[test]
fn git_runs_without_hooks_submodules_and_the_callers_variables() {
    let home = tempfile::tempdir().unwrap();
    let (dir, trap) = (home.path().join("ati"), home.path().join("trap"));
    let (inner, root) = (home.path().join("inner.git"), home.path().join("outer.git"));
    repository(&inner);
    repository(&root);
    let from = inner.to_str().unwrap();
    git(
        &root,
        &["submodule", "--quiet", "add", from, "skills/alpha/assets"],
    );
    git(&root, &["commit", "--quiet", "-m", "with a submodule"]);
    // Hooks of a template, and of the user's own configuration.
    let hook = format!("#!/bin/sh\ntouch {}\n", trap.display());
    for place in ["template/hooks/post-checkout", "hooks/post-checkout"] {
        let path = home.path().join(place);
        write(&path, &hook);
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&path, mode).unwrap();
    }
    let config = format!(
        "[init]\n\ttemplateDir = {0}/template\n[core]\n\thooksPath = {0}/hooks\n\
         [submodule]\n\trecurse = true\n",
        home.path().display()
    );
    write(&home.path().join(".gitconfig"), config);
    let url = format!("{}#skills/alpha", root.display());
    let output = command(&dir)
        .env("HOME", home.path())
        .env("GIT_DIR", "/nonexistent")
        .env("GIT_SSH_COMMAND", format!("touch {}", trap.display()))
        .env("GIT_EXTERNAL_DIFF", format!("touch {}", trap.display()))
        .args(["skill", "install", &url])
        .output()
        .unwrap();
    quiet(output);
    assert!(!trap.exists());
    assert!(!dir.join("skills/alpha/assets/SKILL.md").exists());
}

#[test]
fn odd_sources_never_reach_git_and_bad_ones_install_nothing() {
    let home = tempfile::tempdir().unwrap();
    let (dir, trap) = (home.path().join("ati"), home.path().join("trap"));
    let root = home.path().join("r.git");
    repository(&root);
    std::os::unix::fs::symlink("/etc", root.join("skills/link")).unwrap();
    git(&root, &["add", "-A"]);
    git(&root, &["commit", "--quiet", "-m", "link"]);
    let url = root.to_str().unwrap();
    let touch = format!("ext::sh -c touch% {}% .git", trap.display());
    for source in [
        touch.as_str(),
        &touch.replace(' ', "%20"),
        &format!("--upload-pack=touch {}.git", trap.display()),
        "git://127.0.0.1/x.git",
        "https://user:planted-password@127.0.0.1:1/x.git",
        "https://127.0.0.1:1/x.git",
        &format!("{url}#../r.git"),
        &format!("{url}#skills/link"),
        &format!("{url}#absent"),
        &format!("{url}@0123456789#skills/alpha"),
        &format!("{url}#skills"),
    ] {
        let (message, code) = failure(&ati(&dir, &["skill", "install", "--", source]));
        assert!(matches!(code, Some(1 | 2)), "{source}");
        assert!(!message.contains("planted"), "{message}");
        assert_eq!(installed(&dir), [""; 0], "{source}");
    }
    assert!(!trap.exists());
    let nothing = tempfile::tempdir().unwrap();
    let all = [
        "skill",
        "install",
        "--all",
        nothing.path().to_str().unwrap(),
    ];
    let (message, code) = failure(&ati(&dir, &all));
    assert!(message.starts_with("No skills found in '"), "{message}");
    assert_eq!(code, Some(1));
}

/// A server that takes the connection and never answers.
#[test]
fn interrupted_installation_leaves_nothing() {
    for signal in ["INT", "TERM"] {
        let home = tempfile::tempdir().unwrap();
        let (dir, temporary) = (home.path().join("ati"), home.path().join("tmp"));
        std::fs::create_dir(&temporary).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/x.git", listener.local_addr().unwrap());
        let child = command(&dir)
            .env("TMPDIR", &temporary)
            .args(["skill", "install", &url])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        // git is in the middle of it.
        let mut request = [0; 16];
        stream.read_exact(&mut request).unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\n").unwrap();
        assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 1);
        let kill = Command::new("kill")
            .args([format!("-{signal}"), child.id().to_string()])
            .status();
        assert!(kill.unwrap().success());
        let output = child.wait_with_output().unwrap();
        assert!(!output.status.success(), "{signal}");
        assert_eq!(installed(&dir), [""; 0], "{signal}");
        assert_eq!(
            std::fs::read_dir(&temporary).unwrap().count(),
            0,
            "{signal}"
        );
        // git has ended with it: its connection is closed.
        stream.set_nonblocking(true).unwrap();
        eventually("the end of git", || {
            let mut rest = [0; 1024];
            match stream.read(&mut rest) {
                Ok(0) => Some(()),
                Ok(_) => None,
                Err(e) => (e.kind() != std::io::ErrorKind::WouldBlock).then_some(()),
            }
        });
    }
}

/// Files take long enough to be copied that the signal comes meanwhile.
#[test]
fn interrupted_copying_of_many_skills_leaves_nothing() {
    let source = tempfile::tempdir().unwrap();
    for at in 0..2_000 {
        skill(source.path(), &format!("s{at}"), "text", "hint = 'h'");
    }
    for (signal, code) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path();
        let child = command(dir)
            .args(["skill", "install", "--all", source.path().to_str().unwrap()])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        eventually("the first copies", || {
            let names = installed(dir);
            names
                .iter()
                .any(|name| name.starts_with(".install-"))
                .then_some(())
        });
        let kill = Command::new("kill")
            .args([format!("-{signal}"), child.id().to_string()])
            .status();
        assert!(kill.unwrap().success());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{signal}");
        assert_eq!(installed(dir), [""; 0], "{signal}");
    }
}

#[test]
fn installation_after_a_killed_one_removes_what_that_left() {
    let (home, source) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let dir = home.path();
    skill(source.path(), "one", "text", "");
    write(&dir.join("skills/.install-left/one/SKILL.md"), "half");
    assert_eq!(
        quiet(ati(dir, &["--output", "text", "skill", "list"])),
        "No skills found.\n"
    );
    let path = source.path().join("one");
    quiet(ati(dir, &["skill", "install", path.to_str().unwrap()]));
    assert_eq!(installed(dir), ["one"]);
}
