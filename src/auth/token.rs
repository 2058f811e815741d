//! Session tokens: JWTs of one algorithm, one key, and the claims of the ATI profile.

use std::collections::BTreeMap;
use std::sync::Arc;

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use prometheus::IntCounter;
use quick_cache::sync::Cache;
use ring::digest;
use serde::{Deserialize, Deserializer, Serialize};

use super::keys::{KEY_ID, NamedKey, PrivateKey};
use super::rate::Rate;
use super::{Identity, Scopes, crypto};
pub use crate::error::TokenFault;
use crate::keyring::Secret;
use crate::telemetry::metrics::METRICS;

/// How long a token is still good after its `exp`.
pub const LEEWAY_SECONDS: u64 = 60;
pub const DEFAULT_AUDIENCE: &str = "ati-proxy";
/// Real tokens are a few hundred bytes; what is longer isn't worth hashing.
const MAX_LENGTH: usize = 16 << 10;
const CACHED_TOKENS: usize = 16 << 10;

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

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Namespace {
    pub v: u64,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rate: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub customer_id: Option<String>,
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

/// Whom a token must be for and from.
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

/// What tokens are verified with.
#[derive(Debug, Clone)]
pub enum VerificationKey {
    /// One counts for every token, whatever it calls its key. Of several, a token names one, or means the first.
    Es256(Vec<NamedKey>),
    Hs256(Secret),
}

/// Checks tokens, and remembers those that held: the second request with a token costs one hash and one lookup. The memory
/// belongs to the keys, so a reload starts afresh.
pub struct Verifier {
    /// The first is the one in use; there is one at least.
    keys: Vec<DecodingKey>,
    validation: Validation,
    public: Vec<NamedKey>,
    verified: Cache<[u8; 32], Verified>,
    hits: IntCounter,
    misses: IntCounter,
}

/// A token that held.
#[derive(Clone)]
struct Verified {
    identity: Arc<Identity>,
    /// The place of its key, where that isn't the first.
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
            verified: Cache::new(CACHED_TOKENS),
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
        let digest = digest::digest(&digest::SHA256, token.as_bytes());
        let digest: [u8; 32] = digest
            .as_ref()
            .try_into()
            .map_err(|_| TokenFault::Malformed)?;
        let mut anew = false;
        let verified = self.verified.get_or_insert_with(&digest, || {
            anew = true;
            self.misses.inc();
            let place = self.choose(token)?;
            let claims = self.decode_with(token, place)?;
            Ok(Verified {
                identity: Arc::new(identity(claims)?),
                old_key: (place > 0).then_some(place),
            })
        })?;
        let Verified { identity, old_key } = verified;
        if let Some(old) = old_key.and_then(|place| self.public.get(place)) {
            METRICS.old_key_used("jwt", &old.kid);
        }
        if !anew {
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

    /// Check signature, time, audience and issuer, and read the claims.
    pub fn decode(&self, token: &str) -> Result<Claims, TokenFault> {
        self.decode_with(token, self.choose(token)?)
    }

    /// Which of several keys a token is signed with, by its own word.
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
                _ => TokenFault::Malformed,
            })
    }
}

fn identity(claims: Claims) -> Result<Identity, TokenFault> {
    let (rate, customer_id) = claims
        .ati
        .map(|ati| (ati.rate, ati.customer_id))
        .unwrap_or_default();
    let rates = rate
        .into_iter()
        .map(|(pattern, spec)| Some((pattern, Rate::parse(&spec)?)))
        .collect::<Option<Vec<_>>>()
        .ok_or(TokenFault::BadRate)?;
    Ok(Identity {
        subject: claims.sub,
        scopes: Scopes::parse(&claims.scope),
        expires: Some(claims.exp),
        job_id: claims.job_id,
        sandbox_id: claims.sandbox_id,
        customer_id,
        rates,
    })
}

/// What tokens are signed with.
pub enum Signer {
    Es256(PrivateKey),
    Hs256(Secret),
}

