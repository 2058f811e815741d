//! Tools with keys at hand: the manifests and the keyring of this machine, limited by a token where tokens are configured.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::runtime;
use crate::auth::Identity;
use crate::auth::session::{self, SESSION_TOKEN};
use crate::auth::token::{TokenFault, Verifier};
use crate::call::{self, Args, Context, Counting, Output};
use crate::catalog::mcp::Listing;
use crate::catalog::{Catalog, Provider, Specs, Tool, remembered};
use crate::clock::unix_now;
use crate::config::{self, AUDIT_FILE, Environment, ToolSettings};
use crate::egress::{self, Clients, Resolver};
use crate::error::{CallError, Code, Failure, McpError};
use crate::exec::http::Prepared;
use crate::exec::mcp::Told;
use crate::exec::{self, Watcher};
use crate::keyring::{self, Fallback, Keyring, Places};
use crate::runtime::Runtime;
use crate::telemetry::audit::Audit;

/// A list of tools that is younger needn't be asked for again.
const FRESH: u64 = 3600;
/// Servers that are asked at a time.
const AT_A_TIME: usize = 10;

pub struct Local {
    env: Environment,
    pub catalog: Catalog,
    pub identity: Arc<Identity>,
}

impl Local {
    /// Everything but the keyring, which only a call that needs a key touches.
    pub fn load() -> Result<Self, Failure> {
        Local::read(None)
    }

    /// The same for one tool: what can't be about it isn't read.
    pub fn load_for(tool: &str) -> Result<Self, Failure> {
        Local::read(Some(tool))
    }

    /// What there is, whoever asks: for whoever manages it.
    pub fn catalogue() -> Result<Catalog, Failure> {
        read_catalog(&Environment::read(), None)
    }

    fn read(tool: Option<&str>) -> Result<Self, Failure> {
        let env = Environment::read();
        if !env.problems.is_empty() {
            return Err(Failure::from_problems("the environment", &env.problems));
        }
        let catalog = read_catalog(&env, tool)?;
        let identity = identify(&env)?;
        Ok(Local {
            env,
            catalog,
            identity,
        })
    }

    /// A tool that this caller may see, or where to look for the right one.
    pub fn visible(&self, name: &str) -> Result<&Arc<Tool>, Failure> {
        self.catalog
            .find(name)
            .filter(|tool| tool.is_allowed(&self.identity.scopes))
            .ok_or_else(|| unknown(&self.catalog, &self.identity, name))
    }

    pub fn call(
        &mut self,
        name: &str,
        args: Args,
        watcher: Option<Watcher<'_>>,
    ) -> Result<Output, Failure> {
        let mut needs_keys = self
            .catalog
            .find(name)
            .filter(|tool| tool.is_allowed(&self.identity.scopes))
            .is_some_and(|tool| !tool.provider.key_names().is_empty());
        // A tool that nobody has heard of may be a server's.
        let unheard = match self.catalog.find(name) {
            Some(_) => None,
            None => self.server_of(name),
        };
        needs_keys |= unheard
            .as_ref()
            .is_some_and(|one| !one.key_names().is_empty());
        let mut catalog = std::mem::take(&mut self.catalog);
        let called = self.with(needs_keys, async |tools| {
            if let Some(provider) = &unheard {
                let listed = call::list(provider, tools.context(&catalog)).await;
                let told = listed.map_err(failure)?;
                catalog = self.listed(&catalog, provider, told.listing);
            }
            let request = call::Request {
                request_id: crate::request_id::RequestId::generate(),
                name,
                args,
                identity: &self.identity,
                upstream_url: None,
            };
            let context = Context {
                watcher,
                ..tools.context(&catalog)
            };
            let outcome = call::run(request, context).await;
            outcome.map_err(|error| match error {
                CallError::UnknownTool(name) => unknown(&catalog, &self.identity, &name),
                error => Failure::new(error.code(), error.to_string()),
            })
        });
        self.catalog = catalog;
        called?
    }

    /// Ask MCP servers what they have: those that were never asked, or not for long. Whoever doesn't answer keeps what is known of it.
    pub fn discover(&mut self) -> Result<(), Failure> {
        let known = remembered::recall_all(&self.env.ati_dir, &self.catalog);
        let fresh = |name: &str| {
            let at = known.get(name).map_or(0, |listing| listing.at);
            unix_now().saturating_sub(at) < FRESH
        };
        let stale: Vec<Arc<Provider>> = self
            .catalog
            .providers()
            .iter()
            .filter(|one| one.mcp().is_some() && !one.internal && !fresh(&one.name))
            .cloned()
            .collect();
        if stale.is_empty() {
            return Ok(());
        }
        let listed = self.ask(&stale)?;
        let mut listings = known;
        for (provider, told) in stale.iter().zip(listed) {
            match told {
                Ok(told) => {
                    self.remember(provider, &told.listing);
                    listings.insert(provider.name.clone(), Arc::new(told.listing));
                }
                Err(error) => {
                    let known = listings.get(&provider.name);
                    let age = known.map(|old| format!("; its tools are as of {}", ago(old.at)));
                    tracing::warn!("{}: {error}{}", provider.name, age.unwrap_or_default());
                }
            }
        }
        self.catalog = self.catalog.with_listings(&listings);
        Ok(())
    }

