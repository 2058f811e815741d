//! Tools on this machine, without a proxy: its manifests and its keyring, limited by a session
//! token where JWT keys are configured.

mod callee;
mod explain;
mod identity;
mod listings;
mod llm;
mod runfile;
mod settings;

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::sync::Arc;

use serde_json::value::RawValue;
use tokio::sync::{Semaphore, watch};

use super::interrupt::{Ended, interruptible};
use super::run::outputs::place_local;
use super::run::unknown_tool;
use super::{output, problem_failure, runtime};
use crate::api::{self, ProviderSessions, RunningCalls, Services};
use crate::auth::Identity;
use crate::call::{self, Args, Context, Counting, Finished, Output};
use crate::catalog::mcp::Listing;
use crate::catalog::{Catalog, Provider, ResultFormat, Tool, listing_cache};
use crate::clock::unix_now;
use crate::config::{Environment, Settings};
use crate::error::{CallError, Code, ExecError, Failure};
use crate::exec::cli::Surroundings;
use crate::exec::mcp::{McpError, ToolListing};
use crate::exec::{self, Answer, SharedState, Watcher};
use crate::keyring::{Keyring, Places, Source};
use crate::request_id::RequestId;
use crate::snapshot::{self, Snapshot};
use crate::telemetry::audit::Audit;
use crate::telemetry::trail::CallTrail;
use callee::Callee;
use identity::identify;
pub use listings::add_listing;
use listings::listings;
pub use runfile::snapshot_of_runfile;
use settings::settings;

/// Seconds for which a cached listing of tools is used without asking the server again.
const LISTING_TTL: u64 = 3600;
/// MCP servers that are asked at the same time.
const CONCURRENT_LISTINGS: usize = 10;

/// A snapshot of this machine, without a keyring: only a call that needs a credential loads that.
pub struct Local {
    snapshot: Snapshot,
    pub identity: Arc<Identity>,
    /// The snapshot has its keyring, for several calls.
    has_keyring: bool,
    /// The token of a confirmation, for the call that is made.
    confirm: Option<String>,
}

impl Local {
    /// Every tool of this machine.
    pub fn load() -> Result<Self, Failure> {
        Local::read(None)
    }

    /// What one tool needs. Documents of other providers aren't read.
    pub fn load_for(tool: &str) -> Result<Self, Failure> {
        Local::read(Some(tool))
    }

    /// Every tool of this machine, for commands that manage providers: no token is needed.
    pub fn load_catalog() -> Result<Arc<Catalog>, Failure> {
        let settings = Settings {
            jwt: None,
            ..settings(&Environment::read())
        };
        Ok(build(settings, None)?.catalog)
    }

    fn read(tool: Option<&str>) -> Result<Self, Failure> {
        let env = Environment::read();
        if !env.problems.is_empty() {
            return Err(Failure::from_problems("the environment", &env.problems));
        }
        let snapshot = build(settings(&env), tool)?;
        let identity = identify(snapshot.verifier.as_deref())?;
        Ok(Local::of(snapshot, identity))
    }

    fn of(snapshot: Snapshot, identity: Arc<Identity>) -> Self {
        Local {
            snapshot,
            identity,
            has_keyring: false,
            confirm: None,
        }
    }

    pub fn confirmed(self, confirm: Option<String>) -> Self {
        Local { confirm, ..self }
    }

    pub fn into_snapshot(self) -> Snapshot {
        self.snapshot
    }

    pub fn catalog(&self) -> &Catalog {
        &self.snapshot.catalog
    }

    /// A tool that the caller may see.
    pub fn visible(&self, name: &str) -> Result<&Arc<Tool>, Failure> {
        self.catalog()
            .find(name)
            .filter(|tool| tool.is_allowed(&self.identity.scopes))
            .ok_or_else(|| unknown_tool(name))
    }

    /// Call a tool. Where its name is unknown and could be a tool of an MCP server, that server is
    /// asked for its tools first.
    pub fn call(
        &self,
        name: &str,
        args: Args,
        watcher: Option<Watcher<'_>>,
    ) -> Result<Answered, Failure> {
        let callee = self.callee(name);
        self.with_session(callee.providers(), async |session| {
            let call = self.call_in(session, name, args, &callee, watcher);
            let finished = call.await?;
            let result = match finished.output {
                Output::WithFiles(json) if finished.is_program => place_local(json).await?,
                output => loaded(output).await?,
            };
            Ok(Answered {
                result,
                format: finished.format,
                warnings: finished.warnings,
                is_program: finished.is_program,
            })
        })?
    }

