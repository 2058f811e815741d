//! What a route adds to requests: looked up when its table is made, and again for each customer
//! that has credentials of its own.

use std::sync::Arc;

use http::HeaderName;

use crate::credential::{Attachment, Credential, Gaps, Lookup, Template};
use crate::keyring::Keyring;
use crate::keyring::stored::Unreadable;

/// As the manifest says it. Routes that send the same share one.
#[derive(Debug, Default)]
pub struct RouteCredential {
    /// Its place among those of the table.
    index: usize,
    credential: Credential,
    extra: Vec<(HeaderName, Template)>,
}

/// Why a route can't send its credential. Requests are refused: another one would be the wrong one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CredentialFault {
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    #[error("the value of '{0}' can't be sent in a header (a line break?)")]
    Unsendable(String),
}

impl RouteCredential {
    /// The name of its key. None where it sends none.
    pub(super) fn name(&self) -> Option<&str> {
        self.credential.key()
    }

    pub(super) fn new(
        index: usize,
        credential: Credential,
        extra: Vec<(HeaderName, Template)>,
    ) -> Self {
        RouteCredential {
            index,
            credential,
            extra,
        }
    }

    pub(super) fn index(&self) -> usize {
        self.index
    }

    pub(super) fn key_names(&self) -> Vec<&str> {
        let extra = self.extra.iter().flat_map(|(_, template)| template.keys());
        self.credential.key().into_iter().chain(extra).collect()
    }

    pub(super) fn resolve(&self, lookup: &Lookup<'_>) -> (Attachment, Gaps) {
        Attachment::resolve(&self.credential, &self.extra, lookup)
    }

    /// For callers without credentials of their own, once the table is there: what is missing is
    /// left out, as when the table was made.
    pub(super) fn resolve_shared(
        &self,
        keyring: &Keyring,
    ) -> (Arc<Attachment>, Option<CredentialFault>) {
        let (attachment, gaps) = self.resolve(&Lookup::passthrough(keyring, None));
        (Arc::new(attachment), fault(gaps))
    }

    /// For a customer.
    pub(super) fn resolve_for(&self, lookup: &Lookup<'_>) -> Result<Attachment, CredentialFault> {
        let (attachment, gaps) = self.resolve(lookup);
        match fault(gaps) {
            None => Ok(attachment),
            Some(fault) => Err(fault),
        }
    }
}

/// A key that is missing is none: routes forward requests without it.
pub(super) fn fault(gaps: Gaps) -> Option<CredentialFault> {
    let unreadable = gaps.unreadable.into_iter().map(CredentialFault::from);
    let unsendable = gaps.unsendable.into_iter().map(CredentialFault::Unsendable);
    unreadable.chain(unsendable).next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyring::{Secret, Source};
    use crate::route::{Match, Route, Table};

    fn keyring(entries: &[(&str, &str)]) -> Keyring {
        let entries = entries
            .iter()
            .map(|(name, value)| ((*name).to_owned(), Secret::new(value.as_bytes()).unwrap()));
        Keyring::new(entries.collect(), Source::Credentials)
    }

    fn route(table: &Table) -> &Arc<Route> {
        match table.find(None, "/svc/x") {
            Match::Route(route) => route,
            Match::Endpoint(_) | Match::Nothing => panic!("no route"),
        }
    }

    fn value(attachment: &Attachment) -> Option<String> {
        let mut headers = attachment.headers(true);
        headers
            .next()
            .map(|(_, value)| value.to_str().unwrap().to_owned())
    }

    #[test]
    fn route_sends_the_credential_of_the_customer_that_has_one() {
        let table = Table::from_text(
            "base_url = 'http://127.0.0.1:1'\npath_prefix = '/svc'\nauth_type = 'bearer'\n\
             auth_key_name = 'key'",
        );
        let first = keyring(&[("KEY", "all"), ("Key@acme", "own"), ("key@broken", "a\nb")]);
        let table = table.with_keyring(&first);
        let own = |table: &Table, customer, keyring: &Keyring| {
            let own = table.own_attachment(route(table), customer, keyring)?;
            Ok::<_, CredentialFault>(own.and_then(|own| value(&own)))
        };
        assert_eq!(value(&route(&table).attachment).unwrap(), "Bearer all");
        for _ in 0..2 {
            let sent = own(&table, Some("acme"), &first).unwrap();
            assert_eq!(sent.as_deref(), Some("Bearer own"));
        }
        for other in [None, Some(""), Some("globex"), Some("Acme")] {
            assert_eq!(own(&table, other, &first).unwrap(), None, "{other:?}");
        }
        let unsendable = CredentialFault::Unsendable("key".to_owned());
        assert_eq!(own(&table, Some("broken"), &first).unwrap_err(), unsendable);
        // What was cached of the old keyring isn't used with the new one.
        let second = keyring(&[("key", "new"), ("key@acme", "newer")]);
        let table = table.with_keyring(&second);
        assert_eq!(value(&route(&table).attachment).unwrap(), "Bearer new");
        let sent = own(&table, Some("acme"), &second).unwrap();
        assert_eq!(sent.as_deref(), Some("Bearer newer"));
        // A value for all that can't be sent refuses those who would get it, and no other.
        let third = keyring(&[("key", "a\nb"), ("key@acme", "newer")]);
        let table = table.with_keyring(&third);
        assert!(own(&table, Some("globex"), &third).is_err());
        assert!(own(&table, None, &third).is_err());
        assert!(own(&table, Some("acme"), &third).is_ok());
    }
}
