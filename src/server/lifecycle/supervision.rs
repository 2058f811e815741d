//! The task that talks to systemd for as long as the process serves.

use std::sync::Arc;

use super::handover::PredecessorStream;
use super::notify;
use super::reload::Reloader;
use crate::server::listen::workers::Workers;

/// Tells systemd that this process is ready, then feeds its watchdog. After a hand-over, first
/// waits until systemd knows of this process, and does the reloads that the predecessor forwards.
pub async fn supervise(
    predecessor: Option<PredecessorStream>,
    workers: Workers,
    reloader: Arc<Reloader>,
) {
    let forwarded = match predecessor {
        Some(predecessor) => predecessor.wait_until_announced().await,
        None => None,
    };
    notify::ready("serving");
    let reload = async {
        let Some(mut forwarded) = forwarded else {
            return;
        };
        while forwarded.next().await {
            Reloader::spawn(&reloader);
        }
    };
    tokio::join!(reload, notify::feed_watchdog(workers));
}
