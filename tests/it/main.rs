//! One binary that asks the real `ati` what its users would ask it.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod arch;
mod cli;
mod conformance;
mod docs;
mod lifecycle;
mod security;
mod support;
