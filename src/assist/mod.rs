//! `ati assist` and `POST /help`: which tools and skills a question is about, what a language model
//! is told of them, and what of its answer is shown.
//!
//! A [`Context`] has the tools that the caller may use, and no others; [`prompt`] writes it down as
//! data; [`llm`] asks; a [`Screen`] takes out commands that wouldn't run. [`plan`] and [`manifest`]
//! read answers of another form.

pub mod checked;
mod commands;
mod context;
mod filters;
pub mod known_commands;
pub mod llm;
pub mod manifest;
mod places;
pub mod plan;
pub mod prompt;
mod screen;
mod shell;

pub use context::{Context, SkillText, Subject, is_known};
pub use screen::{LeftOut, Screen, mentioned};

/// What is said about an answer that isn't complete.
pub fn cut_note() -> String {
    let most = llm::MOST_TOKENS;
    format!("The answer was cut at {most} tokens, which is all that a language model may write.")
}

/// What is said about commands that were left out of an answer. Their texts aren't repeated.
pub fn note(left_out: usize) -> String {
    match left_out {
        0 => String::new(),
        1 => "\n\n(ati left out one command that would not run.)".to_owned(),
        many => format!("\n\n(ati left out {many} commands that would not run.)"),
    }
}
