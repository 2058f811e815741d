//! A value of the registry that is kept, checked again from time to time, and served while the
//! registry is down.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;

use crate::backoff::Backoff;
use crate::error::RemoteSkillError;
use crate::single_flight::SingleFlight;

/// Between two attempts to reach a registry that fails.
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));
/// How long a caller waits for the registry where there is an old value.
const PATIENCE: Duration = Duration::from_secs(2);
/// A value that is older than so many refresh times isn't served unchecked, unless the registry
/// fails.
const LATE: u32 = 10;

pub struct Slot<T> {
    held: ArcSwapOption<Held<T>>,
    flight: SingleFlight<RemoteSkillError>,
}

struct Held<T> {
    value: Arc<T>,
    /// When the registry last said that it is current.
    checked: Instant,
}

/// A value, and how old it is.
pub struct Served<T> {
    pub value: Arc<T>,
    pub age: Duration,
    /// The last attempt to check it failed.
    pub stale: bool,
}

/// How a value is checked that isn't fresh.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// Callers get the old value meanwhile.
    InBackground,
    /// Callers wait, though not long.
    First,
}

impl<T> Default for Slot<T> {
    fn default() -> Self {
        Slot {
            held: ArcSwapOption::empty(),
            flight: SingleFlight::new(BACKOFF),
        }
    }
}

impl<T: Send + Sync + 'static> Slot<T> {
    /// The value. `make` gets the old one, and gives None where that is still current.
    pub async fn get<F, M>(
        self: &Arc<Self>,
        refresh: Duration,
        check: Check,
        make: F,
    ) -> Result<Served<T>, RemoteSkillError>
    where
        F: FnOnce(Option<Arc<T>>) -> M + Send + 'static,
        M: Future<Output = Result<Option<T>, RemoteSkillError>> + Send + 'static,
    {
        if let Some(fresh) = self.fresh(refresh) {
            return Ok(fresh);
        }
        let slot = self.clone();
        let renew = async move { slot.renew(refresh, make).await };
        let Some(old) = self.any() else {
            return renew.await;
        };
        if self.flight.is_running() {
            return Ok(old);
        }
        let renewed = tokio::spawn(renew);
        let late = old.age > refresh.saturating_mul(LATE);
        if old.stale || (check == Check::InBackground && !late) {
            return Ok(old);
        }
        match tokio::time::timeout(PATIENCE, renewed).await {
            Ok(Ok(Ok(served))) => Ok(served),
            Ok(Ok(Err(error))) if is_gone(&error) => Err(error),
            _ => Ok(self.any().unwrap_or(old)),
        }
    }

    pub fn held(&self) -> Option<Arc<T>> {
        self.held.load().as_ref().map(|held| held.value.clone())
    }

    fn fresh(&self, refresh: Duration) -> Option<Served<T>> {
        self.any().filter(|served| served.age < refresh)
    }

    fn any(&self) -> Option<Served<T>> {
        let held = self.held.load();
        let held = held.as_ref()?;
        Some(Served {
            value: held.value.clone(),
            age: held.checked.elapsed(),
            stale: self.flight.has_failed_within(Duration::MAX),
        })
    }

    async fn renew<F, M>(&self, refresh: Duration, make: F) -> Result<Served<T>, RemoteSkillError>
    where
        F: FnOnce(Option<Arc<T>>) -> M,
        M: Future<Output = Result<Option<T>, RemoteSkillError>>,
    {
        let work = async {
            let old = self.held();
            let made = make(old.clone()).await;
            let value = match made {
                Ok(Some(value)) => Arc::new(value),
                Ok(None) => old.ok_or_else(|| {
                    RemoteSkillError::Upstream("it sent nothing for the first request".to_owned())
                })?,
                Err(error) => {
                    if is_gone(&error) {
                        self.held.store(None);
                    }
                    return Err(error);
                }
            };
            let checked = Instant::now();
            self.held.store(Some(Arc::new(Held {
                value: value.clone(),
                checked,
            })));
            Ok(Served {
                value,
                age: Duration::ZERO,
                stale: false,
            })
        };
        self.flight.run(|| self.fresh(refresh), || None, work).await
    }
}

/// The registry answered, and what was asked for isn't there.
fn is_gone(error: &RemoteSkillError) -> bool {
    matches!(
        error,
        RemoteSkillError::NoSuchSkill(_) | RemoteSkillError::NoSuchPath { .. }
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const NEVER: Duration = Duration::from_secs(3600);
    const AT_ONCE: Duration = Duration::ZERO;

    fn down() -> RemoteSkillError {
        RemoteSkillError::Upstream("down".into())
    }

    #[tokio::test]
    async fn fresh_value_is_served_without_a_request_and_many_callers_make_one() {
        let (slot, made) = (Arc::new(Slot::default()), Arc::new(AtomicUsize::new(0)));
        let ask = || {
            let (slot, made) = (slot.clone(), made.clone());
            tokio::spawn(async move {
                let make = move |_| async move {
                    tokio::task::yield_now().await;
                    Ok(Some(made.fetch_add(1, Ordering::SeqCst)))
                };
                *slot.get(NEVER, Check::First, make).await.unwrap().value
            })
        };
        let asked: Vec<_> = (0..50).map(|_| ask()).collect();
        for one in asked {
            assert_eq!(one.await.unwrap(), 0);
        }
        assert_eq!(ask().await.unwrap(), 0);
        assert_eq!(made.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn unchanged_value_is_kept_and_becomes_fresh() {
        let slot = Arc::new(Slot::default());
        let first = slot.get(NEVER, Check::First, |_| async { Ok(Some(7)) });
        first.await.unwrap_or_else(|e| panic!("{e}"));
        let again = slot.get(AT_ONCE, Check::First, |old: Option<Arc<i32>>| async move {
            assert_eq!(old.as_deref(), Some(&7));
            Ok(None)
        });
        let served = again.await.unwrap_or_else(|e| panic!("{e}"));
        assert_eq!((*served.value, served.stale), (7, false));
    }

    #[tokio::test]
    async fn old_value_is_served_with_its_age_while_the_registry_is_down() {
        let slot = Arc::new(Slot::default());
        let get = |made: Result<Option<i32>, RemoteSkillError>| {
            let slot = slot.clone();
            async move {
                slot.get(AT_ONCE, Check::First, |_| async move { made })
                    .await
            }
        };
        assert_eq!(get(Err(down())).await.err(), Some(down()));
        slot.flight.forgive();
        assert!(get(Ok(Some(1))).await.is_ok());
        for _ in 0..2 {
            let served = get(Err(down())).await.unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(*served.value, 1);
            assert!(served.age > Duration::ZERO);
        }
        let served = get(Err(down())).await.unwrap_or_else(|e| panic!("{e}"));
        assert!(served.stale);
    }

    #[tokio::test]
    async fn value_that_is_gone_is_no_longer_served() {
        let slot = Arc::new(Slot::default());
        let made = slot.get(AT_ONCE, Check::First, |_| async { Ok(Some(1)) });
        assert!(made.await.is_ok());
        let gone = RemoteSkillError::NoSuchSkill("x".into());
        let expected = gone.clone();
        let got = slot.get(AT_ONCE, Check::First, |_| async { Err(gone) });
        assert_eq!(got.await.err(), Some(expected));
        assert!(slot.held().is_none());
    }
}
