//! How upstreams take our credentials: a key that is dead at the upstream is found here before its users find it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use serde::Serialize;

use crate::clock::unix_now;

static KEYS: LazyLock<Mutex<BTreeMap<String, Arc<KeyHealth>>>> = LazyLock::new(Mutex::default);

/// One name of the keyring.
#[derive(Debug, Default)]
pub struct KeyHealth {
    refused: AtomicU64,
    refused_at: AtomicU64,
    accepted_at: AtomicU64,
    /// Whether the last answer was a refusal.
    is_refused: AtomicBool,
}

/// What is known of one key. Times are Unix seconds.
#[derive(Debug, Serialize, PartialEq, Eq)]
pub struct Report {
    pub name: String,
    /// `ok`, `refused`, or `unused`.
    pub state: &'static str,
    pub refused: u64,
    pub last_refused: Option<u64>,
    pub last_success: Option<u64>,
}

/// The one of this name, to be kept with what uses it.
pub fn of(name: &str) -> Arc<KeyHealth> {
    let mut keys = KEYS.lock().unwrap_or_else(PoisonError::into_inner);
    keys.entry(name.to_owned()).or_default().clone()
}

impl KeyHealth {
    /// An upstream answered a request that carried it. 5xx says nothing about the key.
    pub fn observe(&self, status: u16) {
        match status {
            401 | 403 => {
                self.refused.fetch_add(1, Ordering::Relaxed);
                self.refused_at.store(unix_now(), Ordering::Relaxed);
                self.is_refused.store(true, Ordering::Relaxed);
            }
            500.. => {}
            _ => {
                self.accepted_at.store(unix_now(), Ordering::Relaxed);
                self.is_refused.store(false, Ordering::Relaxed);
            }
        }
    }
}

/// After a reload: whose value isn't what it was starts anew, and whose name is gone is gone.
pub fn forget<'a>(unchanged: impl Fn(&str) -> bool + 'a) {
    let mut keys = KEYS.lock().unwrap_or_else(PoisonError::into_inner);
    keys.retain(|name, health| {
        let same = unchanged(name);
        if !same {
            health.is_refused.store(false, Ordering::Relaxed);
        }
        same || Arc::strong_count(health) > 1
    });
}

/// Every key that something uses.
pub fn report() -> Vec<Report> {
    let keys = KEYS.lock().unwrap_or_else(PoisonError::into_inner);
    let known = |time: &AtomicU64| Some(time.load(Ordering::Relaxed)).filter(|at| *at > 0);
    keys.iter()
        .map(|(name, health)| {
            let (last_refused, last_success) =
                (known(&health.refused_at), known(&health.accepted_at));
            Report {
                name: name.clone(),
                state: match (last_refused, last_success) {
                    _ if health.is_refused.load(Ordering::Relaxed) => "refused",
                    (None, None) => "unused",
                    _ => "ok",
                },
                refused: health.refused.load(Ordering::Relaxed),
                last_refused,
                last_success,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_what_its_last_answer_says() {
        let state = |name: &str| {
            report()
                .into_iter()
                .find(|r| r.name == name)
                .map(|r| (r.state, r.refused))
        };
        let key = of("test-health");
        assert_eq!(state("test-health"), Some(("unused", 0)));
        key.observe(200);
        key.observe(503);
        assert_eq!(state("test-health"), Some(("ok", 0)));
        of("test-health").observe(401);
        assert_eq!(state("test-health"), Some(("refused", 1)));
    }
}
