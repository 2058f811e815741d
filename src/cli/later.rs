//! Commands of ATI that later versions have. They say so, instead of being unknown.

use crate::error::Failure;

/// Whatever follows the name of the command.
#[derive(clap::Args)]
pub struct Words {
    /// Anything: it isn't read
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    words: Vec<String>,
}

impl Words {
    /// The end of every such command: one line, and the exit code of a usage error.
    pub fn refuse(&self, command: &str) -> Result<u8, Failure> {
        // Only the name of a subcommand: other words may be secret.
        let is_name = |word: &&String| word.chars().all(|c| c.is_ascii_lowercase() || c == '-');
        let sub = self.words.first().filter(is_name);
        let sub = sub.filter(|word| !word.starts_with('-') && word.len() < 20);
        let sub = sub.map(|word| format!(" {word}")).unwrap_or_default();
        Err(Failure::invalid(format!(
            "not in this version: '{command}{sub}'"
        )))
    }
}