    /// Call a tool that moves a file. A signal ends the call, and `then` with it.
    pub fn transfer<T>(
        &self,
        name: &str,
        args: Args,
        watcher: Option<Watcher<'_>>,
        then: impl AsyncFnOnce(Finished) -> Result<T, Failure>,
    ) -> Result<Ended<T>, Failure> {
        let callee = self.callee(name);
        self.with_session(callee.providers(), async |session| {
            let call = self.call_in(session, name, args, &callee, watcher);
            interruptible(async { then(call.await?).await }).await
        })?
    }

    fn callee(&self, name: &str) -> Callee<'_> {
        Callee::new(name, self.catalog(), &self.identity.scopes)
    }

    async fn call_in(
        &self,
        session: &Session,
        name: &str,
        args: Args<'_>,
        callee: &Callee<'_>,
        watcher: Option<Watcher<'_>>,
    ) -> Result<Finished, Failure> {
        let mut snapshot = session.snapshot.clone();
        if let Some(provider) = callee.unlisted {
            let listed = session.list(provider).await;
            let listing = listed.map_err(listing_failure)?.listing;
            self.cache_listing(provider, &listing);
            snapshot = add_listing(&snapshot, provider, listing);
        }
        if let Some(provider) = callee.unlisted_delegate(&snapshot.catalog) {
            match session.list(provider).await {
                Ok(told) => {
                    self.cache_listing(provider, &told.listing);
                    snapshot = add_listing(&snapshot, provider, told.listing);
                }
                // The tool itself can be run instead.
                Err(error) => tracing::debug!(error = %error, "{} is down", provider.name),
            }
        }
        let request = call::Request {
            request_id: RequestId::generate(),
            name,
            args,
            identity: &self.identity,
            upstream_url: None,
            trail: &CallTrail::default(),
            confirm: self.confirm.as_deref(),
            native: false,
        };
        let context = Context {
            catalog: &snapshot.catalog,
            surroundings: Surroundings::Callers,
            watcher,
            ..session.context()
        };
        let outcome = call::run(request, context).await;
        outcome.map_err(|error| match error {
            CallError::UnknownTool(name) => unknown_tool(&name),
            error => with_key_hint(error, callee.provider(), &session.snapshot.keyring),
        })
    }

    /// List the tools of every MCP server whose cached listing is missing or old. A server that
    /// doesn't answer keeps its cached listing.
    pub fn discover(&mut self) -> Result<(), Failure> {
        let catalog = self.catalog();
        let fresh = |name: &str| {
            let at = catalog.listing(name).map_or(0, |listing| listing.at);
            unix_now().saturating_sub(at) < LISTING_TTL
        };
        let stale: Vec<Arc<Provider>> = mcp_providers(catalog)
            .filter(|provider| !provider.internal && !fresh(&provider.name))
            .cloned()
            .collect();
        if stale.is_empty() {
            return Ok(());
        }
        let mut listings = listings(catalog);
        for (provider, listed) in stale.iter().zip(self.list_all(&stale)?) {
            match listed {
                Ok(told) => {
                    self.cache_listing(provider, &told.listing);
                    listings.insert(provider.name.clone(), Arc::new(told.listing));
                }
                Err(error) => {
                    let cached = listings.get(&provider.name);
                    let age =
                        cached.map(|old| format!("; its tools are as of {}", output::ago(old.at)));
                    let error = error.for_operators();
                    let message = format!("{}: {error}{}", provider.name, age.unwrap_or_default());
                    // A script reads stderr together with the list.
                    if std::io::stderr().is_terminal() {
                        tracing::warn!("{message}");
                    } else {
                        tracing::debug!("{message}");
                    }
                }
            }
        }
        self.snapshot = self.snapshot.with_listings(&listings);
        Ok(())
    }

    /// The number of tools of every MCP server, listed now, or why it can't be listed.
    pub fn survey(&self) -> Result<BTreeMap<String, Result<usize, McpError>>, Failure> {
        let servers: Vec<_> = mcp_providers(self.catalog()).cloned().collect();
        let listed = self.list_all(&servers)?;
        let each = servers.iter().zip(listed).map(|(provider, listed)| {
            let state = listed.map(|told| {
                self.cache_listing(provider, &told.listing);
                told.listing.tools.len()
            });
            (provider.name.clone(), state)
        });
        Ok(each.collect())
    }

    /// List the tools of several servers at the same time.
    fn list_all(
        &self,
        servers: &[Arc<Provider>],
    ) -> Result<Vec<Result<ToolListing, McpError>>, Failure> {
        self.with_session(servers, async |session| {
            let turns = Semaphore::new(CONCURRENT_LISTINGS);
            let list = async |provider: &Arc<Provider>| {
                let _turn = turns.acquire().await;
                session.list(provider).await
            };
            futures::future::join_all(servers.iter().map(list)).await
        })
    }

    /// Where the name of a tool is unknown, list the server that the tool would belong to.
    pub fn discover_for(&mut self, name: &str) -> Result<(), Failure> {
        if self.catalog().find(name).is_some() {
            return Ok(());
        }
        if let Some(provider) = self.catalog().server_of(name).cloned() {
            let listing = self.probe(&provider)?;
            self.snapshot = add_listing(&self.snapshot, &provider, listing);
        }
        Ok(())
    }

    /// List the tools of one server now.
    pub fn probe(&self, provider: &Arc<Provider>) -> Result<Listing, Failure> {
        let listed = self.with_session([provider], async |session| session.list(provider).await)?;
        let listing = listed.map_err(listing_failure)?.listing;
        self.cache_listing(provider, &listing);
        Ok(listing)
    }

    pub fn provider(&self, name: &str) -> Result<&Arc<Provider>, Failure> {
        let mut all = self.catalog().providers().iter();
        all.find(|provider| provider.name == name).ok_or_else(|| {
            let message = format!("'{name}' can't be used: see 'ati provider validate'");
            Failure::new(Code::ProviderNotFound, message)
        })
    }

    /// Write a listing to the cache. Best effort: the listing is used all the same.
    fn cache_listing(&self, provider: &Provider, listing: &Listing) {
        let ati_dir = &self.snapshot.settings.ati_dir;
        if let Err(e) = listing_cache::store(ati_dir, provider, listing) {
            tracing::debug!(provider = provider.name, error = %e, "the listing can't be cached");
        }
    }

    /// Run `work` with what calls of these providers need, then close every MCP session.
    fn with_session<'p, T>(
        &self,
        providers: impl IntoIterator<Item = &'p Arc<Provider>>,
        work: impl AsyncFnOnce(&Session) -> T,
    ) -> Result<T, Failure> {
        // The keyring may have a one-shot key, which must not be used up in vain.
        let needs_keys = providers
            .into_iter()
            .any(|provider| !provider.key_names().is_empty());
        let snapshot = if self.has_keyring {
            self.snapshot.clone()
        } else if needs_keys {
            self.with_keyring()?
        } else {
            self.log_unused_keyring();
            self.snapshot.clone()
        };
        let settings = &snapshot.settings;
        let session = Session {
            services: Services {
                runtime: SharedState::new(&settings.ati_dir, &settings.tools, &settings.files),
                audit: Audit::direct(&settings.audit_file),
                abandon: watch::Sender::new(false),
                discovery: None,
                // Other commands count against the same limits.
                counting: Counting::InFile,
                store: None,
                keys: None,
                call_log: None,
                mcp_calls: RunningCalls::default(),
                provider_sessions: ProviderSessions::default(),
                remote_skills: crate::skills::remote::RemoteSkills::default(),
                skill_files: crate::skills::served::Manifests::default(),
            },
            snapshot,
        };
        runtime()?.block_on(async {
            let done = work(&session).await;
            exec::mcp::close_all(&session.services.runtime).await;
            Ok(done)
        })
    }

    fn with_keyring(&self) -> Result<Snapshot, Failure> {
        let (snapshot, warnings) = self
            .snapshot
            .with_command_keyring()
            .map_err(|problem| problem_failure(Code::MissingKey, &problem))?;
        for warning in warnings {
            tracing::debug!("{warning}");
        }
        tracing::debug!("keyring: {}", snapshot.keyring.source().as_str());
        Ok(snapshot)
    }

    /// Which keyring a tool with a credential would use. The one-shot key is left alone.
    fn log_unused_keyring(&self) {
        if !tracing::enabled!(tracing::Level::DEBUG) {
            return;
        }
        let places = Places {
            consume: false,
            ..self.snapshot.settings.keyring.places.clone()
        };
        match snapshot::command_keyring(&places) {
            Ok(loaded) => {
                let source = loaded.keyring.source().as_str();
                tracing::debug!("keyring: {source}; this call needs no credential");
            }
            Err(problem) => tracing::debug!("keyring: {problem}; this call needs no credential"),
        }
    }
}

