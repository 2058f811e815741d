//! `keyring.enc`: a 12-byte nonce, then the AES-256-GCM ciphertext of the JSON with its 16-byte
//! tag. The key is written as base64 of 32 bytes.

use std::io;

use aes_gcm::aead::{AeadInOut, KeyInit};
use aes_gcm::{Aes256Gcm, Nonce, Tag};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::rand::{SecureRandom, SystemRandom};

use super::locked::Locked;
use super::secret::Secret;
use super::{HmacSha256, keyed};

const NONCE: usize = 12;
const TAG: usize = 16;
const KEY: usize = 32;

/// The key that opens one machine's `keyring.enc`.
#[derive(Clone, Debug)]
pub struct SessionKey(Secret);

#[derive(Debug, thiserror::Error)]
pub enum SealError {
    #[error("truncated: {0} bytes, and a keyring has at least 28")]
    Truncated(usize),
    #[error("can't be decrypted: it was sealed with another key, or it is damaged")]
    Foreign,
    #[error("no memory for it")]
    Memory(#[from] io::Error),
    #[error("the system has no randomness")]
    Randomness,
}

impl SessionKey {
    pub fn is_same_as(&self, other: &SessionKey) -> bool {
        self.0.expose() == other.0.expose()
    }

    pub fn generate() -> Result<Self, SealError> {
        let mut bytes = zeroize::Zeroizing::new([0u8; KEY]);
        SystemRandom::new()
            .fill(&mut *bytes)
            .map_err(|_| SealError::Randomness)?;
        Ok(SessionKey(Secret::new(&*bytes)?))
    }

    /// Reads the base64 form. `None` where that isn't base64 of 32 bytes.
    pub fn from_base64(text: &[u8]) -> Option<Self> {
        let mut bytes = zeroize::Zeroizing::new([0u8; KEY + 4]);
        let written = STANDARD.decode_slice(text.trim_ascii(), &mut *bytes).ok()?;
        if written != KEY {
            return None;
        }
        Secret::new(&bytes[..KEY]).ok().map(SessionKey)
    }

    pub fn to_base64(&self) -> zeroize::Zeroizing<String> {
        zeroize::Zeroizing::new(STANDARD.encode(self.0.expose()))
    }

    /// For fingerprints.
    pub(super) fn mac(&self) -> HmacSha256 {
        keyed(self.0.expose())
    }

    fn cipher(&self) -> Aes256Gcm {
        Aes256Gcm::new_from_slice(self.0.expose()).expect("a session key has 32 bytes")
    }

    pub(super) fn open(&self, sealed: &[u8]) -> Result<Locked, SealError> {
        if sealed.len() < NONCE + TAG {
            return Err(SealError::Truncated(sealed.len()));
        }
        let (nonce, rest) = sealed.split_at(NONCE);
        let (ciphertext, tag) = rest.split_at(rest.len() - TAG);
        let mut plain = Locked::with_capacity(ciphertext.len())?;
        plain.push(ciphertext)?;
        let nonce = Nonce::try_from(nonce).map_err(|_| SealError::Foreign)?;
        let tag = Tag::try_from(tag).map_err(|_| SealError::Foreign)?;
        self.cipher()
            .decrypt_inout_detached(&nonce, b"", plain.as_mut_slice().into(), &tag)
            .map_err(|_| SealError::Foreign)?;
        Ok(plain)
    }

    /// Encrypts a JSON object of strings under a new nonce.
    pub fn seal(&self, plain: &[u8]) -> Result<Vec<u8>, SealError> {
        let mut nonce = [0u8; NONCE];
        SystemRandom::new()
            .fill(&mut nonce)
            .map_err(|_| SealError::Randomness)?;
        let mut sealed = Vec::with_capacity(NONCE + plain.len() + TAG);
        sealed.extend_from_slice(&nonce);
        sealed.extend_from_slice(plain);
        let tag = self
            .cipher()
            .encrypt_inout_detached(&nonce.into(), b"", (&mut sealed[NONCE..]).into())
            .map_err(|_| SealError::Randomness)?;
        sealed.extend_from_slice(&tag);
        Ok(sealed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keyring_sealed_by_another_implementation_opens() {
        // Python's cryptography: AESGCM(bytes(range(32))).encrypt(bytes(12), b'{"a":"b"}', None)
        let key =
            SessionKey::from_base64(b" AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n").unwrap();
        let mut sealed = vec![0; 12];
        sealed.extend(hex::decode("759ed4fc8f0ee19f751bfc60546d698f24b1ca3baf04646346").unwrap());
        assert_eq!(key.open(&sealed).unwrap().as_slice(), br#"{"a":"b"}"#);
    }

    #[test]
    fn keyring_with_any_flipped_bit_does_not_open() {
        let key = SessionKey::generate().unwrap();
        let sealed = key.seal(b"{}").unwrap();
        for bit in 0..sealed.len() * 8 {
            let mut damaged = sealed.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(key.open(&damaged), Err(SealError::Foreign)));
        }
        assert!(matches!(
            key.open(&sealed[..27]),
            Err(SealError::Truncated(27))
        ));
    }

    #[test]
    fn session_key_of_another_length_is_refused() {
        for bad in [
            "",
            "AAAA",
            "not base64 at all!",
            &STANDARD.encode([1; 33]),
            &STANDARD.encode([1; 31]),
        ] {
            assert!(SessionKey::from_base64(bad.as_bytes()).is_none(), "{bad}");
        }
        let key = SessionKey::generate().unwrap();
        let again = SessionKey::from_base64(key.to_base64().as_bytes()).unwrap();
        assert_eq!(again.0.expose(), key.0.expose());
    }
}
