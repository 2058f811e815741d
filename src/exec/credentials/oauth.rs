//! OAuth2 client credentials: exchanges an id and a secret for a token.

use std::net::IpAddr;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Method};
use serde_json::Value;
use url::{Url, form_urlencoded};
use zeroize::Zeroizing;

use super::Minted;
use crate::credential::{Attachment, CredentialError};
use crate::egress::EgressError;
use crate::exec::ExecContext;
use crate::exec::egress::{check, client, failed, read};
use crate::keyring::Secret;

pub(super) const TIMEOUT: Duration = Duration::from_secs(15);
pub(super) const LONGEST_ANSWER: usize = 1 << 20;
const LONGEST_ERROR: usize = 500;
/// Of a token whose answer has no `expires_in`.
const LIFETIME: u64 = 1799;

pub struct OAuthRecipe {
    pub token_url: Url,
    pub id: Secret,
    pub secret: Secret,
    pub basic_auth: bool,
}

impl OAuthRecipe {
    pub(super) async fn mint(
        &self,
        source: Option<IpAddr>,
        context: ExecContext<'_>,
    ) -> Result<Minted, CredentialError> {
        let exchanged = tokio::time::timeout(TIMEOUT, self.exchange(source, context)).await;
        exchanged
            .unwrap_or_else(|_| Err(refused(&format!("timed out after {} s", TIMEOUT.as_secs()))))
    }

    async fn exchange(
        &self,
        source: Option<IpAddr>,
        context: ExecContext<'_>,
    ) -> Result<Minted, CredentialError> {
        check(context.clients, &self.token_url)?;
        let origin = self.token_url.origin();
        let client = client(context.clients, source)?;
        let response =
            client
                .execute(self.request())
                .await
                .map_err(|e| match failed(&e, &origin) {
                    EgressError::Request(fault) => refused(fault.words()),
                    other => other.into(),
                })?;
        let status = response.status();
        let mut body = read(response, &origin, LONGEST_ANSWER)
            .await
            .map_err(|e| refused(&e.to_string()))?;
        if !status.is_success() {
            let own = [self.id.expose(), self.secret.expose()].into_iter();
            Attachment::default().with_redacted(own).redact(&mut body);
            return Err(refused(&complaint(status.as_u16(), &body)));
        }
        token_of(&Zeroizing::new(body))
    }

    fn request(&self) -> reqwest::Request {
        let mut request = reqwest::Request::new(Method::POST, self.token_url.clone());
        let headers = request.headers_mut();
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("application/x-www-form-urlencoded"),
        );
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        let (id, secret) = (text(&self.id), text(&self.secret));
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.append_pair("grant_type", "client_credentials");
        if self.basic_auth {
            let pair = Zeroizing::new(format!("{}:{}", *id, *secret));
            let basic = Zeroizing::new(format!("Basic {}", STANDARD.encode(pair.as_bytes())));
            if let Ok(mut value) = HeaderValue::from_str(&basic) {
                value.set_sensitive(true);
                headers.insert(AUTHORIZATION, value);
            }
        } else {
            form.append_pair("client_id", &id);
            form.append_pair("client_secret", &secret);
        }
        *request.body_mut() = Some(form.finish().into());
        request
    }
}

/// The token of an answer that went well.
pub(super) fn token_of(body: &[u8]) -> Result<Minted, CredentialError> {
    let answer: Value =
        serde_json::from_slice(body).map_err(|_| refused("the answer is not JSON"))?;
    let Some(token) = answer["access_token"].as_str() else {
        return Err(refused("the answer has no access_token"));
    };
    let seconds = match &answer["expires_in"] {
        Value::String(text) => text.parse().ok(),
        number => number.as_f64().map(|seconds| seconds as u64),
    };
    Ok(Minted {
        value: Zeroizing::new(token.as_bytes().to_vec()),
        headers: Vec::new(),
        env: Vec::new(),
        lifetime: Duration::from_secs(seconds.unwrap_or(LIFETIME)),
    })
}

/// The two fields that the standard gives a refusal. Others may repeat the request, with its
/// secret.
pub(super) fn complaint(status: u16, body: &[u8]) -> String {
    let answer: Value = serde_json::from_slice(body).unwrap_or_default();
    let mut text = format!("HTTP {status}");
    for key in ["error", "error_description"] {
        if let Some(said) = answer[key].as_str() {
            text += &format!(": {}", &said[..said.floor_char_boundary(LONGEST_ERROR)]);
        }
    }
    text
}

fn text(secret: &Secret) -> Zeroizing<String> {
    Zeroizing::new(String::from_utf8_lossy(secret.expose()).into_owned())
}

pub(super) fn refused(why: &str) -> CredentialError {
    CredentialError::TokenExchange(why.to_owned())
}
