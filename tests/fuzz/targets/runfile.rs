//! Input: a Runfile. It is read without a panic, and every problem has a line of the text. A
//! function that is read becomes a script.
#![no_main]

use std::path::Path;

use ati::catalog::json_reader::Findings;
use ati::catalog::runfile::{Command, load, parse};
use ati_fuzz::file;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = str::from_utf8(data) else {
        return;
    };
    let parsed = parse(text, Path::new("/nowhere"));
    let lines = u32::try_from(text.lines().count().max(1)).unwrap_or(u32::MAX);
    for (line, message) in parsed.problems.iter().chain(&parsed.warnings) {
        assert!((1..=lines).contains(line), "{line}: {message}");
    }
    let path = file("Runfile", data);
    let runfile = load(&path, &mut Findings::default());
    for function in runfile.functions.iter().take(20) {
        let _ = Command::new(&runfile, function, Path::new("/nowhere"));
    }
});
