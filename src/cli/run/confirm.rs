//! Calls that want a confirmation: by `--yes`, by a person at the terminal, or not at all.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use super::given::Given;
use crate::cli::output;
use crate::error::{Code, Confirmation, Failure};
use crate::text::clip_chars;

/// Characters of the arguments that a person is shown.
const LONGEST_SHOWN: usize = 1000;

/// The token to repeat a failed call with. The failure comes back where there is none: what isn't
/// confirmed ends with the exit code that says so.
pub fn answer(
    failure: Failure,
    yes: bool,
    name: &str,
    given: Option<&Given>,
) -> Result<String, Failure> {
    let wanted = match &failure.confirmation {
        Some(wanted) if failure.code == Code::ConfirmRequired => wanted,
        _ => return Err(failure),
    };
    let token = wanted.token.clone();
    if yes {
        return Ok(token);
    }
    let is_attended = io::stdin().is_terminal() && io::stderr().is_terminal();
    if is_attended && says_yes(wanted, given).unwrap_or(false) {
        return Ok(token);
    }
    let hint = format!(
        "to run it: ati run --confirm {token} {name} …, with the same arguments, until {}; \
         or ati run --yes {name} …; both stand before the tool's name",
        wanted.expires_at
    );
    Err(failure.hint(hint))
}

fn says_yes(wanted: &Confirmation, given: Option<&Given>) -> io::Result<bool> {
    let shown = |text: &str| output::printable(text);
    let mut terminal = io::stderr();
    writeln!(
        terminal,
        "'{}' wants to be confirmed: {}\narguments: {}\neffects: {}",
        shown(&wanted.tool),
        shown(&wanted.rule),
        shown(&arguments(given)),
        shown(&wanted.effects.to_string())
    )?;
    write!(terminal, "Run it? [y/N] ")?;
    terminal.flush()?;
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    Ok(matches!(line.trim().to_lowercase().as_str(), "y" | "yes"))
}

/// What the call has, as far as a person wants to read it. Words are what was typed; members may
/// come from a file.
fn arguments(given: Option<&Given>) -> String {
    let Some(given) = given else {
        return String::new();
    };
    let text = match given.args.get() {
        "{}" => given.words.join(" "),
        members => members.to_owned(),
    };
    match clip_chars(&text, LONGEST_SHOWN) {
        whole if whole.len() == text.len() => text,
        begin => format!("{begin}… ({} characters)", text.chars().count()),
    }
}
