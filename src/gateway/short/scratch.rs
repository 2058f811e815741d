use std::cell::RefCell;

use bytes::BytesMut;
use zeroize::Zeroize as _;

use crate::http1::answer::Parser;

/// As many as a worker keeps. More requests at a time make their own.
const MOST_KEPT: usize = 256;
/// A buffer that grew beyond this isn't kept.
const LARGEST: usize = 64 << 10;

/// The buffers of an exchange. A worker keeps them between requests, so that an idle connection has
/// none.
pub(super) struct Scratch {
    /// Holds the credential: what isn't sent is wiped.
    pub to_upstream: Vec<u8>,
    pub from_upstream: BytesMut,
    pub to_caller: Vec<u8>,
    pub parser: Parser,
}

thread_local! {
    static KEPT: RefCell<Vec<Scratch>> = const { RefCell::new(Vec::new()) };
}

impl Scratch {
    pub fn take() -> Self {
        let kept = KEPT.with_borrow_mut(Vec::pop);
        kept.unwrap_or_else(|| Scratch {
            to_upstream: Vec::new(),
            from_upstream: BytesMut::new(),
            to_caller: Vec::new(),
            parser: Parser::of_proxy(),
        })
    }

    /// Appends to what is for the upstream. A buffer that grows would leave a copy behind.
    pub fn send_also(&mut self, bytes: &[u8]) {
        let unsent = &mut self.to_upstream;
        if unsent.capacity() - unsent.len() < bytes.len() {
            let mut larger = Vec::with_capacity(unsent.len() + bytes.len());
            larger.extend_from_slice(unsent);
            unsent.as_mut_slice().zeroize();
            *unsent = larger;
        }
        unsent.extend_from_slice(bytes);
    }

    /// Most often all was sent, and wiped with it.
    fn wipe(&mut self) {
        self.to_upstream.as_mut_slice().zeroize();
        self.to_upstream.clear();
    }

    pub fn clear(&mut self) {
        self.wipe();
        self.from_upstream.clear();
        self.to_caller.clear();
    }

    /// After an exchange that came to its end.
    pub fn give_back(mut self) {
        let largest = self.to_upstream.capacity().max(self.to_caller.capacity());
        if largest.max(self.from_upstream.capacity()) > LARGEST {
            return;
        }
        self.clear();
        KEPT.with_borrow_mut(|kept| {
            if kept.len() < MOST_KEPT {
                kept.push(self);
            }
        });
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.wipe();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_for_the_upstream_are_appended_however_little_room_is_left() {
        let mut scratch = Scratch::take();
        scratch.to_upstream = Vec::with_capacity(8);
        for part in ["head", "", "body", "more of it"] {
            scratch.send_also(part.as_bytes());
        }
        assert_eq!(scratch.to_upstream, b"headbodymore of it");
        scratch.clear();
        assert!(scratch.to_upstream.is_empty());
    }
}
