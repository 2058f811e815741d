//! Where sessions live: on a worker, so that a call crosses no thread.

use std::collections::HashMap;
use std::path::PathBuf;

use serde_json::json;

use super::{Gate, started, with};
use crate::support::ati::Proxy;
use crate::support::http::Client;

const CALLS: usize = 300;

/// How often each thread of the proxy has gone to sleep, by its name.
fn sleeps(proxy: &Proxy) -> HashMap<String, u64> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", proxy.pid())).unwrap();
    let mut sleeps = HashMap::new();
    for task in tasks {
        let read = |path: PathBuf| std::fs::read_to_string(path).unwrap_or_default();
        let folder = task.unwrap().path();
        let status = read(folder.join("status"));
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        let count: u64 = line.map_or(0, |count| count.trim().parse().unwrap());
        let name = read(folder.join("comm"));
        *sleeps.entry(name.trim().to_owned()).or_default() += count;
    }
    sleeps
}

fn calls(client: &mut Client, count: usize) {
    for number in 0..count {
        let body = json!({"tool_name": "s:echo", "args": {"text": format!("n{number}")}});
        let answer = client.send("POST", "/call", &[], body.to_string().as_bytes());
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(answer.json()["result"], format!("n{number}"));
    }
}

#[test]
fn calls_of_a_stdio_tool_wake_no_thread_but_the_worker() {
    let proxy = started(with("good", "").conf("[server]\nworkers = 1\n"));
    let mut client = proxy.client();
    calls(&mut client, 3);
    let before = sleeps(&proxy);
    calls(&mut client, CALLS);
    let after = sleeps(&proxy);
    let slept = |name: &str| after[name] - before[name];
    // The binary's name is the main thread's. Both have work of their own, now and then.
    let most = CALLS as u64 / 3;
    assert!(slept("children") < most, "{before:?} {after:?}");
    assert!(slept("ati") < most, "{before:?} {after:?}");
}

#[test]
fn session_of_one_worker_serves_callers_on_every_worker() {
    let proxy = started(with("good", "").conf("[server]\nworkers = 3\n"));
    let before = sleeps(&proxy);
    // Connections go to the worker with the fewest.
    let mut clients: Vec<Client> = (0..6).map(|_| proxy.client()).collect();
    for client in &mut clients {
        calls(client, CALLS / 6);
    }
    let pids: Vec<_> = clients
        .iter_mut()
        .map(|client| {
            let body = json!({"tool_name": "s:pid", "args": {}}).to_string();
            client.send("POST", "/call", &[], body.as_bytes()).json()["result"].clone()
        })
        .collect();
    assert!(pids.iter().all(|pid| *pid == pids[0]), "{pids:?}");
    let after = sleeps(&proxy);
    for worker in ["worker-0", "worker-1", "worker-2"] {
        assert!(after[worker] > before[worker] + 50, "{before:?} {after:?}");
    }
    assert!(after["children"] < before["children"] + CALLS as u64 / 3);
    // And so are calls that wait at the same time.
    let gate = Gate::new(&proxy);
    let held: Vec<_> = (0..6).map(|_| gate.call(&proxy, "s:slow")).collect();
    gate.wait_for("slow");
    gate.open();
    for call in held {
        assert_eq!(call.join().unwrap().0, 200);
    }
}
