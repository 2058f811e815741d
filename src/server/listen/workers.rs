//! Worker threads: each has a single-threaded runtime and a Pingora proxy of its own. Connections
//! never move between them.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pingora_core::apps::HttpServerApp as _;
use pingora_core::server::configuration::ServerConf;
use pingora_proxy::{HttpProxy, http_proxy};
use tokio::runtime::{Builder, Handle};
use tokio::sync::watch;

use crate::config::Settings;
use crate::egress;
use crate::error::{Code, Failure};
use crate::files;
use crate::gateway::Gateway;
use crate::server::Shared;

/// Most attempts for one request: upstream addresses that are tried, and retries over a fresh
/// connection.
const MOST_ATTEMPTS: usize = 8;
/// Size of each worker's pool.
const IDLE_UPSTREAM_CONNECTIONS: usize = 1024;

pub struct Worker {
    pub runtime: Handle,
    pub proxy: Arc<HttpProxy<Gateway>>,
    /// For the short way. The proxy has one of its own.
    pub gateway: Arc<Gateway>,
    pub connections: AtomicUsize,
}

#[derive(Clone)]
pub struct Workers {
    workers: Arc<[Arc<Worker>]>,
    /// True when connections without a request have to end.
    closing: watch::Sender<bool>,
}

pub fn start(shared: &Arc<Shared>) -> Result<Workers, Failure> {
    let settings = shared.current.load().settings.clone();
    let roots = RootsFile::write(&settings)?;
    let conf = Arc::new(ServerConf {
        threads: 1,
        max_retries: MOST_ATTEMPTS,
        ca_file: Some(roots.0.to_string_lossy().into_owned()),
        upstream_keepalive_pool_size: IDLE_UPSTREAM_CONNECTIONS,
        ..ServerConf::default()
    });
    let workers: Result<Vec<_>, std::io::Error> = (0..settings.workers)
        .map(|index| start_one(index, shared, &conf))
        .collect();
    workers
        .map(|workers| Workers {
            workers: workers.into(),
            closing: watch::channel(false).0,
        })
        .map_err(|e| Failure::new(Code::ExecutionFailed, "no worker thread").because(e))
}

fn start_one(
    index: usize,
    shared: &Arc<Shared>,
    conf: &Arc<ServerConf>,
) -> Result<Arc<Worker>, std::io::Error> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let gateway = || {
        Gateway::new(
            shared.current.clone(),
            shared.load.clone(),
            shared.services.clone(),
            conf,
        )
    };
    let worker = Arc::new(Worker {
        runtime: runtime.handle().clone(),
        proxy: Arc::new(http_proxy(conf, gateway())),
        gateway: Arc::new(gateway()),
        connections: AtomicUsize::new(0),
    });
    std::thread::Builder::new()
        .name(format!("worker-{index}"))
        .spawn(move || runtime.block_on(std::future::pending::<()>()))?;
    Ok(worker)
}

/// The trusted certificates in a temporary file: Pingora's connectors read them from a path. The
/// file is removed on drop, after the connectors were made.
struct RootsFile(PathBuf);

impl RootsFile {
    fn write(settings: &Settings) -> Result<Self, Failure> {
        let bundle = egress::trusted_roots(settings.egress.ca_file.as_deref())
            .map_err(|problem| Failure::from_problems("can't start", &[problem]))?;
        let name = format!(".ati-roots-{}.pem", uuid::Uuid::new_v4().simple());
        let mut last_failure = None;
        for folder in [std::env::temp_dir(), settings.ati_dir.clone()] {
            let path = folder.join(&name);
            match files::write_atomic(&path, bundle.as_bytes(), 0o600) {
                Ok(()) => return Ok(RootsFile(path)),
                Err(e) => {
                    let message = format!("can't write the trusted roots to {}", path.display());
                    let failure = Failure::new(Code::ExecutionFailed, message);
                    last_failure = Some(failure.because(e));
                }
            }
        }
        Err(last_failure.unwrap_or_else(|| {
            Failure::new(Code::ExecutionFailed, "no folder for the trusted roots")
        }))
    }
}

impl Drop for RootsFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Workers {
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Worker>> {
        self.workers.iter()
    }

    pub fn closing(&self) -> watch::Receiver<bool> {
        self.closing.subscribe()
    }

    /// The worker with the fewest connections.
    pub fn least_loaded(&self) -> &Arc<Worker> {
        self.workers
            .iter()
            .min_by_key(|worker| worker.connections.load(Ordering::Relaxed))
            .expect("there is at least one worker")
    }

    /// Closes connections that wait for a request. A connection that serves one closes after it.
    pub async fn close_idle(&self) {
        self.closing.send_replace(true);
        for worker in self.workers.iter() {
            worker.proxy.http_cleanup().await;
        }
    }
}
