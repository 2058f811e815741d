//! One process after another on the same sockets: upgrades, and what systemd hears of them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ati::auth::token::{Claims, Namespace};
use ati::keyring::SessionKey;
use serde_json::json;
use tungstenite::Message;

use crate::support::ati::{BINARY, Log, Proxy, Setup, write};
use crate::support::http::Client;
use crate::support::tokens::{bearer, claims, key_pair};
use crate::support::upstream::Upstream;
use crate::support::{PATIENCE, eventually};

#[test]
fn the_next_one_takes_the_sockets_and_the_old_one_ends() {
    let setup = Setup::new();
    let socket = setup.path().join("edge.sock");
    let conf = format!(
        "[[listener]]\nname = \"local\"\nlisten = \"unix:{}\"\n",
        socket.display()
    );
    let mut proxy = setup.conf(&conf).start();
    let (edge, admin) = (proxy.edge, proxy.admin);
    let mut kept = Client::connect(edge);
    assert_eq!(kept.get("/health").status, 200);
    let first = proxy.pid();

    for _ in 0..3 {
        let mut former = proxy.upgrade();
        assert_eq!(former.wait().code(), Some(0));
        former.log.wait_for("drained");
        assert_ne!(proxy.pid(), first);
        assert_eq!(Client::connect(edge).get("/health").status, 200);
        assert_eq!(Client::connect(admin).get("/ready").status, 200);
        let mut local = Client::over(UnixStream::connect(&socket).unwrap(), "local");
        assert_eq!(local.get("/health").status, 200);
    }
    assert!(kept.is_closed());
    // What may be done with a socket is what the settings say now.
    write(&proxy.path("ati.toml"), format!("{conf}mode = \"0600\"\n"));
    proxy.upgrade().wait();
    let mode = std::fs::metadata(&socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // A reload and the end work as ever.
    assert_eq!(proxy.reload()["message"], "reload done");
    proxy.signal("TERM");
    assert_eq!(proxy.wait().code(), Some(0));
}

#[test]
fn one_that_can_not_start_changes_nothing() {
    let mut proxy = Setup::new().conf("[limits]\nconnections = 100\n").start();
    let mut kept = proxy.client();
    assert_eq!(kept.get("/health").status, 200);
    for (conf, says) in [
        ("[limits]\nconnections = 0\n", "limits.connections"),
        (
            "[server.tls]\ncertificate = \"a\"\nkey = \"b\"\n",
            "can't be read",
        ),
        ("nonsense", "ati.toml"),
    ] {
        write(&proxy.path("ati.toml"), conf);
        let output = proxy.successor().output().unwrap();
        assert!(!output.status.success());
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains(says), "{text}");
        assert_eq!(kept.get("/health").status, 200);
        assert_eq!(proxy.client().get("/health").status, 200);
    }
    // A listener that the new one wants and can't have.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let conf = format!(
        "[[listener]]\nname = \"more\"\nlisten = \"{}\"\n",
        taken.local_addr().unwrap()
    );
    write(&proxy.path("ati.toml"), &conf);
    let output = proxy.successor().output().unwrap();
    assert!(
        String::from_utf8(output.stderr)
            .unwrap()
            .contains("can't listen")
    );
    assert_eq!(kept.get("/health").status, 200);
    // One that dies on the way, after it got the listeners.
    let asked = UnixStream::connect(proxy.path("run/upgrade.sock")).unwrap();
    proxy.log.wait_for("a new process asks for the listeners");
    drop(asked);
    proxy.log.wait_for("nothing was handed over");
    drop(taken);
    let mut former = proxy.upgrade();
    assert_eq!(former.wait().code(), Some(0));
    let more: Log = proxy.log.clone();
    assert!(
        more.wait_for("ATI proxy server starting")["others"]
            .as_str()
            .unwrap()
            .starts_with("more=")
    );
    assert_eq!(proxy.client().get("/health").status, 200);
}

const HALF: &[u8] = b"POST /call HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\nab";

/// One that a test plays. It gets the listeners, and drops them.
struct Successor(BufReader<UnixStream>);

