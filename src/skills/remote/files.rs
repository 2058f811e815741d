//! Files of skills that were read, as many as the memory for them holds. The one that wasn't used
//! for the longest time goes first.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::slot::Slot;

/// Slots, also those of files that aren't there.
const MOST_SLOTS: usize = 10_000;

/// A file, and what tells that it is still the same.
pub struct File {
    pub content: Vec<u8>,
    pub tag: Option<String>,
}

#[derive(Default)]
pub struct Files {
    slots: Mutex<Slots>,
}

#[derive(Default)]
struct Slots {
    by_name: HashMap<String, Used>,
    clock: u64,
}

struct Used {
    slot: Arc<Slot<File>>,
    last: u64,
}

impl Files {
    pub fn slot(&self, name: String) -> Arc<Slot<File>> {
        let mut slots = self.slots.lock();
        slots.clock += 1;
        let clock = slots.clock;
        let used = slots.by_name.entry(name).or_insert_with(|| Used {
            slot: Arc::default(),
            last: 0,
        });
        used.last = clock;
        used.slot.clone()
    }

    /// Forgets files until the others have at most `most` bytes.
    pub fn trim(&self, most: usize) {
        let mut slots = self.slots.lock();
        let mut by_age: Vec<(u64, usize, String)> = slots
            .by_name
            .iter()
            .map(|(name, used)| (used.last, size(&used.slot), name.clone()))
            .collect();
        let mut total: usize = by_age.iter().map(|(_, size, _)| size).sum();
        if total <= most && by_age.len() <= MOST_SLOTS {
            return;
        }
        by_age.sort();
        for (_, size, name) in by_age {
            if total <= most && slots.by_name.len() <= MOST_SLOTS / 2 {
                break;
            }
            slots.by_name.remove(&name);
            total -= size;
        }
    }
}

fn size(slot: &Slot<File>) -> usize {
    slot.held().map_or(0, |file| file.content.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skills::remote::slot::Check;
    use std::time::Duration;

    async fn put(files: &Files, name: &str, bytes: usize) {
        let slot = files.slot(name.to_owned());
        let file = File {
            content: vec![0; bytes],
            tag: None,
        };
        let hour = Duration::from_secs(3600);
        let put = slot.get(hour, Check::First, |_| async { Ok(Some(file)) });
        assert!(put.await.is_ok());
    }

    #[tokio::test]
    async fn file_that_was_not_used_for_longest_is_forgotten_first() {
        let files = Files::default();
        for name in ["a", "b", "c"] {
            put(&files, name, 10).await;
        }
        files.slot("a".to_owned());
        files.trim(30);
        files.trim(20);
        let held = |name: &str| files.slot(name.to_owned()).held().is_some();
        assert_eq!([held("a"), held("b"), held("c")], [true, false, true]);
    }
}
