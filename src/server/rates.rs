//! Writes how often whom, so that a restart forgives nobody.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use tracing::error;

use crate::api::Services;

const INTERVAL: Duration = Duration::from_secs(1);

pub struct Keeper {
    stop: Sender<()>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Every second, where something was counted.
    pub fn start(services: Arc<Services>) -> Self {
        let (stop, stopped) = channel();
        let thread = std::thread::Builder::new().name("rates".into()).spawn(move || {
            let mut failing = false;
            loop {
                let end = stopped.recv_timeout(INTERVAL) != Err(RecvTimeoutError::Timeout);
                let saved = services.runtime.rates.save();
                if let Err(e) = &saved
                    && !failing
                {
                    error!("rate-state.json can't be written; a restart would forget who called how often: {e}");
                }
                failing = saved.is_err();
                if end {
                    return;
                }
            }
        });
        Keeper {
            stop,
            thread: thread.ok(),
        }
    }

    /// Once more, and wait for it.
    pub fn stop(self) {
        drop(self.stop);
        if let Some(thread) = self.thread {
            let _ = thread.join();
        }
    }
}
