//! Files between two requests of one caller: put and not yet used, or fetched from an upstream and
//! not yet taken. Each can be taken once, by its owner, for a short time.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use ring::rand::{SecureRandom as _, SystemRandom};
use tokio::time::Instant;

use super::Key;

/// Files of one caller that wait at the same time. More are no use: a caller makes its calls one
/// after the other, or a few at a time.
const MOST_PER_OWNER: usize = 64;

/// Why a file isn't stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotStored {
    TooMany,
    /// The system gives no random numbers.
    NoId,
}

struct Entry<F> {
    owner: Key,
    file: F,
    expires: Instant,
}

impl<F> Entry<F> {
    fn is_for(&self, owner: &Key) -> bool {
        self.owner == *owner && self.expires > Instant::now()
    }
}

struct State<F> {
    files: HashMap<String, Entry<F>>,
    /// A task runs that removes what expires.
    is_swept: bool,
}

/// `F` is a file, with what is known about it.
pub struct StoredFiles<F>(Mutex<State<F>>);

impl<F> Default for StoredFiles<F> {
    fn default() -> Self {
        StoredFiles(Mutex::new(State {
            files: HashMap::new(),
            is_swept: false,
        }))
    }
}

impl<F: Send + 'static> StoredFiles<F> {
    /// The file's id, which can't be guessed. Must run in a runtime.
    pub fn put(self: &Arc<Self>, owner: Key, file: F, ttl: Duration) -> Result<String, NotStored> {
        let mut random = [0; 16];
        let filled = SystemRandom::new().fill(&mut random);
        filled.map_err(|_| NotStored::NoId)?;
        let id = hex::encode(random);
        let expires = Instant::now() + ttl;
        let mut state = self.0.lock();
        let of_owner = |entry: &&Entry<F>| entry.owner == owner;
        if state.files.values().filter(of_owner).count() >= MOST_PER_OWNER {
            return Err(NotStored::TooMany);
        }
        let entry = Entry {
            owner,
            file,
            expires,
        };
        state.files.insert(id.clone(), entry);
        if !std::mem::replace(&mut state.is_swept, true) {
            tokio::spawn(sweep(Arc::downgrade(self), ttl));
        }
        Ok(id)
    }

    /// What `take` would give, which stays.
    pub fn look(&self, owner: &Key, id: &str) -> Option<F>
    where
        F: Clone,
    {
        let state = self.0.lock();
        let entry = state.files.get(id).filter(|entry| entry.is_for(owner))?;
        Some(entry.file.clone())
    }

    /// Takes the file out. None if there is none of this id, or if it is another caller's.
    pub fn take(&self, owner: &Key, id: &str) -> Option<F> {
        let mut state = self.0.lock();
        state.files.get(id).filter(|entry| entry.is_for(owner))?;
        let entry = state.files.remove(id)?;
        // Not under the lock: the last owner of a file closes it.
        drop(state);
        Some(entry.file)
    }

    pub fn len(&self) -> usize {
        self.0.lock().files.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes what has expired. When the next one does; None if none is left.
    fn remove_expired(&self) -> Option<Instant> {
        let now = Instant::now();
        let mut state = self.0.lock();
        let expired: Vec<Entry<F>> = state
            .files
            .extract_if(|_, entry| entry.expires <= now)
            .map(|(_, entry)| entry)
            .collect();
        let next = state.files.values().map(|entry| entry.expires).min();
        state.is_swept = next.is_some();
        drop(state);
        drop(expired);
        next
    }
}

/// Ends when no file is left, or the store itself is gone.
async fn sweep<F: Send + 'static>(files: Weak<StoredFiles<F>>, ttl: Duration) {
    let mut next = Some(Instant::now() + ttl);
    while let Some(at) = next {
        tokio::time::sleep_until(at).await;
        let Some(files) = files.upgrade() else {
            return;
        };
        next = files.remove_expired();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spool::{Quota, Spool, Spooled};

    const TTL: Duration = Duration::from_secs(60);

    async fn file(quota: &Arc<Quota>) -> Spooled {
        let mut spool = Spool::new(0, quota.clone());
        spool.write(b"content").await.unwrap();
        spool.finish().await.unwrap()
    }

    #[tokio::test]
    async fn file_is_taken_once_and_by_its_owner() {
        let (files, quota) = (Arc::new(StoredFiles::default()), Quota::new(u64::MAX));
        let id = files.put([1; 32], file(&quota).await, TTL).unwrap();
        assert_eq!((id.len(), files.len()), (32, 1));
        assert!(files.take(&[2; 32], &id).is_none());
        assert!(files.take(&[1; 32], "0").is_none());
        assert_eq!(files.take(&[1; 32], &id).unwrap().len(), 7);
        assert!(files.take(&[1; 32], &id).is_none());
    }

    #[tokio::test]
    async fn file_that_is_not_taken_gives_its_space_back() {
        let (files, quota) = (Arc::new(StoredFiles::default()), Quota::new(u64::MAX));
        for _ in 0..2 {
            let short = Duration::from_millis(20);
            let id = files.put([1; 32], file(&quota).await, short).unwrap();
            files.put([1; 32], file(&quota).await, 2 * short).unwrap();
            let gone = async {
                while quota.used() > 0 {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            tokio::time::timeout(TTL, gone).await.unwrap();
            assert!(files.is_empty() && files.take(&[1; 32], &id).is_none());
        }
    }

    #[tokio::test]
    async fn caller_has_a_bounded_number_of_files() {
        let (files, quota) = (Arc::new(StoredFiles::default()), Quota::new(u64::MAX));
        for _ in 0..MOST_PER_OWNER {
            files.put([1; 32], file(&quota).await, TTL).unwrap();
        }
        let more = files.put([1; 32], file(&quota).await, TTL);
        assert_eq!(more, Err(NotStored::TooMany));
        assert!(files.put([2; 32], file(&quota).await, TTL).is_ok());
    }
}