impl Successor {
    fn ask(proxy: &Proxy) -> Self {
        let stream = UnixStream::connect(proxy.path("run/upgrade.sock")).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut successor = Successor(BufReader::new(stream));
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
fn a_reload_while_a_successor_starts_or_the_old_one_drains_is_the_successors() {
    let mut proxy = Setup::new().start();
    // Half a request, so that the drain takes a while.
    let mut slow = proxy.client();
    slow.write(HALF);
    proxy.settles(r#"ati_in_flight{route="/call"}"#, 1.0);
    let mut successor = Successor::ask(&proxy);
    assert_eq!(proxy.reload()["message"], "reload done");
    successor.ready();
    assert_eq!(successor.hear(), "yours\n");
    // Not seen before the answer is there.
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
    // What was reloaded before, it reads for the first time.
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

/// A predecessor that a test plays, for a proxy with `--upgrade`. It has no listeners to give. Once the new one is ready, `before` is done with
/// the connection and its process id, and then it is its turn. Returns what it answers.
fn predecessor(
    setup: &Setup,
    before: impl FnOnce(&UnixStream, u32) + Send + 'static,
) -> std::thread::JoinHandle<(UnixStream, String)> {
    std::fs::create_dir(setup.path().join("run")).unwrap();
    let socket = UnixListener::bind(setup.path().join("run/upgrade.sock")).unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = socket.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let offer = json!({"version": 2, "pid": std::process::id(), "listeners": []});
        stream.write_all(format!("{offer}\n").as_bytes()).unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut ready = String::new();
        reader.read_line(&mut ready).unwrap();
        let pid = ready.trim_end().strip_prefix("ready ").unwrap();
        before(&stream, pid.parse().unwrap());
        let _ = stream.write_all(b"yours\n");
        let mut answer = String::new();
        let _ = reader.read_line(&mut answer);
        (stream, answer)
    })
}

fn kill(signal: &str, pid: u32) {
    let status = Command::new("kill")
        .args([format!("-{signal}"), pid.to_string()])
        .status();
    assert!(status.unwrap().success());
}

#[test]
fn a_new_process_speaks_to_systemd_once_it_is_the_service() {
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
    // Callers don't wait for that.
    assert_eq!(proxy.client().get("/health").status, 200);
    systemd.has_heard_nothing();
    stream.write_all(b"told\nreload\n").unwrap();
    assert!(systemd.next().starts_with("READY=1"));
    assert!(systemd.next_but_watchdog().starts_with("RELOADING=1"));
    proxy.log.wait_for("reload done");
}

#[test]
fn what_a_new_process_is_asked_for_before_its_turn_is_done_afterwards() {
    let setup = Setup::new().arg("--upgrade");
    let old = predecessor(&setup, |_, pid| kill("HUP", pid));
    let proxy = setup.start();
    let (stream, answer) = old.join().unwrap();
    assert_eq!(answer, "mine\n");
    proxy.log.wait_for("reload done");
    drop(stream);
    // But its end is not put off.
    let setup = Setup::new().arg("--upgrade");
    let old = predecessor(&setup, |_, pid| kill("TERM", pid));
    assert_eq!(setup.output().status.signal(), Some(15));
    assert_eq!(old.join().unwrap().1, "");
}

#[test]
fn a_new_process_that_comes_too_late_leaves() {
    let setup = Setup::new().arg("--upgrade");
    let old = predecessor(&setup, |stream, _| stream.shutdown(Shutdown::Read).unwrap());
    let output = setup.output();
    assert!(!output.status.success());
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("it no longer waits for us"), "{text}");
    assert_eq!(old.join().unwrap().1, "");
}

#[test]
fn a_successor_that_is_gone_when_it_is_its_turn_changes_nothing() {
    let setup = Setup::new();
    let path = setup.path().join("notify");
    let systemd = Systemd::listen(&path);
    let mut proxy = setup.env("NOTIFY_SOCKET", path.to_str().unwrap()).start();
    assert!(systemd.next().starts_with("READY=1"));
    // Ready, and gone.
    let mut successor = Successor::ask(&proxy);
    successor.ready();
    drop(successor);
    // Ready, and gone once it is its turn.
    let mut successor = Successor::ask(&proxy);
    successor.ready();
    assert_eq!(successor.hear(), "yours\n");
    drop(successor);
    proxy.log.wait_for("the new process did not take over");
    // Whom systemd takes for the service can't be taken back.
    systemd.has_heard_nothing();
    assert_eq!(proxy.client().get("/health").status, 200);
    assert!(proxy.is_running());
    // And the next one does.
    let mut former = proxy.upgrade();
    assert_eq!(former.wait().code(), Some(0));
    assert_eq!(proxy.client().get("/health").status, 200);
}

#[test]
fn a_proxy_that_is_stopped_is_not_succeeded() {
    let mut proxy = Setup::new().start();
    let mut stream = UnixStream::connect(proxy.path("run/upgrade.sock")).unwrap();
    proxy.log.wait_for("a new process asks for the listeners");
    proxy.signal("TERM");
    assert_eq!(proxy.wait().code(), Some(0));
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    assert!(said.contains("it is stopping"), "{said}");
}

#[test]
fn a_flood_does_not_keep_it_from_ending() {
    let mut proxy = Setup::new().conf("[server]\ndrain_seconds = 1\n").start();
    let over = Arc::new(AtomicBool::new(false));
    let flood: Vec<_> = (0..4)
        .map(|_| {
            let (over, edge) = (over.clone(), proxy.edge);
            std::thread::spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    let _ = std::net::TcpStream::connect(edge);
                }
            })
        })
        .collect();
    let started = Instant::now();
    proxy.signal("TERM");
    proxy.wait();
    assert!(
        started.elapsed() < Duration::from_secs(10),
        "{:?}",
        started.elapsed()
    );
    over.store(true, Ordering::Relaxed);
    for thread in flood {
        thread.join().unwrap();
    }
}

