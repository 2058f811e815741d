use std::sync::Arc;

use crate::catalog::mcp::{Listing, Listings};
use crate::catalog::{Catalog, Provider};
use crate::snapshot::Snapshot;

/// The listings that a catalogue was made with.
pub fn listings(catalog: &Catalog) -> Listings {
    super::mcp_providers(catalog)
        .filter_map(|provider| {
            let listing = catalog.listing(&provider.name)?;
            Some((provider.name.clone(), listing.clone()))
        })
        .collect()
}

pub fn add_listing(snapshot: &Snapshot, provider: &Provider, listing: Listing) -> Snapshot {
    let mut listings = listings(&snapshot.catalog);
    listings.insert(provider.name.clone(), Arc::new(listing));
    snapshot.with_listings(&listings)
}
