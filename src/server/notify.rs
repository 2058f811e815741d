//! What systemd is told, where it listens.

use std::time::Duration;

use sd_notify::NotifyState;
use tracing::debug;

use super::workers::Workers;

/// A worker that doesn't answer for this part of the watchdog's time is stuck.
const PATIENCE: u32 = 4;

/// Whether systemd waits for news.
pub fn is_supervised() -> bool {
    std::env::var_os("NOTIFY_SOCKET").is_some()
}

pub fn ready(status: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// `ready` must follow.
pub fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(_) => tell(&[NotifyState::Reloading]),
    }
}

pub fn stopping() {
    tell(&[NotifyState::Stopping]);
}

/// Another process is the service now. Said by the old one, whom systemd believes.
pub fn main_pid(pid: u32) {
    tell(&[NotifyState::MainPid(pid)]);
}

/// Where systemd wants to hear from us, tell it while every worker still answers.
pub async fn watchdog(workers: Workers) {
    let Some(limit) = sd_notify::watchdog_enabled().filter(|limit| !limit.is_zero()) else {
        return std::future::pending().await;
    };
    let mut tick = tokio::time::interval(limit / 2);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        if all_answer(&workers, limit / PATIENCE).await {
            tell(&[NotifyState::Watchdog]);
        } else {
            tracing::error!("a worker thread doesn't answer");
        }
    }
}

async fn all_answer(workers: &Workers, patience: Duration) -> bool {
    for worker in workers.iter() {
        let answer = worker.runtime.spawn(async {});
        if tokio::time::timeout(patience, answer).await.is_err() {
            return false;
        }
    }
    true
}

fn tell(news: &[NotifyState<'_>]) {
    if let Err(e) = sd_notify::notify(news) {
        debug!("systemd can't be told: {e}");
    }
}
