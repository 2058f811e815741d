//! Calls that end in another way than well: nothing of them is left.

use std::io::{Read as _, Write as _};
use std::process::Stdio;

use serde_json::{Value, json};

use super::{MANIFEST, World, names};
use crate::support::ati::{Setup, command};
use crate::support::eventually;
use crate::support::http::Client;
use crate::support::upstream::Upstream;

/// Writes half a file, says so, and goes on for long.
fn slow(mark: &std::path::Path) -> String {
    format!("--do=echo half > $2; touch {}; sleep 600", mark.display())
}

/// A call whose program runs.
fn call_slowly(world: &World, mark: &std::path::Path) -> Client {
    let body = json!({"tool_name": "bb", "raw_args": [slow(mark), "shot", "x.png"]}).to_string();
    let head = format!(
        "POST /call HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let mut client = world.proxy.client();
    client.write(format!("{head}{body}").as_bytes());
    eventually("the program runs", || mark.exists().then_some(()));
    client
}

#[test]
fn program_that_times_out_leaves_nothing() {
    let brief = MANIFEST.replace("cli_output_args", "cli_timeout_secs = 1\ncli_output_args");
    let temporary = tempfile::tempdir().unwrap();
    let proxy = Setup::new()
        .manifest("bb", &brief)
        .credentials(&json!({"token": super::SECRET}))
        .env("TMPDIR", temporary.path().to_str().unwrap())
        .start();
    let words = ["--do=echo half > $2; sleep 600", "shot", "x.png"];
    let (status, answer) = super::post(&mut proxy.client(), &words);
    assert_eq!(
        (status, &answer["error"]),
        (502, &json!("CLI error: CLI timed out after 1s"))
    );
    eventually("the folder is gone", || {
        names(temporary.path()).is_empty().then_some(())
    });
}

#[test]
fn caller_that_leaves_leaves_nothing() {
    let world = World::new();
    let client = call_slowly(&world, &world.at("mark"));
    assert!(!names(world.temporary.path()).is_empty());
    drop(client);
    world.assert_nothing_left();
}

#[test]
fn proxy_that_is_killed_leaves_nothing() {
    let world = World::new();
    let mark = world.at("mark");
    let _client = call_slowly(&world, &mark);
    assert!(!names(world.temporary.path()).is_empty());
    let pid = rustix::process::Pid::from_raw(world.proxy.pid() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    world.assert_nothing_left();
}

#[test]
fn local_command_that_is_interrupted_leaves_nothing() {
    let world = World::new();
    let mark = world.at("mark");
    let mut child = world
        .command()
        .args(["run", "bb", &slow(&mark), "shot", "new/x.png"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    eventually("the program runs", || mark.exists().then_some(()));
    interrupt(&child);
    child.wait().unwrap();
    assert!(!world.at("new").exists());
    world.assert_nothing_left();
}

#[test]
fn download_that_is_interrupted_leaves_nothing_partial() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("new/x.bin");
    let ours = path.to_str().unwrap().to_owned();
    let named: Value = ours.clone().into();
    let proxy = Upstream::raw(move |mut stream| {
        let mut request = [0; 4096];
        assert!(stream.read(&mut request).unwrap() > 0);
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n";
        let begin =
            format!(r#"{head}{{"result":{{"stdout":"","outputs":{{{named}:{{"content_base64":""#);
        stream.write_all(begin.as_bytes()).unwrap();
        stream.write_all(&[b'A'; 1 << 20]).unwrap();
        // It stays open until the caller has left.
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    });
    let mut child = command(dir.path())
        .env("ATI_PROXY_URL", proxy.url())
        .args(["run", "bb", &ours])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    eventually("the file has begun", || {
        path.parent().unwrap().exists().then_some(())
    });
    interrupt(&child);
    assert!(!child.wait().unwrap().success());
    assert_eq!(names(path.parent().unwrap()), [""; 0]);
}

fn interrupt(child: &std::process::Child) {
    let pid = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
}
