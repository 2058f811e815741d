//! Saves the rate-limit counters every second, so that a restart doesn't reset them.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use tracing::error;

use crate::api::Services;

const INTERVAL: Duration = Duration::from_secs(1);

/// The thread that saves the counters. At any time only one process writes their file.
pub struct RateSaver {
    stop: Sender<()>,
    thread: Option<JoinHandle<()>>,
}

impl RateSaver {
    pub fn start(services: Arc<Services>) -> Self {
        let (stop, stopped) = channel();
        let thread = std::thread::Builder::new()
            .name("rates".into())
            .spawn(move || save_until_stopped(&services, &stopped));
        let thread = thread.map_err(|e| {
            error!(error = %e, "no thread saves the rate-limit counters, a restart resets them");
        });
        RateSaver {
            stop,
            thread: thread.ok(),
        }
    }

    /// Saves once more and waits for it.
    pub fn stop(self) {
        drop(self.stop);
        if let Some(thread) = self.thread {
            let _ = thread.join();
        }
    }
}

/// Saves where something has changed. Logs the first of several failures in a row.
fn save_until_stopped(services: &Services, stopped: &Receiver<()>) {
    let mut failing = false;
    loop {
        let end = stopped.recv_timeout(INTERVAL) != Err(RecvTimeoutError::Timeout);
        let saved = services.runtime.rates.save();
        if let Err(e) = &saved
            && !failing
        {
            error!(error = %e, "rate-state.json can't be written, a restart resets rate limits");
        }
        failing = saved.is_err();
        if end {
            return;
        }
    }
}
