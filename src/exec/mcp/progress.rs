//! Routes progress notifications of a server to the call that each is about.

use std::collections::{HashMap, VecDeque};

use parking_lot::Mutex;
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use tokio::sync::mpsc;

use crate::exec::Progress;

/// Reports of one call that wait to be shown. More at once are dropped.
const QUEUED_REPORTS: usize = 16;

/// The queue of each call that wants reports, by the token that the call was sent with.
#[derive(Default)]
pub struct ProgressRoutes(Mutex<Routes>);

#[derive(Default)]
struct Routes {
    queues: HashMap<ProgressToken, mpsc::Sender<Progress>>,
    /// The last reports that no call waited for. A call knows its token only once it is sent, and
    /// its server may be quicker.
    early: VecDeque<(ProgressToken, Progress)>,
}

impl ProgressRoutes {
    /// The reports of one call, from now on.
    pub fn follow(&self, token: ProgressToken) -> ProgressReports<'_> {
        let (sender, queue) = mpsc::channel(QUEUED_REPORTS);
        let mut routes = self.0.lock();
        routes.early.retain(|(known, progress)| {
            let is_own = *known == token;
            if is_own {
                let _ = sender.try_send(progress.clone());
            }
            !is_own
        });
        routes.queues.insert(token.clone(), sender);
        drop(routes);
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
        let mut routes = self.0.lock();
        if let Some(queue) = routes.queues.get(&notification.progress_token) {
            let _ = queue.try_send(progress);
            return;
        }
        if routes.early.len() == QUEUED_REPORTS {
            routes.early.pop_front();
        }
        let early = (notification.progress_token, progress);
        routes.early.push_back(early);
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
        self.routes.0.lock().queues.remove(&self.token);
    }
}
