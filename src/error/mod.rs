//! Errors as closed sets: a new member doesn't compile until it has a status, a code and a label.
//!
//! [`Refusal`] is what a caller over HTTP gets instead of an answer. [`Failure`] ends a command.
//! [`Problem`] is one problem in what an operator configured; problems are collected and reported
//! together. [`Success`] is the status of an answer. [`Verdict`], [`TokenFault`] and
//! [`BearerFault`] say why a caller isn't believed. [`RpcError`] is what an MCP client gets.

mod administration;
mod call;
mod confirmation;
mod explanation;
mod failure;
mod file;
mod help;
mod http1;
mod problem;
mod refusal;
mod remote_skill;
mod rpc;
mod skill;
mod success;
mod verdict;

pub use administration::{AdminRefusal, SAME_ALIAS};
pub use call::{CallError, ExecError, ExecFailure, ExecStatus, Shortage, UpstreamFailure};
pub use confirmation::{Confirmation, ConfirmationFault};
pub use explanation::{Explanation, StepTaken};
pub use failure::{Cause, Code, Failure};
pub use file::FileFault;
pub use help::HelpError;
pub use http1::{header_too_large_response, too_many_connections_response, usual_reason};
pub use problem::{Advice, Intro, Problem, Weight};
pub use refusal::{AfterRefusal, Refusal, RefusalBody, UpstreamFault};
pub use remote_skill::RemoteSkillError;
pub use rpc::{RpcError, RpcRefusal};
pub use skill::SkillRefusal;
pub use success::Success;
pub use verdict::{BearerFault, KeyFault, TokenFault, Verdict};
