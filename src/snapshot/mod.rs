//! Everything that a request is judged by, built whole, swapped whole, pinned per request.

mod certificates;

use std::sync::Arc;
use std::time::SystemTime;

pub use certificates::{Certificate, Certificates};

use crate::auth::signature::{Mode, SigningKeys};
use crate::auth::token::{VerificationKey, Verifier};
use crate::catalog::mcp::Listings;
use crate::catalog::{Catalog, Specs};
use crate::config::{self, ManifestFile, Settings};
use crate::egress::{Clients, Resolver};
use crate::error::Problem;
use crate::exec::http::Prepared;
use crate::keyring::{self, Fallback, Keyring, SIGNING_SECRET, SessionKey};
use crate::route::Table;

/// RFC 7518 wants a key as long as the hash.
const SHORT_SECRET: usize = 32;

/// Its parts are shared, because a server that lists its tools makes a new one with the same everything else.
#[derive(Clone)]
pub struct Snapshot {
    pub settings: Arc<Settings>,
    pub keyring: Arc<Keyring>,
    pub signing: Option<Arc<SigningKeys>>,
    pub verifier: Option<Arc<Verifier>>,
    pub catalog: Arc<Catalog>,
    pub routes: Arc<Table>,
    /// Of our own listeners.
    pub certificates: Arc<Certificates>,
    pub resolver: Arc<Resolver>,
    /// The way out of tools.
    pub clients: Arc<Clients>,
    /// What tools present that is the same for every caller.
    pub prepared: Arc<Prepared>,
    pub keyring_loaded: SystemTime,
}

pub struct Built {
    pub snapshot: Snapshot,
    pub warnings: Vec<Problem>,
    /// The one-shot key, to be given to the next build.
    pub held: Option<SessionKey>,
}

/// Why there is no snapshot.
#[derive(Debug, Default)]
pub struct Unbuilt {
    pub problems: Vec<Problem>,
    pub warnings: Vec<Problem>,
    /// A one-shot key that was taken on the way.
    pub held: Option<SessionKey>,
}

impl From<Vec<Problem>> for Unbuilt {
    fn from(problems: Vec<Problem>) -> Self {
        Unbuilt {
            problems,
            ..Unbuilt::default()
        }
    }
}

impl Snapshot {
    /// Load everything that the settings name. Nothing is half done: any problem means no snapshot.
    pub fn build(settings: Settings, held: Option<&SessionKey>) -> Result<Built, Unbuilt> {
        let mut problems = Vec::new();
        let mut warnings = settings.warnings.clone();

        let verifier = settings.jwt.as_ref().and_then(|jwt| {
            let key = jwt.key.load().map_err(|p| problems.push(p)).ok()?;
            if let VerificationKey::Hs256(secret) = &key
                && secret.expose().len() < SHORT_SECRET
            {
                warnings.push(Problem::new("the HS256 secret has less than 32 bytes"));
            }
            Some(Verifier::new(&key, &jwt.expect))
        });
        let certificates = certificates::load(&settings.listeners, &mut problems, &mut warnings);
        let mut manifests = config::read_manifests(&settings.ati_dir, &mut problems);
        let specs = settings.ati_dir.join("specs");
        let catalog = Catalog::build(
            &mut manifests,
            &Specs::below(&specs),
            Some(&settings.egress),
            &mut problems,
            &mut warnings,
        );
        catalog.compile_schemas(&mut warnings);

        // A one-shot key can be read once. Whatever else is wrong must be known before it is spent.
        if settings.keyring.places.would_spend() {
            let (empty, mut ignored) = (Keyring::empty(), Vec::new());
            route_table(&manifests, &settings, &empty, &mut problems, &mut ignored);
            if !problems.is_empty() {
                return Err(Unbuilt {
                    problems,
                    warnings,
                    held: None,
                });
            }
        }
        let (keyring, held) = load_keyring(&settings, held, &mut problems, &mut warnings);
        let routes = route_table(
            &manifests,
            &settings,
            &keyring,
            &mut problems,
            &mut warnings,
        );

        warn_about_missing_keys(&catalog, &keyring, &mut warnings);
        let resolver = Arc::new(Resolver::new(&settings.egress.nameservers));
        let clients = Clients::new(&settings.egress, settings.guard, resolver.clone());
        // Made now, so that a CA file that can't be read is a problem of the start, not of a call.
        if let Err(problem) = clients.get(settings.egress.source) {
            problems.push(problem);
        }

        let signing = SigningKeys::of(&keyring, &mut warnings);
        if signing.is_none() && problems.is_empty() {
            judge_missing_secret(&settings, &mut problems, &mut warnings);
        }
        if keyring::memory_lock_refused() {
            warnings.push(Problem::new(
                "the kernel refused to lock memory for secrets; raise LimitMEMLOCK (ulimit -l)",
            ));
        }
        if !problems.is_empty() {
            return Err(Unbuilt {
                problems,
                warnings,
                held,
            });
        }
        Ok(Built {
            snapshot: Snapshot {
                keyring: Arc::new(keyring),
                signing: signing.map(Arc::new),
                verifier: verifier.map(Arc::new),
                resolver,
                clients: Arc::new(clients),
                prepared: Arc::new(Prepared::new(catalog.providers().len())),
                settings: Arc::new(settings),
                catalog: Arc::new(catalog),
                routes: Arc::new(routes),
                certificates: Arc::new(certificates),
                keyring_loaded: SystemTime::now(),
            },
            warnings,
            held,
        })
    }

