//! Input: a conf file. It resolves to settings that a server can run with, or to problems that name
//! the file.
#![no_main]

use ati::config::{self, Environment, Flags, MOST_LISTENERS};
use ati_fuzz::{empty_folder, file};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let flags = Flags {
        conf: Some(file("ati.toml", data)),
        ati_dir: Some(empty_folder()),
        ..Flags::default()
    };
    match config::resolve(&flags, &Environment::default()) {
        Ok(settings) => {
            assert!(settings.workers > 0);
            assert!(!settings.listeners.is_empty());
            assert!(settings.listeners.len() <= MOST_LISTENERS + 1);
            assert!(settings.limits.connections > 0);
        }
        Err(problems) => {
            assert!(!problems.is_empty());
            for problem in problems {
                assert!(!problem.to_string().is_empty());
            }
        }
    }
});
