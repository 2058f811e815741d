//! A number of bytes that many holders share, each for as long as it needs them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug)]
pub struct Budget {
    limit: u64,
    used: AtomicU64,
}

/// There are not that many bytes left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exhausted {
    pub limit: u64,
}

impl Budget {
    pub fn new(limit: u64) -> Arc<Self> {
        let used = AtomicU64::new(0);
        Arc::new(Budget { limit, used })
    }

    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Bytes that are held now.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// A holder that has no bytes yet.
    pub fn share(self: &Arc<Self>) -> Share {
        Share {
            budget: self.clone(),
            bytes: 0,
        }
    }

    fn take(&self, bytes: u64) -> Result<(), Exhausted> {
        let fits = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= self.limit);
        self.used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits)
            .map(drop)
            .map_err(|_| Exhausted { limit: self.limit })
    }
}

/// What one holder has. Given back when it is dropped.
#[derive(Debug)]
pub struct Share {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Share {
    pub fn grow(&mut self, bytes: u64) -> Result<(), Exhausted> {
        self.budget.take(bytes)?;
        self.bytes += bytes;
        Ok(())
    }

    pub fn give_back(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        self.budget.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.give_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_never_have_more_than_the_budget_and_give_it_back() {
        let budget = Budget::new(10);
        let (mut one, mut two) = (budget.share(), budget.share());
        assert_eq!(one.grow(6), Ok(()));
        assert_eq!(two.grow(5), Err(Exhausted { limit: 10 }));
        assert_eq!(two.grow(4), Ok(()));
        assert!(two.grow(u64::MAX).is_err());
        assert_eq!(budget.used(), 10);
        drop(one);
        assert_eq!((budget.used(), two.grow(6)), (4, Ok(())));
        two.give_back();
        drop(two);
        assert_eq!(budget.used(), 0);
    }
}
