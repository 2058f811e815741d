//! Worker threads: a single-threaded runtime and a proxy each. Nothing moves between them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pingora_core::apps::HttpServerApp as _;
use pingora_core::server::configuration::ServerConf;
use pingora_proxy::{HttpProxy, http_proxy};
use tokio::runtime::{Builder, Handle};

use super::Shared;
use crate::error::{Code, Failure};
use crate::gateway::Gateway;

pub struct Worker {
    pub runtime: Handle,
    pub proxy: Arc<HttpProxy<Gateway>>,
    pub connections: AtomicUsize,
}

#[derive(Clone)]
pub struct Workers(Arc<[Arc<Worker>]>);

pub fn start(shared: &Arc<Shared>) -> Result<Workers, Failure> {
    let count = shared.current.load().settings.workers;
    let workers: Result<Vec<_>, std::io::Error> =
        (0..count).map(|index| start_one(index, shared)).collect();
    workers
        .map(|workers| Workers(workers.into()))
        .map_err(|e| Failure::new(Code::ExecutionFailed, format!("no worker thread: {e}")))
}

fn start_one(index: usize, shared: &Arc<Shared>) -> Result<Arc<Worker>, std::io::Error> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let conf = Arc::new(ServerConf {
        threads: 1,
        ..ServerConf::default()
    });
    let gateway = Gateway::new(shared.current.clone(), shared.load.clone());
    let worker = Arc::new(Worker {
        runtime: runtime.handle().clone(),
        proxy: Arc::new(http_proxy(&conf, gateway)),
        connections: AtomicUsize::new(0),
    });
    std::thread::Builder::new()
        .name(format!("worker-{index}"))
        .spawn(move || runtime.block_on(std::future::pending::<()>()))?;
    Ok(worker)
}

impl Workers {
    /// The one with the fewest connections.
    pub fn least_loaded(&self) -> &Arc<Worker> {
        self.0
            .iter()
            .min_by_key(|worker| worker.connections.load(Ordering::Relaxed))
            .expect("there is at least one worker")
    }

    /// Connections that wait for a request are closed; those that serve one close after it.
    pub async fn close_idle(&self) {
        for worker in self.0.iter() {
            worker.proxy.http_cleanup().await;
        }
    }
}
