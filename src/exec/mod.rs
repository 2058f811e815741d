//! Executors: one folder per handler. What several of them need stands next to the folders:
//!
//! - [`ExecContext`]: clients, limits, shared state;
//! - [`credentials`]: the credential of one call, looked up or minted;
//! - [`egress`]: HTTP through the guarded clients;
//! - [`Answer`]: the result, in memory or spooled.
//!
//! An executor gets the credential that its tool needs, never the keyring. Executors don't import
//! each other.

mod answer;
mod context;
pub mod credentials;
pub mod egress;
pub mod http;
pub mod mcp;
mod progress;
mod state;

pub use answer::{Answer, SpooledJson};
pub use context::ExecContext;
pub use progress::{Progress, Watcher};
pub use state::SharedState;
