//! Keys of caches and session pools, derived from what the cached thing depends on.
//!
//! A key is SHA-256 over the dependencies' own `Hash`: a field that a type gains is part of the key
//! as soon as its `Hash` is derived. `Hash` separates neighbouring values (lengths before slices,
//! an end mark after strings), so two different lists of dependencies never feed the same bytes.

use std::hash::{Hash, Hasher};

use sha2::{Digest, Sha256};

/// A digest: equal for equal dependencies, and no way back to them. They may hold secrets.
pub type Key = [u8; 32];

/// Collects dependencies, then [`KeyBuilder::finish`] gives the key.
#[derive(Default)]
pub struct KeyBuilder(Sha256);

impl KeyBuilder {
    /// `purpose` keeps keys of different caches apart.
    pub fn new(purpose: &str) -> Self {
        KeyBuilder::default().with(purpose)
    }

    #[must_use]
    pub fn with(mut self, dependency: impl Hash) -> Self {
        self.add(dependency);
        self
    }

    pub fn add(&mut self, dependency: impl Hash) {
        dependency.hash(&mut Sink(&mut self.0));
    }

    pub fn finish(self) -> Key {
        self.0.finalize().into()
    }
}

/// SHA-256 behind the interface that derived `Hash` implementations write to.
struct Sink<'a>(&'a mut Sha256);

impl Hasher for Sink<'_> {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// No `Hash` implementation asks for it.
    fn finish(&self) -> u64 {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_differ_when_the_boundary_between_dependencies_moves() {
        let key = |parts: &[&str]| {
            let mut builder = KeyBuilder::new("test");
            parts.iter().for_each(|part| builder.add(part));
            builder.finish()
        };
        assert_eq!(key(&["ab", "c"]), key(&["ab", "c"]));
        assert_ne!(key(&["ab", "c"]), key(&["a", "bc"]));
        assert_ne!(key(&["abc"]), key(&["abc", ""]));
        assert_ne!(KeyBuilder::new("a").finish(), KeyBuilder::new("b").finish());
        let bytes = |parts: &[&[u8]]| KeyBuilder::new("test").with(parts).finish();
        assert_ne!(bytes(&[b"ab", b"c"]), bytes(&[b"a", b"bc"]));
    }
}
