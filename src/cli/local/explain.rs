//! What would become of a call on this machine.

use std::sync::Arc;

use super::{Local, add_listing, build, listing_failure, settings};
use crate::api::explain::{Question, explain_call, identify};
use crate::auth::Identity;
use crate::auth::session::{self, SESSION_TOKEN};
use crate::call::Context;
use crate::catalog::listing_cache;
use crate::cli::runtime;
use crate::config::Environment;
use crate::error::{Code, Explanation, Failure, StepTaken};
use crate::exec::cli::Surroundings;
use crate::filters::Rules;
use crate::snapshot::Snapshot;

/// What a call is explained with; or the explanation itself, where the caller's own token is
/// missing or refused.
pub type Explainer = Result<Local, Explanation>;

impl Local {
    /// As [`Local::load_for`], without using up a one-shot key. `other_caller`: the question names
    /// a token, and no other is needed.
    pub fn load_to_explain(tool: &str, other_caller: bool) -> Result<Explainer, Failure> {
        let env = Environment::read();
        if !env.problems.is_empty() {
            return Err(Failure::from_problems("the environment", &env.problems));
        }
        let mut settings = settings(&env);
        settings.keyring.places.consume = false;
        Local::asking(build(settings, Some(tool))?, other_caller)
    }

    /// The same with a server's snapshot.
    pub fn of_server(snapshot: Snapshot, other_caller: bool) -> Result<Explainer, Failure> {
        let listings = listing_cache::load_all(&snapshot.settings.ati_dir, &snapshot.catalog);
        Local::asking(snapshot.with_listings(&listings), other_caller)
    }

    fn asking(snapshot: Snapshot, other_caller: bool) -> Result<Explainer, Failure> {
        if other_caller || snapshot.verifier.is_none() {
            return Ok(Ok(Local::of(snapshot, Arc::new(Identity::unrestricted()))));
        }
        let token = session::resolve(SESSION_TOKEN)
            .map_err(|e| Failure::new(Code::MissingKey, "session token").because(e))?;
        let rules = Rules {
            snapshot: &snapshot,
            keys: None,
        };
        let identity = runtime()?.block_on(identify(token.as_deref(), rules));
        Ok(match identity {
            Ok(identity) => Ok(Local::of(snapshot, identity)),
            Err(refusal) => {
                let steps = vec![StepTaken::new("token")];
                Err(Explanation::of_request(Err(&refusal), steps))
            }
        })
    }

    pub fn explain(&self, name: &str, question: &Question) -> Result<Explanation, Failure> {
        let callee = self.callee(name);
        self.with_session(callee.providers(), async |session| {
            let mut snapshot = session.snapshot.clone();
            if let Some(provider) = callee.unlisted {
                let listed = session.list(provider).await;
                let listing = listed.map_err(listing_failure)?.listing;
                self.cache_listing(provider, &listing);
                snapshot = add_listing(&snapshot, provider, listing);
            }
            let context = Context {
                catalog: &snapshot.catalog,
                surroundings: Surroundings::Callers,
                ..session.context()
            };
            let rules = Rules {
                snapshot: &snapshot,
                keys: None,
            };
            Ok(explain_call(name, question, &self.identity, rules, context).await)
        })?
    }
}
