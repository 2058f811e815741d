//! Which skills a token opens: those that it names, those that are bound to its tools, and those
//! that these depend on.

use std::collections::HashSet;

use crate::auth::Scopes;
use crate::catalog::{Catalog, Tool};

/// What a skill is bound to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bindings {
    pub tools: Vec<String>,
    pub providers: Vec<String>,
    pub categories: Vec<String>,
    /// Skills that come along with it.
    pub depends_on: Vec<String>,
}

/// What a list of scopes grants, as far as skills ask for it.
pub struct Grants<'a> {
    scopes: &'a Scopes,
    catalog: &'a Catalog,
    /// Whether a tool that needs no scope counts.
    with_open_tools: bool,
    providers: HashSet<&'a str>,
    categories: HashSet<&'a str>,
    /// Skills that the manifests of these providers name.
    declared: HashSet<&'a str>,
}

impl<'a> Grants<'a> {
    /// What a caller with these scopes may see.
    pub fn to_see(scopes: &'a Scopes, catalog: &'a Catalog) -> Self {
        Grants::new(scopes, catalog, true)
    }

    /// What these scopes load by themselves. For that, `scopes` must not have a lone `*`, which
    /// shows every skill and loads none.
    pub fn to_load(scopes: &'a Scopes, catalog: &'a Catalog) -> Self {
        Grants::new(scopes, catalog, false)
    }

    fn new(scopes: &'a Scopes, catalog: &'a Catalog, with_open_tools: bool) -> Self {
        let mut grants = Grants {
            scopes,
            catalog,
            with_open_tools,
            providers: HashSet::new(),
            categories: HashSet::new(),
            declared: HashSet::new(),
        };
        for tool in catalog.public() {
            let provider = tool.provider.name.as_str();
            if !grants.providers.contains(provider) && grants.has(tool) {
                grants.providers.insert(provider);
            }
        }
        for provider in catalog.providers() {
            // `tool:name:*` covers whatever an MCP server will list, and the one tool of a program
            // too.
            let in_use = !provider.internal && !provider.is_expired();
            let covered = scopes.allow(&format!("tool:{}:", provider.name))
                || scopes.allow_category(provider.category.as_deref());
            if in_use && covered {
                grants.providers.insert(&provider.name);
            }
            if grants.providers.contains(provider.name.as_str()) {
                grants.categories.extend(provider.category.as_deref());
                let declared = provider.skills.iter();
                grants
                    .declared
                    .extend(declared.map(|named| declared_name(named)));
            }
        }
        grants
    }

    fn has(&self, tool: &Tool) -> bool {
        let is_open = tool.scope.is_none();
        tool.is_allowed(self.scopes)
            && !self.catalog.is_withheld(tool)
            && (!is_open || self.with_open_tools)
    }

    /// Whether a skill of this name and with these bindings is granted, dependencies aside.
    pub fn open(&self, name: &str, bindings: &Bindings) -> bool {
        self.names(name)
            || self.declared.contains(name)
            || bindings.tools.iter().any(|tool| self.grants_tool(tool))
            || any_in(&bindings.providers, &self.providers)
            || any_in(&bindings.categories, &self.categories)
    }

    /// Whether the scopes name it: `skill:name`, or a beginning of that with a star.
    pub fn names(&self, skill: &str) -> bool {
        self.scopes.allow(&format!("skill:{skill}"))
    }

    /// A tool that isn't in the catalogue yet, or any more, is granted by its name.
    fn grants_tool(&self, name: &str) -> bool {
        match self.catalog.find(name) {
            Some(tool) => self.has(tool),
            None => self.scopes.allow(&format!("tool:{name}")),
        }
    }
}

fn any_in(names: &[String], granted: &HashSet<&str>) -> bool {
    names.iter().any(|name| granted.contains(name.as_str()))
}

