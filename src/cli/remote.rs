//! Commands through a proxy: the client for the server that `ATI_PROXY_URL` names.

mod clock;
mod exchange;
mod receive;
mod refused;

use std::path::{Path, PathBuf};
use std::time::Duration;

use http::Method;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use url::Url;

pub use exchange::{Opened, Upload};
pub use refused::{TokenRefusal, signature_hint};

use super::run::outputs::Named;
use super::transport::NoAnswer;
use super::{problem_failure, runtime};
use crate::auth::sandbox::{self, SandboxKey};
use crate::auth::session::{self, SESSION_TOKEN};
use crate::auth::signature;
use crate::catalog::ResultFormat;
use crate::clock::unix_now;
use crate::config;
use crate::egress::{self, ClientIdentity};
use crate::error::{Code, Failure, UpstreamFault};
use crate::request_id::RequestId;
use crate::telemetry::otel::{Traceparent, traceparent};
use exchange::Prepared;

const TIMEOUT: Duration = Duration::from_secs(120);

pub struct Remote {
    base: Url,
    caller: Caller,
    /// An MCP server of the caller's own, sent as `X-Ati-Upstream-Url`.
    upstream_url: Option<String>,
    timeout: Duration,
    /// The token of a confirmation, for the call that is made.
    confirm: Option<String>,
}

/// What the proxy is shown about the caller.
pub struct Caller {
    pub token: Option<String>,
    /// Why a token that there is can't be read.
    pub unreadable_token: Option<String>,
    /// Requests are signed with it.
    pub signing: Option<SandboxKey>,
}

/// The JSON body of an answer of `/call`.
#[derive(Deserialize)]
struct Envelope {
    /// None where there is no such key: the answer of another program.
    #[serde(default, deserialize_with = "present")]
    result: Option<Box<RawValue>>,
    error: Option<String>,
}

/// A value that is there, `null` included.
fn present<'de, D: serde::Deserializer<'de>>(value: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(value).map(Some)
}

/// A call that the proxy has made.
pub struct Called {
    pub result: Box<RawValue>,
    /// How the tool wants its result printed.
    pub format: ResultFormat,
    pub warnings: Vec<String>,
    /// The tool is a program of the proxy's machine.
    pub is_program: bool,
}

/// The body of a call. The arguments stay as they were written.
#[derive(Serialize)]
struct CallBody<'a> {
    tool_name: &'a str,
    args: &'a RawValue,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    raw_args: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    confirm: Option<&'a str>,
}

