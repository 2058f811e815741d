//! What becomes known about a call on its way: its arguments, for the audit, and how far it came,
//! for a caller that wants to know what would happen.

use serde_json::value::RawValue;

use super::audit_guard::AuditGuard;
use crate::error::StepTaken;

/// The steps of the pipeline before the tool is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Resolve,
    Scope,
    Schema,
    Effects,
    Policy,
    Rate,
    /// Of a file tool: where the file comes from, or goes to.
    File,
    Credential,
}

impl Step {
    pub fn name(self) -> &'static str {
        match self {
            Step::Resolve => "resolve",
            Step::Scope => "scope",
            Step::Schema => "schema",
            Step::Effects => "effects",
            Step::Policy => "policy",
            Step::Rate => "rate",
            Step::File => "file",
            Step::Credential => "credential",
        }
    }
}

pub enum Report<'g, 'a> {
    /// A call, which is audited.
    Call(&'g mut AuditGuard<'a>),
    /// Nothing is done, and every step is told.
    Dry(Vec<StepTaken>),
}

impl<'g, 'a> Report<'g, 'a> {
    pub fn of_call(guard: &'g mut AuditGuard<'a>) -> Self {
        Report::Call(guard)
    }

    /// Whether nothing may be done, counted or issued.
    pub fn is_dry(&self) -> bool {
        matches!(self, Report::Dry(_))
    }

    /// A step begins. Those before it have passed.
    pub fn reach(&mut self, step: Step) {
        if let Report::Dry(steps) = self {
            steps.push(StepTaken::new(step.name()));
        }
    }

    /// What the step that was reached last has found.
    pub fn tell(&mut self, detail: impl FnOnce() -> String) {
        if let Report::Dry(steps) = self
            && let Some(step) = steps.last_mut()
        {
            step.detail = Some(detail());
        }
    }

    pub fn set_args(&mut self, redacted: impl FnOnce() -> Box<RawValue>) {
        if let Report::Call(guard) = self {
            guard.set_args(redacted());
        }
    }
}
