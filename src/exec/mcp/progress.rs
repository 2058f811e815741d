//! Routes progress notifications of a server to the call that each is about.

use std::collections::HashMap;

use parking_lot::Mutex;
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use tokio::sync::mpsc;

use crate::exec::Progress;

/// Reports of one call that wait to be shown. More at once are dropped.
const QUEUED_REPORTS: usize = 16;

/// The queue of each call that wants reports, by the token that the call was sent with.
#[derive(Default)]
pub struct ProgressRoutes(Mutex<HashMap<ProgressToken, mpsc::Sender<Progress>>>);

impl ProgressRoutes {
    /// The reports of one call, from now on.
    pub fn follow(&self, token: ProgressToken) -> ProgressReports<'_> {
        let (sender, queue) = mpsc::channel(QUEUED_REPORTS);
        self.0.lock().insert(token.clone(), sender);
        ProgressReports {
            routes: self,
            token,
            queue,
        }
    }

    pub fn route(&self, notification: ProgressNotificationParam) {
        let progress = Progress {
            done: notification.progress,
            total: notification.total,
            message: notification.message,
        };
        if let Some(queue) = self.0.lock().get(&notification.progress_token) {
            let _ = queue.try_send(progress);
        }
    }
}

/// The receiving end of one call's reports. Its route is removed when it is dropped.
pub struct ProgressReports<'a> {
    routes: &'a ProgressRoutes,
    token: ProgressToken,
    queue: mpsc::Receiver<Progress>,
}

impl ProgressReports<'_> {
    /// Never ends: the sender stays in the routes until this is dropped.
    pub async fn next(&mut self) -> Progress {
        match self.queue.recv().await {
            Some(progress) => progress,
            None => std::future::pending().await,
        }
    }
}

impl Drop for ProgressReports<'_> {
    fn drop(&mut self) {
        self.routes.0.lock().remove(&self.token);
    }
}