#[test]
fn where_nobody_runs_there_is_nothing_to_take() {
    let output = Setup::new().arg("--upgrade").output();
    assert!(!output.status.success());
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("start without --upgrade"), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
}

#[test]
fn the_upgrade_socket_is_for_its_owner_alone() {
    let proxy = Setup::new().start();
    let mode = |name: &str| {
        let at = std::fs::metadata(proxy.path(name)).unwrap();
        at.permissions().mode() & 0o777
    };
    assert_eq!(mode("run"), 0o700);
    assert_eq!(mode("run/upgrade.sock"), 0o600);
    // A second one on the same folder runs, and can't be upgraded.
    let mut second = proxy_beside(&proxy);
    let log = Log::follow(second.stderr.take().unwrap());
    log.wait_for("this process can't be upgraded");
    log.wait_for("ATI proxy server starting");
    second.kill().unwrap();
    second.wait().unwrap();
    assert_eq!(proxy.client().get("/health").status, 200);
}

fn proxy_beside(proxy: &Proxy) -> std::process::Child {
    let mut command = crate::support::ati::command(proxy.dir.path());
    let command = command
        .args(["proxy", "--port", "0"])
        .stderr(Stdio::piped());
    command.spawn().unwrap()
}

#[test]
fn a_sealed_keyring_needs_its_key_once_more() {
    let setup = Setup::new();
    let key = SessionKey::generate().unwrap();
    let keyring = json!({"name": "planted-value-of-the-keyring"}).to_string();
    let sealed = key.seal(keyring.as_bytes()).unwrap();
    let one_shot = setup.path().join("one-shot");
    let provision = || write(&one_shot, key.to_base64().as_bytes());
    provision();
    let mut proxy = setup.file("keyring.enc", sealed).start();
    assert!(!one_shot.exists());
    let output = proxy.successor().output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(
        !output.status.success() && text.contains("keyring.enc"),
        "{text}"
    );
    assert_eq!(proxy.client().get("/health").status, 200);
    provision();
    let mut former = proxy.upgrade();
    assert_eq!(former.wait().code(), Some(0));
    let started = proxy.log.wait_for("ATI proxy server starting");
    assert_eq!(started["keyring"], "keyring.enc (sealed key)");
}

#[test]
fn calls_counted_before_count_after() {
    let upstream = Upstream::fixed("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}");
    let (signer, public) = key_pair();
    let mut proxy = Setup::new()
        .tools("t", &upstream.url(), "", "[[tools]]\nname = \"t_one\"\ndescription = \"d\"\nendpoint = \"/\"\nmethod = \"GET\"\nscope = \"tool:t_one\"\n")
        .jwt(&public)
        .start();
    let limited = Namespace {
        v: 1,
        rate: [("tool:*".to_owned(), "4/hour".to_owned())].into(),
        customer_id: None,
    };
    let claims = Claims {
        ati: Some(limited),
        ..claims()
    };
    let token = bearer(&signer, &claims);
    let ask = |proxy: &Proxy| proxy.call(Some(&token), "t_one", json!({})).status;
    assert_eq!([ask(&proxy), ask(&proxy), ask(&proxy)], [200; 3]);
    let mut former = proxy.upgrade();
    assert_eq!([ask(&proxy), ask(&proxy)], [200, 429]);
    former.wait();
    assert_eq!(ask(&proxy), 429);
}

/// A proxy that runs a copy of the binary, which can be replaced. What SIGUSR2 started is killed when the test ends.
struct Installed {
    proxy: Proxy,
    binary: std::path::PathBuf,
}

