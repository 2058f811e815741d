//! The text of a key, and its hash.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::{SecureRandom as _, SystemRandom};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

const PREFIX: &str = "ati-key_";
/// A longer one isn't hashed: no key is.
const LONGEST: usize = 128;

/// A key as its user gets it, once. No `Debug`, no `Display`.
pub struct RawKey(Zeroizing<String>);

impl RawKey {
    /// `ati-key_` and 128 random bits. None where the system gives no random numbers.
    pub fn generate() -> Option<Self> {
        let mut bytes = Zeroizing::new([0; 16]);
        SystemRandom::new().fill(bytes.as_mut()).ok()?;
        let mut text = Zeroizing::new(String::with_capacity(PREFIX.len() + 22));
        text.push_str(PREFIX);
        URL_SAFE_NO_PAD.encode_string(bytes.as_ref(), &mut text);
        Some(RawKey(text))
    }

    /// The caller of this function is responsible for where it goes.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

/// SHA-256 of the whole key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyHash([u8; 32]);

impl KeyHash {
    fn of(raw: &str) -> Self {
        KeyHash(Sha256::digest(raw.as_bytes()).into())
    }

    /// As the database has it.
    pub fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes).ok()?;
        Some(KeyHash(bytes))
    }

    pub fn text(&self) -> String {
        hex::encode(self.0)
    }

    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// Whether this text is meant as a virtual key, and not as a token.
pub fn is_one(text: &str) -> bool {
    text.starts_with(PREFIX)
}

/// The hash of a key that was just made.
pub fn hash_of(key: &RawKey) -> String {
    KeyHash::of(key.reveal()).text()
}

/// The hash of what a caller sent. None: it can't be a key.
pub fn hash_of_sent(raw: &str) -> Option<KeyHash> {
    let is_key = raw.starts_with(PREFIX) && raw.len() <= LONGEST;
    is_key.then(|| KeyHash::of(raw))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_has_the_documented_form_and_its_hash_covers_all_of_it() {
        let key = RawKey::generate().unwrap();
        let random = key.reveal().strip_prefix("ati-key_").unwrap();
        assert_eq!(random.len(), 22);
        assert!(
            random
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
        );
        assert_eq!(hash_of(&key), hex::encode(Sha256::digest(key.reveal())));
        assert_ne!(key.reveal(), RawKey::generate().unwrap().reveal());
    }

    #[test]
    fn text_that_can_be_no_key_isnt_hashed() {
        assert!(hash_of_sent("ati-key_x").is_some());
        for wrong in ["", "x", "Ati-key_x", "eyJhbGciOi"] {
            assert_eq!(hash_of_sent(wrong), None, "{wrong}");
        }
        assert_eq!(hash_of_sent(&format!("ati-key_{}", "x".repeat(200))), None);
    }
}
