//! Encryption of credentials in the database. Each has a random key of its own (AES-256-GCM), and
//! that key lies next to it, encrypted with a master key. A new master key so means that short keys
//! are encrypted anew, and no credential.
//!
//! Both encryptions name the customer and the credential as additional data, and that of the key
//! also the master key's id: a row that is copied to another place doesn't open there.

use std::io;
use std::sync::Arc;

use aes_gcm::aead::{AeadInOut, KeyInit};
use aes_gcm::{Aes256Gcm, Nonce, Tag};
use ring::rand::{SecureRandom, SystemRandom};
use zeroize::Zeroizing;

use super::master::{MasterKey, MasterKeys};
use crate::keyring::locked::Locked;
use crate::keyring::secret::Secret;

const NONCE: usize = 12;
const TAG: usize = 16;
const KEY: usize = 32;
const WRAPPED: usize = NONCE + KEY + TAG;

/// The version of what is bound as additional data. Another version is another text.
const PURPOSE_OF_KEY: &str = "ati credential key 1";
const PURPOSE_OF_VALUE: &str = "ati credential value 1";

/// Whose credential, and which.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Place<'a> {
    /// None: for all customers.
    pub customer: Option<&'a str>,
    pub name: &'a str,
}

/// A credential as the database has it. Nothing in it is secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed {
    /// Of the master key.
    pub key_id: String,
    /// The credential's own key: nonce, ciphertext, tag.
    pub wrapped_key: Vec<u8>,
    /// The value: nonce, ciphertext, tag.
    pub ciphertext: Vec<u8>,
}

/// Why a row doesn't open. The text tells nothing of its content.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenFault {
    #[error("it is encrypted with master key {0}, which this process doesn't have")]
    UnknownKey(String),
    #[error("it is damaged, or was copied from another place")]
    Damaged,
    #[error("there is no memory for it")]
    Memory,
}

#[derive(Debug, thiserror::Error)]
pub enum SealFault {
    #[error("there is no master key: set ATI_MASTER_KEY to base64 of 32 random bytes")]
    NoKey,
    #[error("the system has no randomness")]
    Randomness,
    #[error("there is no memory for it")]
    Memory(#[from] io::Error),
}

impl Place<'_> {
    /// Lengths come before texts, so that no two places have the same bytes.
    fn bound(&self, purpose: &str, key_id: &str) -> Vec<u8> {
        let mut bound = Vec::new();
        let customer = self.customer.unwrap_or_default();
        bound.push(u8::from(self.customer.is_some()));
        for text in [purpose, customer, self.name, key_id] {
            bound.extend_from_slice(&(text.len() as u64).to_be_bytes());
            bound.extend_from_slice(text.as_bytes());
        }
        bound
    }
}

impl MasterKeys {
    /// Encrypts a value under a new key of its own.
    pub fn seal(&self, place: Place<'_>, value: &[u8]) -> Result<Sealed, SealFault> {
        let master = self.active().ok_or(SealFault::NoKey)?;
        let mut own = Zeroizing::new([0u8; KEY]);
        SystemRandom::new()
            .fill(&mut *own)
            .map_err(|_| SealFault::Randomness)?;
        let bound = place.bound(PURPOSE_OF_VALUE, "");
        Ok(Sealed {
            ciphertext: encrypt(&*own, &bound, value)?,
            wrapped_key: wrap(master, place, &own)?,
            key_id: master.id().to_owned(),
        })
    }

    /// Decrypts into locked memory.
    pub fn open(&self, place: Place<'_>, sealed: &Sealed) -> Result<Secret, OpenFault> {
        let own = self.unwrap(place, sealed)?;
        let bound = place.bound(PURPOSE_OF_VALUE, "");
        let plain = decrypt(own.as_slice(), &bound, &sealed.ciphertext)?;
        let length = plain.as_slice().len();
        Ok(Secret::within(Arc::new(plain), 0..length))
    }

