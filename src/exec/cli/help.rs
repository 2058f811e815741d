//! What a program says about itself: `--help`, or else `help`. It gets no credentials.

use std::ffi::OsString;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;

use crate::catalog::Provider;
use crate::catalog::cli::Cli;
use crate::process;
use crate::process::program::{self, ProgramSpec, Status, Stdin};
use crate::spool::{Quota, Spool};
use crate::text::clip_chars;

/// For both attempts together.
const TIME: Duration = Duration::from_secs(5);
/// Characters that are kept.
const LONGEST: usize = 3000;
/// Bytes that are read.
const MOST: usize = 1 << 20;

/// Programs that are asked at a time, in the whole process.
static TURNS: Semaphore = Semaphore::const_new(8);

/// None where the program can't be run, or says nothing in time.
pub async fn ask(provider: &Provider) -> Option<String> {
    let cli = provider.cli()?;
    let deadline = Instant::now() + TIME;
    let left = || deadline.saturating_duration_since(Instant::now());
    let turn = tokio::time::timeout(left(), TURNS.acquire()).await;
    let _turn = turn.ok()?.ok()?;
    for word in ["--help", "help"] {
        if let Some(text) = said(provider, cli, word, left()).await {
            return Some(text);
        }
    }
    None
}

async fn said(provider: &Provider, cli: &Cli, word: &str, time: Duration) -> Option<String> {
    let words = cli.default_args.iter().map(String::as_str).chain([word]);
    let mut env = process::program_environment();
    env.extend(cli.plain_env());
    let spec = ProgramSpec {
        program: cli.command.clone(),
        args: words.map(OsString::from).collect(),
        env,
        cwd: cli.folder.clone(),
        stdin: Stdin::Null,
        timeout: time,
        grace: Duration::ZERO,
        max_stdout: MOST as u64,
        max_stderr: MOST,
        stdout: Spool::new(MOST, Quota::new(0)),
        sandbox: provider.sandbox.clone(),
        sandbox_read: Vec::new(),
        sandbox_write: Vec::new(),
        run_as: None,
        remove: Vec::new(),
        remove_if_alone: Vec::new(),
    };
    let ended = program::run(spec).await.ok()?;
    // A program that doesn't know the word says so, and that is no help.
    if ended.status != Status::Code(0) {
        return None;
    }
    let out = clean(ended.stdout.in_memory().unwrap_or_default());
    let text = match out.is_empty() {
        true => clean(&ended.stderr.to_bytes()),
        false => out,
    };
    Some(text).filter(|text| !text.is_empty())
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
    clip_chars(kept.trim(), LONGEST).trim_end().to_owned()
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
