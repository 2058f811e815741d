//! Session tokens: JWTs of one algorithm with the claims of the ATI profile.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use prometheus::IntCounter;
use quick_cache::Weighter;
use quick_cache::sync::{Cache, DefaultLifecycle};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};
use zeroize::Zeroizing;

use super::keys::{KEY_ID, NamedKey, PrivateKey};
use super::rate::Rate;
use super::{Identity, Scopes, crypto};
pub use crate::error::TokenFault;
use crate::keyring::{Secret, customer};
use crate::policy::Rules;
use crate::telemetry::metrics::METRICS;

/// A token is accepted this long after its `exp`, for clocks that differ.
pub const LEEWAY_SECONDS: u64 = 60;
pub const DEFAULT_AUDIENCE: &str = "ati-proxy";
/// Real tokens have a few hundred bytes. A longer one is refused before it is hashed.
pub const MAX_LENGTH: usize = 16 << 10;
const CACHED_TOKENS: usize = 16 << 10;
/// Of all tokens in the cache together.
const CACHED_BYTES: u64 = 16 << 20;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Claims {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iss: Option<String>,
    pub sub: String,
    /// One audience; a list is refused.
    pub aud: String,
    #[serde(deserialize_with = "numeric_date")]
    pub iat: u64,
    #[serde(deserialize_with = "numeric_date")]
    pub exp: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jti: Option<String>,
    pub scope: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ati: Option<Namespace>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Namespace {
    pub v: u64,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rate: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub customer_id: Option<String>,
    /// The policy that the token carries. Read together with the other claims, so that a token with
    /// a policy that can't be read is none without a policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delegation: Option<serde_json::Value>,
}

/// RFC 7519's NumericDate may have a fraction.
fn numeric_date<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Number {
        Whole(u64),
        Fraction(f64),
    }
    match Number::deserialize(deserializer)? {
        Number::Whole(seconds) => Ok(seconds),
        Number::Fraction(seconds) if seconds >= 0.0 && seconds < u64::MAX as f64 => {
            Ok(seconds as u64)
        }
        Number::Fraction(_) => Err(serde::de::Error::custom("not a date")),
    }
}

/// The audience and the issuer that a token must name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expectations {
    pub audiences: Vec<String>,
    pub issuer: Option<String>,
}

impl Default for Expectations {
    fn default() -> Self {
        Expectations {
            audiences: vec![DEFAULT_AUDIENCE.to_owned()],
            issuer: None,
        }
    }
}

/// The keys that tokens are verified with.
#[derive(Debug, Clone)]
pub enum VerificationKey {
    /// A single key verifies every token, whatever `kid` the token has. Of several, the `kid`
    /// chooses; a token without one is verified with the first.
    Es256(Vec<NamedKey>),
    Hs256(Secret),
}

/// Verifies tokens, with a cache of the valid ones: the second request with a token costs one keyed
/// hash, one lookup and one comparison of the whole token. The cache lives as long as the keys, so
/// a reload starts with an empty one.
pub struct Verifier {
    /// At least one. The first is the one that new tokens are signed with.
    keys: Vec<DecodingKey>,
    validation: Validation,
    public: Vec<NamedKey>,
    valid: Cache<CachedToken, ValidToken, TokenBytes, foldhash::quality::RandomState>,
    hits: IntCounter,
    misses: IntCounter,
}

/// A valid token. It is a secret of its caller, so its memory is wiped.
#[derive(PartialEq, Eq)]
struct CachedToken(Zeroizing<Box<str>>);

impl Hash for CachedToken {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // As its text, which is what the cache is asked for.
        str::hash(&self.0, state);
    }
}

