//! The step that asks the policy, and sees to confirmations.

use serde_json::{Map, Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::report::{Report, Step};
use super::{Call, Input, payload};
use crate::auth::Identity;
use crate::catalog::{Invocation, Tool};
use crate::derived_key::{Key, KeyBuilder};
use crate::error::{CallError, Confirmation};
use crate::exec::files::StoredFile;
use crate::policy::{Facts, Named, Verdict};
use crate::runtime::{Binding, ConfirmationsError};

pub(super) async fn check(
    call: &Call<'_>,
    tool: &Tool,
    input: &Input,
    confirm: Option<&str>,
    report: &mut Report<'_, '_>,
) -> Result<(), CallError> {
    let words = program_words(tool, input);
    let values = command_values(tool, input);
    report.reach(Step::Effects);
    let facts = tool.facts();
    report.tell(|| described(tool));
    report.reach(Step::Policy);
    let asked = AskedCall {
        name: tool.named(&words),
        as_command: values.as_ref().map(|words| tool.named(words)),
        facts: &facts,
        tool: Some(tool),
        confirm,
    };
    let upstream = call.upstream_override.as_ref().map(url::Url::as_str);
    let arguments = || {
        let stored = match input {
            Input::Arguments { args, .. } => payload::stored_file(call, tool, args),
            Input::Words(_) => None,
        };
        arguments_key(input, upstream, stored.as_ref())
    };
    if report.is_dry() {
        // No token is made and none is used up.
        return match asked.verdict(call) {
            Verdict::Confirm(rule) => Err(required(&asked, rule, String::new(), String::new())),
            verdict => allowed(&asked, verdict),
        };
    }
    decide(call, &asked, arguments).await
}

/// The words of a program as it gets them: those of its manifest first.
fn program_words(tool: &Tool, input: &Input) -> Vec<String> {
    let Input::Words(words) = input else {
        return Vec::new();
    };
    let defaults = tool.program().map_or(&[][..], |cli| &cli.default_args);
    defaults.iter().chain(words).cloned().collect()
}

/// The words of a program that describes itself, with those of the arguments that may be words of
/// its command: `gh repo` with the argument `delete`.
fn command_values(tool: &Tool, input: &Input) -> Option<Vec<String>> {
    let Input::Arguments { args, .. } = input else {
        return None;
    };
    match &tool.invocation {
        Invocation::Atip(command) => Some(command.argv.command_words(args)),
        // What doesn't fit the command isn't run either.
        Invocation::Cmp(cmp) => cmp.intent.command.fill(args, &cmp.intent.parameters).ok(),
        Invocation::Http(_)
        | Invocation::Mcp(_)
        | Invocation::Cli
        | Invocation::Files(_)
        | Invocation::Runfile(_) => None,
    }
}

/// A call, as a policy sees it.
pub(super) struct AskedCall<'a> {
    pub name: Named<'a>,
    /// The same with the words that its arguments become, of a command that describes itself.
    pub as_command: Option<Named<'a>>,
    pub facts: &'a Facts,
    /// None of a tool that its server hasn't listed.
    pub tool: Option<&'a Tool>,
    pub confirm: Option<&'a str>,
}

impl AskedCall<'_> {
    fn verdict(&self, call: &Call<'_>) -> Verdict {
        let delegation = call.identity.delegation.as_deref();
        let policy = &call.context.policy;
        let verdict = policy.decide(&self.name, self.facts, delegation);
        let Some(as_command) = &self.as_command else {
            return verdict;
        };
        // Only what they deny counts: a value can't make a call an allowed one.
        match policy.decide(as_command, self.facts, delegation) {
            denied @ Verdict::Deny(_) => denied,
            _ => verdict,
        }
    }
}

/// `arguments` is asked for where the call has to be confirmed.
pub(super) async fn decide(
    call: &Call<'_>,
    asked: &AskedCall<'_>,
    arguments: impl FnOnce() -> Key,
) -> Result<(), CallError> {
    let rule = match asked.verdict(call) {
        Verdict::Confirm(rule) => rule,
        verdict => return allowed(asked, verdict),
    };
    let binding = Binding {
        caller: caller_key(call.identity),
        tool: asked.name.tool.to_owned(),
        arguments: arguments(),
    };
    // Boxed: few calls come here, and every call would have to carry room for it.
    Box::pin(confirm(call, asked, rule, binding)).await
}

fn allowed(asked: &AskedCall<'_>, verdict: Verdict) -> Result<(), CallError> {
    match verdict {
        Verdict::Deny(rule) => Err(CallError::PolicyDenied {
            tool: asked.name.tool.to_owned(),
            rule,
        }),
        Verdict::Allow | Verdict::Confirm(_) => Ok(()),
    }
}

