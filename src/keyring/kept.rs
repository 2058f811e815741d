//! The one-shot keys of a process: the file of each is gone once it was read, and a keyring that is
//! sealed with it may come later, or be rotated.

use std::sync::Arc;

use parking_lot::Mutex;

use super::sealed::SessionKey;

/// Keys that wait for their keyring.
const MOST_WAITING: usize = 4;

/// A clone holds the same keys. A key is added as soon as it is read, so that none is lost with a
/// build that fails or hangs.
#[derive(Clone, Debug, Default)]
pub struct KeptKeys(Arc<Mutex<Vec<KeptKey>>>);

#[derive(Debug)]
struct KeptKey {
    key: SessionKey,
    /// Whether it has opened a keyring.
    has_opened: bool,
}

impl KeptKeys {
    pub(super) fn add(&self, key: SessionKey) {
        let mut keys = self.0.lock();
        // A key that is given again is the newest.
        let known = keys.iter().position(|one| one.key.is_same_as(&key));
        let has_opened = known.is_some_and(|place| keys.remove(place).has_opened);
        keys.push(KeptKey { key, has_opened });
        if keys.iter().filter(|one| !one.has_opened).count() > MOST_WAITING
            && let Some(oldest) = keys.iter().position(|one| !one.has_opened)
        {
            keys.remove(oldest);
        }
    }

    pub(super) fn newest_first(&self) -> Vec<SessionKey> {
        let keys = self.0.lock();
        keys.iter().rev().map(|one| one.key.clone()).collect()
    }

    /// The key has opened the keyring: those before it aren't needed any more.
    pub(super) fn opened_with(&self, key: &SessionKey) {
        let mut keys = self.0.lock();
        if let Some(place) = keys.iter().position(|one| one.key.is_same_as(key)) {
            keys[place].has_opened = true;
            keys.drain(..place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_wait_for_their_keyring_and_the_one_in_use_is_never_lost() {
        let kept = KeptKeys::default();
        let new = || SessionKey::generate().unwrap();
        let (old, in_use) = (new(), new());
        kept.add(old);
        kept.add(in_use.clone());
        kept.opened_with(&in_use);
        assert_eq!(kept.newest_first().len(), 1);
        let waiting: Vec<SessionKey> = (0..6).map(|_| new()).collect();
        for key in &waiting {
            kept.add(key.clone());
            kept.add(key.clone());
        }
        let keys = kept.newest_first();
        assert_eq!(keys.len(), 1 + MOST_WAITING);
        assert!(keys[0].is_same_as(&waiting[5]) && keys[4].is_same_as(&in_use));
        // An earlier one that is used at last leaves the later ones waiting.
        kept.opened_with(&waiting[4]);
        assert_eq!(kept.newest_first().len(), 2);
    }
}
