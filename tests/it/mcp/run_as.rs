//! `run_as`: server processes of another user.

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::json;

use super::{failure, result, server};
use crate::support::ati::{BINARY, Proxy, Setup, ati, stderr, stdout};
use crate::support::skip::skip;

/// Whose proxy it is, where it isn't root's.
const PROXY: u32 = 47010;
/// A user and a group that have no names.
const OTHER: &str = "47011:47012";
const SCRIPT: &str = "id -u; id -g; id -G; echo $HOME; pwd; \
    sed -n 's/^\\(Cap...\\|NoNewPrivs\\):[[:space:]]*//p' /proc/self/status; \
    sed -n 's/^Uid:[[:space:]]*//p' /proc/$(sed 's/.*) . //; s/ .*//' /proc/$PPID/stat)/status";

fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        skip("only root may start programs as another user");
    }
    root
}

/// Programs in a folder that every user may enter: the build folder may be closed to others.
struct Open(tempfile::TempDir);

impl Open {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        for (name, program) in [("ati", PathBuf::from(BINARY)), ("server", server())] {
            std::fs::copy(program, dir.path().join(name)).unwrap();
        }
        Open(dir)
    }

    fn manifest(&self, name: &str, more: &str) -> String {
        let program = self.0.path().join("server");
        format!(
            r#"
                [provider]
                name = "{name}"
                handler = "mcp"
                mcp_command = "{}"
                mcp_args = ["shell"]
                {more}
            "#,
            program.display()
        )
    }

    /// A proxy of another user than root, with these options of setpriv.
    fn start_without_root(&self, setup: Setup, options: &[&str]) -> Proxy {
        let original = setup.command();
        for path in walk(setup.path()) {
            chown(path, Some(PROXY), Some(PROXY)).unwrap();
        }
        let mut command = Command::new("setpriv");
        command
            .env_clear()
            .args(["--reuid=47010", "--regid=47010", "--clear-groups"])
            .args(options)
            .arg("--")
            .arg(self.0.path().join("ati"))
            .args(original.get_args())
            .stdin(Stdio::null());
        for (name, value) in original.get_envs() {
            command.env(name, value.unwrap());
        }
        setup.start_with(command)
    }
}

fn walk(path: &Path) -> Vec<PathBuf> {
    let mut found = vec![path.to_owned()];
    for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
        found.extend(walk(&entry.path()));
    }
    found
}

/// What a server sees of itself, line by line.
fn seen(proxy: &Proxy, tool: &str) -> Vec<String> {
    let seen = result(proxy, tool, json!({"text": SCRIPT}));
    let lines = seen.as_str().unwrap().lines();
    lines.map(str::to_owned).collect()
}