impl Signer {
    pub fn issue(&self, claims: &Claims) -> anyhow::Result<String> {
        self.issue_as(claims, KEY_ID)
    }

    /// With a name for the key, where whoever verifies has several.
    pub fn issue_as(&self, claims: &Claims, kid: &str) -> anyhow::Result<String> {
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
        Ok(jsonwebtoken::encode(&header, claims, &key)?)
    }
}

/// The claims without any check, for people who debug.
pub fn inspect(token: &str) -> Option<serde_json::Map<String, serde_json::Value>> {
    jsonwebtoken::dangerous::insecure_decode_claims(token).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

    fn now() -> u64 {
        jsonwebtoken::get_current_timestamp()
    }

    fn claims() -> Claims {
        Claims {
            iss: Some("orchestrator".into()),
            sub: "agent-7".into(),
            aud: "ati-proxy".into(),
            iat: now(),
            exp: now() + 600,
            jti: None,
            scope: "tool:a:* help".into(),
            job_id: Some("job".into()),
            sandbox_id: None,
            ati: Some(Namespace {
                v: 1,
                rate: BTreeMap::from([("tool:a:*".into(), "5/min".into())]),
                customer_id: Some("cust".into()),
            }),
        }
    }

    fn pair() -> (Signer, Verifier) {
        let key = PrivateKey::generate().unwrap();
        let verifier = Verifier::new(
            &VerificationKey::Es256(vec![key.public().clone().into()]),
            &Expectations::default(),
        );
        (Signer::Es256(key), verifier)
    }

    fn shared(secret: &[u8], expect: &Expectations) -> (Signer, Verifier) {
        let secret = Secret::new(secret).unwrap();
        let verifier = Verifier::new(&VerificationKey::Hs256(secret.clone()), expect);
        (Signer::Hs256(secret), verifier)
    }

    fn sign_raw(verifier_secret: &[u8], header: &str, payload: &serde_json::Value) -> String {
        let message = format!(
            "{}.{}",
            URL_SAFE_NO_PAD.encode(header),
            URL_SAFE_NO_PAD.encode(payload.to_string())
        );
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, verifier_secret);
        let tag = ring::hmac::sign(&key, message.as_bytes());
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(tag))
    }

    #[test]
    fn both_algorithms_carry_the_profile() {
        for (signer, verifier) in [pair(), shared(b"k", &Expectations::default())] {
            let token = signer.issue(&claims()).unwrap();
            let identity = verifier.verify(&token, now()).unwrap();
            assert_eq!(identity.subject, "agent-7");
            assert!(identity.scopes.allow("tool:a:b"));
            assert_eq!(identity.customer_id.as_deref(), Some("cust"));
            assert_eq!(identity.rates[0].1.to_string(), "5/minute");
        }
    }

    #[test]
    fn a_second_use_is_not_verified_again_but_still_expires() {
        let (signer, verifier) = pair();
        let token = signer.issue(&claims()).unwrap();
        let first = verifier.verify(&token, now()).unwrap();
        let again = verifier.verify(&token, now()).unwrap();
        assert!(Arc::ptr_eq(&first, &again));
        let exp = first.expires.unwrap();
        assert!(verifier.verify(&token, exp + 60).is_ok());
        assert_eq!(
            verifier.verify(&token, exp + 61).unwrap_err(),
            TokenFault::Expired
        );
    }

    #[test]
    fn what_does_not_hold() {
        let (signer, verifier) = pair();
        let (other, _) = pair();
        let fault = |token: &str| verifier.verify(token, now()).unwrap_err();
        assert_eq!(
            fault(&other.issue(&claims()).unwrap()),
            TokenFault::BadSignature
        );
        assert_eq!(fault(""), TokenFault::Malformed);
        assert_eq!(fault("a.b.c"), TokenFault::Malformed);
        assert!(matches!(
            fault(&"x".repeat(64 << 10)),
            TokenFault::TooLong { .. }
        ));
        let expired = Claims {
            exp: now() - 61,
            ..claims()
        };
        assert_eq!(fault(&signer.issue(&expired).unwrap()), TokenFault::Expired);
        let late = Claims {
            exp: now() - 30,
            ..claims()
        };
        assert!(
            verifier
                .verify(&signer.issue(&late).unwrap(), now())
                .is_ok()
        );
        let elsewhere = Claims {
            aud: "other".into(),
            ..claims()
        };
        assert_eq!(
            fault(&signer.issue(&elsewhere).unwrap()),
            TokenFault::WrongAudience
        );
        let mut unlimited = claims();
        unlimited
            .ati
            .as_mut()
            .unwrap()
            .rate
            .insert("tool:x".into(), "lots".into());
        assert_eq!(
            fault(&signer.issue(&unlimited).unwrap()),
            TokenFault::BadRate
        );
    }

    #[test]
    fn the_public_key_is_no_shared_secret() {
        let key = PrivateKey::generate().unwrap();
        let verifier = Verifier::new(
            &VerificationKey::Es256(vec![key.public().clone().into()]),
            &Expectations::default(),
        );
        let payload = serde_json::to_value(claims()).unwrap();
        for secret in [
            key.public().to_pem().into_bytes(),
            key.public().point().to_vec(),
        ] {
            let forged = sign_raw(&secret, r#"{"alg":"HS256","typ":"JWT"}"#, &payload);
            assert_eq!(
                verifier.verify(&forged, now()).unwrap_err(),
                TokenFault::BadSignature
            );
        }
        for alg in ["none", "None", "ES384", "RS256"] {
            let header = format!(r#"{{"alg":"{alg}","typ":"JWT"}}"#);
            let forged = sign_raw(b"", &header, &payload);
            assert!(verifier.verify(&forged, now()).is_err(), "{alg}");
            let bare = forged.rsplit_once('.').unwrap().0.to_owned() + ".";
            assert!(verifier.verify(&bare, now()).is_err(), "{alg}");
        }
    }

    #[test]
    fn required_claims_and_single_audiences() {
        let (_, verifier) = shared(b"k", &Expectations::default());
        let full = serde_json::to_value(claims()).unwrap();
        let header = r#"{"alg":"HS256","typ":"JWT"}"#;
        assert!(
            verifier
                .verify(&sign_raw(b"k", header, &full), now())
                .is_ok()
        );
        for claim in ["exp", "sub", "aud", "iat", "scope"] {
            let mut less = full.clone();
            less.as_object_mut().unwrap().remove(claim);
            assert!(
                verifier
                    .verify(&sign_raw(b"k", header, &less), now())
                    .is_err(),
                "{claim}"
            );
        }
        for (claim, value) in [
            ("aud", serde_json::json!(["ati-proxy"])),
            ("ati", serde_json::json!({"rate": {}})),
            ("exp", serde_json::json!("soon")),
            ("scope", serde_json::json!(["a"])),
        ] {
            let mut odd = full.clone();
            odd[claim] = value;
            assert!(
                verifier
                    .verify(&sign_raw(b"k", header, &odd), now())
                    .is_err(),
                "{claim}"
            );
        }
        let mut fraction = full.clone();
        fraction["exp"] = serde_json::json!(now() as f64 + 600.5);
        fraction["nbf"] = serde_json::json!(now() + 6000);
        assert!(
            verifier
                .verify(&sign_raw(b"k", header, &fraction), now())
                .is_ok()
        );
    }

    #[test]
    fn a_configured_issuer_is_required() {
        let expect = Expectations {
            issuer: Some("orchestrator".into()),
            ..Expectations::default()
        };
        let (signer, verifier) = shared(b"k", &expect);
        let check = |iss: Option<&str>| {
            let claims = Claims {
                iss: iss.map(str::to_owned),
                ..claims()
            };
            verifier
                .verify(&signer.issue(&claims).unwrap(), now())
                .map(drop)
        };
        assert_eq!(check(Some("orchestrator")), Ok(()));
        assert_eq!(check(Some("else")), Err(TokenFault::WrongIssuer));
        assert_eq!(check(None), Err(TokenFault::WrongIssuer));
    }
}
