//! What can go wrong, as closed sets: a new member doesn't compile until it has a status, a code and a label.
//!
//! [`Refusal`] is what a caller over HTTP gets instead of an answer. [`Failure`] is what ends a command.
//! [`Problem`] is one thing wrong with what an operator configured; they are collected and reported together.

mod call;
mod failure;
mod problem;
mod refusal;
mod success;

pub use call::{CallError, McpError, ToolError};
pub use failure::{Code, Failure};
pub use problem::{Intro, Problem};
pub use refusal::{Body, Refusal, UpstreamFault};
pub use success::Success;
