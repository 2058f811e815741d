//! Credentials that the database has, as one snapshot sees them. They stay encrypted in memory, and
//! are opened for the call that needs one.

mod envelope;
mod master;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

pub use envelope::{OpenFault, Place, RewrapFault, SealFault, Sealed};
pub use master::{MasterKey, MasterKeys};

use super::Secret;

/// A row that doesn't open. What it stands for is refused, never taken from another source.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the credential '{name}' {} can't be read: {fault}", whose(.customer.as_deref()))]
pub struct Unreadable {
    pub customer: Option<String>,
    pub name: String,
    pub fault: OpenFault,
}

fn whose(customer: Option<&str>) -> String {
    match customer {
        Some(customer) => format!("of customer '{customer}'"),
        None => "of all customers".to_owned(),
    }
}

/// By name.
type Rows = BTreeMap<String, Sealed>;

/// All rows, and the keys that open them.
#[derive(Default)]
pub struct StoredCredentials {
    keys: Arc<MasterKeys>,
    shared: Rows,
    customers: HashMap<String, Rows>,
}

/// A row of the database.
pub struct StoredRow {
    /// None: for all customers.
    pub customer: Option<String>,
    pub name: String,
    pub sealed: Sealed,
}

impl StoredRow {
    pub fn place(&self) -> Place<'_> {
        Place {
            customer: self.customer.as_deref(),
            name: &self.name,
        }
    }
}

impl StoredCredentials {
    pub fn new(keys: Arc<MasterKeys>, rows: impl IntoIterator<Item = StoredRow>) -> Self {
        let mut all = StoredCredentials {
            keys,
            ..StoredCredentials::default()
        };
        for row in rows {
            let of = match row.customer {
                Some(customer) => all.customers.entry(customer).or_default(),
                None => &mut all.shared,
            };
            of.insert(row.name, row.sealed);
        }
        all
    }

    /// These rows; but where a row was encrypted with a master key that this process lacks, and the
    /// older form of the same row opens, the older form. So an edge that was started before a
    /// master key was made goes on with the credentials that it has.
    #[must_use]
    pub fn keeping_readable(mut self, old: &StoredCredentials) -> Self {
        let keys = self.keys.clone();
        let keep = |row: &mut Sealed, known: Option<&Sealed>| {
            let Some(known) = known.filter(|known| known.ciphertext == row.ciphertext) else {
                return;
            };
            if keys.find(&row.key_id).is_none() && keys.find(&known.key_id).is_some() {
                row.clone_from(known);
            }
        };
        for (name, row) in &mut self.shared {
            keep(row, old.shared.get(name));
        }
        for (customer, rows) in &mut self.customers {
            let known = old.customers.get(customer);
            for (name, row) in rows {
                keep(row, known.and_then(|known| known.get(name)));
            }
        }
        self
    }

    /// Opens the row of this very place. None where there is no such row.
    pub fn get(&self, place: Place<'_>) -> Result<Option<Secret>, Unreadable> {
        let row = self
            .rows(place.customer)
            .and_then(|rows| rows.get(place.name));
        row.map(|row| self.open(place, row)).transpose()
    }

    /// As [`Self::get`]; where no row has the exact name, the first one whose name differs in case
    /// only.
    pub fn get_ignoring_case(&self, place: Place<'_>) -> Result<Option<Secret>, Unreadable> {
        let Some(rows) = self.rows(place.customer) else {
            return Ok(None);
        };
        let (customer, name) = (place.customer, place.name);
        let exact = rows.get_key_value(name);
        let found = exact.or_else(|| rows.iter().find(|(own, _)| own.eq_ignore_ascii_case(name)));
        found
            .map(|(name, row)| self.open(Place { customer, name }, row))
            .transpose()
    }

    /// Whether there is a row, without opening it.
    pub fn has(&self, place: Place<'_>) -> bool {
        self.rows(place.customer)
            .is_some_and(|rows| rows.contains_key(place.name))
    }

    /// As [`Self::has`], whatever the case of the name.
    pub fn has_ignoring_case(&self, place: Place<'_>) -> bool {
        let rows = self.rows(place.customer);
        rows.is_some_and(|rows| rows.keys().any(|own| own.eq_ignore_ascii_case(place.name)))
    }

    /// Whether any customer has a row of this name.
    pub fn has_tenants_of(&self, name: &str) -> bool {
        self.customers.values().any(|rows| rows.contains_key(name))
    }

    /// Whether there are rows for all customers.
    pub fn has_shared(&self) -> bool {
        !self.shared.is_empty()
    }

    pub fn keys(&self) -> &Arc<MasterKeys> {
        &self.keys
    }

    pub fn len(&self) -> usize {
        self.shared.len() + self.customers.values().map(Rows::len).sum::<usize>()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many rows can't be opened, by the id of the master key that they need.
    pub fn without_key(&self) -> BTreeMap<&str, usize> {
        let mut missing = BTreeMap::new();
        let rows = self.customers.values().chain(std::iter::once(&self.shared));
        for row in rows.flat_map(Rows::values) {
            if self.keys.find(&row.key_id).is_none() {
                *missing.entry(row.key_id.as_str()).or_default() += 1;
            }
        }
        missing
    }

    fn rows(&self, customer: Option<&str>) -> Option<&Rows> {
        match customer {
            Some(customer) => self.customers.get(customer),
            None => Some(&self.shared),
        }
    }

    fn open(&self, place: Place<'_>, row: &Sealed) -> Result<Secret, Unreadable> {
        self.keys.open(place, row).map_err(|fault| Unreadable {
            customer: place.customer.map(str::to_owned),
            name: place.name.to_owned(),
            fault,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine as _;
    use zeroize::Zeroizing;

    fn keys(bytes: &[u8]) -> Arc<MasterKeys> {
        let variables = bytes.iter().enumerate().map(|(place, byte)| {
            let name = match place {
                0 => "ATI_MASTER_KEY".to_owned(),
                _ => format!("ATI_MASTER_KEY_{byte}"),
            };
            let value = base64::engine::general_purpose::STANDARD.encode([*byte; 32]);
            (name, Some(Zeroizing::new(value)))
        });
        Arc::new(MasterKeys::from_variables(variables).unwrap())
    }

    fn row(sealed: Sealed) -> StoredRow {
        StoredRow {
            customer: Some("acme".to_owned()),
            name: "token".to_owned(),
            sealed,
        }
    }

    #[test]
    fn row_rewrapped_with_a_key_that_is_missing_here_stays_readable() {
        let place = Place {
            customer: Some("acme"),
            name: "token",
        };
        let (old, both) = (keys(&[1]), keys(&[2, 1]));
        let sealed = old.seal(place, b"v1").unwrap();
        let rewrapped = both.rewrap(place, &sealed).unwrap().unwrap();
        let before = StoredCredentials::new(old.clone(), [row(sealed)]);
        let alone = StoredCredentials::new(old.clone(), [row(rewrapped.clone())]);
        assert!(alone.get(place).is_err());
        assert_eq!(alone.without_key().values().sum::<usize>(), 1);
        let kept = StoredCredentials::new(old.clone(), [row(rewrapped)]).keeping_readable(&before);
        assert_eq!(kept.get(place).unwrap().unwrap().expose(), b"v1");
        // A new value under the missing key is no form of the old row.
        let changed = both.seal(place, b"v2").unwrap();
        let changed = StoredCredentials::new(old, [row(changed)]).keeping_readable(&before);
        assert!(changed.get(place).is_err());
    }
}