    /// How every MCP server is, asked now: how many tools it has, or what it says instead.
    pub fn survey(&mut self) -> Result<BTreeMap<String, Result<usize, McpError>>, Failure> {
        let providers = self.catalog.providers().iter();
        let servers: Vec<_> = providers
            .filter(|one| one.mcp().is_some())
            .cloned()
            .collect();
        let asked = self.ask(&servers)?;
        let each = servers.iter().zip(asked).map(|(provider, told)| {
            let state = told.map(|told| {
                self.remember(provider, &told.listing);
                told.listing.tools.len()
            });
            (provider.name.clone(), state)
        });
        Ok(each.collect())
    }

    /// Side by side.
    fn ask(&self, servers: &[Arc<Provider>]) -> Result<Vec<Result<Told, McpError>>, Failure> {
        let needs_keys = servers.iter().any(|one| !one.key_names().is_empty());
        self.with(needs_keys, async |tools| {
            let turns = tokio::sync::Semaphore::new(AT_A_TIME);
            let ask = async |provider: &Arc<Provider>| {
                let _turn = turns.acquire().await;
                call::list(provider, tools.context(&self.catalog)).await
            };
            futures::future::join_all(servers.iter().map(ask)).await
        })
    }

    /// Ask the one that a name belongs to, where the name isn't known.
    pub fn discover_for(&mut self, name: &str) -> Result<(), Failure> {
        if self.catalog.find(name).is_some() {
            return Ok(());
        }
        match self.server_of(name) {
            None => Ok(()),
            Some(provider) => self.probe(&provider).map(drop),
        }
    }

    /// Ask one server now.
    pub fn probe(&mut self, provider: &Arc<Provider>) -> Result<Listing, Failure> {
        let needs_keys = !provider.key_names().is_empty();
        let catalog = &self.catalog;
        let listing = self
            .with(needs_keys, async |tools| {
                call::list(provider, tools.context(catalog))
                    .await
                    .map_err(failure)
            })??
            .listing;
        self.catalog = self.listed(&self.catalog, provider, listing.clone());
        Ok(listing)
    }

    pub fn provider(&self, name: &str) -> Option<Arc<Provider>> {
        let mut all = self.catalog.providers().iter();
        all.find(|one| one.name == name).cloned()
    }

    /// The MCP provider that a tool of this name would be of: where several could be meant, the one that leaves the least open.
    fn server_of(&self, name: &str) -> Option<Arc<Provider>> {
        let of = |one: &&Arc<Provider>| {
            let rest = name.strip_prefix(one.name.as_str());
            one.mcp().is_some() && rest.is_some_and(|rest| rest.starts_with([':', '_']))
        };
        let could = self.catalog.providers().iter().filter(of);
        could.max_by_key(|one| one.name.len()).cloned()
    }

    fn listed(&self, catalog: &Catalog, provider: &Arc<Provider>, listing: Listing) -> Catalog {
        self.remember(provider, &listing);
        let mut listings = remembered::recall_all(&self.env.ati_dir, catalog);
        listings.insert(provider.name.clone(), Arc::new(listing));
        catalog.with_listings(&listings)
    }

    fn remember(&self, provider: &Provider, listing: &Listing) {
        if let Err(e) = remembered::remember(&self.env.ati_dir, provider, listing) {
            tracing::debug!("the list of tools of {} can't be kept: {e}", provider.name);
        }
    }

    /// With everything that calls are made with, and an end to every session afterwards.
    fn with<T>(&self, needs_keys: bool, work: impl AsyncFnOnce(&Tools) -> T) -> Result<T, Failure> {
        // A one-shot key is not spent on a call that wouldn't use it.
        let keyring = if needs_keys {
            self.keyring()?
        } else {
            Keyring::empty()
        };
        let audit_file = self.env.audit_file.clone();
        let audit = audit_file.unwrap_or_else(|| self.env.ati_dir.join(AUDIT_FILE));
        let resolver = Arc::new(Resolver::new(&[]));
        let clients = Clients::new(&egress::Settings::default(), self.env.guard, resolver);
        let tools = Tools {
            keyring,
            prepared: Prepared::default(),
            clients: Arc::new(clients),
            limits: ToolSettings::default(),
            runtime: Runtime::new(&self.env.ati_dir),
            audit: Audit::direct(&audit),
        };
        runtime()?.block_on(async {
            let done = work(&tools).await;
            exec::mcp::close_all(&tools.runtime).await;
            Ok(done)
        })
    }