impl Installed {
    fn start(setup: Setup) -> Self {
        let binary = setup.path().join("ati");
        std::fs::copy(BINARY, &binary).unwrap();
        let original = setup.command();
        let mut command = Command::new(&binary);
        command
            .env_clear()
            .args(original.get_args())
            .stdin(Stdio::null());
        for (name, value) in original.get_envs() {
            command.env(name, value.unwrap());
        }
        Installed {
            proxy: setup.start_with(command),
            binary,
        }
    }

    fn replace(&self, content: &[u8]) {
        let new = self.binary.with_extension("new");
        std::fs::write(&new, content).unwrap();
        std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::rename(new, &self.binary).unwrap();
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        if let Some(pid) = self.proxy.serving_pid() {
            let _ = Command::new("kill")
                .args(["-KILL", &pid.to_string()])
                .status();
        }
    }
}

#[test]
fn a_package_upgrade_replaces_the_binary_and_sends_a_signal() {
    let mut installed = Installed::start(Setup::new());
    let old = installed.proxy.pid();
    // A binary that doesn't work: the old process goes on, and says so.
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
}

#[test]
fn a_successor_that_ends_while_the_old_one_drains_is_told_of_as_what_it_is() {
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
    assert!(message.contains("no process accepts"), "{said}");
    slow.write(b"cd");
    assert_eq!(installed.proxy.wait().code(), Some(0));
}

/// What a process under systemd tells it.
struct Systemd(UnixDatagram);

impl Systemd {
    fn listen(path: &Path) -> Self {
        let socket = UnixDatagram::bind(path).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Systemd(socket)
    }

    fn next(&self) -> String {
        let mut buffer = [0; 4096];
        let length = self.0.recv(&mut buffer).expect("systemd waits for news");
        String::from_utf8_lossy(&buffer[..length]).trim().to_owned()
    }

    /// So far.
    fn has_heard_nothing(&self) {
        self.0.set_nonblocking(true).unwrap();
        let heard = self.0.recv(&mut [0; 1]).map_err(|e| e.kind());
        assert_eq!(heard, Err(std::io::ErrorKind::WouldBlock));
        self.0.set_nonblocking(false).unwrap();
    }

    /// The next one that isn't the watchdog's.
    fn next_but_watchdog(&self) -> String {
        loop {
            let news = self.next();
            if news != "WATCHDOG=1" {
                return news;
            }
        }
    }
}

#[test]
fn systemd_hears_of_everything() {
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
    // The watchdog is the new one's now, although it was told the old one's process id.
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

/// Goes on until it is told to end: how many were served, and what failed.
type Work = Box<dyn Fn(&AtomicBool) -> (usize, Vec<String>) + Send>;

/// Load of three kinds, by callers that try once more where a kept connection closes before the first byte of an answer.
struct Load {
    over: Arc<AtomicBool>,
    threads: Vec<std::thread::JoinHandle<(usize, Vec<String>)>>,
}

impl Load {
    fn start(proxy: &Proxy) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let edge = proxy.edge;
        let mut threads = Vec::new();
        let mut spawn = |work: Work| {
            let over = over.clone();
            threads.push(std::thread::spawn(move || work(&over)));
        };
        for index in 0..4 {
            spawn(Box::new(move |over| {
                requests(over, edge, index % 2 == 0, |client| {
                    client.try_send("GET", "/api/x", b"")
                })
            }));
        }
        for index in 0..2 {
            let call = br#"{"tool_name":"t_one","args":{}}"#;
            spawn(Box::new(move |over| {
                requests(over, edge, index == 0, |client| {
                    client.try_send("POST", "/call", call)
                })
            }));
        }
        for _ in 0..2 {
            spawn(Box::new(move |over| sockets(over, edge)));
        }
        Load { over, threads }
    }

    /// How many were served by each, and what failed.
    fn end(self) -> Vec<usize> {
        self.over.store(true, Ordering::Release);
        let mut failures = Vec::new();
        let mut served = Vec::new();
        for thread in self.threads {
            let (count, failed) = thread.join().unwrap();
            served.push(count);
            failures.extend(failed);
        }
        assert!(
            failures.is_empty(),
            "{} failed: {:#?}",
            failures.len(),
            &failures[..failures.len().min(10)]
        );
        served
    }
}

