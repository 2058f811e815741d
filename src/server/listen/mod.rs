//! Listening: from a bound socket to HTTP sessions on a worker thread.
//!
//! ```text
//! bind            sockets, bound here or inherited from the process before this one
//! accept          one task per listener; each connection goes to the least loaded worker
//! connection      PROXY header and TLS, where the listener has them; then HTTP/1.1, or http2
//! workers         one thread, one runtime and one Pingora proxy each
//! ```

mod absolute_form;
pub mod accept;
pub mod async_listener;
pub mod bind;
mod connection;
pub mod downstream;
mod http2;
pub mod limits;
mod overload;
mod proxy_protocol;
pub mod workers;
