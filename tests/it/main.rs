//! Integration tests: they run the real `ati` binary, and talk to it over real sockets.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod arch;
mod audit;
mod cli;
mod conformance;
mod deploy;
mod docs;
mod doctor;
mod edge;
mod front;
mod handover;
mod heavy;
mod hostile;
mod lifecycle;
mod listeners;
mod mcp;
mod openapi;
mod passthrough;
mod provider;
mod rotation;
mod run;
mod security;
mod ssrf;
mod support;
mod tools;
mod websocket;
