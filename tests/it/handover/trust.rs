//! Who gets the listeners: processes are known by what the kernel says about them.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use serde_json::json;

use super::{Played, kill, relay, relay_replaces_the_program};
use crate::support::ati::{BINARY, Proxy, Setup, ati, stderr};
use crate::support::{PATIENCE, eventually};

const REFUSED: &str = "a process is refused at the upgrade socket";
const REFUSALS: &str = r#"ati_refusals_total{reason="upgrade_socket"}"#;

/// A proxy with an MCP server that runs shell scripts.
fn with_shell() -> Proxy {
    let manifest = format!(
        r#"
            [provider]
            name = "s"
            handler = "mcp"
            mcp_command = "{}"
            mcp_args = ["shell"]
        "#,
        relay().display()
    );
    let proxy = Setup::new().manifest("s", &manifest).start();
    proxy.log.wait_for("tools listed");
    proxy
}

fn run(proxy: &Proxy, script: &str) -> String {
    let answer = proxy.call(None, "s:run", json!({"text": script}));
    assert_eq!(answer.status, 200, "{}", answer.text());
    // A text that is JSON is shown as that JSON.
    match &answer.json()["result"] {
        serde_json::Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}

/// A script that kills the supervisor of the MCP server, then runs on as an orphan in a session of
/// its own.
fn escaped(script: &str) -> String {
    format!(
        r#"supervisor=$(sed 's/.*) . //; s/ .*//' /proc/$PPID/stat)
        setsid sh -c 'kill -KILL '$supervisor'; while kill -0 '$supervisor' 2>/dev/null; do sleep 0.01; done; {script}' >/dev/null 2>&1 &"#
    )
}

#[test]
fn mcp_server_that_asks_for_the_listeners_gets_nothing() {
    let mut proxy = with_shell();
    let socket = proxy.path("run/upgrade.sock");
    let (relay, socket) = (relay(), socket.display());
    // Whatever it asks for, and whatever it says that it is.
    for request in [
        "upgrade\\nready 1\\nmine\\n",
        "upgrade\\nready\\nmine\\n",
        "upgrade 0000000000000000000000000000000000000000000000000000000000000000\\nready\\nmine\\n",
        "reload\\n",
        "",
    ] {
        let script = format!("printf '{request}' | {} relay {socket}", relay.display());
        let heard = run(&proxy, &script);
        assert!(heard.contains("that was started by the proxy"), "{heard}");
        assert_eq!(heard.lines().count(), 1, "{heard}");
        assert!(
            !heard.contains("edge") && !heard.contains("yours"),
            "{heard}"
        );
    }
    let record = proxy.log.wait_for(REFUSED);
    assert_eq!(record["level"], "WARN");
    assert_eq!(
        record["program"],
        relay.canonicalize().unwrap().to_str().unwrap()
    );
    assert!(record["pid"].is_u64(), "{record}");
    let reason = record["reason"].as_str().unwrap();
    assert!(reason.contains("started by the proxy"), "{record}");
    proxy.settles(REFUSALS, 5.0);
    // Nor by means of ati itself.
    let command = format!(
        "{BINARY} proxy --port 0 --upgrade --ati-dir {} 2>&1",
        proxy.dir.path().display()
    );
    let heard = run(&proxy, &command);
    assert!(heard.contains("that was started by the proxy"), "{heard}");
    assert!(proxy.is_running());
    assert_eq!(proxy.client().get("/health").status, 200);
    assert!(proxy.log.find_all("asks for the listeners").is_empty());
    let mut former = proxy.upgrade();
    assert_eq!(former.wait().code(), Some(0));
}

#[test]
fn program_that_left_its_supervisor_and_runs_ati_gets_nothing() {
    let mut proxy = with_shell();
    let output = proxy.path("heard");
    let command = format!(
        "exec {BINARY} proxy --port 0 --upgrade --ati-dir {} 2>{}",
        proxy.dir.path().display(),
        output.display()
    );
    // The server's answer may be lost with its supervisor.
    proxy.call(None, "s:run", json!({"text": escaped(&command)}));
    let record = proxy.log.wait_for(REFUSED);
    assert!(
        record["reason"]
            .as_str()
            .unwrap()
            .contains("started by the proxy"),
        "{record}"
    );
    let heard = eventually("the end of ati", || {
        let heard = std::fs::read_to_string(&output).ok()?;
        heard.contains("trusts no process").then_some(heard)
    });
    assert_eq!(heard.lines().count(), 1, "{heard}");
    // The orphan is waited for once it has ended.
    let stat = format!("/proc/{}/stat", record["pid"]);
    eventually("the end of the orphan", || {
        (!std::path::Path::new(&stat).exists()).then_some(())
    });
    assert!(proxy.is_running());
    assert_eq!(proxy.client().get("/health").status, 200);
}

#[test]
fn program_that_left_its_supervisor_ends_with_the_proxy() {
    let mut proxy = with_shell();
    let file = proxy.path("pid");
    let script = format!("echo $$ >{}; exec sleep 3600", file.display());
    proxy.call(None, "s:run", json!({"text": escaped(&script)}));
    let pid: u32 = eventually("the orphan's pid", || {
        std::fs::read_to_string(&file).ok()?.trim().parse().ok()
    });
    let parent = |pid: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (_, rest) = stat.rsplit_once(')')?;
        rest.split_whitespace().nth(1)?.parse::<u32>().ok()
    };
    assert_eq!(parent(pid), Some(proxy.pid()));
    proxy.signal("TERM");
    assert_eq!(proxy.wait().code(), Some(0));
    eventually("the end of the orphan", || {
        parent(pid).is_none().then_some(())
    });
}

