//! The messages between a process and its successor, with one side played by the test.

use std::net::Shutdown;
use std::os::unix::process::ExitStatusExt;

use super::{HALF, Played, Systemd, kill, predecessor, relay_replaces_the_program};
use crate::support::ati::Setup;

#[test]
fn reload_during_a_hand_over_is_passed_to_the_successor() {
    let mut proxy = relay_replaces_the_program(Setup::new());
    // Half a request, so that the drain takes a while.
    let mut slow = proxy.client();
    slow.write(HALF);
    proxy.settles(r#"ati_in_flight{route="/call"}"#, 1.0);
    let mut successor = Played::successor(&proxy);
    assert_eq!(proxy.reload()["message"], "reload done");
    successor.say("ready\n");
    assert_eq!(successor.hear(), "yours\n");
    // A reload between `yours` and `mine` is passed on after `mine`.
    proxy.signal("HUP");
    successor.say("mine\n");
    for words in ["told\n", "reload\n", "reload\n"] {
        assert_eq!(successor.hear(), words);
    }
    proxy.signal("HUP");
    assert_eq!(successor.hear(), "reload\n");
    slow.write(b"cd");
    assert_eq!(successor.hear(), "");
    assert_eq!(proxy.wait().code(), Some(0));
    // A reload from before the hand-over isn't passed on: the successor reads the files itself.
    let mut proxy = relay_replaces_the_program(Setup::new());
    proxy.reload();
    let mut successor = Played::successor(&proxy);
    successor.say("ready\n");
    assert_eq!(successor.hear(), "yours\n");
    successor.say("mine\n");
    assert_eq!(successor.hear(), "told\n");
    assert_eq!(successor.hear(), "");
    assert_eq!(proxy.wait().code(), Some(0));
}

#[test]
fn successor_signalled_before_the_commit_reloads_after_it_and_ends_at_once() {
    let setup = Setup::new().arg("--upgrade");
    let old = predecessor(&setup, |_, pid| kill("HUP", pid));
    let proxy = setup.start();
    let (stream, answer) = old.join().unwrap();
    assert_eq!(answer, "mine\n");
    proxy.log.wait_for("reload done");
    drop(stream);
    // SIGTERM is not put off.
    let setup = Setup::new().arg("--upgrade");
    let old = predecessor(&setup, |_, pid| kill("TERM", pid));
    assert_eq!(setup.output().status.signal(), Some(15));
    assert_eq!(old.join().unwrap().1, "");
}

#[test]
fn successor_ready_too_late_ends() {
    let setup = Setup::new().arg("--upgrade");
    let old = predecessor(&setup, |stream, _| stream.shutdown(Shutdown::Read).unwrap());
    let output = setup.output();
    assert!(!output.status.success());
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("it no longer waits for us"), "{text}");
    assert_eq!(old.join().unwrap().1, "");
}

#[test]
fn successor_that_dies_before_the_commit_changes_nothing() {
    let setup = Setup::new();
    let path = setup.path().join("notify");
    let systemd = Systemd::listen(&path);
    let setup = setup.env("NOTIFY_SOCKET", path.to_str().unwrap());
    let mut proxy = relay_replaces_the_program(setup);
    assert!(systemd.next().starts_with("READY=1"));
    // It dies after `ready`.
    let mut successor = Played::successor(&proxy);
    successor.say("ready\n");
    drop(successor);
    // It dies after `yours`.
    let mut successor = Played::successor(&proxy);
    successor.say("ready\n");
    assert_eq!(successor.hear(), "yours\n");
    drop(successor);
    proxy.log.wait_for("the new process did not take over");
    // systemd was not notified: MAINPID can't be taken back.
    systemd.has_heard_nothing();
    assert_eq!(proxy.client().get("/health").status, 200);
    assert!(proxy.is_running());
    // The next successor takes over.
    let mut former = proxy.upgrade();
    assert_eq!(former.wait().code(), Some(0));
    assert_eq!(proxy.client().get("/health").status, 200);
}

#[test]
fn proxy_being_stopped_refuses_a_successor() {
    let mut proxy = relay_replaces_the_program(Setup::new());
    let mut successor = Played::successor(&proxy);
    proxy.signal("TERM");
    assert_eq!(proxy.wait().code(), Some(0));
    let said = successor.hear_all();
    assert!(said.contains("it is stopping"), "{said}");
}