    /// For tests of what doesn't depend on one.
    #[cfg(test)]
    pub fn empty() -> Arc<Snapshot> {
        let resolver = Arc::new(Resolver::new(&[]));
        Arc::new(Snapshot {
            settings: Arc::default(),
            keyring: Arc::new(Keyring::empty()),
            signing: None,
            verifier: None,
            catalog: Arc::default(),
            routes: Arc::default(),
            certificates: Arc::default(),
            clients: Arc::new(Clients::new(
                &crate::egress::Settings::default(),
                crate::egress::Guard::On,
                resolver.clone(),
            )),
            resolver,
            prepared: Arc::default(),
            keyring_loaded: SystemTime::UNIX_EPOCH,
        })
    }

    /// Keep what the old one has that is still good: known addresses, open connections.
    pub fn adopt(&mut self, old: &Snapshot) {
        if let Some(routes) = Arc::get_mut(&mut self.routes) {
            routes.adopt(&old.routes);
        }
        if self.clients.same_as(&old.clients) {
            self.clients = old.clients.clone();
        }
    }

    /// The same with the tools that servers list now.
    pub fn with_listings(&self, listings: &Listings) -> Self {
        Snapshot {
            catalog: Arc::new(self.catalog.with_listings(listings)),
            ..self.clone()
        }
    }

    /// `jwt` or `disabled`, as `/health` says it.
    pub fn auth(&self) -> &'static str {
        if self.verifier.is_some() {
            "jwt"
        } else {
            "disabled"
        }
    }
}

fn route_table(
    manifests: &[ManifestFile],
    settings: &Settings,
    keyring: &Keyring,
    problems: &mut Vec<Problem>,
    warnings: &mut Vec<Problem>,
) -> Table {
    Table::build(
        manifests,
        settings.passthrough,
        keyring,
        &settings.egress,
        problems,
        warnings,
    )
}

fn load_keyring(
    settings: &Settings,
    held: Option<&SessionKey>,
    problems: &mut Vec<Problem>,
    warnings: &mut Vec<Problem>,
) -> (Keyring, Option<SessionKey>) {
    if settings.keyring.from_environment {
        return (keyring::load_environment(), held.cloned());
    }
    let fallback = if settings.keyring.allow_empty {
        Fallback::Empty
    } else {
        Fallback::Refuse
    };
    match keyring::load(&settings.keyring.places, held, fallback) {
        Ok(loaded) => {
            warnings.extend(loaded.warnings);
            (loaded.keyring, loaded.session_key)
        }
        Err(problem) => {
            problems.push(problem);
            (Keyring::empty(), held.cloned())
        }
    }
}

/// A tool whose key is missing refuses its calls. A name that only tenants have is there for them.
fn warn_about_missing_keys(catalog: &Catalog, keyring: &Keyring, warnings: &mut Vec<Problem>) {
    for provider in catalog.providers() {
        for name in provider.key_names() {
            if keyring.get(name).is_none() && !keyring.has_tenants_of(name) {
                let message =
                    format!("'{name}' is not in the keyring; calls of its tools are refused");
                warnings.push(
                    Problem::new(message)
                        .file(&provider.file)
                        .missing_credential(name),
                );
            }
        }
    }
}

/// In enforce mode every request would get 403. In the other modes passthrough would be open to all.
fn judge_missing_secret(
    settings: &Settings,
    problems: &mut Vec<Problem>,
    warnings: &mut Vec<Problem>,
) {
    if settings.signature.mode == Mode::Enforce {
        problems.push(
            Problem::new("signature mode 'enforce' needs it in the keyring, and not empty")
                .key(SIGNING_SECRET),
        );
    } else if settings.passthrough {
        warnings.push(
            Problem::new("not in the keyring: passthrough is open to whoever reaches this port")
                .key(SIGNING_SECRET),
        );
    }
}
