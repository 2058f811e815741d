//! Hand-overs: one process takes over the sockets of another.

mod load;
mod protocol;
mod signal;
mod systemd;
mod takeover;
mod trust;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::json;

use crate::support::PATIENCE;
use crate::support::ati::{BINARY, Proxy, Setup};

const HALF: &[u8] = b"POST /call HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\nab";

/// A predecessor played by the test, for a proxy with `--upgrade`. It hands out no listeners. Once
/// the successor is ready, `before` gets the connection and the successor's process id; then the
/// successor gets `yours`. Returns the connection and the answer to that.
fn predecessor(
    setup: &Setup,
    before: impl FnOnce(&UnixStream, u32) + Send + 'static,
) -> std::thread::JoinHandle<(UnixStream, String)> {
    std::fs::create_dir(setup.path().join("run")).unwrap();
    let socket = UnixListener::bind(setup.path().join("run/upgrade.sock")).unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = socket.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut request = String::new();
        reader.read_line(&mut request).unwrap();
        assert_eq!(request, "upgrade\n");
        let offer = json!({"version": 3, "pid": std::process::id(), "listeners": []});
        stream.write_all(format!("{offer}\n").as_bytes()).unwrap();
        let mut ready = String::new();
        reader.read_line(&mut ready).unwrap();
        assert_eq!(ready, "ready\n");
        let peer = rustix::net::sockopt::socket_peercred(&stream).unwrap();
        before(&stream, peer.pid.as_raw_nonzero().get() as u32);
        let _ = stream.write_all(b"yours\n");
        let mut answer = String::new();
        let _ = reader.read_line(&mut answer);
        (stream, answer)
    })
}

/// The program that plays processes at the upgrade socket: tests/it/support/mcp_server.rs.
fn relay() -> std::path::PathBuf {
    let folder = Path::new(BINARY).parent().unwrap();
    folder.join("examples/mcp_server")
}

/// A proxy with this file as its program.
fn start_as(setup: Setup, program: &Path) -> Proxy {
    let original = setup.command();
    let mut command = Command::new(program);
    command
        .env_clear()
        .args(original.get_args())
        .stdin(Stdio::null());
    for (name, value) in original.get_envs() {
        command.env(name, value.unwrap());
    }
    setup.start_with(command)
}

/// A proxy whose program was replaced by the relay, so that a [`Played`] process is trusted as a
/// successor. So is the program that the proxy runs.
pub fn relay_replaces_the_program(setup: Setup) -> Proxy {
    let path = setup.path().join("ati");
    symlink(BINARY, &path).unwrap();
    let proxy = start_as(setup, &path);
    std::fs::remove_file(&path).unwrap();
    symlink(relay(), &path).unwrap();
    proxy
}

/// A process at the other end of the upgrade socket, played by the test. Listeners that it gets are
/// dropped. It is killed when the test drops it.
pub struct Played {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Played {
    pub fn connect(proxy: &Proxy) -> Self {
        let mut child = Command::new(relay())
            .arg("relay")
            .arg(proxy.path("run/upgrade.sock"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Played {
            input: child.stdin.take().unwrap(),
            output: BufReader::new(child.stdout.take().unwrap()),
            child,
        }
    }

    /// A successor that has got the listeners.
    pub fn successor(proxy: &Proxy) -> Self {
        let mut successor = Self::connect(proxy);
        successor.say("upgrade\n");
        let offer = successor.hear();
        assert!(offer.contains("listeners"), "{offer}");
        successor
    }

    pub fn say(&mut self, words: &str) {
        self.input.write_all(words.as_bytes()).unwrap();
    }

    /// The next line, or nothing where the connection has ended.
    pub fn hear(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line
    }

    /// All that comes until the connection ends.
    pub fn hear_all(&mut self) -> String {
        let mut text = String::new();
        self.output.read_to_string(&mut text).unwrap();
        text
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Played {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn kill(signal: &str, pid: u32) {
    let status = Command::new("kill")
        .args([format!("-{signal}"), pid.to_string()])
        .status();
    assert!(status.unwrap().success());
}

/// A proxy that runs a copy of the binary, which can be replaced. The successor that SIGUSR2
/// started is killed when the test ends.
struct Installed {
    proxy: Proxy,
    binary: std::path::PathBuf,
}

impl Installed {
    fn start(setup: Setup) -> Self {
        let binary = setup.path().join("ati");
        std::fs::copy(BINARY, &binary).unwrap();
        Installed {
            proxy: start_as(setup, &binary),
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

/// The notification socket of systemd.
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

    /// Asserts that no notification has come so far.
    fn has_heard_nothing(&self) {
        self.0.set_nonblocking(true).unwrap();
        let heard = self.0.recv(&mut [0; 1]).map_err(|e| e.kind());
        assert_eq!(heard, Err(std::io::ErrorKind::WouldBlock));
        self.0.set_nonblocking(false).unwrap();
    }

    /// The next notification that isn't for the watchdog.
    fn next_but_watchdog(&self) -> String {
        loop {
            let news = self.next();
            if news != "WATCHDOG=1" {
                return news;
            }
        }
    }
}
