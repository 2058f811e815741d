//! The route table: what a host and a path lead to, ati's own endpoints or a passthrough route.

mod builtin;
mod credential;
mod manifest;
mod passthrough;
mod path;
mod rewrite;
mod table;

pub use builtin::{Builtin, Endpoint, Guard, MCP_PROVIDER, find as find_endpoint};
pub use credential::{CredentialFault, RouteCredential};
pub use passthrough::{Caps, Route, SignatureRule};
pub use path::normalise;
pub use rewrite::Rewritten;
pub use table::{Match, Table, host_name};