    fn keyring(&self) -> Result<Keyring, Failure> {
        let places = Places {
            dir: self.env.ati_dir.clone(),
            one_shot: self.env.key_file.clone(),
            consume: true,
        };
        let loaded = keyring::load(&places, None, Fallback::Credentials)
            .map_err(|problem| Failure::new(Code::MissingKey, problem.to_string()))?;
        for warning in loaded.warnings {
            tracing::debug!("{warning}");
        }
        // The last resort, and the only one where there is no file.
        Ok(loaded.keyring.or(keyring::load_environment()))
    }
}

/// What calls of this process are made with.
struct Tools {
    keyring: Keyring,
    prepared: Prepared,
    clients: Arc<Clients>,
    limits: ToolSettings,
    runtime: Runtime,
    audit: Audit,
}

impl Tools {
    fn context<'a>(&'a self, catalog: &'a Catalog) -> Context<'a> {
        Context {
            catalog,
            keyring: &self.keyring,
            prepared: &self.prepared,
            clients: &self.clients,
            limits: &self.limits,
            runtime: &self.runtime,
            audit: &self.audit,
            counting: Counting::Shared,
            watcher: None,
        }
    }
}

fn failure(error: McpError) -> Failure {
    let error = CallError::from(error);
    Failure::new(error.code(), error.to_string())
}

/// How long ago that was, for people.
pub fn ago(at: u64) -> String {
    match unix_now().saturating_sub(at) {
        seconds @ 0..120 => format!("{seconds} s ago"),
        seconds @ 120..7200 => format!("{} min ago", seconds / 60),
        seconds @ 7200..172_800 => format!("{} h ago", seconds / 3600),
        seconds => format!("{} days ago", seconds / 86_400),
    }
}

fn unknown(catalog: &Catalog, identity: &Identity, name: &str) -> Failure {
    let mut message =
        format!("Unknown tool: '{name}'. Run 'ati tool list' to see available tools.");
    let prefix = name.split(':').next().unwrap_or_default();
    let of_provider: Vec<&str> = catalog
        .visible(&identity.scopes)
        .filter(|tool| tool.provider.name == prefix)
        .map(|tool| tool.name.as_str())
        .take(20)
        .collect();
    if !of_provider.is_empty() {
        message += " Did you mean one of:";
        for tool in of_provider {
            message += &format!("\n  - {tool}");
        }
    }
    Failure::new(Code::ToolNotFound, message)
}

fn read_catalog(env: &Environment, tool: Option<&str>) -> Result<Catalog, Failure> {
    let (mut problems, mut warnings) = (Vec::new(), Vec::new());
    let mut manifests = config::read_manifests(&env.ati_dir, &mut problems);
    let dir = env.ati_dir.join("specs");
    let specs = match tool {
        None => Specs::below(&dir),
        Some(tool) => Specs::below(&dir).only_for(tool),
    };
    let catalog = Catalog::build(&mut manifests, &specs, None, &mut problems, &mut warnings);
    if !problems.is_empty() {
        return Err(Failure::from_problems("the manifests", &problems));
    }
    for warning in warnings {
        tracing::debug!("{warning}");
    }
    // What servers said last.
    let listings = remembered::recall_all(&env.ati_dir, &catalog);
    Ok(catalog.with_listings(&listings))
}

/// Where JWT keys are configured, a token is needed; where none are, everything is allowed.
fn identify(env: &Environment) -> Result<Arc<Identity>, Failure> {
    let Some(jwt) = env.jwt() else {
        return Ok(Arc::new(Identity::unrestricted()));
    };
    let key = jwt
        .key
        .load()
        .map_err(|problem| Failure::from_problems("JWT validation", &[problem]))?;
    let token = session::resolve(SESSION_TOKEN)
        .map_err(|e| Failure::new(Code::MissingKey, format!("session token: {e}")))?
        .ok_or_else(|| {
            Failure::new(
                Code::MissingKey,
                "ATI_SESSION_TOKEN is required because JWT validation is configured locally. \
                 Set ATI_SESSION_TOKEN, or ATI_SESSION_TOKEN_FILE, or write it to /run/ati/session_token.",
            )
        })?;
    Verifier::new(&key, &jwt.expect)
        .verify(&token, unix_now())
        .map_err(|fault| {
            let code = match fault {
                TokenFault::Expired => Code::AuthExpired,
                _ => Code::ScopeDenied,
            };
            Failure::new(code, format!("Invalid ATI_SESSION_TOKEN: {fault}"))
        })
}
