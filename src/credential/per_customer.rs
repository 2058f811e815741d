use std::hash::{Hash, Hasher};
use std::sync::Arc;

use quick_cache::Equivalent;
use quick_cache::sync::Cache;

use super::Attachment;

/// Attachments that are kept. Each has a few locked pages, and a process may lock 8 MiB by default.
const MOST: usize = 512;

/// A cache of the credentials of customers that have some of their own, as they are sent. It
/// belongs to one snapshot, and ends with it, so that no value outlives a change.
pub struct PerCustomer(Cache<Slot, Arc<Attachment>>);

/// What is resolved, and for which customer.
#[derive(Clone, PartialEq, Eq)]
struct Slot {
    index: usize,
    customer: Box<str>,
}

impl Hash for Slot {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.index, &*self.customer).hash(state);
    }
}

impl Equivalent<Slot> for (usize, &str) {
    fn equivalent(&self, slot: &Slot) -> bool {
        self.0 == slot.index && self.1 == &*slot.customer
    }
}

impl Default for PerCustomer {
    fn default() -> Self {
        PerCustomer(Cache::new(MOST))
    }
}

impl PerCustomer {
    /// `index` tells apart what is resolved: providers of a catalogue, credentials of a table.
    pub fn get_or_resolve<E>(
        &self,
        index: usize,
        customer: &str,
        resolve: impl FnOnce() -> Result<Attachment, E>,
    ) -> Result<Arc<Attachment>, E> {
        if let Some(known) = self.0.get(&(index, customer)) {
            return Ok(known);
        }
        // Two requests at once resolve the same: no lock is held meanwhile.
        let resolved = Arc::new(resolve()?);
        let customer = customer.into();
        self.0.insert(Slot { index, customer }, resolved.clone());
        Ok(resolved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cached_credential_is_found_by_its_own_place_and_customer_only() {
        let cache = PerCustomer::default();
        let get = |index, customer| {
            let fresh = Attachment::default();
            cache
                .get_or_resolve::<()>(index, customer, || Ok(fresh))
                .unwrap()
        };
        let first = get(1, "a");
        assert!(Arc::ptr_eq(&first, &get(1, "a")));
        for (index, customer) in [(1, "b"), (2, "a"), (1, ""), (1, "A")] {
            assert!(
                !Arc::ptr_eq(&first, &get(index, customer)),
                "{index} {customer}"
            );
        }
        let failed = cache.get_or_resolve(9, "a", || Err("unreadable"));
        assert_eq!(failed.err(), Some("unreadable"));
    }
}