    /// The same credential under the active master key. None: it is already.
    pub fn rewrap(&self, place: Place<'_>, sealed: &Sealed) -> Result<Option<Sealed>, RewrapFault> {
        let master = self.active().ok_or(SealFault::NoKey)?;
        if sealed.key_id == master.id() {
            return Ok(None);
        }
        let own = self.unwrap(place, sealed)?;
        let mut copy = Zeroizing::new([0u8; KEY]);
        copy.copy_from_slice(own.as_slice());
        let new = Sealed {
            key_id: master.id().to_owned(),
            wrapped_key: wrap(master, place, &copy)?,
            ciphertext: sealed.ciphertext.clone(),
        };
        // What can't be read afterwards must not take the place of what can be.
        let before = self.open(place, sealed)?;
        if self.open(place, &new)?.expose() != before.expose() {
            return Err(OpenFault::Damaged.into());
        }
        Ok(Some(new))
    }

    fn unwrap(&self, place: Place<'_>, sealed: &Sealed) -> Result<Locked, OpenFault> {
        let unknown = || OpenFault::UnknownKey(sealed.key_id.clone());
        let master = self.find(&sealed.key_id).ok_or_else(unknown)?;
        if sealed.wrapped_key.len() != WRAPPED {
            return Err(OpenFault::Damaged);
        }
        let bound = place.bound(PURPOSE_OF_KEY, &sealed.key_id);
        decrypt(master.expose(), &bound, &sealed.wrapped_key)
    }
}

