//! Secrets that a person or a script gives to a command, without putting them on its command line.

use std::io::{IsTerminal, Read, Write};
use std::os::fd::AsFd;

use rustix::termios::{self, LocalModes, OptionalActions, Termios};
use zeroize::Zeroizing;

use crate::error::Failure;

/// Bytes of standard input; more than any credential has.
const LONGEST: u64 = 1 << 20;
/// Bytes that are typed or pasted.
const LONGEST_LINE: usize = 64 << 10;

/// The value of a secret: asked for on a terminal, without echo; standard input as a whole
/// otherwise.
pub fn read(name: &str) -> Result<Zeroizing<String>, Failure> {
    if !std::io::stdin().is_terminal() {
        return from_stdin();
    }
    // Before the prompt: a fast typist, or a script, answers at once.
    let silent = Silent::new().map_err(|e| Failure::invalid("the terminal").because(e))?;
    let _ = write!(std::io::stderr(), "value of {name} (not shown): ");
    let typed = line(std::io::stdin().lock());
    drop(silent);
    let _ = writeln!(std::io::stderr());
    typed
}

/// The text of standard input, without the newline that `echo` and editors add.
pub fn from_stdin() -> Result<Zeroizing<String>, Failure> {
    let mut text = Zeroizing::new(String::new());
    std::io::stdin()
        .take(LONGEST + 1)
        .read_to_string(&mut text)
        .map_err(|e| Failure::invalid("standard input").because(e))?;
    if text.len() as u64 > LONGEST {
        return Err(Failure::invalid("standard input is longer than 1 MiB"));
    }
    Ok(Zeroizing::new(
        text.trim_end_matches(['\r', '\n']).to_owned(),
    ))
}

/// A terminal that shows nothing of what is typed. Its signals are off too: after a Ctrl-C the
/// shell would be left without an echo.
struct Silent(Termios);

impl Silent {
    fn new() -> std::io::Result<Self> {
        let stdin = std::io::stdin();
        let before = termios::tcgetattr(stdin.as_fd())?;
        let mut quiet = before.clone();
        quiet.local_modes -= LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG;
        termios::tcsetattr(stdin.as_fd(), OptionalActions::Flush, &quiet)?;
        Ok(Silent(before))
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        let _ = termios::tcsetattr(std::io::stdin().as_fd(), OptionalActions::Now, &self.0);
    }
}

/// One line, key by key, with the keys that people correct it with.
fn line(mut keys: impl Read) -> Result<Zeroizing<String>, Failure> {
    const CTRL_C: u8 = 3;
    const CTRL_D: u8 = 4;
    const CTRL_U: u8 = 21;
    // Its capacity is kept: a vector that grows would leave copies behind.
    let mut typed = Zeroizing::new(Vec::with_capacity(LONGEST_LINE));
    let mut key = Zeroizing::new([0u8]);
    loop {
        let count = keys
            .read(key.as_mut_slice())
            .map_err(|e| Failure::invalid("the terminal").because(e))?;
        match (count, key[0]) {
            (0, _) | (_, b'\n' | b'\r' | CTRL_D) => break,
            (_, CTRL_C) => return Err(Failure::invalid("nothing was changed")),
            (_, CTRL_U) => typed.clear(),
            // Backspace. A character may have several bytes.
            (_, 8 | 127) => while typed.pop().is_some_and(|byte| byte & 0xC0 == 0x80) {},
            (_, byte) if typed.len() < LONGEST_LINE => typed.push(byte),
            _ => return Err(Failure::invalid("the value is longer than 64 KiB")),
        }
    }
    let text = std::str::from_utf8(&typed).map_err(|_| Failure::invalid("not valid text"))?;
    Ok(Zeroizing::new(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typed_line_ends_at_enter_and_can_be_corrected() {
        let typed = |keys: &str| line(keys.as_bytes()).map(|text| text.to_string());
        assert_eq!(typed("s3cret\rrest").unwrap(), "s3cret");
        assert_eq!(typed("wrong\x15s3é\x7f\x7f4\n").unwrap(), "s4");
        assert_eq!(typed("s\x04").unwrap(), "s");
        assert_eq!(typed("\x7f").unwrap(), "");
        assert!(typed("s3cret\x03").is_err());
    }
}
