//! Work that goes on next to requests for as long as the process serves.

pub mod credentials;
pub mod discovery;
pub mod otlp;
pub mod rates;
