//! Whether upstreams accept the credentials, so that a revoked one shows in metrics and in the
//! admin listener's answers before its users notice.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;
use serde::Serialize;

use crate::clock::unix_now;

static KEYS: LazyLock<Mutex<BTreeMap<String, Arc<KeyHealth>>>> = LazyLock::new(Mutex::default);

/// The answers of upstreams to one credential. Times are Unix seconds, 0 for never.
#[derive(Debug, Default)]
pub struct KeyHealth {
    refused: AtomicU64,
    refused_at: AtomicU64,
    accepted_at: AtomicU64,
    /// Whether the last answer was a refusal.
    is_refused: AtomicBool,
}

/// One credential in the answer of the admin listener. Times are Unix seconds.
#[derive(Debug, Serialize, PartialEq, Eq)]
pub struct KeyReport {
    pub name: String,
    /// `ok`, `refused`, or `unused`.
    pub state: &'static str,
    pub refused: u64,
    pub last_refused: Option<u64>,
    pub last_success: Option<u64>,
}

/// The health of the credential with this name in the keyring, to be kept with what uses it.
pub fn of(name: &str) -> Arc<KeyHealth> {
    let mut keys = KEYS.lock();
    keys.entry(name.to_owned()).or_default().clone()
}

impl KeyHealth {
    /// Records an upstream's answer to a request with this credential. 5xx says nothing about it.
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

/// After a reload: a credential with a changed value is no longer known as refused, and one that
/// nothing uses any more is dropped.
pub fn forget<'a>(unchanged: impl Fn(&str) -> bool + 'a) {
    let mut keys = KEYS.lock();
    keys.retain(|name, health| {
        let same = unchanged(name);
        if !same {
            health.is_refused.store(false, Ordering::Relaxed);
        }
        same || Arc::strong_count(health) > 1
    });
}

/// Every credential, by name.
pub fn report() -> Vec<KeyReport> {
    let keys = KEYS.lock();
    let known = |time: &AtomicU64| Some(time.load(Ordering::Relaxed)).filter(|at| *at > 0);
    keys.iter()
        .map(|(name, health)| {
            let (last_refused, last_success) =
                (known(&health.refused_at), known(&health.accepted_at));
            KeyReport {
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
    fn key_state_follows_the_last_answer_other_than_5xx() {
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
