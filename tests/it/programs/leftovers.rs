//! What is left after many calls, and after the end of ati.

use std::path::{Path, PathBuf};

use serde_json::json;

use super::faults::running;
use super::{call, here, result, setup, with_script};
use crate::support::ati::{Proxy, stderr};
use crate::support::eventually;

/// Tells where it is, and stays.
const STAY: &str = r#"pwd > "$1.new"; echo "$FILE" >> "$1.new"; mv "$1.new" "$1"; trap '' TERM HUP; sleep 4242.611 & sleep 4242.611; wait"#;

fn children(pid: u32) -> Vec<String> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let stats = all.filter_map(|it| std::fs::read_to_string(it.path().join("stat")).ok());
    let of = |stat: &String| {
        let rest = stat.rsplit(')').next().unwrap_or_default();
        rest.split_whitespace().nth(1) == Some(&pid.to_string())
    };
    stats.filter(of).collect()
}

fn folders_of_calls(temporary: &Path) -> usize {
    let all = std::fs::read_dir(temporary).unwrap().flatten();
    all.count()
}

fn many_calls(proxy: &Proxy, temporary: &Path, count: usize) {
    let before = eventually("a quiet start", || {
        assert_eq!(result(proxy, "show", &[]), "ok");
        Some(proxy.descriptors())
    });
    let each = count / 8;
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for n in 0..each {
                    let answer = call(proxy, &json!({"tool_name": "show", "args": [n]}));
                    assert_eq!(answer.status, 200, "{}", answer.text());
                }
            });
        }
    });
    eventually("no process", || {
        children(proxy.pid()).is_empty().then_some(())
    });
    assert_eq!(folders_of_calls(temporary), 0);
    let creds = std::fs::read_dir(proxy.path(".creds")).unwrap().count();
    assert_eq!(creds, 0);
    // Connections of the test itself may still be closing.
    eventually("no descriptor", || {
        (proxy.descriptors() <= before + 2).then_some(())
    });
}

/// With a sealed keyring, so that each call has a file of its own.
fn sealed(script: &str) -> (Proxy, PathBuf) {
    let setup = with_script(setup(), "show", script, "cli_env = { FILE = '@{account}' }");
    let dir = setup.path().to_owned();
    let source = dir.join("source.json");
    std::fs::write(&source, r#"{"account": "planted-sealed"}"#).unwrap();
    let sealed = here(&dir)
        .args(["edge", "bootstrap-keyring", "--from-file"])
        .arg(&source)
        .arg("--ati-dir")
        .arg(&dir)
        .output()
        .unwrap();
    assert!(sealed.status.success(), "{}", stderr(&sealed));
    std::fs::rename(dir.join(".keyring-key"), dir.join("one-shot")).unwrap();
    let temporary = dir.join("tmp");
    std::fs::create_dir(&temporary).unwrap();
    let proxy = setup.env("TMPDIR", temporary.to_str().unwrap()).start();
    (proxy, temporary)
}

#[test]
fn many_calls_leave_nothing_behind() {
    let (proxy, temporary) = sealed("touch file; (sleep 0.01 &) ; echo ok");
    many_calls(&proxy, &temporary, 80);
}

#[test]
#[ignore = "heavy: a thousand programs"]
fn thousand_calls_leave_nothing_behind() {
    let (proxy, temporary) = sealed("touch file; (sleep 0.01 &) ; echo ok");
    many_calls(&proxy, &temporary, 1000);
}

#[test]
fn killed_proxy_leaves_no_program_and_no_file() {
    let (mut proxy, temporary) = sealed(STAY);
    let told = proxy.path("told");
    let body = json!({"tool_name": "show", "args": [told]}).to_string();
    let mut client = proxy.client();
    let head = format!(
        "POST /call HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    client.write(head.as_bytes());
    let text = eventually("the program", || std::fs::read_to_string(&told).ok());
    let paths: Vec<&Path> = text.lines().map(Path::new).collect();
    assert!(
        paths.len() == 2 && paths.iter().all(|path| path.exists()),
        "{text}"
    );
    proxy.signal("KILL");
    proxy.wait();
    eventually("no program", || (running("4242.611") == 0).then_some(()));
    eventually("no file", || {
        (!paths.iter().any(|path| path.exists())).then_some(())
    });
    assert_eq!(folders_of_calls(&temporary), 0);
}
