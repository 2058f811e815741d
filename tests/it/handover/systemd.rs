//! What systemd is notified of.

use std::io::Write;

use super::{Installed, Systemd, kill, predecessor};
use crate::support::ati::Setup;
use crate::support::eventually;

#[test]
fn successor_notifies_systemd_only_after_it_is_announced() {
    let setup = Setup::new();
    let path = setup.path().join("notify");
    let systemd = Systemd::listen(&path);
    let setup = setup
        .env("NOTIFY_SOCKET", path.to_str().unwrap())
        .env("WATCHDOG_USEC", "200000")
        .arg("--upgrade");
    let old = predecessor(&setup, |_, _| ());
    let proxy = setup.start();
    let (mut stream, answer) = old.join().unwrap();
    assert_eq!(answer, "mine\n");
    // Requests are served before systemd is notified.
    assert_eq!(proxy.client().get("/health").status, 200);
    systemd.has_heard_nothing();
    stream.write_all(b"told\nreload\n").unwrap();
    assert!(systemd.next().starts_with("READY=1"));
    assert!(systemd.next_but_watchdog().starts_with("RELOADING=1"));
    proxy.log.wait_for("reload done");
}

#[test]
fn systemd_is_notified_of_start_reload_hand_over_and_stop() {
    let setup = Setup::new();
    let path = setup.path().join("notify");
    let systemd = Systemd::listen(&path);
    let setup = setup
        .env("NOTIFY_SOCKET", path.to_str().unwrap())
        .env("WATCHDOG_USEC", "200000");
    let installed = Installed::start(setup);
    let old = installed.proxy.pid();
    assert!(
        systemd
            .next_but_watchdog()
            .starts_with("READY=1\nSTATUS=serving")
    );
    for _ in 0..3 {
        assert_eq!(systemd.next(), "WATCHDOG=1");
    }
    installed.proxy.signal("HUP");
    let news = systemd.next_but_watchdog();
    assert!(news.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{news}");
    assert!(systemd.next_but_watchdog().starts_with("READY=1"));
    installed.proxy.signal("USR2");
    let news = systemd.next_but_watchdog();
    let new = installed_pid(&news);
    assert_ne!(new, old);
    assert!(systemd.next_but_watchdog().starts_with("READY=1"));
    // The successor feeds the watchdog, although WATCHDOG_PID names its predecessor.
    assert_eq!(systemd.next(), "WATCHDOG=1");
    eventually("the new process", || {
        (installed.proxy.serving_pid() == Some(new)).then_some(())
    });
    kill("TERM", new);
    assert_eq!(systemd.next_but_watchdog(), "STOPPING=1");
}

fn installed_pid(news: &str) -> u32 {
    let pid = news
        .strip_prefix("MAINPID=")
        .unwrap_or_else(|| panic!("{news}"));
    pid.parse().unwrap()
}
