//! Tool commands through a proxy: the client for the server that `ATI_PROXY_URL` names.

use std::path::Path;
use std::time::Duration;

use http::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use url::Url;

use super::transport::NoAnswer;
use super::{problem_failure, runtime};
use crate::auth::session::{self, SESSION_TOKEN};
use crate::call::WARNING_HEADER;
use crate::catalog::{ResultFormat, result_format};
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

/// A call that the proxy has made.
pub struct Called {
    pub result: Box<RawValue>,
    /// How the tool wants its result printed.
    pub format: ResultFormat,
    pub warning: Option<String>,
}

/// The body of a call. The arguments stay as they were written.
#[derive(Serialize)]
struct CallBody<'a> {
    tool_name: &'a str,
    args: &'a RawValue,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    raw_args: &'a [String],
}

/// An HTTP response of the proxy.
struct Response {
    /// The proxy's id of this request.
    request_id: Option<RequestId>,
    status: u16,
    format: ResultFormat,
    warning: Option<String>,
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

    /// `POST /call`. The words of the command line are sent too: for tools that are programs, and
    /// for the texts as they were typed.
    /// `request_id` becomes the proxy's id of the call, whatever its answer is.
    pub fn call(
        &self,
        tool: &str,
        args: &RawValue,
        words: &[String],
        request_id: &mut Option<RequestId>,
    ) -> Result<Called, Failure> {
        let body = CallBody {
            tool_name: tool,
            args,
            raw_args: words,
        };
        let body = serde_json::to_string(&body)
            .map_err(|e| Failure::new(Code::ExecutionFailed, "the call").because(e))?;
        let answer = self.ask(Method::POST, "call", &[], Some(body))?;
        *request_id = answer.request_id;
        if answer.status != 200 {
            return Err(answer.failure());
        }
        let envelope: Envelope = serde_json::from_str(&answer.body).map_err(|e| {
            let message = "Proxy request failed: its answer is not that of an ATI proxy";
            not_json(message, e)
        })?;
        match envelope.error {
            None => Ok(Called {
                result: envelope.result.unwrap_or_default(),
                format: answer.format,
                warning: answer.warning,
            }),
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
        body: Option<String>,
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
            request = request.header(http::header::CONTENT_TYPE, json).body(body);
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
            let header = |name: &str| response.headers().get(name)?.to_str().ok();
            Ok(Response {
                request_id: header(request_id::HEADER).and_then(RequestId::parse),
                format: header(result_format::HEADER)
                    .and_then(ResultFormat::named)
                    .unwrap_or_default(),
                warning: header(WARNING_HEADER).map(str::to_owned),
                status: response.status().as_u16(),
                body: response.text().await.map_err(failed)?,
            })
        })
    }
}

impl Response {
    /// The failure that a status means: the proxy uses each status for one kind of refusal.
    fn failure(&self) -> Failure {
        let code = match self.status {
            401 => Code::AuthExpired,
            403 => Code::ScopeDenied,
            404 => Code::ToolNotFound,
            400 | 422 => Code::InvalidValue,
            429 => Code::RateExceeded,
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
