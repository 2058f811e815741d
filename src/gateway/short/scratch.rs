use std::cell::RefCell;

use bytes::BytesMut;

use crate::http1::answer::Parser;

/// As many as a worker keeps. More requests at a time make their own.
const MOST_KEPT: usize = 256;
/// A buffer that grew beyond this isn't kept.
const LARGEST: usize = 64 << 10;

/// The buffers of an exchange. A worker keeps them between requests, so that an idle connection has
/// none.
pub(super) struct Scratch {
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

    pub fn clear(&mut self) {
        self.to_upstream.clear();
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
