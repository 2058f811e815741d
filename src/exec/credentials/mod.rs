//! The credential of one call: looked up in the keyring before the call, or minted when it is
//! needed and cached for as long as it is valid. The keyring itself stays in `call`.

mod generator;
mod oauth;
mod runs;
mod service_account;

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ::http::HeaderName;
use zeroize::Zeroizing;

pub use generator::GeneratorRecipe;
pub use oauth::OAuthRecipe;
pub use runs::GeneratorRuns;
pub use service_account::ServiceAccountRecipe;

use super::ExecContext;
use crate::credential::{Attachment, Credential, CredentialError, PerCustomer};
use crate::runtime::{Key, Renewed};

/// What one call authenticates with.
pub enum CallCredential {
    Ready(Arc<Attachment>),
    Deferred(Box<DeferredCredential>),
}

/// A credential that is minted when the first call needs it, and shared by calls with the same key.
pub struct DeferredCredential {
    /// Derived from everything that the minted value depends on.
    pub key: Key,
    pub recipe: Recipe,
    /// How the minted value is sent.
    pub credential: Credential,
    /// The headers that go out with it and are not minted.
    pub static_part: Arc<Attachment>,
}

impl DeferredCredential {
    /// Whether each call mints its own, because the manifest caches none.
    pub fn is_for_one_call(&self) -> bool {
        matches!(&self.recipe, Recipe::Generator(recipe) if recipe.is_for_one_call())
    }

    /// What a recipe gave, ready to be sent.
    fn attachment(&self, minted: &Minted) -> Result<Attachment, CredentialError> {
        let headers: Vec<_> = minted
            .headers
            .iter()
            .map(|(name, value)| (name.clone(), value.as_slice()))
            .collect();
        let attachment = self
            .static_part
            .with_minted(&self.credential, &minted.value, &headers)
            .ok_or_else(|| CredentialError::UnusableKey("minted".to_owned()))?;
        Ok(attachment.with_environment(&minted.value, &minted.env))
    }

    fn renewed(&self, minted: &Minted) -> Result<Renewed<Attachment>, CredentialError> {
        Ok(Renewed {
            value: self.attachment(minted)?,
            lifetime: minted.lifetime,
        })
    }
}

/// How a credential is minted.
pub enum Recipe {
    OAuth2(OAuthRecipe),
    Generator(Arc<GeneratorRecipe>),
    ServiceAccount(ServiceAccountRecipe),
}

/// What a recipe gives.
struct Minted {
    value: Zeroizing<Vec<u8>>,
    headers: Vec<(HeaderName, Zeroizing<Vec<u8>>)>,
    /// Variables for programs.
    env: Vec<(String, Zeroizing<Vec<u8>>)>,
    lifetime: Duration,
}

/// Caches of resolved credentials, for one snapshot: those that are the same for every caller, one
/// slot per provider, and those of customers that have their own.
#[derive(Default)]
pub struct SharedCredentials {
    of_all: Vec<OnceLock<Arc<Attachment>>>,
    of_customers: PerCustomer,
}

impl SharedCredentials {
    pub fn new(providers: usize) -> Self {
        SharedCredentials {
            of_all: (0..providers).map(|_| OnceLock::new()).collect(),
            of_customers: PerCustomer::default(),
        }
    }

    pub fn get_or_resolve_for(
        &self,
        customer: &str,
        provider: usize,
        resolve: impl FnOnce() -> Result<Attachment, CredentialError>,
    ) -> Result<Arc<Attachment>, CredentialError> {
        // A provider outside of the catalogue has no index of its own.
        if provider >= self.of_all.len() {
            return resolve().map(Arc::new);
        }
        self.of_customers
            .get_or_resolve(provider, customer, resolve)
    }

    pub fn get_or_resolve(
        &self,
        provider: usize,
        resolve: impl FnOnce() -> Result<Attachment, CredentialError>,
    ) -> Result<Arc<Attachment>, CredentialError> {
        let Some(slot) = self.of_all.get(provider) else {
            return resolve().map(Arc::new);
        };
        if let Some(known) = slot.get() {
            return Ok(known.clone());
        }
        let resolved = Arc::new(resolve()?);
        Ok(slot.get_or_init(|| resolved).clone())
    }
}

/// The credential, minted now where it has to be. `source` is the address that a token request
/// comes from.
pub async fn obtain(
    credential: &CallCredential,
    source: Option<IpAddr>,
    context: ExecContext<'_>,
) -> Result<Arc<Attachment>, CredentialError> {
    let deferred = match credential {
        CallCredential::Ready(attachment) => return Ok(attachment.clone()),
        CallCredential::Deferred(deferred) => deferred,
    };
    let cache = &context.runtime.minted;
    match &deferred.recipe {
        Recipe::OAuth2(recipe) => {
            let mint = async || deferred.renewed(&recipe.mint(source, context).await?);
            cache.get(deferred.key, mint).await
        }
        Recipe::ServiceAccount(recipe) => {
            let mint = async || deferred.renewed(&recipe.mint(source, context.clients).await?);
            cache.get(deferred.key, mint).await
        }
        Recipe::Generator(recipe) => {
            let shared = !recipe.is_for_one_call();
            if let Some(known) = cache.fresh(deferred.key).filter(|_| shared) {
                return Ok(known);
            }
            // Held by every call that waits: the program ends with the last of them.
            let run = context.runtime.generators.join(deferred.key, recipe);
            if !shared {
                return Ok(Arc::new(deferred.attachment(&*run.await?)?));
            }
            let mint = async || deferred.renewed(&*run.clone().await?);
            cache.get(deferred.key, mint).await
        }
    }
}

/// After an upstream refused the credential: whether a new one is worth another request. A minted
/// one may have been revoked; it is dropped, and the next [`obtain`] mints another.
pub fn renew_after_refusal(
    credential: &CallCredential,
    refused: &Arc<Attachment>,
    context: ExecContext<'_>,
) -> bool {
    match credential {
        CallCredential::Ready(_) => false,
        CallCredential::Deferred(deferred) => {
            context.runtime.minted.invalidate(deferred.key, refused)
        }
    }
}
