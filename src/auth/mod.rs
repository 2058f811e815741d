//! Authentication of callers: the signature of the sandbox, the token or virtual key, and the
//! scopes and limits of either.

mod crypto;
pub mod keys;
pub mod rate;
pub mod sandbox;
pub mod scope;
pub mod session;
pub mod signature;
pub mod token;
pub mod virtual_keys;

use std::sync::Arc;

pub use scope::Scopes;

use crate::policy::Rules;
use rate::Rate;
use virtual_keys::KeyUse;

/// A caller, as its token or its virtual key describes it.
#[derive(Debug, Clone)]
pub struct Identity {
    pub subject: String,
    pub scopes: Scopes,
    /// Unix seconds; none for callers that need no token.
    pub expires: Option<u64>,
    pub job_id: Option<String>,
    pub sandbox_id: Option<String>,
    pub customer_id: Option<String>,
    /// Limits by scope pattern, in the order of the patterns.
    pub rates: Vec<(String, Rate)>,
    /// What narrows the operator's policy for this caller.
    pub delegation: Option<Arc<Rules>>,
    /// The virtual key that it called with.
    pub key: Option<Arc<KeyUse>>,
}

impl Identity {
    pub fn customer(&self) -> Option<&str> {
        self.customer_id.as_deref()
    }

    /// May do everything. For calls that no token can restrict: where no token keys are configured,
    /// and for ati's own discovery of MCP servers. Never for a request to a route.
    pub fn unrestricted() -> Self {
        Identity {
            subject: "dev".into(),
            scopes: Scopes::parse("*"),
            expires: None,
            job_id: None,
            sandbox_id: None,
            customer_id: None,
            rates: Vec::new(),
            delegation: None,
            key: None,
        }
    }

    /// The hash of the virtual key that it called with.
    pub fn key_hash(&self) -> Option<&str> {
        self.key.as_ref().map(|key| key.hash.as_str())
    }
}
