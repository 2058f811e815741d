//! What the `Authorization` header proves about the caller.

use std::sync::{Arc, LazyLock};

use hmac::Mac as _;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use ring::rand::{SecureRandom as _, SystemRandom};

use crate::auth::Identity;
use crate::auth::token::{self, Verifier};
use crate::auth::virtual_keys::{LookupError, VirtualKeys};
use crate::error::{BearerFault, KeyFault, Refusal, TokenFault};
use crate::keyring::{self, HmacSha256, Secret};

/// What the header proves, as far as a guard asks for it.
#[derive(Debug)]
pub enum Proof {
    NotAsked,
    /// Nothing: no token keys are configured, so that every caller may use every tool.
    NoTokenKeys,
    Token(Arc<Identity>),
    /// The admin bearer, which names no caller.
    AdminBearer,
}

impl Proof {
    /// The identity that tool calls run under.
    pub fn identity(&self) -> Option<Arc<Identity>> {
        match self {
            Proof::Token(identity) => Some(identity.clone()),
            Proof::NoTokenKeys => Some(unrestricted()),
            Proof::NotAsked | Proof::AdminBearer => None,
        }
    }

    /// The identity, if a token proves it.
    pub fn proved(self) -> Option<Arc<Identity>> {
        match self {
            Proof::Token(identity) => Some(identity),
            Proof::NotAsked | Proof::NoTokenKeys | Proof::AdminBearer => None,
        }
    }
}

/// The identity of every caller of a tool endpoint where no token keys are configured.
pub fn unrestricted() -> Arc<Identity> {
    static UNRESTRICTED: LazyLock<Arc<Identity>> =
        LazyLock::new(|| Arc::new(Identity::unrestricted()));
    UNRESTRICTED.clone()
}

/// Looks for a virtual key first, even where no token keys are configured: a key restricts its
/// caller, so it must not be ignored.
pub async fn identify(
    headers: &HeaderMap,
    verifier: Option<&Verifier>,
    keys: Option<&VirtualKeys>,
    now: u64,
) -> Result<Proof, Refusal> {
    if let Some(raw) = sent_key(headers) {
        return virtual_key(raw, keys).await.map(Proof::Token);
    }
    let Some(verifier) = verifier else {
        return Ok(Proof::NoTokenKeys);
    };
    let token = bearer(headers).map_err(|fault| refuse(fault.into()))?;
    let identity = verifier.verify(token, now).map_err(|fault| match fault {
        TokenFault::Expired => refuse(BearerFault::TokenExpired {
            ago: token::expired_since(token, now),
        }),
        other => refuse(other.into()),
    })?;
    Ok(Proof::Token(identity))
}

/// The key, if one was sent, or that it can't be told which one counts. A token next to a key
/// doesn't count. Two keys are refused, and so is another scheme next to a key: a server on the way
/// may have looked at the other one.
fn sent_key(headers: &HeaderMap) -> Option<Result<&[u8], KeyFault>> {
    let (mut keys, mut tokens, mut others) = (Vec::new(), 0, 0);
    for value in headers.get_all(AUTHORIZATION) {
        match key_of(value.as_bytes()) {
            Some(raw) => keys.push(raw),
            None if value.as_bytes().starts_with(b"Bearer ") => tokens += 1,
            None => others += 1,
        }
    }
    match *keys {
        [] => None,
        [raw] if tokens <= 1 && others == 0 => Some(Ok(raw)),
        _ => Some(Err(KeyFault::Unknown)),
    }
}

/// What follows the scheme. Nothing does where the key was left out, which must not be ignored
/// either.
fn key_of(value: &[u8]) -> Option<&[u8]> {
    match value.strip_prefix(b"Ati-Key")? {
        [] => Some(b""),
        [b' ', raw @ ..] => Some(raw),
        _ => None,
    }
}

async fn virtual_key(
    raw: Result<&[u8], KeyFault>,
    keys: Option<&VirtualKeys>,
) -> Result<Arc<Identity>, Refusal> {
    let keys = keys.ok_or(Refusal::KeyStoreUnavailable)?;
    let unknown = || refuse(BearerFault::Key(KeyFault::Unknown));
    let raw = raw.map_err(|fault| refuse(BearerFault::Key(fault)))?;
    let raw = std::str::from_utf8(raw).map_err(|_| unknown())?;
    keys.identify(raw).await.map_err(|e| match e {
        LookupError::Refused(fault) => refuse(BearerFault::Key(fault)),
        LookupError::Unavailable => Refusal::KeyStoreUnavailable,
    })
}

/// Checks the bearer of key administration.
pub fn administer(headers: &HeaderMap, admin_token: Option<&Secret>) -> Result<(), Refusal> {
    let Some(expected) = admin_token else {
        return Err(Refusal::AdminDisabled);
    };
    let given = bearer(headers).map_err(|fault| match fault {
        TokenFault::Missing => refuse(BearerFault::AdminMissing),
        _ => refuse(BearerFault::NotAdmin),
    })?;
    if same(given.as_bytes(), expected.expose()) {
        Ok(())
    } else {
        Err(refuse(BearerFault::NotAdmin))
    }
}

