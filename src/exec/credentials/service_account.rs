//! A Google service account: a JWT, signed with its key, is exchanged for a token.

use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderValue, Method};
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use serde::Deserialize;
use serde_json::json;
use url::{Url, form_urlencoded};
use zeroize::Zeroizing;

use super::Minted;
use super::oauth::{LONGEST_ANSWER, TIMEOUT, complaint, refused, token_of};
use crate::catalog::files::is_confidential;
use crate::clock::unix_now;
use crate::credential::{Attachment, Credential, CredentialError};
use crate::egress::{Clients, EgressError, is_http_url};
use crate::exec::egress::{check, client, failed, read};
use crate::keyring::Secret;
use crate::runtime::Renewed;

const GRANT: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
const TOKEN_URI: &str = "https://oauth2.googleapis.com/token";
/// Seconds that a signed request for a token is valid; the issuer accepts no more.
const ASSERTION_LIFETIME: u64 = 3600;

/// What a service account's token is made of.
pub struct ServiceAccountRecipe {
    /// The JSON file that Google makes for a key.
    pub account: Secret,
    /// What the token may be used for.
    pub scope: &'static str,
}

#[derive(Deserialize)]
struct Account {
    client_email: String,
    private_key: String,
    private_key_id: Option<String>,
    token_uri: Option<String>,
}

impl ServiceAccountRecipe {
    /// A token as a request's header. For what is no call of a tool and has a cache of its own.
    pub async fn bearer(
        &self,
        name: &str,
        source: Option<IpAddr>,
        clients: &Clients,
    ) -> Result<Renewed<Attachment>, CredentialError> {
        let minted = self.mint(source, clients).await?;
        let credential = Credential::Bearer {
            key: name.to_owned(),
        };
        let value = Attachment::default().with_minted(&credential, &minted.value, &[]);
        Ok(Renewed {
            value: value.ok_or_else(|| CredentialError::UnusableKey(name.to_owned()))?,
            lifetime: minted.lifetime,
        })
    }

    pub(super) async fn mint(
        &self,
        source: Option<IpAddr>,
        clients: &Clients,
    ) -> Result<Minted, CredentialError> {
        let exchanged = tokio::time::timeout(TIMEOUT, self.exchange(source, clients)).await;
        exchanged
            .unwrap_or_else(|_| Err(refused(&format!("timed out after {} s", TIMEOUT.as_secs()))))
    }

    async fn exchange(
        &self,
        source: Option<IpAddr>,
        clients: &Clients,
    ) -> Result<Minted, CredentialError> {
        // The parser's message could quote the key.
        let account: Account = serde_json::from_slice(self.account.expose())
            .map_err(|_| refused("the credential is no service account's JSON"))?;
        let private_key = Zeroizing::new(account.private_key);
        let uri = account.token_uri.as_deref().unwrap_or(TOKEN_URI);
        let url = Url::parse(uri).ok().filter(is_http_url);
        let url = url.ok_or_else(|| refused("the service account's token_uri is no URL"))?;
        if !is_confidential(&url) {
            return Err(CredentialError::InsecureTokenUrl(uri.to_owned()));
        }
        let mut header = json!({"alg": "RS256", "typ": "JWT"});
        if let Some(id) = account.private_key_id {
            header["kid"] = id.into();
        }
        let now = unix_now();
        let claims = json!({
            "iss": account.client_email,
            "scope": self.scope,
            "aud": uri,
            "iat": now,
            "exp": now + ASSERTION_LIFETIME,
        });
        let assertion = sign(&header.to_string(), &claims.to_string(), &private_key)?;
        check(clients, &url)?;
        let origin = url.origin();
        let sent = client(clients, source)?
            .execute(request(url, &assertion))
            .await;
        let response = sent.map_err(|e| match failed(&e, &origin) {
            EgressError::Request(fault) => refused(fault.words()),
            other => other.into(),
        })?;
        let status = response.status();
        let body = read(response, &origin, LONGEST_ANSWER).await;
        let body = Zeroizing::new(body.map_err(|e| refused(&e.to_string()))?);
        if !status.is_success() {
            return Err(refused(&complaint(status.as_u16(), &body)));
        }
        token_of(&body)
    }
}

fn request(url: Url, assertion: &str) -> reqwest::Request {
    let mut form = form_urlencoded::Serializer::new(String::new());
    form.append_pair("grant_type", GRANT);
    form.append_pair("assertion", assertion);
    let mut request = reqwest::Request::new(Method::POST, url);
    let headers = request.headers_mut();
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("application/x-www-form-urlencoded"),
    );
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    *request.body_mut() = Some(form.finish().into());
    request
}

fn sign(
    header: &str,
    claims: &str,
    private_key: &str,
) -> Result<Zeroizing<String>, CredentialError> {
    let unusable = || refused("the service account's private_key is no RSA key");
    let pem = pem::parse(private_key).map_err(|_| unusable())?;
    let is_pkcs1 = pem.tag() == "RSA PRIVATE KEY";
    let der = Zeroizing::new(pem.into_contents());
    let pair = match is_pkcs1 {
        true => RsaKeyPair::from_der(&der),
        false => RsaKeyPair::from_pkcs8(&der),
    };
    let pair = pair.map_err(|_| unusable())?;
    let encode = |text: &str| URL_SAFE_NO_PAD.encode(text);
    let text = format!("{}.{}", encode(header), encode(claims));
    let mut signature = vec![0; pair.public().modulus_len()];
    pair.sign(
        &RSA_PKCS1_SHA256,
        &SystemRandom::new(),
        text.as_bytes(),
        &mut signature,
    )
    .map_err(|_| unusable())?;
    let signature = URL_SAFE_NO_PAD.encode(signature);
    Ok(Zeroizing::new(format!("{text}.{signature}")))
}
