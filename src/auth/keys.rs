//! The keys that tokens are signed and verified with: P-256 as PEM, or a shared secret as hex.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use pem::Pem;
use ring::agreement;
use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use zeroize::Zeroizing;

use crate::keyring::Secret;

/// The id under which the first key is published.
pub const KEY_ID: &str = "ati-proxy-1";

/// SubjectPublicKeyInfo of an uncompressed P-256 point, up to the point itself.
const SPKI_PREFIX: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a,
    0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];
const POINT: usize = 65;

/// Why a key can't be used. Never quotes it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("not a PEM file")]
    NotPem,
    #[error("a PEM of type '{found}', expected '{expected}'{hint}")]
    WrongType {
        found: String,
        expected: &'static str,
        hint: &'static str,
    },
    #[error("not a P-256 public key")]
    NotP256Public,
    #[error("not a P-256 private key in PKCS#8 form")]
    NotP256Private,
    #[error("empty")]
    EmptySecret,
    #[error("not valid hex")]
    NotHex,
    #[error("the system has no randomness")]
    Randomness,
    #[error("no memory for it")]
    Memory,
}

/// A key to verify with, and its id in the `kid` of tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedKey {
    pub kid: String,
    pub key: PublicKey,
}

impl From<PublicKey> for NamedKey {
    fn from(key: PublicKey) -> Self {
        NamedKey {
            kid: KEY_ID.to_owned(),
            key,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicKey {
    point: [u8; POINT],
}

impl PublicKey {
    pub fn from_pem(text: &[u8]) -> Result<Self, KeyError> {
        let block = pem::parse(text).map_err(|_| KeyError::NotPem)?;
        if block.tag() != "PUBLIC KEY" {
            return Err(KeyError::WrongType {
                found: block.tag().to_owned(),
                expected: "PUBLIC KEY",
                hint: match block.tag() {
                    "CERTIFICATE" => " (take it out with: openssl x509 -pubkey -noout)",
                    "PRIVATE KEY" | "EC PRIVATE KEY" => {
                        " (this is the private half; take the public one out with: openssl ec -pubout)"
                    }
                    _ => "",
                },
            });
        }
        let point: [u8; POINT] = block
            .contents()
            .strip_prefix(&SPKI_PREFIX)
            .and_then(|rest| rest.try_into().ok())
            .ok_or(KeyError::NotP256Public)?;
        if !is_on_curve(&point) {
            return Err(KeyError::NotP256Public);
        }
        Ok(PublicKey { point })
    }

    pub fn to_pem(&self) -> String {
        let mut der = SPKI_PREFIX.to_vec();
        der.extend_from_slice(&self.point);
        pem::encode_config(&Pem::new("PUBLIC KEY", der), lf())
    }

    pub(super) fn point(&self) -> &[u8] {
        &self.point
    }

    /// One entry of a JWKS document. `None` where it is another kind of key.
    pub fn from_jwk(jwk: &serde_json::Value) -> Option<Self> {
        let is = |name: &str, value: &str| jwk.get(name).is_none_or(|said| said == value);
        let verifies = jwk["key_ops"]
            .as_array()
            .is_none_or(|all| all.iter().any(|one| one == "verify"));
        let p256 = jwk["kty"] == "EC" && jwk["crv"] == "P-256";
        if !p256 || !is("use", "sig") || !is("alg", "ES256") || !verifies {
            return None;
        }
        let mut point = [0; POINT];
        point[0] = 4;
        for (name, place) in [("x", 1..33), ("y", 33..65)] {
            let bytes = URL_SAFE_NO_PAD.decode(jwk[name].as_str()?).ok()?;
            point[place].copy_from_slice(<&[u8; 32]>::try_from(bytes.as_slice()).ok()?);
        }
        is_on_curve(&point).then_some(PublicKey { point })
    }

    /// The key as an entry of a JWKS document.
    pub fn to_jwk(&self, kid: &str) -> serde_json::Value {
        let (x, y) = self.point[1..].split_at(32);
        serde_json::json!({
            "kty": "EC",
            "use": "sig",
            "alg": "ES256",
            "crv": "P-256",
            "kid": kid,
            "x": URL_SAFE_NO_PAD.encode(x),
            "y": URL_SAFE_NO_PAD.encode(y),
        })
    }
}

/// Checked at load: with a point off the curve every token would be refused later. ring checks a
/// point only when it is used, so this uses it once.
fn is_on_curve(point: &[u8]) -> bool {
    let Ok(private) =
        agreement::EphemeralPrivateKey::generate(&agreement::ECDH_P256, &SystemRandom::new())
    else {
        return false;
    };
    let public = agreement::UnparsedPublicKey::new(&agreement::ECDH_P256, point);
    agreement::agree_ephemeral(private, &public, |_| ()).is_ok()
}

pub struct PrivateKey {
    pkcs8: Zeroizing<Vec<u8>>,
    public: PublicKey,
}

impl PrivateKey {
    pub fn generate() -> Result<Self, KeyError> {
        let random = SystemRandom::new();
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random)
            .map_err(|_| KeyError::Randomness)?;
        Self::from_pkcs8(Zeroizing::new(document.as_ref().to_vec()))
    }

    pub fn from_pem(text: &[u8]) -> Result<Self, KeyError> {
        let block = pem::parse(text).map_err(|_| KeyError::NotPem)?;
        if block.tag() != "PRIVATE KEY" {
            return Err(KeyError::WrongType {
                found: block.tag().to_owned(),
                expected: "PRIVATE KEY",
                hint: match block.tag() {
                    "EC PRIVATE KEY" => " (convert it with: openssl pkcs8 -topk8 -nocrypt)",
                    "PUBLIC KEY" => " (this is the public half)",
                    _ => "",
                },
            });
        }
        Self::from_pkcs8(Zeroizing::new(block.into_contents()))
    }

    fn from_pkcs8(pkcs8: Zeroizing<Vec<u8>>) -> Result<Self, KeyError> {
        let random = SystemRandom::new();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &pkcs8, &random)
            .map_err(|_| KeyError::NotP256Private)?;
        let point = pair
            .public_key()
            .as_ref()
            .try_into()
            .map_err(|_| KeyError::NotP256Private)?;
        Ok(PrivateKey {
            pkcs8,
            public: PublicKey { point },
        })
    }

    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    pub fn to_pem(&self) -> Zeroizing<String> {
        let block = Pem::new("PRIVATE KEY", self.pkcs8.to_vec());
        Zeroizing::new(pem::encode_config(&block, lf()))
    }

    pub(super) fn pkcs8(&self) -> &[u8] {
        &self.pkcs8
    }
}

/// A shared HS256 secret from its hex form.
pub fn shared_secret(hex_text: &[u8]) -> Result<Secret, KeyError> {
    let text = hex_text.trim_ascii();
    if text.is_empty() {
        return Err(KeyError::EmptySecret);
    }
    let bytes = Zeroizing::new(hex::decode(text).map_err(|_| KeyError::NotHex)?);
    Secret::new(&bytes).map_err(|_| KeyError::Memory)
}

/// 32 random bytes as hex: a new shared secret.
pub fn generate_secret() -> Result<Zeroizing<String>, KeyError> {
    let mut bytes = Zeroizing::new([0u8; 32]);
    SystemRandom::new()
        .fill(&mut *bytes)
        .map_err(|_| KeyError::Randomness)?;
    Ok(Zeroizing::new(hex::encode(*bytes)))
}

fn lf() -> pem::EncodeConfig {
    pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_written_as_pem_reads_back_equal() {
        let key = PrivateKey::generate().unwrap();
        let again = PrivateKey::from_pem(key.to_pem().as_bytes()).unwrap();
        assert_eq!(again.public(), key.public());
        let public = PublicKey::from_pem(key.public().to_pem().as_bytes()).unwrap();
        assert_eq!(&public, key.public());
    }

    #[test]
    fn text_that_is_no_usable_key_is_refused_with_its_reason() {
        let key = PrivateKey::generate().unwrap();
        let private = key.to_pem();
        let message = PublicKey::from_pem(private.as_bytes())
            .unwrap_err()
            .to_string();
        assert!(message.contains("private half"), "{message}");
        assert_eq!(PublicKey::from_pem(b"hello"), Err(KeyError::NotPem));
        let rsa = pem::encode(&Pem::new("PUBLIC KEY", vec![0x30; 294]));
        assert_eq!(
            PublicKey::from_pem(rsa.as_bytes()),
            Err(KeyError::NotP256Public)
        );

        let mut off_curve = SPKI_PREFIX.to_vec();
        off_curve.push(4);
        off_curve.extend([7; 64]);
        let pem = pem::encode(&Pem::new("PUBLIC KEY", off_curve));
        assert_eq!(
            PublicKey::from_pem(pem.as_bytes()),
            Err(KeyError::NotP256Public)
        );
    }

    #[test]
    fn shared_secret_that_is_empty_or_not_hex_is_refused() {
        assert_eq!(shared_secret(b" 00ff\n").unwrap().expose(), [0, 255]);
        assert_eq!(shared_secret(b"  ").unwrap_err(), KeyError::EmptySecret);
        assert_eq!(shared_secret(b"xyz").unwrap_err(), KeyError::NotHex);
        assert_eq!(shared_secret(b"abc").unwrap_err(), KeyError::NotHex);
    }

    #[test]
    fn jwk_has_every_member_that_verifiers_need() {
        let jwk = PrivateKey::generate().unwrap().public().to_jwk(KEY_ID);
        assert_eq!(jwk["kty"], "EC");
        assert_eq!(jwk["crv"], "P-256");
        assert_eq!(jwk["kid"], "ati-proxy-1");
        assert_eq!(jwk["x"].as_str().unwrap().len(), 43);
        assert_eq!(jwk["y"].as_str().unwrap().len(), 43);
    }
}
