//! Executors, one folder per handler. An executor gets the credentials that its tool names, never the keyring.

pub mod http;
pub mod mcp;
mod progress;

pub use progress::{Progress, Watcher};
