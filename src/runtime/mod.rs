//! Containers for what outlives a snapshot: a cache of minted credentials, a pool of sessions,
//! windows of rate limits, calls that wait for a confirmation, files between two requests, and the
//! threads for long work. They hold values by key and know nothing of how these are made.
//! `exec::SharedState` holds one of each.

mod compute;
mod confirmations;
mod pool;
mod rate;
mod renewing_cache;
mod shared_limits;
mod stored_files;

pub use crate::derived_key::Key;
pub use compute::{ComputeError, ComputePool};
pub use confirmations::{Binding, Confirmations, ConfirmationsError, IssuedConfirmation};
pub use pool::{Pool, PooledSession, Removal};
pub use rate::{RateExceeded, RateWindows};
pub use renewing_cache::{Renewed, RenewingCache};
pub use shared_limits::SharedLimits;
pub use stored_files::{NotStored, StoredFiles};
