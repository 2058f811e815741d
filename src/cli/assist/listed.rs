//! What a plan is made of where a proxy runs it: the tools that the proxy lists for this caller.

use serde_json::Value;

use super::super::remote::{Remote, not_ati};
use super::plan::Task;
use super::{Subject, failure, split};
use crate::assist::prompt;
use crate::catalog::search::MOST_IN_PROMPT;
use crate::config;
use crate::error::{Code, Failure, HelpError};

pub fn task(remote: &Remote, words: &[String]) -> Result<Task, Failure> {
    let listed = listed(remote, &[])?;
    let manifests = config::read_manifests(&config::ati_dir(), &mut Vec::new());
    let is_local = |word: &str| manifests.iter().any(|manifest| manifest.name == word);
    let is_known = |word: &str| listed.iter().any(|tool| is_about(tool, word)) || is_local(word);
    let (subject, question) = split(words, is_known);
    let tools = match subject {
        Subject::Everything => listed,
        Subject::Named(name) => {
            let named: Vec<Value> = listed.into_iter().filter(|it| is_about(it, name)).collect();
            if named.is_empty() {
                return Err(failure(HelpError::NotVisible(name.to_owned())));
            }
            named
        }
    };
    if tools.is_empty() {
        let message = "there are no tools to plan with: the proxy lists none for you";
        return Err(Failure::new(Code::ToolNotFound, message));
    }
    let tools = picked(remote, tools, subject, &question)?;
    let system = prompt::plan_of_listed(subject, &tools);
    Ok(Task { system, question })
}

fn is_about(tool: &Value, name: &str) -> bool {
    tool["name"] == name || tool["provider"] == name
}

/// Where there are many, those that the proxy's search finds, then others.
fn picked(
    remote: &Remote,
    tools: Vec<Value>,
    subject: Subject<'_>,
    question: &str,
) -> Result<Vec<Value>, Failure> {
    if tools.len() <= MOST_IN_PROMPT {
        return Ok(tools);
    }
    let mut query = vec![("search", question)];
    if let Subject::Named(name) = subject {
        query.push(("provider", name));
    }
    let mut found = listed(remote, &query)?;
    for tool in tools {
        if found.len() >= MOST_IN_PROMPT {
            break;
        }
        if found.iter().all(|one| one["name"] != tool["name"]) {
            found.push(tool);
        }
    }
    found.truncate(MOST_IN_PROMPT);
    Ok(found)
}

fn listed(remote: &Remote, query: &[(&str, &str)]) -> Result<Vec<Value>, Failure> {
    match remote.get("tools", query)? {
        Value::Array(tools) => Ok(tools),
        _ => Err(not_ati()),
    }
}
