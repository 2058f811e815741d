//! Room for the bytes of callers. A worker keeps it between requests, so that an idle connection
//! has none.

use std::cell::RefCell;

use bytes::BytesMut;

/// For a head, as much as Pingora takes.
const ROOM: usize = 4 << 10;
/// As many as a worker keeps.
const MOST_KEPT: usize = 256;
/// One that grew beyond this isn't kept.
const LARGEST: usize = 16 << 10;

thread_local! {
    static KEPT: RefCell<Vec<BytesMut>> = const { RefCell::new(Vec::new()) };
}

/// Makes room in an inbox.
pub(super) fn make_room(inbox: &mut BytesMut) {
    if inbox.capacity() == 0
        && let Some(kept) = KEPT.with_borrow_mut(Vec::pop)
    {
        *inbox = kept;
    }
    inbox.reserve(ROOM);
}

/// An inbox without bytes gives its room back.
pub(super) fn give_back(inbox: &mut BytesMut) {
    if !inbox.is_empty() || inbox.capacity() == 0 {
        return;
    }
    let mut own = std::mem::take(inbox);
    // Not while a part of it is in use.
    if own.try_reclaim(ROOM) && own.capacity() <= LARGEST {
        KEPT.with_borrow_mut(|kept| {
            if kept.len() < MOST_KEPT {
                kept.push(own);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_used_again_and_never_while_a_part_of_it_is_held() {
        let mut inbox = BytesMut::new();
        make_room(&mut inbox);
        inbox.extend_from_slice(b"head");
        let first = inbox.as_ptr();
        give_back(&mut inbox);
        assert_eq!(&inbox[..], b"head", "bytes are unread");

        let head = inbox.split_to(4).freeze();
        give_back(&mut inbox);
        assert_eq!(inbox.capacity(), 0);
        make_room(&mut inbox);
        inbox.extend_from_slice(b"next");
        assert_eq!(&head[..], b"head");
        assert_ne!(inbox.as_ptr(), first);

        let head = inbox.split_to(4);
        let second = head.as_ptr();
        drop(head);
        give_back(&mut inbox);
        make_room(&mut inbox);
        assert!(inbox.is_empty());
        assert_eq!(inbox.as_ptr(), second);
    }
}
