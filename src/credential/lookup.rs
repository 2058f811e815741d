use crate::keyring::{Keyring, Secret};

/// Finds secrets by name for one caller. A secret of the caller's own customer comes before the one
/// for all customers. Routes and every executor resolve credentials through this.
#[derive(Clone, Copy)]
pub struct Lookup<'a> {
    keyring: &'a Keyring,
    customer: Option<&'a str>,
    purpose: Purpose,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Route,
    Tool,
}

impl<'a> Lookup<'a> {
    /// For a route: names are found in any case, as existing manifests expect. There is no
    /// customer, because a signature names none.
    pub fn passthrough(keyring: &'a Keyring) -> Self {
        Lookup {
            keyring,
            customer: None,
            purpose: Purpose::Route,
        }
    }

    /// For a tool: names are exact.
    pub fn tool(keyring: &'a Keyring, customer: Option<&'a str>) -> Self {
        Lookup {
            keyring,
            customer: customer.filter(|customer| !customer.is_empty()),
            purpose: Purpose::Tool,
        }
    }

    /// `<name>@<customer>`, then `<name>`.
    pub fn get(&self, name: &str) -> Option<&'a Secret> {
        self.own(name).or_else(|| match self.purpose {
            Purpose::Route => self.keyring.get_ignoring_case(name),
            Purpose::Tool => self.keyring.get(name),
        })
    }

    /// Whether the customer has a secret of its own under one of these names. What is resolved with
    /// it can't be shared with other customers.
    pub fn is_special<'n>(&self, names: impl FnOnce() -> Vec<&'n str>) -> bool {
        self.customer.is_some() && names().iter().any(|name| self.own(name).is_some())
    }

    fn own(&self, name: &str) -> Option<&'a Secret> {
        self.keyring.get(&format!("{name}@{}", self.customer?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyring::Source;

    #[test]
    fn secret_of_a_customer_comes_first_and_for_that_customer_only() {
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
