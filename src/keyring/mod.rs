//! Secrets: the type that holds them, the files that they come from, and the order in which those
//! are tried.

mod credential_file;
mod credentials;
pub mod customer;
mod entries;
mod kept;
mod load;
mod locked;
mod sealed;
mod secret;
pub mod stored;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use zeroize::Zeroizing;

pub use credential_file::{CredentialFile, CredentialFolder};
pub use credentials::{Credentials, mask};
pub use kept::KeptKeys;
pub use load::{Fallback, Loaded, Places, load, load_environment, open_with};
pub use locked::refused as memory_lock_refused;
pub use sealed::{SealError, SessionKey};
pub use secret::Secret;
use stored::{Place, StoredCredentials};

/// The keyring entry that sandboxes sign with.
pub const SIGNING_SECRET: &str = "sandbox_signing_shared_secret";

/// The source of a keyring, as the start line names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    Sealed,
    Persistent,
    Credentials,
    Environment,
    Empty,
}

impl Source {
    pub fn as_str(self) -> &'static str {
        match self {
            Source::Sealed => "keyring.enc (sealed key)",
            Source::Persistent => "keyring.enc (persistent key)",
            Source::Credentials => "credentials (plaintext)",
            Source::Environment => "env-vars (ATI_KEY_*)",
            Source::Empty => "empty",
        }
    }
}

/// HMAC-SHA256 with a key in it, which is wiped when it is dropped.
pub type HmacSha256 = Hmac<Sha256>;

/// The state of HMAC-SHA256 after its key. Clone it for each message.
pub fn keyed(key: &[u8]) -> HmacSha256 {
    HmacSha256::new_from_slice(key).expect("HMAC takes keys of any length")
}

/// HMAC-SHA256 under the session key over the sorted JSON: the first 16 hexadecimal digits.
pub fn fingerprint<'a>(
    key: &SessionKey,
    entries: impl Iterator<Item = (&'a str, &'a [u8])>,
) -> String {
    let mut mac = key.mac();
    for (n, (name, value)) in entries.enumerate() {
        let text = |bytes: &[u8]| {
            let text = Zeroizing::new(String::from_utf8_lossy(bytes).into_owned());
            Zeroizing::new(serde_json::to_string(&*text).unwrap_or_default())
        };
        mac.update(if n == 0 { b"{" } else { b"," });
        mac.update(text(name.as_bytes()).as_bytes());
        mac.update(b":");
        mac.update(text(value).as_bytes());
    }
    mac.update(b"}");
    hex::encode(&mac.finalize().into_bytes()[..8])
}

/// The credentials of one snapshot, by name: those of the keyring's file or variables, and those of
/// the database. [`crate::credential::Lookup`] has the order of the two.
#[derive(Clone)]
pub struct Keyring {
    entries: BTreeMap<String, Secret>,
    /// The names of entries `<name>@<customer>`, by customer: routes look through them at each
    /// request.
    of_customers: BTreeMap<String, Vec<String>>,
    source: Source,
    fingerprint: Option<String>,
    stored: Arc<StoredCredentials>,
}

/// Names and values from which a keyring is made.
pub type Entries = BTreeMap<String, Zeroizing<String>>;

impl Keyring {
    pub(crate) fn new(entries: BTreeMap<String, Secret>, source: Source) -> Self {
        let mut of_customers: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for name in entries.keys() {
            if let Some((_, customer)) = name.split_once('@') {
                let names = of_customers.entry(customer.to_owned()).or_default();
                names.push(name.clone());
            }
        }
        Keyring {
            entries,
            of_customers,
            source,
            fingerprint: None,
            stored: Arc::default(),
        }
    }

    /// This keyring with its fingerprint under a key.
    pub(crate) fn sealed_with(mut self, key: &SessionKey) -> Self {
        let entries = self
            .entries
            .iter()
            .map(|(name, secret)| (name.as_str(), secret.expose()));
        self.fingerprint = Some(fingerprint(key, entries));
        self
    }

    /// Differs where two sealed keyrings differ, and tells nothing about their values.
    pub fn fingerprint(&self) -> Option<&str> {
        self.fingerprint.as_deref()
    }

    /// Names and values, to be changed and sealed again.
    pub fn to_entries(&self) -> Entries {
        let text = |secret: &Secret| String::from_utf8_lossy(secret.expose()).into_owned();
        let entries = self.entries.iter();
        entries
            .map(|(name, secret)| (name.clone(), Zeroizing::new(text(secret))))
            .collect()
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    pub fn empty() -> Self {
        Keyring::new(BTreeMap::new(), Source::Empty)
    }

    /// By exact name. An empty value counts as absent.
    pub fn get(&self, name: &str) -> Option<&Secret> {
        self.entries.get(name).filter(|secret| !secret.is_empty())
    }

    /// This keyring, with the entries of another one whose names it lacks.
    pub fn or(mut self, other: Keyring) -> Self {
        for (name, secret) in other.entries {
            self.entries.entry(name).or_insert(secret);
        }
        Keyring {
            fingerprint: self.fingerprint,
            stored: self.stored,
            ..Keyring::new(self.entries, self.source)
        }
    }

    /// This keyring with the credentials that the database has now.
    #[must_use]
    pub fn with_stored(mut self, stored: Arc<StoredCredentials>) -> Self {
        self.stored = stored;
        self
    }

    /// The credentials of the database.
    pub fn stored(&self) -> &Arc<StoredCredentials> {
        &self.stored
    }

    /// Whether callers without a customer find something under this name.
    pub fn has_shared(&self, name: &str) -> bool {
        let customer = None;
        self.stored.has(Place { customer, name }) || self.get(name).is_some()
    }

    /// Whether any customer has a secret of its own under this name: `<name>@<customer>`, or a row
    /// in the database.
    pub fn has_tenants_of(&self, name: &str) -> bool {
        if self.stored.has_tenants_of(name) {
            return true;
        }
        let prefix = format!("{name}@");
        let mut from = self.entries.range(prefix.clone()..);
        from.next()
            .is_some_and(|(known, _)| known.starts_with(&prefix))
    }

    /// By exact name, else by the first one that differs only in case.
    pub fn get_ignoring_case(&self, name: &str) -> Option<&Secret> {
        self.get(name).or_else(|| {
            self.entries
                .iter()
                .find(|(known, secret)| known.eq_ignore_ascii_case(name) && !secret.is_empty())
                .map(|(_, secret)| secret)
        })
    }

    /// The customer's own entry, `<name>@<customer>`: by exact name, else by the first name that
    /// differs only in case. The customer's id is exact.
    pub fn get_own_ignoring_case(&self, name: &str, customer: &str) -> Option<&Secret> {
        let names = self.of_customers.get(customer)?;
        let is = |entry: &str, same: fn(&str, &str) -> bool| {
            let own = entry.split_once('@');
            own.is_some_and(|(own, _)| same(own, name))
        };
        let exact = names.iter().filter(|entry| is(entry, |a, b| a == b));
        let similar = names
            .iter()
            .filter(|entry| is(entry, str::eq_ignore_ascii_case));
        exact.chain(similar).find_map(|entry| self.get(entry))
    }

    pub fn source(&self) -> Source {
        self.source
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyring")
            .field("source", &self.source)
            .field("entries", &self.entries.len())
            .finish()
    }
}