impl Borrow<str> for CachedToken {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// The weight of a token is its length: long ones take the place of several.
#[derive(Clone)]
struct TokenBytes;

impl Weighter<CachedToken, ValidToken> for TokenBytes {
    fn weight(&self, token: &CachedToken, _: &ValidToken) -> u64 {
        token.0.len().max(1) as u64
    }
}

/// A token whose signature and claims were verified.
#[derive(Clone)]
struct ValidToken {
    identity: Arc<Identity>,
    /// The index of its key, if that isn't the first.
    old_key: Option<usize>,
}

impl Verifier {
    pub fn new(key: &VerificationKey, expect: &Expectations) -> Self {
        crypto::install();
        let (algorithm, keys, public) = match key {
            VerificationKey::Es256(public) => {
                let key = |named: &NamedKey| DecodingKey::from_ec_der(named.key.point());
                (
                    Algorithm::ES256,
                    public.iter().map(key).collect(),
                    public.clone(),
                )
            }
            VerificationKey::Hs256(secret) => {
                let key = DecodingKey::from_secret(secret.expose());
                (Algorithm::HS256, vec![key], Vec::new())
            }
        };
        let mut validation = Validation::new(algorithm);
        validation.leeway = LEEWAY_SECONDS;
        validation.validate_nbf = false;
        validation.set_audience(&expect.audiences);
        let mut required = vec!["exp", "sub", "aud"];
        if let Some(issuer) = &expect.issuer {
            validation.set_issuer(&[issuer]);
            required.push("iss");
        }
        validation.set_required_spec_claims(&required);
        Verifier {
            keys,
            validation,
            public,
            valid: Cache::with(
                CACHED_TOKENS,
                CACHED_BYTES,
                TokenBytes,
                foldhash::quality::RandomState::default(),
                DefaultLifecycle::default(),
            ),
            hits: METRICS.token_cache("hit"),
            misses: METRICS.token_cache("miss"),
        }
    }

    /// The keys to publish.
    pub fn public(&self) -> &[NamedKey] {
        &self.public
    }

    pub fn verify(&self, token: &str, now: u64) -> Result<Arc<Identity>, TokenFault> {
        if token.len() > MAX_LENGTH {
            return Err(TokenFault::TooLong { limit: MAX_LENGTH });
        }
        let known = self.valid.get(token);
        let first_use = known.is_none();
        let valid = match known {
            Some(valid) => valid,
            None => self.verify_unknown(token)?,
        };
        let ValidToken { identity, old_key } = valid;
        if let Some(old) = old_key.and_then(|place| self.public.get(place)) {
            METRICS.old_key_used("jwt", &old.kid);
        }
        if !first_use {
            self.hits.inc();
            if identity
                .expires
                .is_some_and(|exp| now > exp.saturating_add(LEEWAY_SECONDS))
            {
                return Err(TokenFault::Expired);
            }
        }
        Ok(identity)
    }

    fn verify_unknown(&self, token: &str) -> Result<ValidToken, TokenFault> {
        self.misses.inc();
        let place = self.choose(token)?;
        let claims = self.decode_with(token, place)?;
        let valid = ValidToken {
            identity: Arc::new(identity(claims)?),
            old_key: (place > 0).then_some(place),
        };
        let token = CachedToken(Zeroizing::new(token.into()));
        self.valid.insert(token, valid.clone());
        Ok(valid)
    }

    /// Verifies signature, time, audience and issuer, and reads the claims. Without the cache.
    pub fn decode(&self, token: &str) -> Result<Claims, TokenFault> {
        self.decode_with(token, self.choose(token)?)
    }

    /// The index of the key that the token names in its header.
    fn choose(&self, token: &str) -> Result<usize, TokenFault> {
        if self.public.len() < 2 {
            return Ok(0);
        }
        let header = jsonwebtoken::decode_header(token).map_err(|_| TokenFault::Malformed)?;
        match header.kid {
            None => Ok(0),
            Some(kid) => self
                .public
                .iter()
                .position(|named| named.kid == kid)
                .ok_or(TokenFault::BadSignature),
        }
    }

