//! Logs, metrics and the audit. Log lines leave through [`writer`], off the request path; the two
//! records of each request are written by [`record`] without a formatter.
//!
//! Only the targets of `ati` are ever logged, whatever `RUST_LOG` says: h2 and hyper print header
//! values at debug level. Pingora prints whole upstream requests; it logs through the `log` crate,
//! which isn't bridged.

pub mod audit;
pub mod health;
pub mod metrics;
pub mod otel;
pub mod record;
mod throttle;
pub mod trail;
pub mod writer;

use std::sync::OnceLock;
use std::time::Duration;

use tracing_subscriber::filter::{EnvFilter, LevelFilter, filter_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

pub use throttle::Throttle;
use writer::Writer;

/// How long a process that ends waits until its last lines are written.
const FLUSH: Duration = Duration::from_secs(1);

static WRITER: OnceLock<Writer> = OnceLock::new();

/// The reader of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Audience {
    /// Who typed a command: plain lines.
    Person,
    /// Who watches a server at a terminal: plain lines with their times.
    Operator,
    /// JSON lines.
    Machine,
}

/// Sets up logging, once for this process. `RUST_LOG` wins over `verbose`.
pub fn init(audience: Audience, verbose: bool) {
    metrics::process::started();
    let default = if verbose {
        LevelFilter::DEBUG
    } else {
        LevelFilter::INFO
    };
    let levels = EnvFilter::builder()
        .with_default_directive(default.into())
        .from_env_lossy();
    let own_targets =
        filter_fn(|meta| meta.target() == "ati" || meta.target().starts_with("ati::"));
    let registry = tracing_subscriber::registry()
        .with(levels)
        .with(own_targets);
    // Errors become events, once a client of Sentry is there.
    #[cfg(feature = "sentry")]
    let registry = registry.with(tracing_subscriber::Layer::with_filter(
        sentry::integrations::tracing::ErrorLayer::new(),
        LevelFilter::ERROR,
    ));
    let result = match audience {
        Audience::Person => {
            let layer = tracing_subscriber::fmt::layer()
                .compact()
                .without_time()
                .with_target(false)
                .with_ansi(false)
                .with_writer(std::io::stderr);
            registry.with(layer).try_init()
        }
        Audience::Operator => {
            record::write_text();
            let layer = tracing_subscriber::fmt::layer()
                .compact()
                .with_target(false)
                .with_ansi(false)
                .with_writer(|| writer().clone());
            registry.with(layer).try_init()
        }
        Audience::Machine => {
            let layer = tracing_subscriber::fmt::layer()
                .json()
                .flatten_event(true)
                // At debug level the span of a tool call has the request's id, for every line
                // inside.
                .with_current_span(true)
                .with_span_list(false)
                .with_writer(|| writer().clone());
            registry.with(layer).try_init()
        }
    };
    // A second initialisation (tests in one process) keeps the first.
    drop(result);
}

fn writer() -> &'static Writer {
    WRITER.get_or_init(|| Writer::spawn("log", std::io::stderr()))
}

/// Waits until every line logged so far is written.
pub fn flush() {
    if let Some(writer) = WRITER.get() {
        writer.flush(FLUSH);
    }
}

/// How many lines the log writer dropped because stderr was not read fast enough.
pub fn dropped_lines() -> u64 {
    WRITER.get().map_or(0, Writer::dropped)
}
