//! Executors: one folder per handler. What several of them need stands next to the folders:
//!
//! - [`ExecContext`]: clients, limits, shared state;
//! - [`credentials`]: the credential of one call, looked up or minted;
//! - [`egress`]: HTTP through the guarded clients;
//! - [`sigv4`]: signatures of requests to S3;
//! - [`Answer`]: the result, in memory or spooled.
//!
//! An executor gets the credential that its tool needs, never the keyring. Executors don't import
//! each other.

mod answer;
pub mod cli;
mod context;
pub mod credentials;
pub mod egress;
pub mod files;
pub mod http;
mod incoming;
mod json_with_files;
pub mod mcp;
mod progress;
pub mod sigv4;
mod state;

pub use answer::{Answer, SpooledJson};
pub use context::ExecContext;
pub use json_with_files::JsonWithFiles;
pub use progress::{Progress, Watcher};
pub use state::SharedState;
