//! SIGUSR2: the process starts its own successor.

use super::{HALF, Installed, kill};
use crate::support::ati::{BINARY, Setup};
use crate::support::eventually;

#[test]
fn sigusr2_starts_the_replaced_binary_as_successor() {
    let mut installed = Installed::start(Setup::new());
    let old = installed.proxy.pid();
    // A binary that doesn't work: the old process logs it and goes on.
    installed.replace(b"#!/bin/sh\nexit 3\n");
    installed.proxy.signal("USR2");
    let said = installed.proxy.log.wait_for("the new process has ended");
    assert!(said["status"].as_str().unwrap().contains('3'), "{said}");
    installed.replace(b"not a program");
    installed.proxy.signal("USR2");
    installed
        .proxy
        .log
        .wait_for("the new process can't be started");
    assert_eq!(installed.proxy.client().get("/health").status, 200);
    assert!(installed.proxy.is_running());

    installed.replace(&std::fs::read(BINARY).unwrap());
    installed.proxy.signal("USR2");
    let new = eventually("the new process", || {
        installed.proxy.serving_pid().filter(|pid| *pid != old)
    });
    assert_eq!(installed.proxy.wait().code(), Some(0));
    assert_eq!(installed.proxy.client().get("/health").status, 200);
    let program = std::fs::read_link(format!("/proc/{new}/exe")).unwrap();
    assert_eq!(program, installed.binary.canonicalize().unwrap());
    // What it was invited with is neither left in its stdin nor among what others can read.
    let stdin = std::fs::read_link(format!("/proc/{new}/fd/0")).unwrap();
    assert_eq!(stdin.to_str(), Some("/dev/null"));
    for readable in ["environ", "cmdline"] {
        let text = std::fs::read(format!("/proc/{new}/{readable}")).unwrap();
        let longest = text
            .split(|byte| !byte.is_ascii_hexdigit())
            .map(<[u8]>::len);
        assert!(
            longest.max() < Some(64),
            "{}",
            String::from_utf8_lossy(&text)
        );
    }
}

#[test]
fn successor_that_dies_during_the_drain_is_logged() {
    let mut installed = Installed::start(Setup::new());
    let old = installed.proxy.pid();
    // Half a request, so that the drain takes a while.
    let mut slow = installed.proxy.client();
    slow.write(HALF);
    installed
        .proxy
        .settles(r#"ati_in_flight{route="/call"}"#, 1.0);
    installed.proxy.signal("USR2");
    let new = eventually("the new process", || {
        installed.proxy.serving_pid().filter(|pid| *pid != old)
    });
    let log = installed.proxy.log.clone();
    log.wait_for("a new process has taken over, draining");
    kill("KILL", new);
    let said = log.wait_for("the new process has ended");
    let message = said["message"].as_str().unwrap();
    assert!(message.contains("accepts until it is started"), "{said}");
    slow.write(b"cd");
    assert_eq!(installed.proxy.wait().code(), Some(0));
}
