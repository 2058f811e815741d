//! `POST /help`: a question about tools, answered by the language model of `_llm.toml`. Its prompt
//! has the tools and skills that the caller may use, and its answer has no command that the caller
//! couldn't run.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::skillati::{reader, viewer};
use super::{Reply, Request, Services, check_page, context, skills};
use crate::assist::llm::{Answer, Backend, NO_TEXT, Question, Wire};
use crate::assist::{self, Screen, SkillText, Subject, prompt};
use crate::auth::{Identity, scope};
use crate::call::{self, QuestionRecord};
use crate::catalog::Tool;
use crate::credential::CredentialError;
use crate::error::{HelpError, Refusal};
use crate::request_id::RequestId;
use crate::snapshot::Snapshot;
use crate::telemetry::otel::Traceparent;

/// Characters of a question.
const LONGEST_QUESTION: usize = 20_000;
/// Questions under way at a time: each waits for a language model, and keeps its prompt in memory.
static TURNS: Semaphore = Semaphore::const_new(64);
/// For the remote catalogue of skills: an answer without them is better than none.
const CATALOGUE: Duration = Duration::from_secs(3);
/// Skills of the remote catalogue in one prompt.
const MOST_REMOTE: usize = 10;

#[derive(Deserialize)]
struct HelpQuestion {
    query: String,
    tool: Option<String>,
}

pub(super) async fn answer(
    request: Request,
    identity: &Arc<Identity>,
    snapshot: &Arc<Snapshot>,
    services: &Services,
) -> Result<Reply, Refusal> {
    let (id, trail) = (request.id, request.trail.clone());
    let llm = assist::llm::tool(&snapshot.catalog).ok_or_else(|| help(HelpError::NotConfigured))?;
    check_page(&request.parts.headers, snapshot)?;
    let may_ask = identity.scopes.allow(scope::HELP);
    if snapshot.settings.assist.require_scope && !may_ask {
        return Err(help(HelpError::NoHelpScope));
    }
    let asked: HelpQuestion = skills::body(request).await?;
    let question = crate::text::clip_chars(&asked.query, LONGEST_QUESTION);
    let named = asked.tool.as_deref().filter(|name| !name.is_empty());
    let subject = named.map_or(Subject::Everything, Subject::Named);
    let (catalog, scopes) = (&snapshot.catalog, &identity.scopes);
    let about = assist::Context::new(catalog, &snapshot.skills, scopes, subject, question);
    let about = about.map_err(help)?;
    let _turn = TURNS.try_acquire().map_err(|_| Refusal::Overloaded)?;
    // From here on every outcome is audited.
    let calls = context(snapshot, services);
    let record = QuestionRecord::new(question, named, identity, id, &trail, calls);
    let asked = ReadyQuestion {
        id,
        text: question,
        about,
        llm,
        identity,
        traceparent: trail.traceparent(),
    };
    let answered = asked.answer(snapshot, services).await;
    record.end(&answered);
    let answer = answered.map_err(help)?;
    let mut screen = Screen::new(catalog, scopes);
    let mut content = screen.whole(&answer);
    if let Some(first) = screen.left_out.first() {
        // One line: an answer may have thousands of them.
        let (count, why) = (screen.left_out.len(), &first.why);
        tracing::info!(request_id = %id, count, why, "commands of the language model were left out");
    }
    content += &assist::note(screen.left_out.len());
    if answer.is_cut {
        content += &format!("\n\n({})", assist::cut_note());
    }
    Reply::json(id, &json!({"content": content.trim_start()}))
}

/// A question that may be asked.
struct ReadyQuestion<'a> {
    id: RequestId,
    text: &'a str,
    about: assist::Context<'a>,
    llm: &'a Arc<Tool>,
    identity: &'a Arc<Identity>,
    traceparent: Option<Traceparent>,
}

impl ReadyQuestion<'_> {
    async fn answer(self, snapshot: &Snapshot, services: &Services) -> Result<Answer, HelpError> {
        let (id, identity, calls) = (self.id, self.identity, context(snapshot, services));
        call::limit_question(identity, id, calls).await?;
        let endpoint = call::endpoint(self.llm, identity, calls).await;
        let endpoint = endpoint.map_err(|error| {
            tracing::warn!(request_id = %id, %error, "the language model has no credential");
            match error {
                CredentialError::MissingKey(_) => HelpError::NoKey,
                error => HelpError::Request(error.to_string()),
            }
        })?;
        let remote = described(self.text, identity, snapshot, services).await;
        let about = self.about.with_described(remote).with_live_help().await;
        let backend = Backend {
            wire: Wire::OpenAi,
            url: endpoint.url,
            model: assist::llm::model(self.llm),
            credential: endpoint.credential,
            source: endpoint.source,
            patience: snapshot.settings.assist.patience,
        };
        let question = Question {
            system: &prompt::system(&about),
            user: self.text,
            traceparent: self.traceparent,
        };
        let answered = backend.ask(&question, &snapshot.clients).await;
        let answer = answered.inspect_err(|error| {
            tracing::warn!(request_id = %id, %error, "the language model failed");
        })?;
        Ok(answer.unwrap_or_else(|| Answer {
            text: NO_TEXT.to_owned(),
            is_cut: false,
        }))
    }
}

fn help(error: HelpError) -> Refusal {
    Refusal::Help(Box::new(error))
}

/// Skills of the remote catalogue that fit the question and that the caller may see, by their
/// descriptions.
async fn described(
    question: &str,
    identity: &Identity,
    snapshot: &Snapshot,
    services: &Services,
) -> Vec<SkillText> {
    let Ok(reader) = reader(snapshot, services) else {
        return Vec::new();
    };
    let viewer = viewer(identity, snapshot);
    let found = tokio::time::timeout(CATALOGUE, reader.catalog(&viewer, Some(question))).await;
    let found = match found {
        Ok(Ok(found)) => found.value(),
        _ => Value::Null,
    };
    let items = found["skills"].as_array().into_iter().flatten();
    let text = |item: &Value| SkillText {
        name: item["name"].as_str().unwrap_or_default().to_owned(),
        description: ["description", "when_to_use"]
            .iter()
            .filter_map(|key| item[*key].as_str())
            .collect::<Vec<_>>()
            .join("\n"),
        body: String::new(),
    };
    items.take(MOST_REMOTE).map(text).collect()
}