    fn decode_with(&self, token: &str, place: usize) -> Result<Claims, TokenFault> {
        let key = self.keys.get(place).ok_or(TokenFault::BadSignature)?;
        if has_critical_extensions(token) {
            return Err(TokenFault::Critical);
        }
        jsonwebtoken::decode::<Claims>(token, key, &self.validation)
            .map(|data| data.claims)
            .map_err(|error| match error.kind() {
                ErrorKind::ExpiredSignature => TokenFault::Expired,
                ErrorKind::InvalidAudience => TokenFault::WrongAudience,
                ErrorKind::InvalidIssuer => TokenFault::WrongIssuer,
                ErrorKind::MissingRequiredClaim(claim) if claim == "iss" => TokenFault::WrongIssuer,
                ErrorKind::InvalidSignature
                | ErrorKind::InvalidAlgorithm
                | ErrorKind::InvalidAlgorithmName => TokenFault::BadSignature,
                _ => missing_claim(token).unwrap_or(TokenFault::Malformed),
            })
    }
}

/// Whether the header has `crit`: what it names changes what the token means, and ati knows no
/// extension (RFC 7515, 4.1.11). A header that can't be read is refused later.
fn has_critical_extensions(token: &str) -> bool {
    #[derive(Default, Deserialize)]
    struct Crit {
        #[serde(default)]
        crit: IsThere,
    }
    let header = token.split('.').next().unwrap_or_default();
    let header = URL_SAFE_NO_PAD.decode(header).unwrap_or_default();
    let header: Crit = serde_json::from_slice(&header).unwrap_or_default();
    header.crit.0
}

/// A member of any kind. Only that it is there counts.
#[derive(Default)]
struct IsThere(bool);

impl<'de> Deserialize<'de> for IsThere {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| IsThere(true))
    }
}

fn identity(claims: Claims) -> Result<Identity, TokenFault> {
    let (rate, customer_id, delegation) = claims
        .ati
        .map(|ati| (ati.rate, ati.customer_id, ati.delegation))
        .unwrap_or_default();
    let delegation = match delegation {
        None => None,
        Some(value) => match Rules::read(&value) {
            Ok(rules) => Some(Arc::new(rules)),
            Err(_) => return Err(TokenFault::BadDelegation),
        },
    };
    let rates = rate
        .into_iter()
        .map(|(pattern, spec)| Some((pattern, Rate::parse(&spec)?)))
        .collect::<Option<Vec<_>>>()
        .ok_or(TokenFault::BadRate)?;
    let customer_id = customer_id.filter(|id| !id.is_empty());
    if customer_id
        .as_deref()
        .and_then(customer::fault_of_id)
        .is_some()
    {
        return Err(TokenFault::BadCustomer);
    }
    Ok(Identity {
        subject: claims.sub,
        scopes: Scopes::parse(&claims.scope),
        expires: Some(claims.exp),
        job_id: claims.job_id,
        sandbox_id: claims.sandbox_id,
        customer_id,
        rates,
        delegation,
        key: None,
    })
}

/// The key that tokens are signed with.
pub enum Signer {
    Es256(PrivateKey),
    Hs256(Secret),
}

impl Signer {
    pub fn issue(&self, claims: &Claims) -> Result<String, jsonwebtoken::errors::Error> {
        self.issue_as(claims, KEY_ID)
    }

    /// As [`Signer::issue`], under another key id, for a verifier that has several keys.
    pub fn issue_as(
        &self,
        claims: &impl Serialize,
        kid: &str,
    ) -> Result<String, jsonwebtoken::errors::Error> {
        crypto::install();
        let (mut header, key) = match self {
            Signer::Es256(key) => (
                Header::new(Algorithm::ES256),
                EncodingKey::from_ec_der(key.pkcs8()),
            ),
            Signer::Hs256(secret) => (
                Header::new(Algorithm::HS256),
                EncodingKey::from_secret(secret.expose()),
            ),
        };
        if matches!(self, Signer::Es256(_)) {
            header.kid = Some(kid.to_owned());
        }
        jsonwebtoken::encode(&header, claims, &key)
    }
}

/// Which required claim a token lacks, of one whose claims can't be used.
fn missing_claim(token: &str) -> Option<TokenFault> {
    let claims = inspect(token)?;
    ["sub", "aud", "iat", "exp", "scope"]
        .into_iter()
        .find(|name| !claims.contains_key(*name))
        .map(TokenFault::MissingClaim)
}

/// For how many seconds a token that isn't accepted any more has been expired.
pub fn expired_since(token: &str, now: u64) -> u64 {
    let exp = inspect(token).and_then(|claims| numeric_date(claims.get("exp")?).ok());
    exp.map_or(0, |exp| now.saturating_sub(exp))
}

/// The claims without any check, for debugging.
pub fn inspect(token: &str) -> Option<serde_json::Map<String, serde_json::Value>> {
    jsonwebtoken::dangerous::insecure_decode_claims(token).ok()
}

#[cfg(test)]
mod tests;