/// Why a row was left as it is.
#[derive(Debug, thiserror::Error)]
pub enum RewrapFault {
    #[error(transparent)]
    Open(#[from] OpenFault),
    #[error(transparent)]
    Seal(#[from] SealFault),
}

fn wrap(master: &MasterKey, place: Place<'_>, own: &[u8; KEY]) -> Result<Vec<u8>, SealFault> {
    let bound = place.bound(PURPOSE_OF_KEY, master.id());
    encrypt(master.expose(), &bound, own)
}

fn encrypt(key: &[u8], bound: &[u8], plain: &[u8]) -> Result<Vec<u8>, SealFault> {
    let mut nonce = [0u8; NONCE];
    SystemRandom::new()
        .fill(&mut nonce)
        .map_err(|_| SealFault::Randomness)?;
    // With its final size: a buffer that grows would leave a copy of the plain text behind.
    let mut sealed = Vec::with_capacity(NONCE + plain.len() + TAG);
    sealed.extend_from_slice(&nonce);
    sealed.extend_from_slice(plain);
    let tag = cipher(key)
        .and_then(|cipher| {
            let text = (&mut sealed[NONCE..]).into();
            cipher
                .encrypt_inout_detached(&nonce.into(), bound, text)
                .ok()
        })
        .ok_or(SealFault::Randomness)?;
    sealed.extend_from_slice(&tag);
    Ok(sealed)
}

fn decrypt(key: &[u8], bound: &[u8], sealed: &[u8]) -> Result<Locked, OpenFault> {
    let text = sealed.len().checked_sub(NONCE + TAG);
    let text = text.ok_or(OpenFault::Damaged)?;
    let (nonce, rest) = sealed.split_at(NONCE);
    let (ciphertext, tag) = rest.split_at(text);
    let mut plain = Locked::with_capacity(text).map_err(|_| OpenFault::Memory)?;
    plain.push(ciphertext).map_err(|_| OpenFault::Memory)?;
    let nonce = Nonce::try_from(nonce).map_err(|_| OpenFault::Damaged)?;
    let tag = Tag::try_from(tag).map_err(|_| OpenFault::Damaged)?;
    cipher(key)
        .ok_or(OpenFault::Damaged)?
        .decrypt_inout_detached(&nonce, bound, plain.as_mut_slice().into(), &tag)
        .map_err(|_| OpenFault::Damaged)?;
    Ok(plain)
}

/// Wipes its key schedule when it is dropped. None where the key doesn't have 32 bytes.
fn cipher(key: &[u8]) -> Option<Aes256Gcm> {
    Aes256Gcm::new_from_slice(key).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(texts: &[(&str, u8)]) -> MasterKeys {
        use base64::Engine as _;
        let variables = texts.iter().map(|(name, byte)| {
            let value = base64::engine::general_purpose::STANDARD.encode([*byte; 32]);
            ((*name).to_owned(), Some(Zeroizing::new(value)))
        });
        MasterKeys::from_variables(variables).unwrap()
    }

    fn at<'a>(customer: Option<&'a str>, name: &'a str) -> Place<'a> {
        Place { customer, name }
    }

    #[test]
    fn credential_opens_at_its_own_place_only() {
        let keys = keys(&[("ATI_MASTER_KEY", 1)]);
        let place = at(Some("acme"), "token");
        let sealed = keys.seal(place, b"hunter2").unwrap();
        assert_eq!(keys.open(place, &sealed).unwrap().expose(), b"hunter2");
        for other in [
            at(None, "token"),
            at(Some(""), "token"),
            at(Some("globex"), "token"),
            at(Some("acme"), "tokens"),
            // The same letters, cut at another place.
            at(Some("acmet"), "oken"),
        ] {
            let fault = keys.open(other, &sealed).unwrap_err();
            assert_eq!(fault, OpenFault::Damaged, "{other:?}");
        }
        // A key of one row next to the value of another.
        let other = keys.seal(place, b"other").unwrap();
        let mixed = Sealed {
            wrapped_key: other.wrapped_key,
            ..sealed
        };
        assert_eq!(keys.open(place, &mixed).unwrap_err(), OpenFault::Damaged);
    }

    #[test]
    fn credential_with_any_flipped_bit_does_not_open() {
        let keys = keys(&[("ATI_MASTER_KEY", 1)]);
        let place = at(Some("acme"), "token");
        let sealed = keys.seal(place, b"hunter2").unwrap();
        for bit in 0..sealed.wrapped_key.len() * 8 {
            let mut damaged = sealed.clone();
            damaged.wrapped_key[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(keys.open(place, &damaged).unwrap_err(), OpenFault::Damaged);
        }
        for bit in 0..sealed.ciphertext.len() * 8 {
            let mut damaged = sealed.clone();
            damaged.ciphertext[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(keys.open(place, &damaged).unwrap_err(), OpenFault::Damaged);
        }
        for length in [0, 12, 27] {
            let mut cut = sealed.clone();
            cut.ciphertext.truncate(length);
            assert_eq!(keys.open(place, &cut).unwrap_err(), OpenFault::Damaged);
            cut = sealed.clone();
            cut.wrapped_key.truncate(length);
            assert_eq!(keys.open(place, &cut).unwrap_err(), OpenFault::Damaged);
        }
    }

    #[test]
    fn row_under_a_new_master_key_opens_with_it_alone() {
        let old = keys(&[("ATI_MASTER_KEY", 1)]);
        let both = keys(&[("ATI_MASTER_KEY", 2), ("ATI_MASTER_KEY_OLD", 1)]);
        let new = keys(&[("ATI_MASTER_KEY", 2)]);
        let place = at(None, "token");
        let before = old.seal(place, b"hunter2").unwrap();
        let after = both.rewrap(place, &before).unwrap().unwrap();
        assert_eq!(after.ciphertext, before.ciphertext);
        for (keys, row) in [
            (&old, &before),
            (&both, &before),
            (&both, &after),
            (&new, &after),
        ] {
            assert_eq!(keys.open(place, row).unwrap().expose(), b"hunter2");
        }
        let unknown = OpenFault::UnknownKey(before.key_id.clone());
        assert_eq!(new.open(place, &before).unwrap_err(), unknown);
        assert!(matches!(
            new.rewrap(place, &before),
            Err(RewrapFault::Open(_))
        ));
        assert!(both.rewrap(place, &after).unwrap().is_none());
        // The id in the row is bound, too.
        let lied = Sealed {
            key_id: after.key_id,
            ..before
        };
        assert_eq!(both.open(place, &lied).unwrap_err(), OpenFault::Damaged);
    }
}
