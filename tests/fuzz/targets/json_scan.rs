//! Input: sizes of pieces, a line break, JSON text. However the text is cut, a scan gives the same
//! files and keeps the same text, and where it keeps JSON the whole was JSON.
#![no_main]

use ati::json_scan::{Event, ScanError, Scanner};
use ati_fuzz::{first_line, pieces};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

type Scanned = (Vec<u8>, Vec<(Vec<String>, Vec<u8>)>);

fn scan(pieces: &[&[u8]]) -> Result<Scanned, ScanError> {
    let mut scanner = Scanner::new(1 << 16)
        .divert("a.b")
        .divert("c.*.b")
        .tell("d");
    let mut files = Vec::new();
    for piece in pieces {
        for event in scanner.push(piece)? {
            match event {
                Event::Begin { path } => files.push((path, Vec::new())),
                Event::Bytes(bytes) => files.last_mut().expect("it began").1.extend(bytes),
                Event::End | Event::Found { .. } => {}
            }
        }
    }
    Ok((scanner.finish()?, files))
}

fuzz_target!(|data: &[u8]| {
    let (sizes, text) = first_line(data);
    let whole = scan(&[text]);
    assert_eq!(scan(&pieces(text, sizes)), whole);
    if let Ok((kept, files)) = whole {
        let same = files.is_empty() && kept == text;
        let is_json = |text: &[u8]| serde_json::from_slice::<Value>(text).is_ok();
        assert!(same || !is_json(&kept) || is_json(text));
    }
});
