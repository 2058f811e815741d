//! What `ati assist` and `ati plan` need of this machine: its clients, the language model of
//! `_llm.toml`, and a keyring that stays open for several calls.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Local;
use crate::assist::llm;
use crate::call::{self, Context, Endpoint};
use crate::catalog::Tool;
use crate::credential::CredentialError;
use crate::egress::Clients;
use crate::error::{Code, Failure};
use crate::exec::credentials::SharedCredentials;
use crate::keyring::{Keyring, Secret, Source};

impl Local {
    pub fn clients(&self) -> &Arc<Clients> {
        &self.snapshot.clients
    }

    pub fn llm(&self) -> Option<&Arc<Tool>> {
        llm::tool(self.catalog())
    }

    /// Where the model of `_llm.toml` is. `key` is used in place of the keyring. None: there is no
    /// key.
    pub fn llm_endpoint(
        &self,
        tool: &Arc<Tool>,
        key: Option<Secret>,
    ) -> Result<Option<Endpoint>, Failure> {
        let given = key.map(|key| {
            let names = tool.provider.key_names().into_iter();
            let entries = names.map(|name| (name.to_owned(), key.clone()));
            Keyring::new(entries.collect::<BTreeMap<_, _>>(), Source::Environment)
        });
        let opened = given.is_none().then_some(&tool.provider);
        let endpoint = self.with_session(opened, async |session| {
            let credentials = SharedCredentials::new(0);
            let mut context = session.context();
            if let Some(keyring) = &given {
                context = Context {
                    keyring,
                    credentials: &credentials,
                    ..context
                };
            }
            call::endpoint(tool, &self.identity, context).await
        })?;
        match endpoint {
            Ok(endpoint) => Ok(Some(endpoint)),
            Err(CredentialError::MissingKey(_)) => Ok(None),
            Err(e) => Err(Failure::new(Code::ExecutionFailed, "_llm.toml").because(e)),
        }
    }

    /// The same, with a confirmation for one call.
    pub fn with_confirmation(&self, token: String) -> Local {
        Local {
            snapshot: self.snapshot.clone(),
            identity: self.identity.clone(),
            has_keyring: self.has_keyring,
            confirm: Some(token),
        }
    }

    /// Opens the keyring once for several calls: a key for one use would be gone after the first.
    pub fn keep_keyring(&mut self, tools: &[&str]) -> Result<(), Failure> {
        let needs = tools.iter().any(|name| {
            let callee = self.callee(name);
            let mut providers = callee.providers();
            providers.any(|provider| !provider.key_names().is_empty())
        });
        if needs && !self.has_keyring {
            self.snapshot = self.with_keyring()?;
            self.has_keyring = true;
        }
        Ok(())
    }
}
