//! The life of a server process: start, serve, reload, hand over, drain, end.
//!
//! ```text
//! compose         makes the parts, takes the listeners over from a predecessor, starts accepting
//! run             the event loop and its states: serving, handing over, draining
//! shut_down       the order in which a process stops
//! ```

pub mod announce;
mod compose;
mod drain;
pub mod handover;
mod notify;
mod relaunch;
pub mod reload;
mod reload_checks;
mod run;
mod shut_down;
mod signals;
mod supervision;
mod timed;
