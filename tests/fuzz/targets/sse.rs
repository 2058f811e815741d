//! Input: the longest event; the sizes in which the rest arrives; an event stream. No event is
//! longer than allowed, the cuts don't matter, and what goes on to rmcp is a message. The same
//! bytes are read as a JSON body, too.
#![no_main]

use ati::exec::mcp::bounded::bounded_events;
use ati::exec::mcp::events::{SortedEvent, messages, replay, sort};
use ati::exec::mcp::message::{ServerMessage, classify};
use ati_fuzz::{check_answer, pieces};
use bytes::Bytes;
use futures::executor::block_on;
use futures::stream::{self, StreamExt};
use libfuzzer_sys::fuzz_target;
use sse_stream::{Sse, SseStream};

/// The events until the stream ends or fails, and whether it failed.
fn events(text: &[u8], sizes: &[u8], longest: usize) -> (Vec<Sse>, bool) {
    let chunks: Vec<_> = pieces(text, sizes)
        .into_iter()
        .map(|piece| Ok(Bytes::copy_from_slice(piece)))
        .collect();
    let mut events = SseStream::from_bytes_stream(bounded_events(stream::iter(chunks), longest));
    let mut found = Vec::new();
    block_on(async {
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => found.push(event),
                Err(_) => return (found, true),
            }
        }
        (found, false)
    })
}

fn check_event(event: Sse) {
    let data = event.data.clone().unwrap_or_default();
    match sort(event) {
        SortedEvent::ForRmcp(event) => {
            assert_eq!(event.retry, None);
            let sent = event.data.unwrap_or_default();
            let is_message = matches!(classify(sent.as_bytes()), ServerMessage::Message(_));
            assert!(sent.trim().is_empty() || is_message, "{sent}");
        }
        SortedEvent::Request(answer) => check_answer(data.trim().as_bytes(), &answer),
        SortedEvent::Progress(_) | SortedEvent::Ignored => {}
    }
}

fuzz_target!(|data: &[u8]| {
    let [longest, size, text @ ..] = data else {
        return;
    };
    let longest = 1 + usize::from(*longest) * 8;
    let (cut, cut_failed) = events(text, &[*size, 1, 5], longest);
    let (whole, whole_failed) = events(text, &[], longest);
    if !cut_failed && !whole_failed {
        assert_eq!(cut, whole);
    }
    for event in cut.into_iter().chain(whole) {
        let length = |field: &Option<String>| field.as_deref().map_or(0, str::len);
        let size = length(&event.data) + length(&event.event) + length(&event.id);
        assert!(size <= longest, "{size} of {longest} bytes");
        check_event(event);
    }
    if let Some(all) = messages(text) {
        let replayed = block_on(replay(&all).collect::<Vec<_>>());
        assert_eq!(replayed.len(), all.len());
        for event in replayed.into_iter().flatten() {
            check_event(event);
        }
    }
});
