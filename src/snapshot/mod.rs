//! Everything that a request is judged by, built whole, swapped whole, pinned per request.

mod build;
mod certificates;
mod doors;
mod keys;
mod sandboxes;
mod skill_registry;

use std::sync::Arc;
use std::time::SystemTime;

pub use build::{BuildFailure, Built, load_verifier};
pub use certificates::{Certificate, Certificates};
pub use keys::load_for_command as command_keyring;

use crate::auth::signature::SigningKeys;
use crate::auth::token::Verifier;
use crate::catalog::Catalog;
use crate::catalog::mcp::Listings;
use crate::config::Settings;
use crate::egress::{Clients, Resolver};
use crate::exec::credentials::SharedCredentials;
use crate::keyring::Keyring;
use crate::keyring::stored::StoredCredentials;
use crate::route::Table;
use crate::skills::Registry;

/// The parts are shared: a snapshot with a new listing of tools keeps all other parts of the old
/// one.
#[derive(Clone)]
pub struct Snapshot {
    pub settings: Arc<Settings>,
    pub keyring: Arc<Keyring>,
    pub signing: Option<Arc<SigningKeys>>,
    pub verifier: Option<Arc<Verifier>>,
    pub catalog: Arc<Catalog>,
    pub routes: Arc<Table>,
    /// The skills of the ATI folder. Empty in the snapshot of a command, which loads them if it
    /// shows them.
    pub skills: Arc<Registry>,
    /// TLS certificates of the listeners.
    pub certificates: Arc<Certificates>,
    pub resolver: Arc<Resolver>,
    /// HTTP clients of tools.
    pub clients: Arc<Clients>,
    /// Credentials of tools that are the same for every caller, resolved at their first use.
    pub credentials: Arc<SharedCredentials>,
    pub keyring_loaded: SystemTime,
}

impl Snapshot {
    /// Take over what is still valid in the old snapshot: resolved addresses, open connections.
    pub fn adopt(&mut self, old: &Snapshot) {
        if let Some(routes) = Arc::get_mut(&mut self.routes) {
            routes.adopt(&old.routes);
        }
        if self.clients.same_as(&old.clients) {
            self.clients = old.clients.clone();
        }
    }

    /// The same snapshot with the tools that MCP servers list now.
    pub fn with_listings(&self, listings: &Listings) -> Self {
        Snapshot {
            catalog: Arc::new(self.catalog.with_listings(listings)),
            ..self.clone()
        }
    }

    /// The same snapshot with the credentials that the database has now. What was resolved from the
    /// old ones goes with them.
    pub fn with_stored(&self, stored: Arc<StoredCredentials>) -> Self {
        let keyring = Keyring::clone(&self.keyring).with_stored(stored);
        Snapshot {
            routes: Arc::new(self.routes.with_keyring(&keyring)),
            credentials: Arc::new(SharedCredentials::new(self.catalog.providers().len())),
            keyring: Arc::new(keyring),
            ..self.clone()
        }
    }

    /// For tests of what doesn't depend on one.
    #[cfg(test)]
    pub fn empty() -> Arc<Snapshot> {
        let resolver = Arc::new(Resolver::new(&[]));
        Arc::new(Snapshot {
            settings: Arc::default(),
            keyring: Arc::new(Keyring::empty()),
            signing: None,
            verifier: None,
            catalog: Arc::default(),
            routes: Arc::default(),
            skills: Arc::default(),
            certificates: Arc::default(),
            clients: Arc::new(Clients::new(
                &crate::egress::Settings::default(),
                crate::egress::Guard::On,
                resolver.clone(),
            )),
            resolver,
            credentials: Arc::default(),
            keyring_loaded: SystemTime::UNIX_EPOCH,
        })
    }

    /// `jwt` or `disabled`, as `/health` reports it.
    pub fn auth(&self) -> &'static str {
        if self.verifier.is_some() {
            "jwt"
        } else {
            "disabled"
        }
    }
}
