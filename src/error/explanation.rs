//! What would happen to a request, and why.

use serde::Serialize;

use super::{CallError, Refusal, Success};

/// The answer of `ati explain`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Explanation {
    pub verdict: &'static str,
    /// Of the answer. 200 stands for: ati lets it through.
    pub status: u16,
    /// What decided, where it isn't let through: a rule of a policy, or the kind of refusal.
    pub rule: Option<String>,
    pub steps: Vec<StepTaken>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StepTaken {
    pub step: &'static str,
    pub outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The pattern of a manifest that decided, as it is written there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
}

const ALLOW: &str = "allow";
const DENY: &str = "deny";
const CONFIRM: &str = "confirm";

impl StepTaken {
    /// A step that passes, as far as is known.
    pub fn new(step: &'static str) -> Self {
        StepTaken {
            step,
            outcome: "ok",
            detail: None,
            pattern: None,
        }
    }

    pub fn with(step: &'static str, detail: impl Into<String>) -> Self {
        StepTaken {
            detail: Some(detail.into()),
            ..StepTaken::new(step)
        }
    }
}

impl Explanation {
    /// Of a tool call. The last of the steps is the one that failed, where one did.
    pub fn of_call(outcome: Result<(), &CallError>, steps: Vec<StepTaken>) -> Self {
        let Err(error) = outcome else {
            return Explanation::allowed(steps);
        };
        let verdict = match error.confirmation() {
            Some(_) => CONFIRM,
            None => DENY,
        };
        let rule = error.rule().unwrap_or(error.outcome()).to_owned();
        let status = error.status().as_u16();
        Explanation::ended(verdict, status, rule, error.to_string(), steps)
    }

    /// Of a request that admission decides about.
    pub fn of_request(outcome: Result<(), &Refusal>, steps: Vec<StepTaken>) -> Self {
        let Err(refusal) = outcome else {
            return Explanation::allowed(steps);
        };
        let (status, label) = (refusal.status().as_u16(), refusal.label());
        let text = refusal.text();
        Explanation::ended(DENY, status, label.to_owned(), text, steps)
    }

    fn allowed(steps: Vec<StepTaken>) -> Self {
        Explanation {
            verdict: ALLOW,
            status: Success::Answered.status().as_u16(),
            rule: None,
            steps,
        }
    }

    fn ended(
        verdict: &'static str,
        status: u16,
        rule: String,
        text: String,
        mut steps: Vec<StepTaken>,
    ) -> Self {
        if let Some(last) = steps.last_mut() {
            last.outcome = verdict;
            last.detail = Some(text);
        }
        Explanation {
            verdict,
            status,
            rule: Some(rule),
            steps,
        }
    }

    pub fn is_allowed(&self) -> bool {
        self.verdict == ALLOW
    }
}