/// What a call gave.
pub struct Answered {
    /// JSON text, in memory: a command formats it as a whole before it prints it.
    pub result: Box<RawValue>,
    /// How the tool wants its result printed.
    pub format: ResultFormat,
    pub warnings: Vec<String>,
    /// The tool is a program, and `--output` among its words was its own.
    pub is_program: bool,
}

pub async fn loaded(output: Output) -> Result<Box<RawValue>, Failure> {
    let answer = match output {
        Output::Raw(raw) => Answer::Memory(raw),
        Output::Spooled(json) => Answer::Spooled(json),
        Output::WithFiles(json) => Answer::WithFiles(json),
    };
    let loaded = answer.into_raw().await;
    loaded.map_err(|e| Failure::new(Code::ExecutionFailed, "the answer").because(e))
}

/// What the calls of one command are made with.
struct Session {
    snapshot: Snapshot,
    services: Services,
}

impl Session {
    fn context(&self) -> Context<'_> {
        api::context(&self.snapshot, &self.services)
    }

    async fn list(&self, provider: &Arc<Provider>) -> Result<ToolListing, McpError> {
        call::list(provider, self.context()).await
    }
}

/// The snapshot of this machine as its files are now.
pub fn read_again() -> Result<Snapshot, Failure> {
    build(settings(&Environment::read()), None)
}

