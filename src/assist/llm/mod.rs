//! Questions to a language model, over the guarded clients of tools. Two wire formats: OpenAI's
//! chat completions (Cerebras, Ollama and most others) and Anthropic's messages.

mod anthropic;
mod events;
mod openai;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use serde_json::Value;
use url::Url;

use crate::catalog::{Catalog, Tool};
use crate::credential::{Attachment, Redactor};
use crate::egress::{Clients, EgressError};
use crate::error::HelpError;
use crate::exec::egress::{append_query, check, client, failed};
use crate::telemetry::otel::Traceparent;
use crate::text::clip_chars;
use events::Events;

/// What a model may write, as existing deployments ask for it.
pub const MOST_TOKENS: u32 = 1536;
const TEMPERATURE: f64 = 0.3;
/// Bytes of an answer; a model that writes more than it may has lost its way.
const LONGEST_ANSWER: usize = 1 << 20;
/// Characters of a server's error that are passed on.
const LONGEST_ERROR: usize = 2000;
/// An answer that comes in pieces may take so many times the time that nothing may come for.
const WHOLE_ANSWER: u32 = 5;
/// What stands for an answer without a text.
pub const NO_TEXT: &str = "No response from LLM";
/// The longest time that a server's `Retry-After` is believed.
const LONGEST_RETRY: u64 = 86_400;

/// The model of `_llm.toml`, where the manifest names no other.
pub const MODEL: &str = "zai-glm-4.7";
/// The tool of `_llm.toml` that stands for the model.
const TOOL: &str = "_chat_completion";

/// The tool that stands for the language model. It is internal: no caller finds it.
pub fn tool(catalog: &Catalog) -> Option<&Arc<Tool>> {
    catalog.tools().iter().find(|tool| tool.name == TOOL)
}

/// The default of the argument `model`, for other providers that speak OpenAI's format.
pub fn model(tool: &Tool) -> String {
    let named = &tool.input_schema()["properties"]["model"]["default"];
    named.as_str().unwrap_or(MODEL).to_owned()
}

/// The format that a server speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire {
    OpenAi,
    /// The same, of a server that knows the older name of the limit on tokens.
    OpenAiOlder,
    Anthropic,
}

/// Where questions go. No `Debug`: it holds a credential.
pub struct Backend {
    pub wire: Wire,
    pub url: Url,
    pub model: String,
    pub credential: Arc<Attachment>,
    /// The address that connections come from.
    pub source: Option<IpAddr>,
    /// The longest time in which nothing comes.
    pub patience: Duration,
}

pub struct Question<'a> {
    pub system: &'a str,
    pub user: &'a str,
    /// What the model's server is told of the trace.
    pub traceparent: Option<Traceparent>,
}

#[derive(Debug, Default)]
pub struct Answer {
    pub text: String,
    /// It ends where the model had written as much as it may.
    pub is_cut: bool,
}

impl Answer {
    fn with_text(self) -> Option<Self> {
        Some(self).filter(|answer| !answer.text.trim().is_empty())
    }
}

/// What an event of a stream says.
struct Piece<'a> {
    text: Option<&'a str>,
    /// The answer is complete with it.
    is_last: bool,
    is_cut: bool,
}

impl Backend {
    /// The whole answer. None: it has no text.
    pub async fn ask(
        &self,
        question: &Question<'_>,
        clients: &Clients,
    ) -> Result<Option<Answer>, HelpError> {
        let response = self.send(question, false, clients).await?;
        self.whole(response).await
    }

