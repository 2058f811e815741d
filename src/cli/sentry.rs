//! Error records and panics for Sentry, in builds with the feature `sentry`. Events are what the
//! log has at the level of errors, so they hold no secret; they are sent with ati's own client.

use std::io;
use std::str::FromStr as _;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use sentry::protocol::Envelope;
use sentry::types::Dsn;
use sentry::{ClientInitGuard, ClientOptions, Transport, TransportFactory, TransportOptions};
use tracing::warn;

use crate::egress;

/// Tiers whose errors are sent. Machines of developers send none.
const TIERS: [&str; 3] = ["production", "staging", "demo"];
/// How long a process that ends waits until its last events are sent.
const LAST_EVENTS: Duration = Duration::from_secs(2);
/// How long sending one event may take.
const LIMIT: Duration = Duration::from_secs(10);
/// Events that wait. Further ones are dropped: an error that repeats says nothing new.
const MOST_WAITING: usize = 64;

/// None where Sentry isn't configured. Events are sent until the guard is dropped, which waits for
/// the last of them.
pub fn start() -> Option<ClientInitGuard> {
    let filled = |name: &str| {
        std::env::var(name)
            .ok()
            .filter(|value| !value.trim().is_empty())
    };
    let (name, dsn) = ["SENTRY_DSN", "GREP_SENTRY_DSN"]
        .into_iter()
        .find_map(|name| Some((name, filled(name)?)))?;
    let tier = filled("ENVIRONMENT_TIER").map(|tier| tier.trim().to_owned());
    let tier = tier.filter(|tier| TIERS.contains(&tier.as_str()))?;
    // The text isn't repeated: it holds a key.
    let Ok(dsn) = Dsn::from_str(dsn.trim()) else {
        warn!("{name} is no DSN of Sentry; nothing is sent");
        return None;
    };
    let debug =
        filled("ATI_SENTRY_DEBUG").is_some_and(|value| matches!(value.trim(), "1" | "true"));
    let mut options = ClientOptions::default();
    options.dsn = Some(dsn);
    options.debug = debug;
    options.release = Some(concat!("ati@", env!("CARGO_PKG_VERSION")).into());
    options.environment = Some(tier.into());
    options.server_name = Some(
        filled("SERVICE_NAME")
            .unwrap_or("ati-proxy".to_owned())
            .into(),
    );
    options.send_default_pii = false;
    options.shutdown_timeout = LAST_EVENTS;
    options.transport = Some(Arc::new(Factory));
    Some(sentry::init(options))
}

struct Factory;

impl TransportFactory for Factory {
    fn create_transport_with_options(&self, options: TransportOptions) -> Arc<dyn Transport> {
        let (queue, waiting) = sync_channel(MOST_WAITING);
        let dsn = options.dsn.clone();
        let spawned = std::thread::Builder::new()
            .name("sentry".to_owned())
            .spawn(move || send_all(&waiting, &dsn));
        if let Err(e) = spawned {
            warn!(error = %e, "no thread for Sentry; nothing is sent");
        }
        Arc::new(Queue(queue))
    }
}

enum Job {
    Send(Envelope),
    /// Says when all that came before it is sent.
    Flush(SyncSender<()>),
}

struct Queue(SyncSender<Job>);

impl Transport for Queue {
    fn send_envelope(&self, envelope: Envelope) {
        let _ = self.0.try_send(Job::Send(envelope));
    }

    fn flush(&self, limit: Duration) -> bool {
        let (done, flushed) = sync_channel(1);
        self.0.try_send(Job::Flush(done)).is_ok() && flushed.recv_timeout(limit).is_ok()
    }
}

fn send_all(waiting: &Receiver<Job>, dsn: &Dsn) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let client = egress::proxy_client(dsn.envelope_api_url().scheme() == "https");
    let (Ok(runtime), Ok(client)) = (runtime, client) else {
        warn!("no client for Sentry; nothing is sent");
        return;
    };
    while let Ok(job) = waiting.recv() {
        match job {
            Job::Flush(done) => drop(done.send(())),
            Job::Send(envelope) => {
                // Sentry's own absence is no reason for a line: it would be an event, too.
                let _ = runtime.block_on(send(&client, dsn, &envelope));
            }
        }
    }
}

async fn send(client: &reqwest::Client, dsn: &Dsn, envelope: &Envelope) -> io::Result<()> {
    let mut body = Vec::new();
    envelope.to_writer(&mut body)?;
    let agent = concat!("ati/", env!("CARGO_PKG_VERSION"));
    let sent = client
        .post(dsn.envelope_api_url())
        .header("x-sentry-auth", dsn.to_auth(Some(agent)).to_string())
        .body(body)
        .timeout(LIMIT)
        .send();
    sent.await.map(drop).map_err(io::Error::other)
}
