//! Notifications to systemd, where it supervises this process.

use std::time::Duration;

use sd_notify::NotifyState;
use tracing::{debug, error};

use crate::server::listen::workers::Workers;

/// A worker is stuck if it doesn't answer for this fraction of systemd's watchdog time.
const WATCHDOG_FRACTION: u32 = 4;

/// Whether systemd expects notifications.
pub fn is_supervised() -> bool {
    std::env::var_os("NOTIFY_SOCKET").is_some()
}

pub fn ready(status: &str) {
    send(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// [`ready`] must follow.
pub fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => send(&[NotifyState::Reloading, now]),
        Err(_) => send(&[NotifyState::Reloading]),
    }
}

pub fn stopping() {
    send(&[NotifyState::Stopping]);
}

/// Another process is the service's main process from now on. systemd accepts this only from the
/// one that was so far, and it can't be taken back.
pub fn main_pid(pid: u32) {
    send(&[NotifyState::MainPid(pid)]);
}

/// Keeps systemd's watchdog, if there is one, from restarting the service while every worker
/// answers.
pub async fn feed_watchdog(workers: Workers) {
    let Some(limit) = sd_notify::watchdog_enabled().filter(|limit| !limit.is_zero()) else {
        return std::future::pending().await;
    };
    let mut tick = tokio::time::interval(limit / 2);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        if all_answer(&workers, limit / WATCHDOG_FRACTION).await {
            send(&[NotifyState::Watchdog]);
        } else {
            error!("a worker thread doesn't answer");
        }
    }
}

async fn all_answer(workers: &Workers, limit: Duration) -> bool {
    for worker in workers.iter() {
        let answer = worker.runtime.spawn(async {});
        if tokio::time::timeout(limit, answer).await.is_err() {
            return false;
        }
    }
    true
}

fn send(states: &[NotifyState<'_>]) {
    if let Err(e) = sd_notify::notify(states) {
        debug!(error = %e, "a notification to systemd was not sent");
    }
}