fn requests(
    over: &AtomicBool,
    edge: std::net::SocketAddr,
    keep: bool,
    ask: impl Fn(&mut Client) -> Result<u16, bool>,
) -> (usize, Vec<String>) {
    let (mut count, mut failures) = (0, Vec::new());
    let mut kept: Option<Client> = None;
    while !over.load(Ordering::Acquire) {
        let reused = kept.is_some();
        let mut client = match kept.take() {
            Some(client) => client,
            None => match Client::try_connect(edge) {
                Ok(client) => client,
                Err(e) => {
                    failures.push(format!("refused: {e}"));
                    continue;
                }
            },
        };
        match ask(&mut client) {
            Ok(200) => {
                count += 1;
                kept = keep.then_some(client);
            }
            Ok(status) => failures.push(format!("status {status}")),
            // Closed before the first byte, and it had been used before: an honest client asks again.
            Err(false) if reused => {}
            Err(begun) => failures.push(format!("broke off, begun: {begun}, reused: {reused}")),
        }
        // As fast as it goes would starve the rest of this machine.
        std::thread::sleep(Duration::from_millis(2));
    }
    (count, failures)
}

/// Echoes over one WebSocket after another; each ends with a Close, whoever begins.
fn sockets(over: &AtomicBool, edge: std::net::SocketAddr) -> (usize, Vec<String>) {
    let (mut count, mut failures) = (0, Vec::new());
    'next: while !over.load(Ordering::Acquire) {
        let stream = match std::net::TcpStream::connect_timeout(&edge, PATIENCE) {
            Ok(stream) => stream,
            Err(e) => {
                failures.push(format!("WebSocket refused: {e}"));
                continue;
            }
        };
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut socket = match tungstenite::client(format!("ws://{edge}/ws/echo"), stream) {
            Ok((socket, _)) => socket,
            Err(e) => {
                failures.push(format!("no WebSocket: {e}"));
                continue;
            }
        };
        loop {
            let said = socket.send(Message::text("hello"));
            let heard = said.and_then(|()| socket.read());
            match heard {
                Ok(Message::Text(text)) if text.as_str() == "hello" => count += 1,
                Ok(Message::Close(_)) | Err(tungstenite::Error::ConnectionClosed) => continue 'next,
                // A Close came while we wrote.
                Err(tungstenite::Error::Protocol(
                    tungstenite::error::ProtocolError::SendAfterClosing,
                )) => continue 'next,
                other => {
                    failures.push(format!("WebSocket ended with {other:?}"));
                    continue 'next;
                }
            }
            if over.load(Ordering::Acquire) {
                let _ = socket.close(None);
                return (count, failures);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    (count, failures)
}

fn echo() -> std::net::SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            std::thread::spawn(move || {
                let Ok(mut socket) = tungstenite::accept(stream) else {
                    return;
                };
                while let Ok(message) = socket.read() {
                    if message.is_text() && socket.send(message).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

/// Mixed load for so long, with hand-overs and reloads spread over it.
fn endures(length: Duration, upgrades: u32, reloads: u32) {
    let upstream = Upstream::fixed(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}",
    );
    let mut proxy = Setup::new()
        .conf("[server]\ndrain_seconds = 2\n[log]\naccess = false\nsignatures = false\n")
        .route("api", &upstream.url(), "path_prefix = \"/api\"")
        .route("ws", &format!("http://{}", echo()), "path_prefix = \"/ws\"\nforward_websockets = true")
        .tools("t", &upstream.url(), "", "[[tools]]\nname = \"t_one\"\ndescription = \"d\"\nendpoint = \"/\"\nmethod = \"GET\"\n")
        .start();
    let load = Load::start(&proxy);
    let started = Instant::now();
    let mut formers = Vec::new();
    let (mut upgraded, mut reloaded) = (0, 0);
    while started.elapsed() < length {
        let part = started.elapsed().as_secs_f64() / length.as_secs_f64();
        if f64::from(upgraded + 1) / f64::from(upgrades + 1) < part {
            formers.push(proxy.upgrade());
            upgraded += 1;
        }
        if f64::from(reloaded + 1) / f64::from(reloads + 1) < part {
            assert_eq!(proxy.reload()["message"], "reload done");
            reloaded += 1;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let served = load.end();
    assert_eq!((upgraded, reloaded), (upgrades, reloads));
    assert!(served.iter().all(|count| *count > 10), "{served:?}");
    for former in &mut formers {
        assert_eq!(former.wait().code(), Some(0));
    }
}

#[test]
fn a_hand_over_under_load_loses_nothing() {
    endures(Duration::from_secs(6), 1, 2);
}

#[test]
#[ignore = "takes a minute"]
fn three_hand_overs_and_ten_reloads_in_a_minute_lose_nothing() {
    endures(Duration::from_secs(60), 3, 10);
}
