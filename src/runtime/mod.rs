//! Containers for what outlives a snapshot: minted credentials, sessions and rate windows. They hold
//! values by key, and know nothing of where these come from.

mod fresh;
mod pool;
mod rate;

pub use crate::derived_key::Key;
pub use fresh::{Fresh, Made};
pub use pool::{Pool, Pooled};
pub use rate::{Exceeded, Windows};
