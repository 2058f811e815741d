//! The index of a catalogue: what it is built from, and when.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Index;
use super::segment::Segment;
use crate::auth::Scopes;
use crate::catalog::{Catalog, Tool};

impl Catalog {
    /// The tools that these scopes allow and that `wanted` says yes to, best match first, `limit`
    /// at most. See [`Index`].
    pub fn search(
        &self,
        query: &str,
        scopes: &Scopes,
        wanted: impl Fn(&Tool) -> bool,
        limit: usize,
    ) -> Vec<&Arc<Tool>> {
        let allowed = |tool: &Tool| tool.is_allowed(scopes) && !self.is_withheld(tool);
        let wanted = |tool: &Tool| !tool.provider.is_expired() && wanted(tool);
        self.index().search(query, scopes, allowed, wanted, limit)
    }

    /// Builds the index now, so that no search waits for it. Commands that don't search do without.
    pub fn prepare_search(&self) {
        self.index();
    }

    /// Builds the index if the old catalogue has one, with those of its segments whose tools are
    /// still the same.
    pub(in crate::catalog) fn adopt_index(&self, old: &Catalog) {
        if let Some(old) = old.index.get() {
            self.index.get_or_init(|| self.build_index(Some(old)));
        }
    }

    fn index(&self) -> &Index {
        self.index.get_or_init(|| self.build_index(None))
    }

    /// One segment for what manifests and documents have, and one for each MCP server, whose list
    /// changes while ati runs.
    fn build_index(&self, old: Option<&Index>) -> Index {
        let mut groups: BTreeMap<Option<&str>, Vec<Arc<Tool>>> = BTreeMap::new();
        for tool in self.tools.iter().filter(|tool| !tool.provider.internal) {
            let server = tool.provider.mcp().map(|_| tool.provider.name.as_str());
            groups.entry(server).or_default().push(tool.clone());
        }
        let segments = groups.into_values().map(|tools| {
            let known = old.and_then(|old| old.segment_of(&tools));
            known.unwrap_or_else(|| Arc::new(Segment::new(tools)))
        });
        Index::new(segments.collect())
    }
}

impl Index {
    /// The segment of exactly these tools.
    fn segment_of(&self, tools: &[Arc<Tool>]) -> Option<Arc<Segment>> {
        let same = |known: &[Arc<Tool>]| {
            let mut pairs = known.iter().zip(tools);
            known.len() == tools.len() && pairs.all(|(a, b)| Arc::ptr_eq(a, b))
        };
        let mut segments = self.segments.iter().map(|part| &part.segment);
        segments.find(|segment| same(&segment.tools)).cloned()
    }
}
