//! Hand-overs: one process takes over the sockets of another.

mod load;
mod protocol;
mod signal;
mod systemd;
mod takeover;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};

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