#[test]
fn another_program_of_the_same_user_gets_no_listeners() {
    let mut proxy = Setup::new().start();
    let mut stranger = Played::connect(&proxy);
    stranger.say("upgrade\n");
    let heard = stranger.hear_all();
    assert!(
        heard.contains("that doesn't run the proxy's program"),
        "{heard}"
    );
    assert!(!heard.contains("edge"), "{heard}");
    let record = proxy.log.wait_for(REFUSED);
    assert_eq!(record["pid"], stranger.pid());
    proxy.settles(REFUSALS, 1.0);
    // It doesn't hold an invitation either.
    let mut stranger = Played::connect(&proxy);
    stranger.say(&format!("upgrade {}\n", "0".repeat(64)));
    let heard = stranger.hear_all();
    assert!(heard.contains("what the proxy gives"), "{heard}");
    // It may ask what `ati status` asks.
    let mut stranger = Played::connect(&proxy);
    stranger.say("status\n");
    assert!(stranger.hear().contains("\"answer\""));
    assert!(proxy.is_running());
    assert_eq!(proxy.upgrade().wait().code(), Some(0));
}

#[test]
fn successor_is_known_by_its_connection_not_by_the_pid_that_it_says() {
    let mut proxy = relay_replaces_the_program(Setup::new());
    let mut successor = Played::successor(&proxy);
    successor.say("ready 1\n");
    let heard = successor.hear_all();
    assert!(heard.contains("did not get ready"), "{heard}");
    let mut successor = Played::successor(&proxy);
    successor.say("ready\n");
    assert_eq!(successor.hear(), "yours\n");
    successor.say("mine\n");
    let record = proxy.log.wait_for("a new process has taken over, draining");
    assert_eq!(record["pid"], successor.pid());
    assert_eq!(proxy.wait().code(), Some(0));
}

#[test]
fn silent_connections_delay_no_upgrade_and_are_closed() {
    let mut proxy = Setup::new().start();
    let connect = || UnixStream::connect(proxy.path("run/upgrade.sock")).unwrap();
    let mut silent: Vec<UnixStream> = (0..8).map(|_| connect()).collect();
    silent[0].write_all(b"upgr").unwrap();
    // `ati status` is answered meanwhile.
    let status = ati(proxy.dir.path(), &["status"]);
    assert!(status.status.success(), "{}", stderr(&status));
    let begun = Instant::now();
    for stream in &mut silent {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut heard = String::new();
        stream.read_to_string(&mut heard).unwrap();
        assert!(heard.contains("it was not told what"), "{heard}");
    }
    assert!(begun.elapsed() < PATIENCE / 2, "{:?}", begun.elapsed());
    let silent: Vec<UnixStream> = (0..8)
        .map(|_| UnixStream::connect(proxy.path("run/upgrade.sock")).unwrap())
        .collect();
    let mut former = proxy.upgrade();
    assert_eq!(former.wait().code(), Some(0));
    drop(silent);
}

#[test]
fn second_successor_is_told_that_another_is_taking_over() {
    let proxy = relay_replaces_the_program(Setup::new());
    // It has the listeners, and is not ready.
    let slow = Played::successor(&proxy);
    kill("STOP", slow.pid());
    let output = proxy.successor().output().unwrap();
    assert!(!output.status.success());
    let text = stderr(&output);
    assert!(
        text.contains("another process is taking over from it"),
        "{text}"
    );
    assert_eq!(proxy.client().get("/health").status, 200);
}
