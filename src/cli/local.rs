//! Tools with keys at hand: the manifests and the keyring of this machine, limited by a token where tokens are configured.

use std::sync::Arc;

use super::runtime;
use crate::auth::Identity;
use crate::auth::session::{self, SESSION_TOKEN};
use crate::auth::token::{TokenFault, Verifier};
use crate::call::{self, Args, Context, Counting, Output};
use crate::catalog::{Catalog, Specs, Tool};
use crate::config::{self, AUDIT_FILE, Environment, ToolSettings};
use crate::egress::{self, Clients, Resolver};
use crate::error::{CallError, Code, Failure};
use crate::exec::http::Prepared;
use crate::keyring::{self, Fallback, Keyring, Places};
use crate::runtime::Runtime;
use crate::snapshot::unix_now;
use crate::telemetry::audit::Audit;

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
            .ok_or_else(|| self.unknown(name))
    }

    pub fn call(&self, name: &str, args: Args) -> Result<Output, Failure> {
        let needs_keys = self
            .catalog
            .find(name)
            .filter(|tool| tool.is_allowed(&self.identity.scopes))
            .and_then(|tool| tool.provider.http())
            .is_some_and(|http| !http.key_names().is_empty());
        // A one-shot key is not spent on a call that wouldn't use it.
        let keyring = if needs_keys {
            self.keyring()?
        } else {
            Keyring::empty()
        };
        let audit_file = self.env.audit_file.clone();
        let audit = audit_file.unwrap_or_else(|| self.env.ati_dir.join(AUDIT_FILE));
        let resolver = Arc::new(Resolver::new(&[]));
        let context = Context {
            catalog: &self.catalog,
            keyring: &keyring,
            prepared: &Prepared::default(),
            clients: &Clients::new(&egress::Settings::default(), self.env.guard, resolver),
            limits: &ToolSettings::default(),
            runtime: &Runtime::new(&self.env.ati_dir),
            audit: &Audit::direct(&audit),
            counting: Counting::Shared,
        };
        let request = call::Request {
            name,
            args,
            identity: &self.identity,
        };
        runtime()?
            .block_on(call::run(request, context))
            .map_err(|error| match error {
                CallError::UnknownTool(name) => self.unknown(&name),
                error => Failure::new(error.code(), error.to_string()),
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

    fn unknown(&self, name: &str) -> Failure {
        let mut message =
            format!("Unknown tool: '{name}'. Run 'ati tool list' to see available tools.");
        let prefix = name.split(':').next().unwrap_or_default();
        let of_provider: Vec<&str> = self
            .catalog
            .visible(&self.identity.scopes)
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
    Ok(catalog)
}

/// Where JWT keys are configured, a token is needed; where none are, everything is allowed.
fn identify(env: &Environment) -> Result<Arc<Identity>, Failure> {
    let Some(jwt) = env.jwt() else {
        return Ok(Arc::new(Identity::dev()));
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
