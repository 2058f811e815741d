//! `ati status` and `ati reload`: what a running process tells about itself, and how it is asked.

use std::io::{BufRead, BufReader, ErrorKind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};

use super::Shared;
use super::lifecycle::handover::{self, RELOAD, STATUS};
use super::lifecycle::reload::{Loaded, ReloadReport};
use super::listen::bind::Addresses;
use crate::error::{Code, Failure};
use crate::telemetry::health;
use crate::telemetry::metrics::{METRICS, process};

/// How long a reload may take: it reads many files, and waits for one that is under way.
const RELOAD_TIME: Duration = Duration::from_secs(120);

/// The running process, as commands see it.
pub struct Control {
    shared: Arc<Shared>,
    addresses: Addresses,
}

impl Control {
    pub fn new(shared: Arc<Shared>, addresses: Addresses) -> Self {
        Control { shared, addresses }
    }

    /// Makes a reload, and tells what became of it.
    pub fn reload(&self) -> Value {
        to_value(&self.shared.reloader.reload())
    }

    /// What this process is and does. No credential is part of it, only names.
    pub fn status(&self) -> Value {
        let shared = &self.shared;
        let snapshot = shared.current.load();
        let settings = &snapshot.settings;
        let started = process::started();
        let refused = health::report()
            .into_iter()
            .filter(|key| key.state == "refused");
        let refused: Vec<String> = refused.map(|key| key.name).collect();
        let (ok, failed) = METRICS.reloads();
        let loaded = Loaded::of(&snapshot);
        json!({
            "pid": std::process::id(),
            "version": env!("CARGO_PKG_VERSION"),
            "state": if shared.ready.load(Ordering::Acquire) { "serving" } else { "draining" },
            "started_at": unix_seconds(started),
            "uptime_seconds": started.elapsed().unwrap_or_default().as_secs(),
            "ati_dir": settings.ati_dir.display().to_string(),
            "conf": settings.conf.as_ref().map(|path| path.display().to_string()),
            "listeners": self.listeners(),
            "auth": snapshot.auth(),
            "sig_verify_mode": settings.signature.mode.as_str(),
            "tools": loaded.tools,
            "providers": loaded.providers,
            "routes": loaded.routes,
            "keyring": {
                "source": loaded.keyring,
                "keys": loaded.keys,
                "fingerprint": snapshot.keyring.fingerprint(),
                "loaded_at": unix_seconds(snapshot.keyring_loaded),
            },
            "connections": shared.open_connections.load(Ordering::Acquire),
            "in_flight": shared.load.in_flight(),
            "websockets": shared.load.tunnels(),
            "reloads": { "ok": ok, "failed": failed },
            "last_reload": shared.reloader.last_report().as_ref().map(to_value),
            "credentials_refused": refused,
            "mcp": shared.provider_states.all(),
        })
    }

    fn listeners(&self) -> Map<String, Value> {
        let mut listeners = Map::new();
        listeners.insert("edge".to_owned(), self.addresses.edge.to_string().into());
        if let Some(admin) = self.addresses.admin {
            listeners.insert("admin".to_owned(), admin.to_string().into());
        }
        for other in &self.addresses.others {
            listeners.insert(other.name.clone(), other.address.clone().into());
        }
        listeners
    }
}

fn to_value(report: &ReloadReport) -> Value {
    serde_json::to_value(report).unwrap_or_default()
}

fn unix_seconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}

/// Asks the process that listens there what it is and does.
pub fn ask_status(socket: &Path) -> Result<Value, Failure> {
    ask(socket, STATUS, None)
}

/// Asks the process that listens there for a reload, and waits for its outcome.
pub fn ask_reload(socket: &Path) -> Result<Value, Failure> {
    ask(socket, RELOAD, Some(RELOAD_TIME))
}

fn ask(socket: &Path, request: &str, limit: Option<Duration>) -> Result<Value, Failure> {
    let place = socket.display();
    let failed = |what: &str| Failure::new(Code::ExecutionFailed, format!("{place}: {what}"));
    let stream = handover::connect(socket).map_err(|e| {
        let hint = match e.kind() {
            ErrorKind::PermissionDenied => "ask as the user that the proxy runs as, or as root",
            _ => {
                "no proxy with this folder and conf runs, or it drains; \
                 name them with --ati-dir and --conf as for `ati proxy`"
            }
        };
        let message = format!("no proxy answers at {place}");
        let failure = Failure::new(Code::ExecutionFailed, message);
        failure.because(e).hint(hint)
    })?;
    let mut line = String::new();
    let answered = (|| {
        if limit.is_some() {
            stream.set_read_timeout(limit)?;
        }
        // If this fails, the read below says why.
        let _ = handover::send_line(&stream, request);
        BufReader::new(&stream).read_line(&mut line)
    })();
    answered.map_err(|e| failed("the running proxy did not answer").because(e))?;
    let mut answer: Value = serde_json::from_str(&line).unwrap_or_default();
    if let Some(why) = answer["refused"].as_str() {
        return Err(failed(&format!("the running proxy refused: {why}")));
    }
    match answer.get_mut("answer").map(Value::take) {
        Some(answer) => Ok(answer),
        None if line.is_empty() => Err(failed("the running proxy ended the connection")),
        None => Err(failed("the running proxy is of another version")),
    }
}
