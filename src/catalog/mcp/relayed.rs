//! Tools of an MCP server by the names that the server itself gives them, and who may use the
//! server without calling one.

use std::sync::Arc;

use super::safe_name;
use crate::auth::Scopes;
use crate::catalog::{Catalog, Invocation, Provider, Tool};

/// A tool of a server, whether it is in the catalogue or not.
pub struct RelayedTool<'a> {
    /// None where the server hasn't listed it.
    pub tool: Option<&'a Arc<Tool>>,
    /// As scopes, limits and the audit know it.
    pub name: String,
    is_allowed: bool,
}

impl RelayedTool<'_> {
    pub fn is_allowed(&self) -> bool {
        self.is_allowed
    }
}

impl Catalog {
    /// An MCP server that agents may use.
    pub fn mcp_server(&self, name: &str) -> Option<&Arc<Provider>> {
        let mut providers = self.providers().iter();
        let provider = providers.find(|provider| provider.name == name)?;
        let is_usable = provider.mcp().is_some() && !provider.internal && !provider.is_expired();
        is_usable.then_some(provider)
    }

    pub fn relayed_tool(
        &self,
        provider: &Provider,
        remote_name: &str,
        scopes: &Scopes,
    ) -> RelayedTool<'_> {
        let name = format!("{}:{}", provider.name, safe_name(remote_name));
        let is_same = |tool: &&Arc<Tool>| {
            tool.provider.name == provider.name
                && matches!(&tool.invocation, Invocation::Mcp(mcp) if mcp.remote_name == remote_name)
        };
        if let Some(tool) = self.find(&name).filter(is_same) {
            return RelayedTool {
                is_allowed: tool.is_allowed(scopes),
                name: tool.name.clone(),
                tool: Some(tool),
            };
        }
        // Not listed, or under the name that its manifest gives it.
        match self.tools().iter().find(is_same) {
            Some(tool) => RelayedTool {
                is_allowed: tool.is_allowed(scopes),
                name: tool.name.clone(),
                tool: Some(tool),
            },
            None => RelayedTool {
                is_allowed: scopes.allow(&format!("tool:{name}"))
                    || scopes.allow_category(provider.category.as_deref()),
                tool: None,
                name,
            },
        }
    }

    /// Whether these scopes cover anything of this server: one of its tools, or all that it may
    /// have. A tool that needs no scope doesn't count: it must not open what isn't a tool.
    pub fn allows_server(&self, provider: &Provider, scopes: &Scopes) -> bool {
        let every_tool = format!("tool:{}:", provider.name);
        let covers_all = |word: &str| {
            word.strip_suffix('*')
                .is_some_and(|prefix| every_tool.starts_with(prefix))
        };
        scopes.iter().any(covers_all)
            || scopes.allow_category(provider.category.as_deref())
            || self
                .visible(scopes)
                .any(|tool| tool.provider.name == provider.name && tool.scope.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::mcp::{Listing, Listings};

    #[test]
    fn server_is_open_to_scopes_that_cover_one_of_its_tools() {
        let catalog = Catalog::from_text(
            "[provider]\nname = 's'\nhandler = 'mcp'\nmcp_command = 'x'\n\
             [[tools]]\nname = 's:wipe'\nscope = 'admin:wipe'\n[[tools]]\nname = 's:open'\nscope = ''",
        );
        let listed = serde_json::json!({"at": 0, "protocol": "", "tools": [
            {"name": "echo", "description": "", "input_schema": {}, "repeatable": false},
        ]});
        let listing: Listing = serde_json::from_value(listed).unwrap();
        let listings = Listings::from([("s".to_owned(), Arc::new(listing))]);
        let catalog = catalog.with_listings(&listings);
        let provider = catalog.mcp_server("s").unwrap();
        assert!(catalog.mcp_server("t").is_none());
        let opens = |claim: &str| catalog.allows_server(provider, &Scopes::parse(claim));
        for good in ["*", "tool:*", "tool:s:*", "tool:s:echo", "admin:wipe"] {
            assert!(opens(good), "{good}");
        }
        for bad in ["", "tool:t:*", "tool:s:other", "help", "tool:s"] {
            assert!(!opens(bad), "{bad}");
        }
        let allowed = |claim: &str, name: &str| {
            let scopes = Scopes::parse(claim);
            catalog.relayed_tool(provider, name, &scopes).is_allowed()
        };
        assert!(allowed("tool:s:echo", "echo") && !allowed("tool:s:other", "echo"));
        assert!(allowed("tool:s:other", "other") && !allowed("tool:s:echo", "other"));
        assert!(allowed("admin:wipe", "wipe") && !allowed("tool:s:*", "wipe"));
        assert!(allowed("", "open"));
    }
}
