use crate::keyring::{Keyring, Secret};

/// Names to secrets, for whoever asks: a tenant's own come before everybody's. Every handler resolves credentials through this.
#[derive(Clone, Copy)]
pub struct Lookup<'a> {
    keyring: &'a Keyring,
    customer: Option<&'a str>,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Passthrough,
    Tool,
}

impl<'a> Lookup<'a> {
    /// Routes have always found names whatever their case. Their callers are sandboxes, which name no tenant.
    pub fn passthrough(keyring: &'a Keyring) -> Self {
        Lookup {
            keyring,
            customer: None,
            kind: Kind::Passthrough,
        }
    }

    pub fn tool(keyring: &'a Keyring, customer: Option<&'a str>) -> Self {
        Lookup {
            keyring,
            customer: customer.filter(|customer| !customer.is_empty()),
            kind: Kind::Tool,
        }
    }

    /// `<name>@<customer>`, then `<name>`.
    pub fn get(&self, name: &str) -> Option<&'a Secret> {
        self.own(name).or_else(|| match self.kind {
            Kind::Passthrough => self.keyring.get_ignoring_case(name),
            Kind::Tool => self.keyring.get(name),
        })
    }

    /// Whether this tenant has one of these names for itself, so that what is resolved can't be shared.
    pub fn is_special<'n>(&self, names: impl FnOnce() -> Vec<&'n str>) -> bool {
        self.customer.is_some() && names().iter().any(|name| self.own(name).is_some())
    }

    fn own(&self, name: &str) -> Option<&'a Secret> {
        self.keyring.get(&format!("{name}@{}", self.customer?))
    }

    /// Tools answer agents, who must not find a credential in the answer. Passthrough streams, and hands on what it gets.
    pub(super) fn scrubs(&self) -> bool {
        self.kind == Kind::Tool
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyring::Source;

    #[test]
    fn tenants_come_first_and_only_for_themselves() {
        let entries = [("k", "all"), ("k@acme", "acme"), ("Other", "x")];
        let entries =
            entries.map(|(name, value)| (name.to_owned(), Secret::new(value.as_bytes()).unwrap()));
        let keyring = Keyring::new(entries.into_iter().collect(), Source::Credentials);
        let get = |lookup: Lookup<'_>, name: &str| {
            lookup
                .get(name)
                .map(|secret| String::from_utf8(secret.expose().to_vec()).unwrap())
        };
        let tool = |customer| Lookup::tool(&keyring, customer);
        assert_eq!(get(tool(Some("acme")), "k").as_deref(), Some("acme"));
        assert_eq!(get(tool(Some("globex")), "k").as_deref(), Some("all"));
        assert_eq!(get(tool(Some("")), "k").as_deref(), Some("all"));
        assert_eq!(get(tool(None), "other"), None);
        let route = Lookup::passthrough(&keyring);
        assert_eq!(get(route, "other").as_deref(), Some("x"));
        assert!(tool(Some("acme")).is_special(|| vec!["a", "k"]));
        assert!(!tool(None).is_special(|| vec!["k"]));
    }
}
