use crate::keyring::stored::{Place, Unreadable};
use crate::keyring::{Keyring, Secret};

/// Finds secrets by name for one caller: the one place that knows the order of their sources.
/// Routes and every executor resolve credentials through this.
///
/// 1. the row of the caller's customer in the database
/// 2. `<name>@<customer>` of the keyring
/// 3. the row for all customers
/// 4. `<name>` of the keyring
///
/// A row that can't be read is an error. The sources behind it aren't asked: a customer must not
/// act with the credential of another, nor with one that was replaced.
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
    /// For a route: names are found in any case, as existing manifests expect. There is a customer
    /// where the route asks for a token or a key; a signature names none.
    pub fn passthrough(keyring: &'a Keyring, customer: Option<&'a str>) -> Self {
        Lookup {
            purpose: Purpose::Route,
            ..Lookup::tool(keyring, customer)
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

    pub fn customer(&self) -> Option<&'a str> {
        self.customer
    }

    pub fn get(&self, name: &str) -> Result<Option<Secret>, Unreadable> {
        if let Some(customer) = self.customer {
            if let Some(secret) = self.stored(name)? {
                return Ok(Some(secret));
            }
            if let Some(secret) = self.own(name, customer) {
                return Ok(Some(secret.clone()));
            }
        }
        let shared = Lookup {
            customer: None,
            ..*self
        };
        if let Some(secret) = shared.stored(name)? {
            return Ok(Some(secret));
        }
        let entry = match self.purpose {
            Purpose::Route => self.keyring.get_ignoring_case(name),
            Purpose::Tool => self.keyring.get(name),
        };
        Ok(entry.cloned())
    }

    /// Whether the customer has a secret of its own under one of these names, readable or not. What
    /// is resolved with it can't be shared with other customers.
    pub fn is_special<'n>(&self, names: impl FnOnce() -> Vec<&'n str>) -> bool {
        let Some(customer) = self.customer else {
            return false;
        };
        let is_own = |name: &str| self.has_row(name) || self.own(name, customer).is_some();
        names().into_iter().any(is_own)
    }

    /// Whether what is found under this name is a row of the database.
    pub fn is_stored(&self, name: &str) -> bool {
        let shared = Lookup {
            customer: None,
            ..*self
        };
        let own = self.customer.and_then(|customer| self.own(name, customer));
        self.has_row(name) || (own.is_none() && shared.has_row(name))
    }

    fn place<'n>(&self, name: &'n str) -> Place<'n>
    where
        'a: 'n,
    {
        Place {
            customer: self.customer,
            name,
        }
    }

    fn stored(&self, name: &str) -> Result<Option<Secret>, Unreadable> {
        let (stored, place) = (self.keyring.stored(), self.place(name));
        match self.purpose {
            Purpose::Route => stored.get_ignoring_case(place),
            Purpose::Tool => stored.get(place),
        }
    }

    fn has_row(&self, name: &str) -> bool {
        let (stored, place) = (self.keyring.stored(), self.place(name));
        match self.purpose {
            Purpose::Route => stored.has_ignoring_case(place),
            Purpose::Tool => stored.has(place),
        }
    }

    fn own(&self, name: &str, customer: &str) -> Option<&'a Secret> {
        match self.purpose {
            Purpose::Route => self.keyring.get_own_ignoring_case(name, customer),
            Purpose::Tool => self.keyring.get(&format!("{name}@{customer}")),
        }
    }
}

#[cfg(test)]
mod tests;
