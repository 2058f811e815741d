//! Calls under way that their clients can take back with `notifications/cancelled`. Over HTTP there
//! is no session: a call is found by its caller and its id.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use serde_json::value::RawValue;
use tokio::sync::Notify;

use crate::auth::Identity;
use crate::derived_key::{Key, KeyBuilder};

/// Calls beyond this many can't be taken back, except by closing their connection.
const MOST: usize = 10_000;

#[derive(Default)]
pub struct RunningCalls {
    /// Two clients with the same token may use the same id.
    calls: Mutex<HashMap<Key, Vec<Registered>>>,
    serial: AtomicU64,
}

/// One call, by its serial.
type Registered = (u64, Arc<Notify>);

impl RunningCalls {
    /// The call is under way until the returned guard is dropped.
    pub fn begin(&self, identity: &Identity, id: &RawValue) -> RunningCall<'_> {
        let (key, cancelled) = (key_of(identity, id), Arc::new(Notify::new()));
        let serial = self.serial.fetch_add(1, Ordering::Relaxed);
        let mut calls = self.calls.lock();
        if calls.len() < MOST {
            let same = calls.entry(key).or_default();
            same.push((serial, cancelled.clone()));
        }
        RunningCall {
            calls: self,
            key,
            serial,
            cancelled,
        }
    }

    /// Ends the call with this id. Where there are several, none: it isn't known which is meant.
    pub fn cancel(&self, identity: &Identity, id: &RawValue) {
        let calls = self.calls.lock();
        if let Some([(_, cancelled)]) = calls.get(&key_of(identity, id)).map(Vec::as_slice) {
            cancelled.notify_one();
        }
    }

    pub fn count(&self) -> usize {
        self.calls.lock().values().map(Vec::len).sum()
    }
}

fn key_of(identity: &Identity, id: &RawValue) -> Key {
    KeyBuilder::new("mcp call")
        .with((&identity.subject, &identity.job_id, &identity.sandbox_id))
        .with(&identity.customer_id)
        .with(id.get())
        .finish()
}

pub struct RunningCall<'a> {
    calls: &'a RunningCalls,
    key: Key,
    serial: u64,
    cancelled: Arc<Notify>,
}

impl RunningCall<'_> {
    /// Returns once the client has taken the call back.
    pub async fn cancelled(&self) {
        self.cancelled.notified().await;
    }
}

impl Drop for RunningCall<'_> {
    fn drop(&mut self) {
        let mut calls = self.calls.calls.lock();
        if let Some(same) = calls.get_mut(&self.key) {
            same.retain(|(serial, _)| *serial != self.serial);
            if same.is_empty() {
                calls.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;

    #[test]
    fn call_is_cancelled_by_its_own_caller_and_only_if_it_is_the_only_one() {
        let calls = RunningCalls::default();
        let id: &RawValue = serde_json::from_str("7").unwrap();
        let other: &RawValue = serde_json::from_str("\"7\"").unwrap();
        let one = Identity::unrestricted();
        let two = Identity {
            subject: "b".to_owned(),
            ..Identity::unrestricted()
        };
        let call = calls.begin(&one, id);
        calls.cancel(&two, id);
        calls.cancel(&one, other);
        assert!(call.cancelled().now_or_never().is_none());
        let twin = calls.begin(&one, id);
        calls.cancel(&one, id);
        assert!(call.cancelled().now_or_never().is_none());
        drop(twin);
        calls.cancel(&one, id);
        assert!(call.cancelled().now_or_never().is_some());
        drop(call);
        assert_eq!(calls.count(), 0);
    }
}
