//! `ati prompt`: what an agent has to be told about ati.

use serde_json::json;

use super::{Format, output};

/// For a system prompt, AGENTS.md or CLAUDE.md. Each of its tokens is paid for with every request
/// of the agent, so it has about 80 of them.
pub const TEXT: &str = include_str!("prompt.md");

pub fn run(asked: Option<Format>) {
    output::lines_or_value(
        asked,
        || output::line(TEXT.trim_end()),
        || json!({"prompt": TEXT.trim_end()}),
    );
}
