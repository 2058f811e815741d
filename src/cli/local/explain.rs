//! What would become of a call on this machine.

use std::sync::Arc;

use super::{Local, add_listing, build, identify, listing_failure, settings};
use crate::api::explain::{Question, explain_call};
use crate::auth::Identity;
use crate::call::Context;
use crate::catalog::listing_cache;
use crate::config::Environment;
use crate::error::{Explanation, Failure};
use crate::exec::cli::Surroundings;
use crate::filters::Rules;
use crate::snapshot::Snapshot;

impl Local {
    /// As [`Local::load_for`], without using up a one-shot key.
    pub fn load_to_explain(tool: &str) -> Result<Self, Failure> {
        let env = Environment::read();
        if !env.problems.is_empty() {
            return Err(Failure::from_problems("the environment", &env.problems));
        }
        let mut settings = settings(&env);
        settings.keyring.places.consume = false;
        let snapshot = build(settings, Some(tool))?;
        let identity = identify(snapshot.verifier.as_deref())?;
        Ok(Local::of(snapshot, identity))
    }

    /// Of a server's snapshot. `other_caller`: the question names a token, and no other is needed.
    pub fn of_server(snapshot: Snapshot, other_caller: bool) -> Result<Self, Failure> {
        let listings = listing_cache::load_all(&snapshot.settings.ati_dir, &snapshot.catalog);
        let snapshot = snapshot.with_listings(&listings);
        let identity = match other_caller {
            true => Arc::new(Identity::unrestricted()),
            false => identify(snapshot.verifier.as_deref())?,
        };
        Ok(Local::of(snapshot, identity))
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
