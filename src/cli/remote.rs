//! Commands through a proxy: the client for the server that `ATI_PROXY_URL` names.

mod refused;

use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use http::header::{CONTENT_TYPE, DATE, WWW_AUTHENTICATE};
use http::{HeaderMap, Method};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use url::Url;

pub use refused::{TokenRefusal, signature_hint};

use super::transport::NoAnswer;
use super::{problem_failure, runtime};
use crate::auth::sandbox::{self, SandboxKey};
use crate::auth::session::{self, SESSION_TOKEN};
use crate::auth::signature;
use crate::call::WARNING_HEADER;
use crate::catalog::{ResultFormat, result_format};
use crate::clock::unix_now;
use crate::config;
use crate::egress::{self, ClientIdentity};
use crate::error::{Code, Failure, UpstreamFault};
use crate::request_id::{self, RequestId};

const TIMEOUT: Duration = Duration::from_secs(120);

pub struct Remote {
    base: Url,
    caller: Caller,
    /// An MCP server of the caller's own, sent as `X-Ati-Upstream-Url`.
    upstream_url: Option<String>,
    timeout: Duration,
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
    format: ResultFormat,
    warning: Option<String>,
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
            return Err(answer.failure(&self.caller));
        }
        let envelope: Envelope =
            serde_json::from_str(&answer.body).map_err(|e| not_json(NOT_ATI, e))?;
        match (envelope.error, envelope.result) {
            (None, Some(result)) => Ok(Called {
                result,
                format: answer.format,
                warning: answer.warning,
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
        let url = self.url(path, query);
        let path = url.path().to_owned();
        let tls = url.scheme() == "https";
        let client = self.client()?;
        let mut request = self.request(&client, method, url).timeout(self.timeout);
        if let Some(body) = body {
            let json = http::HeaderValue::from_static("application/json");
            request = request.header(CONTENT_TYPE, json).body(body);
        }
        let failed = |e| no_answer(e, tls);
        runtime()?.block_on(async {
            let sent = unix_now();
            let response = request.send().await.map_err(failed)?;
            Response::read(response, path, sent).await.map_err(failed)
        })
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
            request = request.bearer_auth(token);
        }
        if let Some(signature) = signature {
            request = request.header(signature::HEADER, signature);
        }
        if let Some(url) = &self.upstream_url {
            request = request.header("x-ati-upstream-url", url.trim());
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
        let tls = response.url().scheme() == "https";
        let caller = Remote::from_environment().ok().flatten();
        match (Response::read(response, path, sent).await, caller) {
            (Ok(answer), Some(remote)) => answer.failure(&remote.caller),
            (Ok(_), None) => not_ati(),
            (Err(e), _) => no_answer(e, tls),
        }
    }
}

/// A request that got no answer.
pub struct Unanswered {
    pub failure: Failure,
    /// The proxy can't have received it.
    pub is_unsent: bool,
}

impl Response {
    async fn read(response: reqwest::Response, path: String, sent: u64) -> reqwest::Result<Self> {
        let (headers, status) = (response.headers(), response.status());
        let text = |name| headers.get(name)?.to_str().ok().map(str::to_owned);
        let id = text(request_id::HEADER);
        Ok(Response {
            request_id: id.and_then(|id| RequestId::parse(&id)),
            status: status.as_u16(),
            format: text(result_format::HEADER)
                .and_then(|name| ResultFormat::named(&name))
                .unwrap_or_default(),
            warning: text(WARNING_HEADER),
            reason: status.canonical_reason().unwrap_or_default(),
            is_json: text(CONTENT_TYPE.as_str())
                .is_some_and(|kind| kind.starts_with("application/json")),
            challenge: text(WWW_AUTHENTICATE.as_str()),
            signature_status: text("x-signature-status"),
            clock_ahead: clock_ahead(headers, sent, unix_now()),
            path,
            body: response.text().await?,
        })
    }
}

/// By how many seconds the clock that wrote `Date` is ahead. Nothing is known about where between
/// the two local times the answer was made, so within them, and the second that `Date` cuts off,
/// the clocks agree.
fn clock_ahead(headers: &HeaderMap, sent: u64, received: u64) -> Option<i64> {
    let date = httpdate::parse_http_date(headers.get(DATE)?.to_str().ok()?).ok()?;
    let theirs = i64::try_from(date.duration_since(UNIX_EPOCH).ok()?.as_secs()).ok()?;
    let (sent, received) = (i64::try_from(sent).ok()?, i64::try_from(received).ok()?);
    Some(if theirs < sent - 1 {
        theirs - sent
    } else if theirs > received + 1 {
        theirs - received
    } else {
        0
    })
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

fn not_ati() -> Failure {
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
        Ok(token) => (token, None),
        Err(e) => {
            tracing::debug!(error = %e, "{name} can't be read");
            (None, Some(e.to_string()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_of_an_answer_made_while_it_was_waited_for_agrees() {
        let at = |seconds: u64| {
            let date = UNIX_EPOCH + Duration::from_secs(seconds);
            let mut headers = HeaderMap::new();
            let text = httpdate::fmt_http_date(date);
            headers.insert(DATE, text.parse().unwrap());
            clock_ahead(&headers, 1000, 1005)
        };
        for agreeing in [999, 1000, 1003, 1006] {
            assert_eq!(at(agreeing), Some(0), "{agreeing}");
        }
        assert_eq!(at(900), Some(-100));
        assert_eq!(at(1105), Some(100));
        assert_eq!(clock_ahead(&HeaderMap::new(), 1000, 1005), None);
    }
}
