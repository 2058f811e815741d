//! News of calls that are under way: from a server's notifications to whoever waits for that call.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rmcp::model::{ProgressNotificationParam, ProgressToken};
use tokio::sync::mpsc;

use crate::exec::Progress;

/// News that wait to be heard. A server that says more at once is heard in part.
const WAITING: usize = 16;

/// Who wants to know, by the token that a call was sent with.
#[derive(Default)]
pub struct News(Mutex<HashMap<ProgressToken, mpsc::Sender<Progress>>>);

impl News {
    /// What there is to hear about one call from now on.
    pub fn follow(&self, token: ProgressToken) -> Follower<'_> {
        let (sender, heard) = mpsc::channel(WAITING);
        self.lock().insert(token.clone(), sender);
        Follower {
            news: self,
            token,
            heard,
        }
    }

    pub fn tell(&self, told: ProgressNotificationParam) {
        let progress = Progress {
            done: told.progress,
            total: told.total,
            message: told.message,
        };
        if let Some(follower) = self.lock().get(&told.progress_token) {
            let _ = follower.try_send(progress);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ProgressToken, mpsc::Sender<Progress>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub struct Follower<'a> {
    news: &'a News,
    token: ProgressToken,
    heard: mpsc::Receiver<Progress>,
}

impl Follower<'_> {
    /// Never ends: the sender lives for as long as this does.
    pub async fn next(&mut self) -> Progress {
        match self.heard.recv().await {
            Some(progress) => progress,
            None => std::future::pending().await,
        }
    }
}

impl Drop for Follower<'_> {
    fn drop(&mut self) {
        self.news.lock().remove(&self.token);
    }
}
