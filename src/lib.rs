//! `ati`, an edge proxy between agent sandboxes and the world. Rooms, in the order in which a
//! request passes them:
//!
//! ```text
//! server    binds, accepts, reloads, drains
//! gateway   Pingora's hooks, one file each
//! filters   admit: framing -> path -> route -> signature -> identity => Admitted or Refusal
//! api       the built-in endpoints
//! assist    questions about tools, and plans of calls
//! call      a tool call: resolve -> authorize -> validate -> limit -> execute -> shape -> audit
//! ```
//!
//! Each room may use those below it and none above:
//!
//! ```text
//! cli -> server -> gateway -> api -> assist -> call -> filters -> snapshot -> skills -> exec
//!     -> catalog | route -> runtime -> config -> credential -> auth | egress -> store
//!     -> keyring -> the base modules, from clock to text
//! ```
//!
//! tests/it/arch.rs checks that; ARCHITECTURE.md gives the reasons.

#[cfg(test)]
#[path = "../tests/it/support/skip.rs"]
mod skip;

pub mod cli;

pub mod server;

pub mod gateway;

pub mod filters;

pub mod api;

pub mod assist;

pub mod call;

pub mod snapshot;

pub mod skills;

pub mod route;

pub mod catalog;

pub mod exec;

pub mod runtime;

pub mod config;

pub mod credential;

pub mod auth;
pub mod egress;

pub mod store;

pub mod keyring;

pub mod backoff;

pub mod budget;
pub mod clock;
pub mod derived_key;
pub mod error;
pub mod files;
pub mod hop_by_hop;
pub mod http1;
pub mod json;
pub mod json_scan;
pub mod mcp;
pub mod output_folder;
pub mod pattern;
pub mod policy;
pub mod process;
pub mod request_id;
pub mod single_flight;
pub mod spool;
pub mod telemetry;
pub mod text;
