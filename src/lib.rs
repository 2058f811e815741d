pub mod auth;
pub mod error;
pub mod files;
pub mod keyring;
pub mod pattern;
pub mod telemetry;