/// An HTTP response of the proxy.
pub struct Response {
    /// The proxy's id of this request.
    pub request_id: Option<RequestId>,
    pub status: u16,
    pub body: String,
    /// What the status means in HTTP.
    reason: &'static str,
    /// The path of the request, as it was sent and signed.
    path: String,
    is_json: bool,
    /// What the proxy says about the token that it refuses.
    challenge: Option<String>,
    /// What the proxy says about the signature, in warn mode.
    pub signature_status: Option<String>,
    /// Seconds by which the proxy's clock is ahead of this machine's.
    pub clock_ahead: Option<i64>,
    /// Seconds after which the request may be made again.
    pub retry_after: Option<u64>,
    format: ResultFormat,
    warning: Option<String>,
    is_program: bool,
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
        let (token, unreadable_token) = token(SESSION_TOKEN);
        Ok(Some(Remote {
            base,
            caller: Caller {
                token,
                unreadable_token,
                signing: signing_key()?,
            },
            upstream_url: None,
            timeout: TIMEOUT,
            confirm: None,
        }))
    }

    /// Use the token and the server URL that the tool's provider names with
    /// `auth_session_token_env` and `mcp_url_env`, where those variables are set.
    pub fn for_tool(mut self, ati_dir: &Path, tool: &str) -> Self {
        let named = config::session_token_env(ati_dir, tool);
        if let Some(own) = named.and_then(|name| token(&name).0) {
            self.caller.token = Some(own);
        }
        let named = config::mcp_url_env(ati_dir, tool);
        let url = named.and_then(|name| std::env::var(name).ok());
        self.upstream_url = url.filter(|url| !url.trim().is_empty());
        self
    }

    pub fn confirmed(self, confirm: Option<String>) -> Self {
        Remote { confirm, ..self }
    }

    /// The body of a call without words.
    pub fn call_body(&self, tool: &str, args: &Value) -> Value {
        let mut body = serde_json::json!({"tool_name": tool, "args": args});
        if let Some(token) = &self.confirm {
            body["confirm"] = token.as_str().into();
        }
        body
    }

    /// With another token than the session's.
    pub fn with_token(mut self, token: String) -> Self {
        self.caller.token = Some(token);
        self
    }

    /// With another limit on the time for an answer.
    pub fn within(self, timeout: Duration) -> Self {
        Remote { timeout, ..self }
    }

    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Where the proxy is, without what may be a secret.
    pub fn shown_url(&self) -> String {
        let mut url = self.base.clone();
        let _ = url.set_username("");
        let _ = url.set_password(None);
        url.set_query(None);
        url.set_fragment(None);
        url.as_str().trim_end_matches('/').to_owned()
    }

    /// `POST /call`. The words of the command line are sent too: for tools that are programs, and
    /// for the texts as they were typed.
    /// `request_id` becomes the proxy's id of the call, whatever its answer is. Files in the answer
    /// are written where the caller named them.
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
            confirm: self.confirm.as_deref(),
        };
        let body = serde_json::to_string(&body)
            .map_err(|e| Failure::new(Code::ExecutionFailed, "the call").because(e))?;
        let named = Named::new(words, args);
        let (answer, files) = self.call_receiving(body, &named)?;
        *request_id = answer.request_id;
        let called = self.called(answer)?;
        match files {
            Some(files) => called.with_files(files),
            None => Ok(called),
        }
    }

    /// What an answer of `/call` says.
    pub fn called(&self, answer: Response) -> Result<Called, Failure> {
        if answer.status != 200 {
            return Err(answer.failure(&self.caller));
        }
        let envelope: Envelope =
            serde_json::from_str(&answer.body).map_err(|e| not_json(NOT_ATI, e))?;
        match (envelope.error, envelope.result) {
            (None, Some(result)) => Ok(Called {
                result,
                format: answer.format,
                warnings: answer.warning.into_iter().collect(),
                is_program: answer.is_program,
            }),
            (None, None) => Err(not_ati()),
            (Some(error), _) => {
                let message = format!("Proxy error (200): {error}");
                let mut failure = Failure::new(Code::ExecutionFailed, message);
                failure.status = Some(answer.status);
                failure.request_id = answer.request_id;
                Err(failure)
            }
        }
    }

    pub fn get(&self, path: &str, query: &[(&str, &str)]) -> Result<Value, Failure> {
        let answer = self.ask(Method::GET, path, query, None)?;
        if answer.status != 200 {
            return Err(answer.failure(&self.caller));
        }
        serde_json::from_str(&answer.body)
            .map_err(|e| not_json("Proxy request failed: its answer is not JSON", e))
    }

    /// One question in JSON, and its answer.
    pub fn post_json(&self, path: &str, body: String) -> Result<Value, Failure> {
        let answer = self.ask(Method::POST, path, &[], Some(body))?;
        if answer.status != 200 {
            return Err(answer.failure(&self.caller));
        }
        serde_json::from_str(&answer.body)
            .map_err(|e| not_json("Proxy request failed: its answer is not JSON", e))
    }

    /// With this token where there is no other.
    pub fn with_token_or(mut self, token: Option<&str>) -> Self {
        let token = || token.map(str::to_owned);
        self.caller.token = self.caller.token.or_else(token);
        self
    }

    pub fn tool(&self, name: &str) -> Result<Value, Failure> {
        let segment = utf8_percent_encode(name, NON_ALPHANUMERIC);
        let tool = self.get(&format!("tools/{segment}"), &[])?;
        match tool["name"].is_string() {
            true => Ok(tool),
            false => Err(not_ati()),
        }
    }

    /// One request, signed where there is a secret. Every status is an answer.
    pub fn ask(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, &str)],
        body: Option<String>,
    ) -> Result<Response, Failure> {
        let mut prepared = self.prepare(&method, path, query)?;
        prepared.request = prepared.request.timeout(self.timeout);
        if let Some(body) = body {
            let json = http::HeaderValue::from_static("application/json");
            prepared.request = prepared.request.header(CONTENT_TYPE, json).body(body);
        }
        runtime()?.block_on(async { prepared.open().await?.read().await })
    }

    /// A request, signed where there is a secret.
    fn prepare(
        &self,
        method: &Method,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<Prepared, Failure> {
        let url = self.url(path, query);
        let (path, tls) = (url.path().to_owned(), url.scheme() == "https");
        let request = self.request(&self.client()?, method.clone(), url);
        Ok(Prepared { request, path, tls })
    }

    fn url(&self, path: &str, query: &[(&str, &str)]) -> Url {
        let mut url = self.base.clone();
        url.set_path(&format!(
            "{}/{path}",
            self.base.path().trim_end_matches('/')
        ));
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        url
    }

    /// A client for requests to this proxy.
    pub fn client(&self) -> Result<reqwest::Client, Failure> {
        let tls = self.base.scheme() == "https";
        let identity = if tls { client_identity()? } else { None };
        egress::proxy_client_as(identity, tls)
            .map_err(|problem| problem_failure(Code::ExecutionFailed, &problem))
    }

    /// A request with what the proxy is shown about the caller.
    fn request(
        &self,
        client: &reqwest::Client,
        method: Method,
        url: Url,
    ) -> reqwest::RequestBuilder {
        let signature = self.caller.signing.as_ref().map(|signing| {
            let path = url.path();
            signing.key.sign(unix_now(), method.as_str(), path)
        });
        let mut request = client.request(method, url);
        if let Some(token) = &self.caller.token {
            request = request.header(AUTHORIZATION, session::authorization(token));
        }
        if let Some(signature) = signature {
            request = request.header(signature::HEADER, signature);
        }
        if let Some(url) = &self.upstream_url {
            request = request.header("x-ati-upstream-url", url.trim());
        }
        if let Some(parent) = trace_of_environment() {
            request = request.header(traceparent::HEADER, parent.text().as_str());
        }
        request
    }

    /// A POST for [`Remote::send`].
    pub fn post(
        &self,
        client: &reqwest::Client,
        path: &str,
        query: &[(&str, &str)],
    ) -> reqwest::RequestBuilder {
        self.request(client, Method::POST, self.url(path, query))
    }

    pub async fn send(
        &self,
        request: reqwest::RequestBuilder,
    ) -> Result<reqwest::Response, Unanswered> {
        let tls = self.base.scheme() == "https";
        request.send().await.map_err(|error| Unanswered {
            is_unsent: error.is_connect(),
            failure: no_answer(error, tls),
        })
    }

    /// Why the proxy answered like this.
    pub async fn refused(response: reqwest::Response) -> Failure {
        let (sent, path) = (unix_now(), response.url().path().to_owned());
        let caller = Remote::from_environment().ok().flatten();
        match (Opened::new(response, path, sent).read().await, caller) {
            (Ok(answer), Some(remote)) => answer.failure(&remote.caller),
            (Ok(_), None) => not_ati(),
            (Err(failure), _) => failure,
        }
    }
}

