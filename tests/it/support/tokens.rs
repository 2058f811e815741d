//! Tokens as an orchestrator issues them, and signatures as a sandbox makes them.

use ati::auth::keys::{PrivateKey, shared_secret};
use ati::auth::signature::SigningKey;
use ati::auth::token::{Claims, Namespace, Signer};
use ati::clock::unix_now;
use ati::keyring::Secret;

/// A signing secret that [`super::ati::tells_nothing`] recognises in any output.
pub const SIGNING: &str = "planted-signing-secret-7f3a";

pub fn sign_at(secret: &str, at: u64, method: &str, path: &str) -> String {
    SigningKey::new(&Secret::new(secret.as_bytes()).unwrap()).sign(at, method, path)
}

pub fn sign(method: &str, path: &str) -> String {
    sign_at(SIGNING, unix_now(), method, path)
}

pub fn claims() -> Claims {
    Claims {
        iss: None,
        sub: "agent-7".into(),
        aud: "ati-proxy".into(),
        iat: unix_now(),
        exp: unix_now() + 3600,
        jti: None,
        scope: "*".into(),
        job_id: None,
        sandbox_id: None,
        ati: None,
    }
}

/// A key pair, its public half as PEM.
pub fn key_pair() -> (Signer, String) {
    let key = PrivateKey::generate().unwrap();
    let public = key.public().to_pem();
    (Signer::Es256(key), public)
}

pub fn shared(hex: &str) -> Signer {
    Signer::Hs256(shared_secret(hex.as_bytes()).unwrap())
}

pub fn bearer(signer: &Signer, claims: &Claims) -> String {
    format!("Bearer {}", signer.issue(claims).unwrap())
}

/// The same, of this tenant, if any.
pub fn bearer_of(signer: &Signer, customer: Option<&str>) -> String {
    let ati = Namespace {
        v: 1,
        rate: Default::default(),
        customer_id: customer.map(str::to_owned),
        delegation: None,
    };
    let ati = Some(ati);
    bearer(signer, &Claims { ati, ..claims() })
}
