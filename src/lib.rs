//! `ati`, the edge appliance between agent sandboxes and the world. A request's way through the rooms, which stand here in its
//! order:
//!
//! ```text
//! server    binds, accepts, reloads, drains
//! gateway   Pingora's hooks, one file each
//! filters   admit: framing -> path -> route -> signature -> identity      => Admitted, or a Refusal
//! api       the built-in endpoints
//! call      a tool call: resolve -> authorize -> validate -> limit -> execute -> shape -> audit
//! ```
//!
//! Each room may use those below it and none above:
//!
//! ```text
//! cli -> server -> gateway -> api -> call -> filters -> snapshot -> exec -> catalog | route -> runtime -> config
//!     -> credential -> auth | egress -> keyring -> clock, error, telemetry, text, files, hop_by_hop, json, pattern, process,
//!     request_id, spool
//! ```
//!
//! tests/it/arch.rs holds the rooms to that; ARCHITECTURE.md says why.

pub mod cli;

pub mod server;

pub mod gateway;

pub mod filters;

pub mod api;

pub mod call;

pub mod snapshot;

pub mod route;

pub mod catalog;

pub mod exec;

pub mod runtime;

pub mod config;

pub mod credential;

pub mod auth;
pub mod egress;

pub mod keyring;

pub mod clock;
pub mod error;
pub mod files;
pub mod hop_by_hop;
pub mod json;
pub mod pattern;
pub mod process;
pub mod request_id;
pub mod spool;
pub mod telemetry;
pub mod text;
