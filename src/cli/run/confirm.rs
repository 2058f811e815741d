//! Calls that want a confirmation: by `--yes`, by a person at the terminal, or not at all.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use crate::cli::output;
use crate::error::{Code, Confirmation, Failure};

/// The token to repeat a failed call with. The failure comes back where there is none: what isn't
/// confirmed ends with the exit code that says so.
pub fn answer(failure: Failure, yes: bool, name: &str) -> Result<String, Failure> {
    let wanted = match &failure.confirmation {
        Some(wanted) if failure.code == Code::ConfirmRequired => wanted,
        _ => return Err(failure),
    };
    let token = wanted.token.clone();
    if yes {
        return Ok(token);
    }
    let is_attended = io::stdin().is_terminal() && io::stderr().is_terminal();
    if is_attended && says_yes(wanted).unwrap_or(false) {
        return Ok(token);
    }
    let hint = format!(
        "to run it: ati run --confirm {token} {name} …, with the same arguments, until {}; \
         or --yes in its place",
        wanted.expires_at
    );
    Err(failure.hint(hint))
}

fn says_yes(wanted: &Confirmation) -> io::Result<bool> {
    let shown = |text: &str| output::printable(text);
    let mut terminal = io::stderr();
    writeln!(
        terminal,
        "'{}' wants to be confirmed: {}\neffects: {}",
        shown(&wanted.tool),
        shown(&wanted.rule),
        shown(&wanted.effects.to_string())
    )?;
    write!(terminal, "Run it? [y/N] ")?;
    terminal.flush()?;
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    Ok(matches!(line.trim().to_lowercase().as_str(), "y" | "yes"))
}
