//! What a program says about itself: `--help`, or else `help`. It gets no credentials.

use std::time::{Duration, Instant};

use crate::catalog::cli::Cli;
use crate::cli::runtime;
use crate::process::{self, Spec};
use crate::text::clip_chars;

/// For both attempts together.
const TIME: Duration = Duration::from_secs(5);
/// Characters that are kept.
const LONGEST: usize = 3000;
/// Bytes that are read.
const MOST: usize = 1 << 20;

/// None where the program can't be run, or says nothing in time.
pub fn ask(cli: &Cli) -> Option<String> {
    let deadline = Instant::now() + TIME;
    let runtime = runtime().ok()?;
    ["--help", "help"].into_iter().find_map(|word| {
        let left = deadline.saturating_duration_since(Instant::now());
        runtime.block_on(said(cli, word, left))
    })
}

async fn said(cli: &Cli, word: &str, time: Duration) -> Option<String> {
    let words = cli.default_args.iter().map(String::as_str).chain([word]);
    let spec = Spec {
        program: cli.command.clone(),
        args: words.map(str::to_owned).collect(),
        env: cli.plain_env(),
        inherit: false,
        timeout: time,
        max_output: MOST,
    };
    let ended = process::run(spec).await.ok()?;
    let (out, err) = (clean(&ended.stdout), clean(&ended.stderr));
    match ended.code {
        Some(0) if !out.is_empty() => Some(out),
        Some(0) => Some(err).filter(|text| !text.is_empty()),
        // Programs that don't know the word say how they are used, too, but not all of them.
        _ => None,
    }
}

/// Without what a terminal would act on.
fn clean(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let mut kept = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            // Colours and the like: ESC [ … letter.
            '\u{1b}' if chars.next_if_eq(&'[').is_some() => {
                while chars.next().is_some_and(|c| !c.is_ascii_alphabetic()) {}
            }
            // Manual pages print a letter over itself to make it bold.
            '\u{8}' => {
                kept.pop();
            }
            '\n' | '\t' => kept.push(c),
            c if c.is_control() => {}
            c => kept.push(c),
        }
    }
    clip_chars(kept.trim(), LONGEST).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_has_no_control_characters_and_an_end() {
        assert_eq!(
            clean(b"\n\x1b[1mUsage\x1b[0m:\tx\r\nN\x08NA\x08A\x07\n\n"),
            "Usage:\tx\nNA"
        );
        assert_eq!(clean(&[b'x'; 5000]).len(), LONGEST);
        assert_eq!(clean("ü".repeat(5000).as_bytes()).chars().count(), LONGEST);
    }
}
