use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use super::http::{Client, Response};
use super::{PATIENCE, POLL, eventually};

pub const BINARY: &str = env!("CARGO_BIN_EXE_ati");

/// A command with nothing of this machine's environment but the path and `ATI_SHORT_WAY`.
pub fn command(dir: &Path) -> Command {
    let mut command = Command::new(BINARY);
    command
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", dir)
        .env("ATI_DIR", dir)
        .env("ATI_KEY_FILE", dir.join("one-shot"))
        .stdin(Stdio::null());
    // The whole suite runs once more without the short way.
    if let Some(value) = std::env::var_os("ATI_SHORT_WAY") {
        command.env("ATI_SHORT_WAY", value);
    }
    command
}

/// Run `ati` to its end.
pub fn ati(dir: &Path, args: &[&str]) -> Output {
    command(dir).args(args).output().unwrap()
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// A proxy that isn't started yet: its folder, arguments and environment.
pub struct Setup {
    pub dir: TempDir,
    args: Vec<String>,
    env: Vec<(String, String)>,
}

impl Setup {
    pub fn new() -> Self {
        Setup {
            dir: tempfile::tempdir().unwrap(),
            args: ["proxy", "--port", "0", "--admin", "127.0.0.1:0"]
                .map(str::to_owned)
                .to_vec(),
            env: Vec::new(),
        }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn arg(mut self, arg: &str) -> Self {
        self.args.push(arg.to_owned());
        self
    }

    pub fn env(mut self, name: &str, value: impl Into<String>) -> Self {
        self.env.push((name.to_owned(), value.into()));
        self
    }

    /// A file in the ATI folder, mode 0600.
    pub fn file(self, name: &str, content: impl AsRef<[u8]>) -> Self {
        // The proxy doesn't run yet, so the file needn't be replaced atomically.
        let path = self.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let mut file = OpenOptions::new();
        file.write(true).create(true).truncate(true).mode(0o600);
        file.open(path)
            .unwrap()
            .write_all(content.as_ref())
            .unwrap();
        self
    }

    pub fn credentials(self, value: &Value) -> Self {
        self.file("credentials", value.to_string())
    }

    /// A passthrough manifest, and passthrough switched on.
    pub fn route(self, name: &str, base_url: &str, more: &str) -> Self {
        let text = format!(
            r#"
                [provider]
                name = "{name}"
                handler = "passthrough"
                base_url = "{base_url}"
                {more}
            "#
        );
        let this = self.file(&format!("manifests/{name}.toml"), text);
        if this.args.iter().any(|arg| arg == "--enable-passthrough") {
            this
        } else {
            this.arg("--enable-passthrough")
        }
    }

    /// A manifest, as an operator would write it.
    pub fn manifest(self, name: &str, text: &str) -> Self {
        self.file(&format!("manifests/{name}.toml"), text)
    }

    /// HTTP tools of one provider.
    pub fn tools(self, name: &str, base_url: &str, provider: &str, tools: &str) -> Self {
        let text = format!(
            r#"
                [provider]
                name = "{name}"
                base_url = "{base_url}"
                {provider}
                {tools}
            "#
        );
        self.manifest(name, &text)
    }

    /// Tokens are verified with this public key.
    pub fn jwt(self, public: &str) -> Self {
        let path = self.path().join("public.pem");
        let path = path.to_str().unwrap().to_owned();
        self.file("public.pem", public)
            .env("ATI_JWT_PUBLIC_KEY", path)
    }

    pub fn conf(self, text: &str) -> Self {
        let path = self.path().join("ati.toml");
        let path = path.to_str().unwrap().to_owned();
        self.file("ati.toml", text).arg("--conf").arg(&path)
    }

    pub fn command(&self) -> Command {
        let mut command = command(self.path());
        command
            .args(&self.args)
            .arg("--ready-file")
            .arg(self.path().join("ready"))
            .envs(self.env.iter().cloned());
        command
    }

    /// Runs a proxy that is expected to fail to start.
    pub fn output(&self) -> Output {
        self.command().output().unwrap()
    }

    pub fn start(self) -> Proxy {
        let command = self.command();
        self.start_with(command)
    }

    pub fn start_with(self, mut command: Command) -> Proxy {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let log = Log::follow(child.stderr.take().unwrap());
        let ready = self.path().join("ready");
        let addresses: Value = eventually("the ready file", || {
            if let Some(status) = child.try_wait().unwrap() {
                panic!("ati ended with {status}:\n{}", log.text());
            }
            serde_json::from_slice(&std::fs::read(&ready).ok()?).ok()
        });
        let address = |name: &str| addresses[name].as_str().unwrap().parse().unwrap();
        Proxy {
            edge: address("edge"),
            admin: address("admin"),
            listeners: addresses["listeners"].clone(),
            args: self.args,
            env: self.env,
            dir: self.dir,
            child,
            log,
        }
    }
}

/// One `[[tools]]` table of a manifest, with these further lines.
pub fn tool(name: &str, more: &str) -> String {
    format!(
        r#"
            [[tools]]
            name = '{name}'
            {more}
        "#
    )
}

/// Replaces a file atomically, as an operator's tools do.
pub fn write(path: &Path, content: impl AsRef<[u8]>) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    ati::files::write_atomic(path, content.as_ref(), 0o600).unwrap();
}

/// A running proxy. It is killed when the test ends.
pub struct Proxy {
    pub edge: SocketAddr,
    pub admin: SocketAddr,
    /// Addresses of further listeners, by name.
    pub listeners: Value,
    pub dir: TempDir,
    pub log: Log,
    args: Vec<String>,
    env: Vec<(String, String)>,
    child: Child,
}

/// The predecessor of a proxy, after a hand-over. It is killed when the test ends.
pub struct Former {
    pub log: Log,
    child: Child,
}

impl Former {
    pub fn wait(&mut self) -> ExitStatus {
        eventually("the end of the old process", || {
            self.child.try_wait().unwrap()
        })
    }
}

impl Drop for Former {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Proxy {
    pub fn client(&self) -> Client {
        Client::connect(self.edge)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How many file descriptors the process has open.
    pub fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid()))
            .unwrap()
            .count()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn signal(&self, name: &str) {
        let status = Command::new("kill")
            .args([format!("-{name}"), self.pid().to_string()])
            .status();
        assert!(status.unwrap().success());
    }

    /// For successors.
    pub fn set_env(&mut self, name: &str, value: impl Into<String>) {
        self.env.retain(|(known, _)| known != name);
        self.env.push((name.to_owned(), value.into()));
    }

    /// The command that takes over from this one.
    pub fn successor(&self) -> Command {
        let mut command = command(self.dir.path());
        command
            .args(&self.args)
            .arg("--upgrade")
            .arg("--ready-file")
            .arg(self.path("ready"))
            .envs(self.env.iter().cloned());
        command
    }

    /// Starts a successor, and waits until it serves.
    pub fn upgrade(&mut self) -> Former {
        let mut command = self.successor();
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let log = Log::follow(child.stderr.take().unwrap());
        eventually("the new process to serve", || {
            if let Some(status) = child.try_wait().unwrap() {
                panic!("the new process ended with {status}:\n{}", log.text());
            }
            (self.serving_pid() == Some(child.id())).then_some(())
        });
        Former {
            child: std::mem::replace(&mut self.child, child),
            log: std::mem::replace(&mut self.log, log),
        }
    }

    /// Which process wrote the ready file last.
    pub fn serving_pid(&self) -> Option<u32> {
        let text = std::fs::read(self.path("ready")).ok()?;
        let ready: Value = serde_json::from_slice(&text).ok()?;
        ready["pid"].as_u64().map(|pid| pid as u32)
    }

    pub fn wait(&mut self) -> ExitStatus {
        eventually("the end of ati", || self.child.try_wait().unwrap())
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Sends SIGHUP, and waits for the log record of the result.
    pub fn reload(&self) -> Value {
        let before = self.log.find_all("reload ").len();
        self.signal("HUP");
        eventually("the reload's log line", || {
            self.log.find_all("reload ").get(before).cloned()
        })
    }

    /// `POST /call`, perhaps with a token.
    pub fn call(&self, token: Option<&str>, tool: &str, args: Value) -> Response {
        let body = serde_json::json!({"tool_name": tool, "args": args}).to_string();
        let headers: Vec<(&str, &str)> = token
            .map(|token| ("authorization", token))
            .into_iter()
            .collect();
        self.client()
            .send("POST", "/call", &headers, body.as_bytes())
    }

    /// The lines of the audit so far.
    pub fn audit(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.path("audit.jsonl")).unwrap_or_default();
        text.lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect()
    }

    pub fn wait_for_audit(&self, count: usize) -> Vec<Value> {
        eventually("the audit's lines", || {
            Some(self.audit()).filter(|lines| lines.len() >= count)
        })
    }

    /// The value of one series of /metrics, by its exact name and labels. None where there is no
    /// such series: most of them exist only from their first use on.
    pub fn metric(&self, series: &str) -> Option<f64> {
        let text = Client::connect(self.admin).get("/metrics").text();
        text.lines()
            .find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
    }

    /// Waits until the series exists and has this value: a request is counted once its answer is
    /// out, which may be after the caller read it. A series that never comes fails, whatever the
    /// value.
    pub fn settles(&self, series: &str, value: f64) {
        self.reaches(series, &format!("to be {value}"), |now| now == value);
    }

    /// Waits until the series exists and has at least this value.
    pub fn rises_to(&self, series: &str, value: f64) {
        self.reaches(series, &format!("to be at least {value}"), |now| {
            now >= value
        });
    }

    fn reaches(&self, series: &str, what: &str, enough: impl Fn(f64) -> bool) {
        let mut last = None;
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            last = self.metric(series);
            if last.is_some_and(&enough) {
                return;
            }
            std::thread::sleep(POLL);
        }
        match last {
            Some(value) => panic!("{series} was {what}, and is {value}"),
            None => panic!("{series} was {what}, and there is no such series"),
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // It may have stopped already.
        let metrics = Client::try_connect(self.admin)
            .ok()
            .and_then(|mut client| client.try_get("/metrics"))
            .map(|response| response.text());
        let _ = self.child.kill();
        let _ = self.child.wait();
        let audit = std::fs::read_to_string(self.path("audit.jsonl")).unwrap_or_default();
        if !std::thread::panicking() {
            tells_nothing("the audit", &audit);
            tells_nothing("the log", &self.log.whole_text());
            tells_nothing("the metrics", &metrics.unwrap_or_default());
        }
    }
}

/// Asserts that the text contains no secret of the tests, in any encoding. They all begin with
/// `planted-`.
pub fn tells_nothing(place: &str, text: &str) {
    let encodings = [
        "planted-",
        "planted%2D",
        "planted%2d",
        "706c616e7465642d",
        "706C616E7465642D",
        // base64 at each of the three offsets.
        "cGxhbnRlZC",
        "BsYW50ZWQt",
        "wbGFudGVkL",
    ];
    for encoding in encodings {
        if let Some(at) = text.find(encoding) {
            let end = (at + 80).min(text.len());
            panic!(
                "{place} tells a secret: {}",
                String::from_utf8_lossy(&text.as_bytes()[at..end])
            );
        }
    }
}

/// What a process has written to stderr so far.
#[derive(Clone)]
pub struct Log {
    lines: Arc<Mutex<Vec<String>>>,
    ended: Arc<AtomicBool>,
}

impl Log {
    pub fn follow(stderr: impl std::io::Read + Send + 'static) -> Self {
        let log = Log {
            lines: Arc::default(),
            ended: Arc::default(),
        };
        let followed = log.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                followed.lines.lock().unwrap().push(line);
            }
            followed.ended.store(true, Ordering::Release);
        });
        log
    }

    pub fn text(&self) -> String {
        self.lines.lock().unwrap().join("\n")
    }

    /// The text of a process that has ended. Waits for the end of its stderr, which a process that
    /// it started may hold open: not for long, therefore.
    pub fn whole_text(&self) -> String {
        let start = Instant::now();
        while !self.ended.load(Ordering::Acquire) && start.elapsed() < Duration::from_secs(1) {
            std::thread::sleep(POLL);
        }
        self.text()
    }

    /// The records whose message begins like this.
    pub fn find_all(&self, message: &str) -> Vec<Value> {
        let lines = self.lines.lock().unwrap();
        lines
            .iter()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .filter(|record| {
                let text = record["message"].as_str();
                text.is_some_and(|text| text.starts_with(message))
            })
            .collect()
    }

    pub fn wait_for(&self, message: &str) -> Value {
        self.wait_for_nth(message, 0)
    }

    pub fn wait_for_nth(&self, message: &str, n: usize) -> Value {
        eventually(&format!("a log record '{message}'"), || {
            self.find_all(message).get(n).cloned()
        })
    }
}
