//! Signatures, tokens, keyrings, and ambiguous requests.

mod expiry;
mod keyrings;
mod requests;
mod signatures;
mod targets;
mod tokens;

use ati::auth::token::Signer;
use serde_json::json;

use crate::support::ati::{Proxy, Setup};
use crate::support::tokens::{SIGNING, key_pair};

const SIGNATURE: &str = "x-sandbox-signature";

fn signed_setup(mode: &str) -> Setup {
    Setup::new()
        .credentials(&json!({"sandbox_signing_shared_secret": SIGNING}))
        .arg("--sig-verify-mode")
        .arg(mode)
}

fn es256(setup: Setup) -> (Proxy, Signer, String) {
    let (signer, public) = key_pair();
    let setup = setup.file("public.pem", &public);
    let path = setup.path().join("public.pem").to_str().unwrap().to_owned();
    (
        setup.env("ATI_JWT_PUBLIC_KEY", path).start(),
        signer,
        public,
    )
}
