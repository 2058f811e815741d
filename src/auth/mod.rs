//! Authentication of callers: the signature of the sandbox, the token, and the scopes and limits of
//! the token.

mod crypto;
pub mod keys;
pub mod rate;
pub mod sandbox;
pub mod scope;
pub mod session;
pub mod signature;
pub mod token;

pub use scope::Scopes;

use rate::Rate;

/// A caller, as its token describes it.
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
}

impl Identity {
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
        }
    }
}
