//! The messages between a process and its successor, with one side played by the test.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;

use super::{HALF, Systemd, kill, predecessor};
use crate::support::PATIENCE;
use crate::support::ati::{Proxy, Setup};

/// A successor played by the test. It gets the listeners, and drops them.
struct Successor(BufReader<UnixStream>);

impl Successor {
    fn ask(proxy: &Proxy) -> Self {
        let stream = UnixStream::connect(proxy.path("run/upgrade.sock")).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut successor = Successor(BufReader::new(stream));
        successor.say("upgrade\n");
        assert!(successor.hear().contains("listeners"));
        successor
    }

    fn ready(&mut self) {
        self.say(&format!("ready {}\n", std::process::id()));
    }

    fn say(&mut self, words: &str) {
        self.0.get_mut().write_all(words.as_bytes()).unwrap();
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line
    }
}

#[test]
fn reload_during_a_hand_over_is_passed_to_the_successor() {
    let mut proxy = Setup::new().start();
    // Half a request, so that the drain takes a while.
    let mut slow = proxy.client();
    slow.write(HALF);
    proxy.settles(r#"ati_in_flight{route="/call"}"#, 1.0);
    let mut successor = Successor::ask(&proxy);
    assert_eq!(proxy.reload()["message"], "reload done");
    successor.ready();
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
    let mut proxy = Setup::new().start();
    proxy.reload();
    let mut successor = Successor::ask(&proxy);
    successor.ready();
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
    let mut proxy = setup.env("NOTIFY_SOCKET", path.to_str().unwrap()).start();
    assert!(systemd.next().starts_with("READY=1"));
    // It dies after `ready`.
    let mut successor = Successor::ask(&proxy);
    successor.ready();
    drop(successor);
    // It dies after `yours`.
    let mut successor = Successor::ask(&proxy);
    successor.ready();
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
    let mut proxy = Setup::new().start();
    let mut stream = UnixStream::connect(proxy.path("run/upgrade.sock")).unwrap();
    stream.write_all(b"upgrade\n").unwrap();
    proxy.log.wait_for("a new process asks for the listeners");
    proxy.signal("TERM");
    assert_eq!(proxy.wait().code(), Some(0));
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    assert!(said.contains("it is stopping"), "{said}");
}
