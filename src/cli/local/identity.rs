use std::sync::Arc;

use crate::auth::Identity;
use crate::auth::session::{self, SESSION_TOKEN};
use crate::auth::token::{TokenFault, Verifier};
use crate::auth::virtual_keys;
use crate::cli::auth::key_without_proxy;
use crate::clock::unix_now;
use crate::error::{Code, Failure};

/// The caller, by its session token. Where no JWT keys are configured, no token is needed and every
/// tool may be called.
pub fn identify(verifier: Option<&Verifier>) -> Result<Arc<Identity>, Failure> {
    let Some(verifier) = verifier else {
        return Ok(Arc::new(Identity::unrestricted()));
    };
    let token = session::resolve(SESSION_TOKEN)
        .map_err(|e| Failure::new(Code::MissingKey, "session token").because(e))?
        .ok_or_else(|| {
            Failure::new(
                Code::MissingKey,
                "ATI_SESSION_TOKEN is required because JWT validation is configured locally. \
                 Set ATI_SESSION_TOKEN, or ATI_SESSION_TOKEN_FILE, or write it to \
                 /run/ati/session_token.",
            )
        })?;
    if virtual_keys::is_one(&token) {
        return Err(key_without_proxy());
    }
    verifier.verify(&token, unix_now()).map_err(|fault| {
        let code = match fault {
            TokenFault::Expired => Code::AuthExpired,
            _ => Code::InvalidToken,
        };
        Failure::new(code, "Invalid ATI_SESSION_TOKEN").because(fault)
    })
}