#[test]
fn server_with_run_as_has_the_rights_of_that_user_only() {
    if !is_root() {
        return;
    }
    let open = Open::new();
    let proxy = Setup::new()
        .manifest("n", &open.manifest("n", "run_as = 'daemon'"))
        .manifest("o", &open.manifest("o", &format!("run_as = '{OTHER}'")))
        .manifest("own", &open.manifest("own", ""))
        .start();
    let none = "0000000000000000";
    let n = seen(&proxy, "n:run");
    assert_eq!(n[0], "1", "{n:?}");
    assert_eq!(n[1], n[2], "no further groups: {n:?}");
    // Inheritable, permitted and effective capabilities; the bounding set is of no use; ambient.
    assert_eq!([&n[5], &n[6], &n[7], &n[9]], [none; 4], "{n:?}");
    assert_eq!(n[10], "1", "no new privileges: {n:?}");
    assert_eq!(n[11], ["1"; 4].join("\t"), "the supervisor: {n:?}");
    let o = seen(&proxy, "o:run");
    assert_eq!(o[..5], ["47011", "47012", "47012", "/", "/"], "{o:?}");
    let own = seen(&proxy, "own:run");
    assert_eq!(own[0], "0", "{own:?}");
    assert_ne!(own[10], "1", "{own:?}");
    // It can't reach the files of the proxy's user, nor its upgrade socket.
    let socket = proxy.path("run/upgrade.sock");
    let script = format!(
        "cat {} 2>&1; {} relay {} ; echo $?",
        proxy.path("manifests/n.toml").display(),
        server_of(&open),
        socket.display()
    );
    let heard = result(&proxy, "n:run", json!({"text": script}));
    let heard = heard.as_str().unwrap();
    assert!(
        heard.contains("Permission denied") && heard.ends_with("4\n"),
        "{heard}"
    );
    assert_eq!(
        proxy.metric(r#"ati_refusals_total{reason="upgrade_socket"}"#),
        None
    );
}

#[test]
fn server_with_run_as_and_a_sandbox_has_both() {
    if !is_root() || ati::process::abilities().lack().is_some() {
        return;
    }
    let open = Open::new();
    let table = "run_as = 'daemon'\n[provider.cli_sandbox]\nnet = false\nfile_bytes = 1000";
    let proxy = Setup::new()
        .manifest("n", &open.manifest("n", table))
        .start();
    let script = "id -u; grep Seccomp: /proc/self/status; ulimit -f; : > /tmp/ati-test-x; echo $?";
    let seen = result(&proxy, "n:run", json!({"text": script}));
    // In blocks of 512 or of 1024 bytes.
    let seen = seen.as_str().unwrap().replace("\n0\n", "\n1\n");
    let failed = seen.ends_with("\n1\n") || seen.ends_with("\n2\n");
    assert!(seen.starts_with("1\nSeccomp:\t2\n1\n") && failed, "{seen}");
}

fn server_of(open: &Open) -> String {
    open.0.path().join("server").display().to_string()
}

#[test]
fn run_as_without_the_permission_fails_with_its_reason() {
    if !is_root() {
        return;
    }
    let open = Open::new();
    let setup = Setup::new()
        .manifest("n", &open.manifest("n", &format!("run_as = '{OTHER}'")))
        .manifest("own", &open.manifest("own", "run_as = '47010:47010'"));
    let proxy = open.start_without_root(setup, &[]);
    let answer = proxy.call(None, "n:run", json!({"text": "id"}));
    assert_eq!(answer.status, 503, "{}", answer.text());
    let text = answer.text();
    assert!(
        text.contains("may not start programs as another user") && text.contains(OTHER),
        "{text}"
    );
    // Root may ask another user's proxy.
    let status = ati(proxy.dir.path(), &["status"]);
    assert!(status.status.success(), "{}", stderr(&status));
    // Its own user needs no permission.
    let own = seen(&proxy, "own:run");
    assert_eq!(own[0], "47010", "{own:?}");
}

#[test]
fn capabilities_of_the_proxy_switch_users_and_reach_no_program() {
    if !is_root() {
        return;
    }
    let open = Open::new();
    let setup = Setup::new()
        .manifest("o", &open.manifest("o", &format!("run_as = '{OTHER}'")))
        .manifest("own", &open.manifest("own", ""));
    let wanted = "+setuid,+setgid,+kill";
    let options = [
        format!("--inh-caps={wanted}"),
        format!("--ambient-caps={wanted}"),
    ];
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let proxy = open.start_without_root(setup, &options);
    let none = "0000000000000000";
    for (tool, uid) in [("o:run", "47011"), ("own:run", "47010")] {
        let seen = seen(&proxy, tool);
        assert_eq!(seen[0], uid, "{seen:?}");
        // The inheritable set gives nothing to a file without capabilities of its own.
        assert_eq!([&seen[6], &seen[7], &seen[9]], [none; 3], "{seen:?}");
    }
    // A successor has them as well.
    let old = proxy.pid();
    proxy.signal("USR2");
    let new = crate::support::eventually("the new process", || {
        proxy.serving_pid().filter(|pid| *pid != old)
    });
    let status = std::fs::read_to_string(format!("/proc/{new}/status")).unwrap();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    assert_eq!(effective.unwrap().trim(), "00000000000000e0", "{status}");
    let seen = seen(&proxy, "o:run");
    assert_eq!(seen[0], "47011", "{seen:?}");
    super::kill(new);
}

#[test]
fn run_as_that_cannot_work_is_reported() {
    let open = Open::new();
    let report = |more: &str| {
        let setup = Setup::new().manifest("n", &open.manifest("n", more));
        let output = ati(setup.path(), &["check", "--strict"]);
        let report: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
        (output.status.code(), report.to_string())
    };
    for (more, says) in [
        ("run_as = 'no-such-user'", "there is no such user"),
        ("run_as = 'root'", "that is root"),
        ("run_as = 'a b'", "expected a user"),
        ("run_as = 7", "run_as"),
        (
            "mcp_transport = 'http'\nmcp_url = 'http://127.0.0.1:9/'\nrun_as = 'daemon'",
            "starts no program",
        ),
    ] {
        let (code, report) = report(more);
        assert_ne!(code, Some(0), "{report}");
        assert!(
            report.contains(says) && report.contains("run_as"),
            "{report}"
        );
    }
    let proxy = Setup::new()
        .manifest(
            "n",
            &open.manifest("n", "run_as = 'no-such-user'\n[[tools]]\nname = 'n:run'"),
        )
        .start();
    let text = failure(&proxy, "n:run", json!({"text": "id"}));
    assert!(
        text.contains("there is no such user in /etc/passwd"),
        "{text}"
    );
}
