//! A plan of tool calls: read from an answer of a language model, and from a file.

use std::time::SystemTime;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::telemetry::audit::timestamp;

/// Steps of one plan.
pub const MOST_STEPS: usize = 100;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// What was asked for.
    pub query: String,
    pub steps: Vec<Step>,
    pub created_at: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    pub tool: String,
    pub args: Map<String, Value>,
    pub description: String,
}

/// The steps as a model writes them.
#[derive(Deserialize)]
struct Answer {
    steps: Vec<AnswerStep>,
}

#[derive(Deserialize)]
struct AnswerStep {
    tool: String,
    #[serde(default)]
    args: Option<Map<String, Value>>,
    #[serde(default)]
    description: Option<String>,
}

impl Plan {
    /// From an answer: JSON as it is, or in a block of code.
    pub fn parse_answer(query: &str, answer: &str) -> Result<Self, String> {
        let whole = answer.trim();
        let candidates = std::iter::once(whole).chain(blocks(whole));
        let mut fault = None;
        for text in candidates {
            match read::<Answer>(text) {
                Ok(read) => return Plan::new(query, read),
                Err(why) => fault.get_or_insert(why),
            };
        }
        Err(fault.unwrap_or_default())
    }

    fn new(query: &str, read: Answer) -> Result<Self, String> {
        if read.steps.is_empty() {
            return Err("it has no steps".to_owned());
        }
        let step = |step: AnswerStep| Step {
            tool: step.tool,
            args: step.args.unwrap_or_default(),
            description: step.description.unwrap_or_default(),
        };
        let plan = Plan {
            query: query.to_owned(),
            steps: read.steps.into_iter().map(step).collect(),
            created_at: timestamp(SystemTime::now()),
        };
        plan.check_length()?;
        Ok(plan)
    }

    /// From a file, where every member is there.
    pub fn parse_file(text: &str) -> Result<Self, String> {
        let plan: Plan = read(text).map_err(|why| match why.starts_with("missing field") {
            true => format!(
                "{why}; a plan has `query`, `steps` and `created_at`, and each step has `tool`, \
                 `args` and `description`"
            ),
            false => why,
        })?;
        plan.check_length()?;
        Ok(plan)
    }

    fn check_length(&self) -> Result<(), String> {
        match self.steps.len() {
            many if many > MOST_STEPS => Err(format!(
                "it has {many} steps, and at most {MOST_STEPS} are run"
            )),
            _ => Ok(()),
        }
    }
}

/// Objects only: serde would take lists of the members' values for them, too.
fn read<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    let value: Value = serde_json::from_str(text).map_err(|e| e.to_string())?;
    if !value.is_object() {
        let what = kind(&value);
        return Err(format!("it is {what}; expected an object with `steps`"));
    }
    let steps = value["steps"].as_array().into_iter().flatten();
    if let Some((at, step)) = steps.enumerate().find(|(_, step)| !step.is_object()) {
        let (n, what) = (at + 1, kind(step));
        return Err(format!(
            "step {n} is {what}; expected an object with `tool`, `args` and `description`"
        ));
    }
    // From the text again: its error says the line.
    serde_json::from_str(text).map_err(|e| e.to_string())
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// The blocks of code in a text.
fn blocks(text: &str) -> impl Iterator<Item = &str> {
    let parts = text.split("```").enumerate();
    let inside = parts.filter(|(at, _)| at % 2 == 1);
    inside.map(|(_, block)| match block.split_once('\n') {
        // The first line names a language.
        Some((first, rest)) if !first.trim_start().starts_with('{') => rest.trim(),
        _ => block.trim(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn plan_of_an_answer_is_read_with_and_without_a_fence() {
        let text =
            r#"{"steps": [{"tool": "a"}, {"tool": "b", "args": {"n": 5}, "description": "d"}]}"#;
        for answer in [
            text.to_owned(),
            format!("Here it is:\n```json\n{text}\n```\nDone."),
            format!("```\n{text}\n```"),
        ] {
            let plan = Plan::parse_answer("q", &answer).unwrap();
            assert_eq!(plan.query, "q");
            assert_eq!(
                (plan.steps[0].args.len(), plan.steps[0].description.as_str()),
                (0, "")
            );
            assert_eq!(plan.steps[1].args["n"], json!(5));
            let again = Plan::parse_file(&serde_json::to_string(&plan).unwrap()).unwrap();
            assert_eq!(again, plan);
        }
        for bad in [
            "I can't do that.",
            "{}",
            "[]",
            "{\"steps\": []}",
            "{\"steps\": [{}]}",
            "{\"steps\": [[\"a\", {}, \"d\"]]}",
            "[[{\"tool\": \"a\"}]]",
        ] {
            assert!(Plan::parse_answer("q", bad).is_err(), "{bad}");
        }
        let many = json!({"steps": vec![json!({"tool": "a"}); 101]}).to_string();
        assert!(Plan::parse_answer("q", &many).is_err());
    }

    #[test]
    fn file_without_args_or_description_is_refused() {
        for bad in [
            r#"{"query": "q", "created_at": "t", "steps": [{"tool": "a", "description": "d"}]}"#,
            r#"{"query": "q", "created_at": "t", "steps": [{"tool": "a", "args": {}}]}"#,
            r#"{"query": "q", "steps": []}"#,
        ] {
            assert!(Plan::parse_file(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn list_in_place_of_an_object_is_refused_with_what_is_expected() {
        for list in ["[]", r#"["q", [], "t"]"#, r#"[{"tool": "a"}]"#] {
            let why = Plan::parse_file(list).unwrap_err();
            assert_eq!(why, "it is a list; expected an object with `steps`");
        }
        let steps = r#"{"query": "q", "created_at": "t", "steps": [["a", {}, "d"]]}"#;
        let why = Plan::parse_file(steps).unwrap_err();
        assert!(why.starts_with("step 1 is a list; expected"), "{why}");
    }
}