/// The token of the one `Authorization` header. Two of them, or one that isn't text, are refused.
fn bearer(headers: &HeaderMap) -> Result<&str, TokenFault> {
    let mut all = headers.get_all(AUTHORIZATION).iter();
    let only = all.next().ok_or(TokenFault::Missing)?;
    if all.next().is_some() {
        return Err(TokenFault::Malformed);
    }
    let text = only.to_str().map_err(|_| TokenFault::Malformed)?;
    text.strip_prefix("Bearer ").ok_or(TokenFault::Missing)
}

fn refuse(fault: BearerFault) -> Refusal {
    Refusal::Unauthenticated(fault)
}

/// Compares in constant time: MACs under a random key, so that the time taken tells nothing about
/// either text.
fn same(given: &[u8], expected: &[u8]) -> bool {
    static KEYED: LazyLock<Option<HmacSha256>> = LazyLock::new(|| {
        let mut key = [0; 32];
        SystemRandom::new().fill(&mut key).ok()?;
        Some(keyring::keyed(&key))
    });
    let Some(keyed) = KEYED.as_ref() else {
        return false;
    };
    let mac = |text| keyed.clone().chain_update(text);
    let expected = mac(expected).finalize().into_bytes();
    mac(given).verify_slice(&expected).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::keys::PrivateKey;
    use crate::auth::token::{Expectations, VerificationKey};

    fn headers(values: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(AUTHORIZATION, value.parse().unwrap());
        }
        headers
    }

    fn verifier() -> Verifier {
        let key = PrivateKey::generate().unwrap();
        Verifier::new(
            &VerificationKey::Es256(vec![key.public().clone().into()]),
            &Expectations::default(),
        )
    }

    fn identified(headers: &HeaderMap, verifier: Option<&Verifier>) -> Result<Proof, Refusal> {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime
            .unwrap()
            .block_on(identify(headers, verifier, None, 0))
    }

    #[test]
    fn caller_without_token_keys_is_unrestricted() {
        for values in [&[][..], &["Bearer nonsense"], &["Basic x", "Basic y"]] {
            let proof = identified(&headers(values), None).unwrap();
            assert_eq!(proof.identity().unwrap().subject, "dev");
            assert!(proof.proved().is_none());
        }
    }

    #[test]
    fn virtual_key_without_a_store_is_refused() {
        let headers = headers(&["Ati-Key ati-key_x"]);
        assert_eq!(
            identified(&headers, None).unwrap_err(),
            Refusal::KeyStoreUnavailable
        );
        let refusal = identified(&headers, Some(&verifier())).unwrap_err();
        assert_eq!(refusal, Refusal::KeyStoreUnavailable);
    }

    #[test]
    fn key_counts_before_a_token_and_not_next_to_anything_else() {
        let sent = |values: &[&str]| {
            let headers = headers(values);
            let key = sent_key(&headers);
            key.map(|key| key.map(|raw| String::from_utf8(raw.to_vec()).unwrap()))
        };
        let key = "Ati-Key ati-key_x";
        for values in [&[key][..], &[key, "Bearer t"], &["Bearer t", key]] {
            assert_eq!(sent(values), Some(Ok("ati-key_x".into())), "{values:?}");
        }
        for values in [
            &[key, key][..],
            &[key, "Ati-Key ati-key_y"],
            &["Ati-Key", key],
            &[key, "Basic x"],
            &["Basic x", key],
            &[key, "Bearer t", "Bearer t"],
            &[key, "bearer t"],
        ] {
            assert_eq!(sent(values), Some(Err(KeyFault::Unknown)), "{values:?}");
        }
        assert_eq!(sent(&["Bearer t"]), None);
        assert_eq!(sent(&["Bearer t", "Bearer u"]), None);
    }

    #[test]
    fn missing_or_malformed_bearer_with_token_keys_is_refused() {
        let verifier = verifier();
        for values in [
            &[][..],
            &["bearer x"],
            &["Bearer"],
            &["Bearer a.b.c"],
            &["Bearer a.b.c", "Bearer a.b.c"],
        ] {
            let refusal = identified(&headers(values), Some(&verifier)).unwrap_err();
            assert_eq!(refusal.status(), 401, "{values:?}");
        }
    }

    #[test]
    fn administration_without_the_admin_bearer_is_refused() {
        let token = Secret::new(b"adm1n").unwrap();
        let check = |value: &str, token| administer(&headers(&[value]), token);
        assert_eq!(check("Bearer adm1n", None), Err(Refusal::AdminDisabled));
        assert_eq!(check("Bearer adm1n", Some(&token)), Ok(()));
        for wrong in ["Bearer adm1", "Bearer adm1n2", "adm1n", "Bearer "] {
            assert_eq!(
                check(wrong, Some(&token)).unwrap_err().status(),
                401,
                "{wrong}"
            );
        }
    }
}