/// A request that got no answer.
pub struct Unanswered {
    pub failure: Failure,
    /// The proxy can't have received it.
    pub is_unsent: bool,
}

/// The trace that the command belongs to, as programs tell each other by this variable. Without a
/// span of its own: a command exports nothing.
fn trace_of_environment() -> Option<Traceparent> {
    Traceparent::parse(std::env::var("TRACEPARENT").ok()?.trim().as_bytes())
}

fn no_answer(error: reqwest::Error, tls: bool) -> Failure {
    let fault = egress::fault(&error).ok();
    let cause = NoAnswer::new(error);
    let code = if cause.is_timeout() {
        Code::ProviderTimeout
    } else {
        Code::UpstreamError
    };
    let failure = Failure::new(code, "Proxy request failed").because(cause);
    failure.hint(match fault {
        Some(UpstreamFault::Tls) => {
            "SSL_CERT_FILE names a PEM file with the authorities to trust, for a proxy whose \
             certificate is of your own one"
        }
        Some(UpstreamFault::Closed) if tls => {
            "a proxy that asks callers for a certificate ends connections like this: \
             ATI_CLIENT_CERT and ATI_CLIENT_KEY name one"
        }
        _ => "ATI_PROXY_URL says where the proxy is",
    })
}

/// The key of the sandbox's secret, where there is one.
pub fn signing_key() -> Result<Option<SandboxKey>, Failure> {
    sandbox::resolve().map_err(|e| Failure::from_error(Code::MissingKey, e))
}

/// The certificate of `ATI_CLIENT_CERT`. Its key may be in the same file.
fn client_identity() -> Result<Option<ClientIdentity>, Failure> {
    let named = |name: &str| {
        let path = std::env::var_os(name).map(PathBuf::from);
        path.filter(|path| !path.as_os_str().is_empty())
    };
    let key = named("ATI_CLIENT_KEY");
    let Some(certificate) = named("ATI_CLIENT_CERT") else {
        return match key {
            None => Ok(None),
            Some(_) => Err(Failure::invalid("ATI_CLIENT_KEY needs ATI_CLIENT_CERT")),
        };
    };
    let key = key.as_ref().unwrap_or(&certificate);
    ClientIdentity::read(&certificate, key)
        .map(Some)
        .map_err(|problem| problem_failure(Code::InvalidValue, &problem))
}

const NOT_ATI: &str = "Proxy request failed: its answer is not that of an ATI proxy";

pub fn not_ati() -> Failure {
    Failure::new(Code::UpstreamError, NOT_ATI).hint("ATI_PROXY_URL says where the proxy is")
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

/// The caller's token. A file that can't be read means no token, and why: the proxy decides whether
/// it needs one.
fn token(name: &str) -> (Option<String>, Option<String>) {
    match session::resolve(name) {
        Ok(Some(token)) => (Some(token), None),
        Ok(None) => {
            let absent = session::absent_file(name);
            (
                None,
                absent.map(|file| format!("{} isn't there", file.display())),
            )
        }
        Err(e) => {
            tracing::debug!(error = %e, "{name} can't be read");
            (None, Some(e.to_string()))
        }
    }
}