/// The name of a skill that a manifest names by where it can be had: `url#name`, `url/name.git`.
pub fn declared_name(named: &str) -> &str {
    let place = named.rsplit('#').next().unwrap_or(named);
    let place = place.split('@').next().unwrap_or(place);
    let last = place.trim_end_matches('/').rsplit('/').next();
    last.unwrap_or(place).trim_end_matches(".git")
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: &str = "[provider]\nname = 'github'\ncategory = 'code'\nbase_url = 'http://h'\n\
                            skills = ['https://x.example/skills#declared']\n\
                            [[tools]]\nname = 'github:search'\n[[tools]]\nname = 'open'\nscope = ''\n";

    fn bindings(tools: &[&str], providers: &[&str], categories: &[&str]) -> Bindings {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Bindings {
            tools: owned(tools),
            providers: owned(providers),
            categories: owned(categories),
            depends_on: Vec::new(),
        }
    }

    #[test]
    fn skill_is_granted_by_name_tool_provider_and_category() {
        let catalog = Catalog::from_text(MANIFEST);
        let open = |claim: &str, bound: &Bindings| {
            let scopes = Scopes::parse(claim);
            Grants::to_load(&scopes, &catalog).open("research-web", bound)
        };
        let none = Bindings::default();
        for (claim, bound, expected) in [
            ("skill:research-web", &none, true),
            ("skill:research-*", &none, true),
            ("skill:*", &none, true),
            ("skill:research", &none, false),
            ("skill:research-web2", &none, false),
            ("help", &none, false),
            (
                "tool:github:search",
                &bindings(&["github:search"], &[], &[]),
                true,
            ),
            (
                "tool:github_search",
                &bindings(&["github:search"], &[], &[]),
                true,
            ),
            (
                "tool:github:search",
                &bindings(&["github_search"], &[], &[]),
                true,
            ),
            (
                "tool:github:*",
                &bindings(&["github:search"], &[], &[]),
                true,
            ),
            (
                "tool:github:other",
                &bindings(&["github:search"], &[], &[]),
                false,
            ),
            ("tool:absent", &bindings(&["absent"], &[], &[]), true),
            ("tool:github:search", &bindings(&[], &["github"], &[]), true),
            ("tool:github:*", &bindings(&[], &["github"], &[]), true),
            ("tool:linear:*", &bindings(&[], &["github"], &[]), false),
            ("tool:linear:*", &bindings(&[], &["linear"], &[]), false),
            ("tool:github:search", &bindings(&[], &[], &["code"]), true),
            ("tool:github:search", &bindings(&[], &[], &["other"]), false),
            ("skill:x", &bindings(&["open"], &[], &[]), false),
        ] {
            assert_eq!(open(claim, bound), expected, "{claim} {bound:?}");
        }
    }

    #[test]
    fn tool_without_a_scope_shows_its_skills_and_loads_none() {
        let catalog = Catalog::from_text(MANIFEST);
        let scopes = Scopes::parse("help");
        let bound = bindings(&["open"], &[], &[]);
        assert!(Grants::to_see(&scopes, &catalog).open("s", &bound));
        assert!(!Grants::to_load(&scopes, &catalog).open("s", &bound));
    }

    #[test]
    fn skill_that_a_manifest_names_comes_with_its_provider() {
        let catalog = Catalog::from_text(MANIFEST);
        let open = |claim: &str| {
            let scopes = Scopes::parse(claim);
            Grants::to_load(&scopes, &catalog).open("declared", &Bindings::default())
        };
        assert!(open("tool:github:search"));
        assert!(!open("tool:linear:search"));
        for (named, name) in [
            ("plain", "plain"),
            ("https://h/o/repo#sub/name", "name"),
            ("https://h/o/repo#name@abc1234", "name"),
            ("https://h/o/name.git", "name"),
            ("./skills/name/", "name"),
        ] {
            assert_eq!(declared_name(named), name, "{named}");
        }
    }
}