async fn confirm(
    call: &Call<'_>,
    asked: &AskedCall<'_>,
    rule: String,
    binding: Binding,
) -> Result<(), CallError> {
    let confirmations = &call.context.runtime.confirmations;
    let unavailable = |error: ConfirmationsError| {
        let request_id = call.request_id;
        tracing::error!(%request_id, %error, "confirmations can't be kept");
        match error {
            ConfirmationsError::DatabaseAway(_) => {
                CallError::DatabaseAway("confirmations can't be kept")
            }
            ConfirmationsError::Failed(_) => CallError::Internal("confirmations can't be kept"),
        }
    };
    if let Some(token) = asked.confirm {
        let consumed = confirmations.consume(token, &binding).await;
        return consumed.map_err(unavailable)?.map_err(|fault| {
            let tool = binding.tool.clone();
            CallError::ConfirmationRefused { tool, rule, fault }
        });
    }
    let time = call.context.policy.confirmation_time;
    let issued = confirmations.issue(&binding, time).await;
    let issued = issued.map_err(unavailable)?;
    Err(required(asked, rule, issued.token, rfc3339(issued.expires)))
}

fn required(asked: &AskedCall<'_>, rule: String, token: String, expires_at: String) -> CallError {
    let known = asked.tool.and_then(Tool::known_effects);
    CallError::ConfirmationRequired(Box::new(Confirmation {
        token,
        expires_at,
        tool: asked.name.tool.to_owned(),
        effects: known.map_or_else(|| json!({}), |known| json!(known.effects)),
        rule,
    }))
}

fn rfc3339(seconds: u64) -> String {
    let at = i64::try_from(seconds).ok();
    let at = at.and_then(|at| OffsetDateTime::from_unix_timestamp(at).ok());
    at.and_then(|at| at.format(&Rfc3339).ok())
        .unwrap_or_default()
}

fn described(tool: &Tool) -> String {
    match tool.known_effects() {
        Some(known) => {
            let inferred = match known.inferred_names().join(", ") {
                names if names.is_empty() => names,
                names => format!("; inferred: {names}"),
            };
            let (effects, source) = (json!(known.effects), known.source.name());
            format!("{effects} ({source}{inferred})")
        }
        None => "none are known".to_owned(),
    }
}

/// Who a confirmation is for.
fn caller_key(identity: &Identity) -> Key {
    let key = KeyBuilder::new("caller of a confirmation");
    key.with(&identity.subject)
        .with(&identity.customer_id)
        .with(identity.key_hash())
        .finish()
}

/// `stored` is the file whose id is among the arguments. It counts in the place of the id, which is
/// another one each time that the same file is put.
fn arguments_key(input: &Input, upstream: Option<&str>, stored: Option<&StoredFile>) -> Key {
    let mut key = KeyBuilder::new("arguments of a confirmation").with(upstream);
    match (input, stored) {
        (Input::Words(words), _) => key.add(("words", words)),
        (Input::Arguments { args, content, .. }, None) => {
            add_members(&mut key, args);
            key.add(content.as_ref().map(|content| content.sha256));
        }
        (Input::Arguments { args, .. }, Some(file)) => {
            let mut args = args.clone();
            args.shift_remove(payload::ID);
            add_members(&mut key, &args);
            key.add(("stored file", file.content.sha256));
            key.add((&file.name, &file.content_type));
        }
    }
    key.finish()
}

/// The same for arguments of a server that the caller speaks to itself: their text, because that is
/// what the server gets. Of two members with one name, or of a long number, it may read another
/// value than ati does.
pub(super) fn raw_arguments_key(text: &str, upstream: Option<&str>) -> Key {
    let key = KeyBuilder::new("arguments of a relayed confirmation").with(upstream);
    key.with(text).finish()
}

/// Members in the order of their names: how they were written doesn't matter.
fn add_members(key: &mut KeyBuilder, members: &Map<String, Value>) {
    let mut members: Vec<_> = members.iter().collect();
    members.sort_unstable_by_key(|(name, _)| *name);
    key.add(("object", members.len()));
    for (name, value) in members {
        key.add(name);
        add_value(key, value);
    }
}

fn add_value(key: &mut KeyBuilder, value: &Value) {
    match value {
        Value::Null => key.add("null"),
        Value::Bool(value) => key.add(("bool", value)),
        Value::Number(number) => key.add(("number", number.to_string())),
        Value::String(text) => key.add(("string", text)),
        Value::Array(items) => {
            key.add(("list", items.len()));
            items.iter().for_each(|item| add_value(key, item));
        }
        Value::Object(members) => add_members(key, members),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_the_same_in_any_order_and_differ_in_any_value() {
        let key = |text: &str| {
            let input = Input::Arguments {
                args: serde_json::from_str(text).unwrap(),
                size: 0,
                content: None,
            };
            arguments_key(&input, None, None)
        };
        let one = key(r#"{"a": 1, "b": {"x": [1, "2"], "y": null}}"#);
        assert_eq!(one, key(r#"{"b":{"y":null,"x":[1,"2"]},"a":1}"#));
        for other in [
            r#"{"a": 2, "b": {"x": [1, "2"], "y": null}}"#,
            r#"{"a": "1", "b": {"x": [1, "2"], "y": null}}"#,
            r#"{"a": 1, "b": {"x": ["2", 1], "y": null}}"#,
            r#"{"a": 1, "b": {"x": [1, "2"]}}"#,
            r#"{"a": 1, "b": {"x": [1, "2"], "y": null}, "c": 1}"#,
        ] {
            assert_ne!(one, key(other), "{other}");
        }
        let words = |words: &[&str]| {
            let words = words.iter().map(|word| (*word).to_owned()).collect();
            arguments_key(&Input::Words(words), None, None)
        };
        assert_ne!(words(&["a b"]), words(&["a", "b"]));
    }
}
