//! An answer without a language model: what the search over tools finds.

use serde_json::Value;

use super::super::output::printable;
use super::super::run::{brief, brief_of};
use super::backend::{OLLAMA, OLLAMA_MODEL};
use crate::assist::Context;
use crate::text::clip_chars;

/// Tools of one answer.
const MOST: usize = 5;
/// Characters of a description.
const LONGEST: usize = 200;
const MATCHES: &str = "These tools match, the best first:";
const ALL: &str = "Nothing matches; these are all tools:";

/// How to get a language model on this machine.
pub fn hints() -> String {
    format!(
        "With a language model, 'ati assist' answers in words. One of:\n  \
         export CEREBRAS_API_KEY=…      or: ati key set cerebras_api_key -  (with _llm.toml)\n  \
         export ANTHROPIC_API_KEY=…\n  \
         install Ollama (https://ollama.com/download), then: ollama pull {OLLAMA_MODEL}\n  \
         OLLAMA_HOST says where it is (default {OLLAMA}), ATI_OLLAMA_MODEL which model it has"
    )
}

/// What fits the question best, and the names of those tools.
pub fn answer(context: &Context<'_>, question: &str) -> (String, Vec<String>) {
    let mut found = context.search(question, MOST);
    let mut title = MATCHES;
    if found.is_empty() && context.tools.len() <= MOST {
        found.clone_from(&context.tools);
        title = ALL;
    }
    let entries = found.iter();
    let entries = entries.map(|tool| (tool.name.clone(), tool.description.clone(), brief(tool)));
    written(title, entries.collect(), question)
}

/// The same, of what a proxy found.
pub fn answer_of(items: &[Value], question: &str) -> (String, Vec<String>) {
    let entry = |item: &Value| {
        let text = |key: &str| item[key].as_str().unwrap_or_default().to_owned();
        let usage = match item["handler"] == "cli" {
            true => format!("ati run {} <words of the program>", text("name")),
            false => brief_of(&text("name"), &item["input_schema"]),
        };
        (text("name"), text("description"), usage)
    };
    let entries = items.iter().take(MOST).map(entry).collect();
    written(MATCHES, entries, question)
}

fn written(
    title: &str,
    entries: Vec<(String, String, String)>,
    question: &str,
) -> (String, Vec<String>) {
    if entries.is_empty() {
        let shown = printable(clip_chars(question, LONGEST));
        let text = format!("No tool matches '{shown}'. 'ati tool list' lists what you may use.");
        return (text, Vec::new());
    }
    let mut text = title.to_owned();
    for (n, (name, description, usage)) in entries.iter().enumerate() {
        let description = printable(description);
        let description = clip_chars(description.trim(), LONGEST);
        let usage = usage.replace('\n', "\n   ");
        text += &format!(
            "\n\n{}. {} — {description}\n   {usage}",
            n + 1,
            printable(name)
        );
    }
    (text, entries.into_iter().map(|(name, ..)| name).collect())
}