    /// The same, and each piece of it is shown as it comes.
    pub async fn ask_in_pieces(
        &self,
        question: &Question<'_>,
        clients: &Clients,
        show: &mut (dyn FnMut(&str) + '_),
    ) -> Result<Option<Answer>, HelpError> {
        let response = self.send(question, true, clients).await?;
        let kind = response.headers().get(CONTENT_TYPE);
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        // A server that can't do it answers as a whole.
        if !kind.starts_with("text/event-stream") {
            let whole = self.whole(response).await?;
            show(whole.as_ref().map_or("", |whole| &whole.text));
            return Ok(whole);
        }
        let mut text = String::new();
        let mut take = |piece: &str| {
            text.push_str(piece);
            show(piece);
        };
        let is_cut = self.pieces(response, &mut take).await?;
        Ok(Answer { text, is_cut }.with_text())
    }

    async fn send(
        &self,
        question: &Question<'_>,
        in_pieces: bool,
        clients: &Clients,
    ) -> Result<reqwest::Response, HelpError> {
        let mut url = self.url.clone();
        check(clients, &url).map_err(|e| unsent(&e))?;
        if let Some(pair) = self.credential.query(true) {
            // Encoded already, so it is ASCII.
            append_query(&mut url, &String::from_utf8_lossy(pair.expose()));
        }
        let body = match self.wire {
            Wire::Anthropic => anthropic::body(&self.model, question, in_pieces),
            wire => openai::body(&self.model, question, in_pieces, wire),
        };
        let mut request = reqwest::Request::new(http::Method::POST, url);
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if self.wire == Wire::Anthropic {
            headers.insert(anthropic::VERSION.0, anthropic::VERSION.1);
        }
        if let Some(parent) = question.traceparent {
            parent.insert(headers);
        }
        let attached = self.credential.attach(true, |name, value| {
            headers.insert(name, value);
            Ok::<_, std::convert::Infallible>(())
        });
        let Ok(()) = attached;
        *request.body_mut() = Some(body.to_string().into());
        let client = client(clients, self.source).map_err(|e| unsent(&e))?;
        let sent = tokio::time::timeout(self.patience, client.execute(request)).await;
        let response = sent.map_err(|_| self.silent())?;
        let response = response.map_err(|e| {
            let error = failed(&e, &self.url.origin());
            HelpError::Unreachable(words(&error))
        })?;
        self.credential.observe(response.status().as_u16());
        match response.status().is_success() {
            true => Ok(response),
            false => Err(self.refused(response).await),
        }
    }

    async fn whole(&self, response: reqwest::Response) -> Result<Option<Answer>, HelpError> {
        let mut body = self.body(response).await?;
        self.credential.redact(&mut body);
        let answer: Value = serde_json::from_slice(&body)
            .map_err(|e| HelpError::Unparsable(format!("it is not JSON: {e}")))?;
        if !answer.is_object() {
            return Err(HelpError::Unparsable("it is no JSON object".to_owned()));
        }
        let answer = match self.wire {
            Wire::Anthropic => anthropic::answer(&answer),
            Wire::OpenAi | Wire::OpenAiOlder => openai::answer(&answer),
        };
        Ok(answer.and_then(Answer::with_text))
    }

    async fn body(&self, mut response: reqwest::Response) -> Result<Vec<u8>, HelpError> {
        let until = Until::begin(self.patience);
        let mut body = Vec::new();
        while let Some(piece) = self.next(&mut response).await? {
            if body.len() + piece.len() > LONGEST_ANSWER {
                return Err(too_long());
            }
            body.extend_from_slice(&piece);
            until.check()?;
        }
        Ok(body)
    }

    /// True where the answer was cut.
    async fn pieces(
        &self,
        mut response: reqwest::Response,
        show: &mut (dyn FnMut(&str) + '_),
    ) -> Result<bool, HelpError> {
        let until = Until::begin(self.patience);
        let mut events = Events::default();
        let mut redactor = Some(self.credential.redactor());
        let mut length = 0;
        let (mut finished, mut is_cut) = (false, false);
        while !finished {
            let piece = self.next(&mut response).await?;
            let bytes = match &piece {
                Some(piece) => redactor.as_mut().map(|it| it.push(piece)),
                None => redactor.take().map(Redactor::finish),
            };
            let bytes = bytes.unwrap_or_default();
            length += bytes.len();
            if length > LONGEST_ANSWER {
                return Err(too_long());
            }
            for event in events.push(&bytes)? {
                finished |= self.event(&event, &mut is_cut, show)?;
            }
            if piece.is_none() && !finished {
                let why = "its answer ended in the middle";
                return Err(HelpError::Request(why.to_owned()));
            }
            until.check()?;
        }
        Ok(is_cut)
    }

    /// True where the answer is complete.
    fn event(
        &self,
        data: &str,
        is_cut: &mut bool,
        show: &mut (dyn FnMut(&str) + '_),
    ) -> Result<bool, HelpError> {
        if data == "[DONE]" {
            return Ok(true);
        }
        let event: Value = serde_json::from_str(data)
            .map_err(|e| HelpError::Unparsable(format!("an event of it is not JSON: {e}")))?;
        if let Some(error) = event.get("error").filter(|error| !error.is_null()) {
            let said = error["message"].as_str().map(str::to_owned);
            let said = said.unwrap_or_else(|| error.to_string());
            return Err(HelpError::Request(
                clip_chars(&said, LONGEST_ERROR).to_owned(),
            ));
        }
        let piece = match self.wire {
            Wire::Anthropic => anthropic::piece(&event),
            Wire::OpenAi | Wire::OpenAiOlder => openai::piece(&event),
        };
        show(piece.text.unwrap_or_default());
        *is_cut |= piece.is_cut;
        Ok(piece.is_last)
    }

    async fn next(&self, response: &mut reqwest::Response) -> Result<Option<Vec<u8>>, HelpError> {
        let piece = tokio::time::timeout(self.patience, response.chunk()).await;
        let piece = piece.map_err(|_| self.silent())?;
        match piece {
            Ok(piece) => Ok(piece.map(|bytes| bytes.to_vec())),
            Err(e) => Err(unsent(&failed(&e, &self.url.origin()))),
        }
    }

    async fn refused(&self, response: reqwest::Response) -> HelpError {
        let status = response.status().as_u16();
        let retry_after = response.headers().get(RETRY_AFTER);
        let retry_after = retry_after.and_then(|value| seconds(value.to_str().ok()?.trim()));
        let mut body = self.body(response).await.unwrap_or_default();
        self.credential.redact(&mut body);
        let body = String::from_utf8_lossy(&body);
        let body = body.replace(|c: char| c.is_control() && c != '\n', " ");
        HelpError::Api {
            status,
            body: clip_chars(body.trim(), LONGEST_ERROR).to_owned(),
            retry_after: retry_after.filter(|seconds| *seconds <= LONGEST_RETRY),
        }
    }

    fn silent(&self) -> HelpError {
        HelpError::Silent(self.patience.as_secs())
    }
}

/// When a whole answer has to be there: one that drips would keep its turn for ever.
struct Until {
    begin: Instant,
    longest: Duration,
}

impl Until {
    fn begin(patience: Duration) -> Self {
        Until {
            begin: Instant::now(),
            longest: patience.saturating_mul(WHOLE_ANSWER),
        }
    }

    fn check(&self) -> Result<(), HelpError> {
        match self.begin.elapsed() > self.longest {
            true => Err(HelpError::Request("its answer doesn't end".to_owned())),
            false => Ok(()),
        }
    }
}

/// A `Retry-After`: seconds, or a date.
fn seconds(retry_after: &str) -> Option<u64> {
    retry_after.parse().ok().or_else(|| {
        let date = httpdate::parse_http_date(retry_after).ok()?;
        let ahead = date.duration_since(SystemTime::now()).ok()?;
        Some(ahead.as_secs_f64().ceil() as u64)
    })
}

fn unsent(error: &EgressError) -> HelpError {
    HelpError::Request(words(error))
}

fn words(error: &EgressError) -> String {
    let text = error.to_string();
    let text = text.strip_prefix("HTTP request failed: ").unwrap_or(&text);
    text.to_owned()
}

fn too_long() -> HelpError {
    HelpError::Request(format!("its answer exceeds {LONGEST_ANSWER} bytes"))
}
