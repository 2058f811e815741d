//! The tools in the order of their names, for lists in pages, and what tells that they changed.

use std::sync::Arc;

use super::{Catalog, Tool};
use crate::auth::Scopes;
use crate::derived_key::KeyBuilder;

impl Catalog {
    /// Tools that a caller with these scopes may use, in the order of their names, from behind this
    /// one.
    pub fn visible_after<'a>(
        &'a self,
        scopes: &'a Scopes,
        after: Option<&str>,
    ) -> impl Iterator<Item = &'a Arc<Tool>> {
        let order = self.by_order.get_or_init(|| {
            let mut order: Box<[usize]> = (0..self.tools.len()).collect();
            order.sort_by(|a, b| self.tools[*a].name.cmp(&self.tools[*b].name));
            order
        });
        let is_before =
            |at: &usize| after.is_some_and(|after| self.tools[*at].name.as_str() <= after);
        let begin = order.partition_point(is_before);
        let tools = order[begin..].iter().map(|at| &self.tools[*at]);
        tools
            .filter(|tool| !tool.provider.internal && !tool.provider.is_expired())
            .filter(|tool| tool.is_allowed(scopes) && !self.is_withheld(tool))
    }

    /// Changes with what clients are shown of the tools, and with nothing else.
    pub fn fingerprint(&self) -> &str {
        self.fingerprint.get_or_init(|| {
            let mut key = KeyBuilder::new("catalogue");
            for tool in self.public() {
                key.add((&tool.name, &tool.description, &tool.scope));
                key.add(tool.input_schema().to_string());
            }
            hex::encode(&key.finish()[..8])
        })
    }
}
