//! Whose tool a call is for.

use std::sync::Arc;

use crate::auth::Scopes;
use crate::catalog::{Catalog, Invocation, Provider};

pub struct Callee<'a> {
    called: Option<&'a Arc<Provider>>,
    /// An MCP server that has to be asked for its tools first.
    pub unlisted: Option<&'a Arc<Provider>>,
    /// An MCP server that executes the call, if it has a tool for it.
    delegate: Option<&'a Arc<Provider>>,
}

impl<'a> Callee<'a> {
    pub fn new(name: &str, catalog: &'a Catalog, scopes: &Scopes) -> Self {
        let known = catalog.find(name);
        // A call that will be refused needs no credential.
        let allowed = known.filter(|tool| tool.is_allowed(scopes));
        let server = allowed.and_then(|tool| match &tool.invocation {
            Invocation::Atip(command) => command.mcp.as_deref(),
            _ => None,
        });
        let mut providers = catalog.providers().iter();
        Callee {
            called: allowed.map(|tool| &tool.provider),
            unlisted: match known {
                Some(_) => None,
                None => catalog.server_of(name),
            },
            delegate: server.and_then(|server| {
                providers.find(|one| one.name == *server && one.mcp().is_some())
            }),
        }
    }

    pub fn provider(&self) -> Option<&'a Arc<Provider>> {
        self.called.or(self.unlisted)
    }

    /// Those whose credentials the call may need.
    pub fn providers(&self) -> impl Iterator<Item = &'a Arc<Provider>> {
        self.provider().into_iter().chain(self.delegate)
    }

    /// The server that executes the call, where it isn't known what tools it has.
    pub fn unlisted_delegate(&self, catalog: &Catalog) -> Option<&'a Arc<Provider>> {
        let is_listed = |provider: &Provider| catalog.listing(&provider.name).is_some();
        self.delegate.filter(|provider| !is_listed(provider))
    }
}
