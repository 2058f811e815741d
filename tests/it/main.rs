//! One binary that asks the real `ati` what its users would ask it.

mod arch;
mod cli;
mod conformance;
mod docs;
mod lifecycle;
mod security;
mod support;
