//! Questions to the person in front of the terminal.

use std::io::BufRead as _;

use super::super::output;
use super::check::CheckedStep;
use crate::error::{Code, Failure};

/// Refuses a plan whose steps want to be confirmed, and are by no option. `first` is the number of
/// the first of them, from 0.
pub fn check(
    steps: &[CheckedStep],
    first: usize,
    confirm_each: bool,
    yes: bool,
) -> Result<(), Failure> {
    if confirm_each || yes {
        return Ok(());
    }
    let wanting = steps.iter().enumerate();
    let mut wanting = wanting.filter_map(|(at, step)| Some((first + at + 1, step.confirm?)));
    match wanting.next() {
        None => Ok(()),
        Some((n, why)) => {
            let message = format!("Confirmation required: step {n} wants it, because {why}");
            Err(Failure::new(Code::ConfirmRequired, message)
                .hint("nothing was run; --confirm-each asks before each step, --yes confirms all"))
        }
    }
}

/// False where the answer is no. None: there is no answer.
pub fn asks(question: &str) -> Option<bool> {
    output::note(&format!("{question} [y/N]"));
    let mut answer = String::new();
    match std::io::stdin().lock().read_line(&mut answer) {
        Ok(0) | Err(_) => None,
        Ok(_) => Some(matches!(
            answer.trim().to_ascii_lowercase().as_str(),
            "y" | "yes"
        )),
    }
}
