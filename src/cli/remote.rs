//! Tool commands through a proxy: the client for the server that `ATI_PROXY_URL` names.

use std::path::Path;
use std::time::Duration;

use http::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use url::Url;

use super::transport::NoAnswer;
use super::{problem_failure, runtime};
use crate::auth::session::{self, SESSION_TOKEN};
use crate::config;
use crate::egress;
use crate::error::{Code, Failure};
use crate::request_id::{self, RequestId};

const TIMEOUT: Duration = Duration::from_secs(120);
const LONGEST_ERROR: usize = 64 << 10;

pub struct Remote {
    base: Url,
    token: Option<String>,
    /// An MCP server of the caller's own, sent as `X-Ati-Upstream-Url`.
    upstream_url: Option<String>,
}

/// The JSON body of an answer of `/call`.
#[derive(Deserialize)]
struct Envelope {
    result: Option<Box<RawValue>>,
    error: Option<String>,
}

/// An HTTP response of the proxy.
struct Response {
    /// The proxy's id of this request.
    request_id: Option<RequestId>,
    status: u16,
    body: String,
}

impl Remote {
    /// `None` where `ATI_PROXY_URL` is unset: tools then run on this machine.
    pub fn from_environment() -> Result<Option<Self>, Failure> {
        let Some(url) = std::env::var("ATI_PROXY_URL")
            .ok()
            .map(|url| url.trim().to_owned())
            .filter(|url| !url.is_empty())
        else {
            return Ok(None);
        };
        let base = Url::parse(&url)
            .ok()
            .filter(egress::is_http_url)
            .ok_or_else(|| Failure::invalid("ATI_PROXY_URL is not an http or https URL"))?;
        Ok(Some(Remote {
            base,
            token: token(SESSION_TOKEN),
            upstream_url: None,
        }))
    }

    /// Use the token and the server URL that the tool's provider names with
    /// `auth_session_token_env` and `mcp_url_env`, where those variables are set.
    pub fn for_tool(mut self, ati_dir: &Path, tool: &str) -> Self {
        let named = config::session_token_env(ati_dir, tool);
        if let Some(own) = named.and_then(|name| token(&name)) {
            self.token = Some(own);
        }
        let named = config::mcp_url_env(ati_dir, tool);
        let url = named.and_then(|name| std::env::var(name).ok());
        self.upstream_url = url.filter(|url| !url.trim().is_empty());
        self
    }

    /// `POST /call`. The words of the command line are sent too, for tools that are programs.
    /// `request_id` becomes the proxy's id of the call, whatever its answer is.
    pub fn call(
        &self,
        tool: &str,
        args: &Value,
        words: &[String],
        request_id: &mut Option<RequestId>,
    ) -> Result<Box<RawValue>, Failure> {
        let mut body = json!({"tool_name": tool, "args": args});
        if !words.is_empty() {
            body["raw_args"] = json!(words);
        }
        let answer = self.ask(Method::POST, "call", &[], Some(&body))?;
        *request_id = answer.request_id;
        if answer.status != 200 {
            return Err(answer.failure());
        }
        let envelope: Envelope = serde_json::from_str(&answer.body).map_err(|e| {
            let message = "Proxy request failed: its answer is not that of an ATI proxy";
            not_json(message, e)
        })?;
        match envelope.error {
            None => Ok(envelope.result.unwrap_or_default()),
            Some(error) => {
                let message = format!("Proxy error (200): {error}");
                Err(Failure::new(Code::ExecutionFailed, message))
            }
        }
    }

    pub fn get(&self, path: &str, query: &[(&str, &str)]) -> Result<Value, Failure> {
        let answer = self.ask(Method::GET, path, query, None)?;
        if answer.status != 200 {
            return Err(answer.failure());
        }
        serde_json::from_str(&answer.body)
            .map_err(|e| not_json("Proxy request failed: its answer is not JSON", e))
    }

    pub fn tool(&self, name: &str) -> Result<Value, Failure> {
        let segment = utf8_percent_encode(name, NON_ALPHANUMERIC);
        self.get(&format!("tools/{segment}"), &[])
    }

    fn ask(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Result<Response, Failure> {
        let mut url = self.base.clone();
        url.set_path(&format!(
            "{}/{path}",
            self.base.path().trim_end_matches('/')
        ));
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        let client = egress::proxy_client(url.scheme() == "https")
            .map_err(|problem| problem_failure(Code::ExecutionFailed, &problem))?;
        let mut request = client.request(method, url).timeout(TIMEOUT);
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        if let Some(url) = &self.upstream_url {
            request = request.header("x-ati-upstream-url", url.trim());
        }
        if let Some(body) = body {
            let json = http::HeaderValue::from_static("application/json");
            request = request
                .header(http::header::CONTENT_TYPE, json)
                .body(body.to_string());
        }
        let failed = |e: reqwest::Error| {
            let cause = NoAnswer::new(e);
            let code = if cause.is_timeout() {
                Code::ProviderTimeout
            } else {
                Code::UpstreamError
            };
            Failure::new(code, "Proxy request failed")
                .because(cause)
                .hint("ATI_PROXY_URL says where the proxy is")
        };
        runtime()?.block_on(async {
            let response = request.send().await.map_err(failed)?;
            let id = response.headers().get(request_id::HEADER);
            Ok(Response {
                request_id: id.and_then(|id| RequestId::parse(id.to_str().ok()?)),
                status: response.status().as_u16(),
                body: response.text().await.map_err(failed)?,
            })
        })
    }
}

impl Response {
    /// Whether the proxy says that the provider of a tool is down.
    fn tells_of_a_provider(&self) -> bool {
        let envelope: Option<Envelope> = serde_json::from_str(&self.body).ok();
        let error = envelope.and_then(|envelope| envelope.error);
        error.is_some_and(|error| error.starts_with("provider '"))
    }

    /// The failure that a status means: the proxy uses each status for one kind of refusal.
    fn failure(&self) -> Failure {
        let code = match self.status {
            401 => Code::AuthExpired,
            403 => Code::ScopeDenied,
            404 => Code::ToolNotFound,
            400 | 422 => Code::InvalidValue,
            429 => Code::RateExceeded,
            503 if self.tells_of_a_provider() => Code::ProviderUnavailable,
            502 | 503 => Code::UpstreamError,
            504 => Code::ProviderTimeout,
            _ => Code::ExecutionFailed,
        };
        let body: String = self.body.chars().take(LONGEST_ERROR).collect();
        let failure = Failure::new(code, format!("Proxy error ({}): {body}", self.status));
        match self.status {
            401 => failure.hint("the token is missing, wrong or expired: ATI_SESSION_TOKEN"),
            _ => failure,
        }
    }
}

fn not_json(message: &str, error: serde_json::Error) -> Failure {
    let failure = Failure::new(Code::UpstreamError, message);
    // An error about the shape of the answer quotes what was found in it; one about syntax doesn't.
    if error.is_data() {
        failure
    } else {
        failure.because(error)
    }
}

/// The caller's token. A file that can't be read means no token: the proxy decides whether it needs
/// one.
fn token(name: &str) -> Option<String> {
    session::resolve(name).unwrap_or_else(|e| {
        tracing::debug!(error = %e, "{name} can't be read");
        None
    })
}
