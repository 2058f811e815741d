//! Names of tools that can't be looked up yet: a server may have such a tool, and hasn't listed its
//! tools.

use std::sync::Arc;

use super::mcp::safe_name;
use super::tool::{LONGEST_NAME, default_scope};
use super::{Catalog, Provider};
use crate::auth::Scopes;

/// What may be a tool of an MCP server that has listed none.
pub struct Unlisted<'a> {
    pub provider: &'a Arc<Provider>,
    /// The name that the tool would have in the catalogue.
    pub name: String,
    /// The scope that it would need; None where it would need none.
    scope: Option<String>,
}

impl Unlisted<'_> {
    pub fn is_allowed(&self, scopes: &Scopes) -> bool {
        let scope = self.scope.as_deref();
        let category = self.provider.category.as_deref();
        scope.is_none_or(|scope| scopes.allow(scope) || scopes.allow_category(category))
    }
}

impl Catalog {
    /// The MCP provider that a tool of this name would belong to. Of all providers whose name it
    /// begins with the longest wins, whatever its handler.
    pub fn server_of(&self, name: &str) -> Option<&Arc<Provider>> {
        self.split_name(name).map(|(provider, _)| provider)
    }

    /// What a name stands for that isn't in the catalogue only because its server has listed
    /// nothing.
    pub fn unlisted(&self, name: &str) -> Option<Unlisted<'_>> {
        if self.find(name).is_some() {
            return None;
        }
        let (provider, own_name) = self.split_name(name)?;
        if self.listing(&provider.name).is_some() {
            return None;
        }
        let name = format!("{}:{own_name}", provider.name);
        let mut written = self.written.iter();
        let written = written.find(|tool| {
            tool.provider.name == provider.name
                && safe_name(tool.invocation.listed_endpoint()) == own_name
        });
        let scope = match written {
            Some(tool) if tool.scope != default_scope(&tool.name, provider) => tool.scope.clone(),
            _ => default_scope(&name, provider),
        };
        Some(Unlisted {
            provider,
            name,
            scope,
        })
    }

    /// Provider and tool of a name in any of its spellings: `provider:tool`, `provider_tool`,
    /// `provider__tool`.
    fn split_name<'n>(&self, name: &'n str) -> Option<(&Arc<Provider>, &'n str)> {
        if name.len() > LONGEST_NAME {
            return None;
        }
        let split = |provider| -> Option<(&Arc<Provider>, &'n str)> {
            let provider: &Arc<Provider> = provider;
            let rest = name.strip_prefix(provider.name.as_str())?;
            let own_name = [":", "__", "_"]
                .iter()
                .find_map(|between| rest.strip_prefix(between))?;
            (!own_name.is_empty()).then_some((provider, own_name))
        };
        let (provider, own_name) = self
            .providers()
            .iter()
            .filter_map(split)
            .max_by_key(|(provider, _)| provider.name.len())?;
        let is_usable = provider.mcp().is_some() && !provider.internal && !provider.is_expired();
        is_usable.then_some((provider, own_name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::mcp::{Listing, Listings};
    use crate::config::ManifestFile;
    use crate::egress;

    fn catalog(texts: &[&str]) -> Catalog {
        let (mut problems, mut warnings) = (Vec::new(), Vec::new());
        let manifest =
            |(n, text): (usize, &&str)| ManifestFile::from_text(&format!("{n}.toml"), text);
        let mut manifests: Vec<_> = texts.iter().enumerate().map(manifest).collect();
        let catalog = Catalog::build(
            &mut manifests,
            &crate::catalog::Specs::none(),
            Some(&egress::Settings::default()),
            &mut problems,
            &mut warnings,
        );
        assert!(problems.is_empty(), "{problems:?}");
        catalog
    }

    fn server(name: &str, more: &str) -> String {
        format!("[provider]\nname = '{name}'\nhandler = 'mcp'\nmcp_command = 'x'\n{more}")
    }

    #[test]
    fn name_belongs_to_the_longest_provider_in_every_spelling() {
        let catalog = catalog(&[
            &server("git", ""),
            &server("git_hub", ""),
            "[provider]\nname = 'git_lab'\nbase_url = 'http://h'",
            &server("hidden", "internal = true"),
        ]);
        let named = |name: &str| catalog.unlisted(name).map(|unlisted| unlisted.name);
        for (name, expected) in [
            ("git:log", Some("git:log")),
            ("git_log", Some("git:log")),
            ("git__log", Some("git:log")),
            ("git_hub:issues", Some("git_hub:issues")),
            ("git_hub_issues", Some("git_hub:issues")),
            ("git_hub__issues", Some("git_hub:issues")),
            // Another handler's tools are known: this one isn't there.
            ("git_lab:issues", None),
            ("hidden:x", None),
            ("git", None),
            ("git:", None),
            ("gitlog", None),
            ("log", None),
        ] {
            assert_eq!(named(name).as_deref(), expected, "{name}");
        }
        assert!(named(&format!("git:{}", "x".repeat(300))).is_none());
    }

    #[test]
    fn name_of_a_server_that_has_listed_its_tools_is_not_unlisted() {
        let catalog = catalog(&[&server("s", ""), &server("t", "")]);
        let listing = Listing {
            at: 0,
            protocol: String::new(),
            tools: Vec::new(),
        };
        let listings = Listings::from([("s".to_owned(), Arc::new(listing))]);
        let catalog = catalog.with_listings(&listings);
        assert!(catalog.unlisted("s:x").is_none());
        assert!(catalog.unlisted("t:x").is_some());
        // A command asks a server again whatever it has listed.
        assert!(catalog.server_of("s:x").is_some());
    }

    #[test]
    fn scope_of_an_unlisted_tool_is_the_manifests_or_the_default() {
        let tools = "[[tools]]\nname = 'wipe'\nscope = 'admin:wipe'\n\
                     [[tools]]\nname = 'open'\nscope = ''\n[[tools]]\nname = 'plain'";
        let catalog = catalog(&[&server("s", tools)]);
        let allows = |claim: &str, name: &str| {
            let scopes = Scopes::parse(claim);
            catalog.unlisted(name).unwrap().is_allowed(&scopes)
        };
        assert!(allows("tool:s:*", "s:other"));
        assert!(!allows("tool:t:*", "s:other"));
        assert!(allows("admin:wipe", "s:wipe") && !allows("tool:s:*", "s:wipe"));
        assert!(allows("", "s:open"));
        assert!(allows("tool:s:plain", "s:plain") && !allows("", "s:plain"));
    }
}
