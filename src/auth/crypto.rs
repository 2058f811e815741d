//! The crypto provider of jsonwebtoken: ES256 from ring, which TLS links anyway, HS256 from `hmac`,
//! and no other algorithm.

use std::sync::Once;

use hmac::Mac as _;
use jsonwebtoken::crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{ErrorKind, Result};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, UnparsedPublicKey,
};
use signature::{Error, Signer, Verifier};

use crate::keyring::{self, HmacSha256};

static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: signer,
    verifier_factory: verifier,
    key_utils: KeyUtils::new_unimplemented(),
};

/// Must run before the first token is signed or verified. The types of `token` call it.
pub(super) fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // Only a second installation fails, and this one happens once.
        let _ = PROVIDER.install_default();
    });
}

fn signer(algorithm: &Algorithm, key: &EncodingKey) -> Result<Box<dyn JwtSigner>> {
    match algorithm {
        Algorithm::ES256 => {
            let pair = EcdsaKeyPair::from_pkcs8(
                &ECDSA_P256_SHA256_FIXED_SIGNING,
                key.as_bytes(),
                &SystemRandom::new(),
            )
            .map_err(|_| ErrorKind::InvalidEcdsaKey)?;
            Ok(Box::new(Es256Signer(pair)))
        }
        Algorithm::HS256 => Ok(Box::new(Hs256::new(key.as_bytes()))),
        _ => Err(ErrorKind::InvalidAlgorithm.into()),
    }
}

fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>> {
    let bytes = key.try_get_as_bytes()?;
    match algorithm {
        Algorithm::ES256 => Ok(Box::new(Es256Verifier(bytes.to_vec()))),
        Algorithm::HS256 => Ok(Box::new(Hs256::new(bytes))),
        _ => Err(ErrorKind::InvalidAlgorithm.into()),
    }
}

struct Es256Signer(EcdsaKeyPair);

impl Signer<Vec<u8>> for Es256Signer {
    fn try_sign(&self, message: &[u8]) -> std::result::Result<Vec<u8>, Error> {
        let signed = self.0.sign(&SystemRandom::new(), message);
        Ok(signed.map_err(|_| Error::new())?.as_ref().to_vec())
    }
}

impl JwtSigner for Es256Signer {
    fn algorithm(&self) -> Algorithm {
        Algorithm::ES256
    }
}

/// The public point, uncompressed.
struct Es256Verifier(Vec<u8>);

impl Verifier<Vec<u8>> for Es256Verifier {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> std::result::Result<(), Error> {
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, &self.0)
            .verify(message, signature)
            .map_err(|_| Error::new())
    }
}

impl JwtVerifier for Es256Verifier {
    fn algorithm(&self) -> Algorithm {
        Algorithm::ES256
    }
}

/// The keyed state. Each use takes a clone of it.
struct Hs256(HmacSha256);

impl Hs256 {
    fn new(secret: &[u8]) -> Self {
        Hs256(keyring::keyed(secret))
    }
}

impl Signer<Vec<u8>> for Hs256 {
    fn try_sign(&self, message: &[u8]) -> std::result::Result<Vec<u8>, Error> {
        let mac = self.0.clone().chain_update(message);
        Ok(mac.finalize().into_bytes().to_vec())
    }
}

impl JwtSigner for Hs256 {
    fn algorithm(&self) -> Algorithm {
        Algorithm::HS256
    }
}

impl Verifier<Vec<u8>> for Hs256 {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> std::result::Result<(), Error> {
        let mac = self.0.clone().chain_update(message);
        mac.verify_slice(signature).map_err(|_| Error::new())
    }
}

impl JwtVerifier for Hs256 {
    fn algorithm(&self) -> Algorithm {
        Algorithm::HS256
    }
}