/// The snapshot of a command, with the tools that MCP servers listed last.
fn build(settings: Settings, tool: Option<&str>) -> Result<Snapshot, Failure> {
    let built = Snapshot::build_for_command(settings, tool)
        .map_err(|failure| Failure::from_problems("the manifests", &failure.problems))?;
    // Commands that succeed print nothing else: scripts read stderr too.
    for warning in built.warnings {
        tracing::debug!("{warning}");
    }
    let snapshot = built.snapshot;
    let listings = listing_cache::load_all(&snapshot.settings.ati_dir, &snapshot.catalog);
    Ok(snapshot.with_listings(&listings))
}

fn mcp_providers(catalog: &Catalog) -> impl Iterator<Item = &Arc<Provider>> {
    let all = catalog.providers().iter();
    all.filter(|provider| provider.mcp().is_some())
}

/// The failure of a server that can't list its tools, so that none can be called.
fn listing_failure(error: McpError) -> Failure {
    let error = CallError::from(ExecError::from(error));
    let code = match error.code() {
        Code::ExecutionFailed | Code::UpstreamError => Code::ProviderUnavailable,
        code => code,
    };
    Failure::from_error(code, error)
}

/// The failure of a call. Where a credential is missing, with the command that stores it.
fn with_key_hint(error: CallError, provider: Option<&Arc<Provider>>, keyring: &Keyring) -> Failure {
    let code = error.code();
    let confirmation = error.confirmation().cloned().map(Box::new);
    let rule = error.rule().map(str::to_owned);
    let (text, mut failure) = (error.to_string(), Failure::from_error(code, error));
    (failure.confirmation, failure.rule) = (confirmation, rule);
    let names = provider.map(|one| one.key_names()).unwrap_or_default();
    let is_missing = |name: &&str| keyring.get(name).is_none();
    let missing: Vec<&str> = names.into_iter().filter(is_missing).collect();
    // A file tool needs those of one destination.
    let is_named = |name: &&&str| text.contains(&format!("'{name}'"));
    let missing = missing.iter().find(is_named).or(missing.first());
    match missing.filter(|_| code == Code::MissingKey) {
        Some(name) if keyring.source() == Source::Persistent => {
            failure.hint(format!("ati edge keyring set {name}"))
        }
        Some(name) => failure.hint(format!("ati key set {name} - reads it from standard input")),
        None => failure,
    }
}
