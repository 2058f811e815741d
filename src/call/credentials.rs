//! From the names in a manifest to the credential of a call. The keyring goes no further than this.

use std::borrow::Cow;
use std::sync::Arc;

use url::Url;
use zeroize::Zeroizing;

use super::Call;
use crate::catalog::Provider;
use crate::catalog::outbound::{Generator, Program};
use crate::clock::unix_now;
use crate::config::provider::{Auth, OAuth2};
use crate::credential::{Attachment, Credential, CredentialError, Filling, Gaps, Lookup, Template};
use crate::derived_key::KeyBuilder;
use crate::egress::EgressError;
use crate::exec::credentials::{
    CallCredential, DeferredCredential, GeneratorRecipe, OAuthRecipe, Recipe,
};
use crate::exec::http::HttpError;
use crate::keyring::Secret;

pub fn resolve(call: &Call<'_>) -> Result<CallCredential, CredentialError> {
    let (provider, lookup) = (call.provider, &call.lookup);
    if let Some(generator) = &provider.outbound.generator {
        return generated(call, generator);
    }
    if let Auth::OAuth2(oauth) = &provider.outbound.auth {
        return exchanged(provider, oauth, lookup);
    }
    let attachment = || attach(provider.outbound.static_credential(), provider, lookup);
    let known = call.context.credentials;
    // A customer with keys of its own must not fill the cache that all callers share.
    let special = lookup.is_special(|| provider.key_names());
    Ok(CallCredential::Ready(match lookup.customer() {
        Some(customer) if special => {
            known.get_or_resolve_for(customer, provider.index, attachment)?
        }
        _ => known.get_or_resolve(provider.index, attachment)?,
    }))
}

/// What a call over HTTP is sent to, and with which credential.
pub fn for_http<'a>(call: &Call<'a>) -> Result<(Cow<'a, str>, CallCredential), HttpError> {
    let base_url = base_url(call.provider, &call.lookup)?;
    Ok((base_url, resolve(call)?))
}

/// The provider's `base_url`, with its keys filled in where `auth_type = "url"` says that it has
/// some.
pub(super) fn base_url<'a>(
    provider: &'a Provider,
    lookup: &Lookup<'_>,
) -> Result<Cow<'a, str>, CredentialError> {
    let Some(base_url) = provider.base_url() else {
        return Ok(Cow::Borrowed(""));
    };
    let Some(template) = &base_url.template else {
        return Ok(Cow::Borrowed(&base_url.text));
    };
    let filled = template.expand(lookup)?;
    Ok(Cow::Owned(String::from_utf8_lossy(&filled).into_owned()))
}

fn attach(
    credential: &Credential,
    provider: &Provider,
    lookup: &Lookup<'_>,
) -> Result<Attachment, CredentialError> {
    let extra_headers = &provider.outbound.extra_headers;
    let (attachment, gaps) = Attachment::resolve(credential, extra_headers, lookup);
    let Gaps {
        missing,
        unsendable,
        unreadable,
    } = gaps;
    if let Some(row) = unreadable.into_iter().next() {
        return Err(row.into());
    }
    if let Some(name) = missing.into_iter().next() {
        return Err(CredentialError::MissingKey(name));
    }
    if let Some(name) = unsendable.into_iter().next() {
        return Err(CredentialError::UnusableKey(name));
    }
    let embedded = provider.embedded_keys.iter();
    let values = embedded.map(|key| lookup.get(key));
    let values: Vec<Option<Secret>> = values.collect::<Result<_, _>>()?;
    let values = values.iter().flatten();
    // What a program reads from a file, it mostly repeats without the line break at the end.
    let values = values.flat_map(|secret| [secret.expose(), secret.expose().trim_ascii()]);
    Ok(attachment.with_redacted(values))
}

fn exchanged(
    provider: &Arc<Provider>,
    oauth: &OAuth2,
    lookup: &Lookup<'_>,
) -> Result<CallCredential, CredentialError> {
    let get = |name: &str| {
        let missing = || CredentialError::MissingKey(name.to_owned());
        lookup.get(name)?.ok_or_else(missing)
    };
    let (id, secret) = (get(&oauth.id_key)?, get(&oauth.secret_key)?);
    let token_url = token_url(provider, &oauth.token_url)?;
    let mut key = static_dependencies("oauth2 token", provider, lookup)?;
    key.add((&provider.name, token_url.as_str(), oauth.basic_auth));
    Ok(CallCredential::Deferred(Box::new(DeferredCredential {
        key: key.finish(),
        recipe: Recipe::OAuth2(OAuthRecipe {
            token_url,
            id,
            secret,
            basic_auth: oauth.basic_auth,
        }),
        credential: Credential::Bearer {
            key: oauth.id_key.clone(),
        },
        static_part: Arc::new(attach(&Credential::None, provider, lookup)?),
    })))
}

fn token_url(provider: &Provider, token_url: &str) -> Result<Url, CredentialError> {
    let text = if token_url.contains("://") {
        token_url.to_owned()
    } else {
        let base = provider.url_text().trim_end_matches('/');
        format!("{base}/{}", token_url.trim_start_matches('/'))
    };
    let url = Url::parse(&text).map_err(|_| EgressError::BadUrl("oauth2_token_url is no URL"))?;
    if url.scheme() != "https" {
        return Err(CredentialError::InsecureTokenUrl(token_url.to_owned()));
    }
    Ok(url)
}

fn generated(call: &Call<'_>, generator: &Generator) -> Result<CallCredential, CredentialError> {
    let (provider, lookup, identity) = (call.provider, &call.lookup, call.identity);
    let scope = identity.scopes.iter().collect::<Vec<_>>().join(" ");
    let now = unix_now().to_string();
    let fill = |template: &Template, timestamp: &str| {
        let filled = template.expand_with(|name| {
            let text = match name {
                "JWT_SUB" => identity.subject.as_bytes(),
                "JWT_SCOPE" => scope.as_bytes(),
                "TOOL_NAME" => call.tool_name().as_bytes(),
                "TIMESTAMP" => timestamp.as_bytes(),
                name => return Ok(lookup.get(name)?.map(Filling::Secret)),
            };
            Ok(Some(Filling::Text(text)))
        })?;
        Ok::<_, CredentialError>(Zeroizing::new(
            String::from_utf8_lossy(&filled).into_owned(),
        ))
    };
    let templates: &[Template] = match &generator.program {
        Program::Command { args, .. } => args,
        Program::Script { .. } => &[],
    };
    // The program, the caller and every filled-in value decide what it mints. The time does not:
    // calls at different times share what was minted.
    let mut key = static_dependencies("generated credential", provider, lookup)?;
    key.add((&provider.file, &generator.program, &generator.inject));
    key.add((
        provider.url_text(),
        &identity.subject,
        &identity.customer_id,
    ));
    let (mut args, mut env) = (Vec::new(), Vec::new());
    for template in templates {
        key.add(fill(template, "")?.as_str());
        args.push(fill(template, &now)?);
    }
    for (name, template) in &generator.env {
        key.add((name, fill(template, "")?.as_str()));
        env.push((name.clone(), fill(template, &now)?));
    }
    let secrets = generator.key_names().map(|name| lookup.get(name));
    let secrets: Vec<Option<Secret>> = secrets.collect::<Result<_, _>>()?;
    Ok(CallCredential::Deferred(Box::new(DeferredCredential {
        key: key.finish(),
        recipe: Recipe::Generator(Arc::new(GeneratorRecipe {
            provider: provider.clone(),
            args,
            env,
            secrets: secrets.into_iter().flatten().collect(),
        })),
        credential: provider.outbound.static_credential().clone(),
        static_part: Arc::new(attach(&Credential::None, provider, lookup)?),
    })))
}

/// The static part is cached with the minted value, so the key depends on it: the headers, and
/// every key of the keyring with its value.
fn static_dependencies(
    purpose: &str,
    provider: &Provider,
    lookup: &Lookup<'_>,
) -> Result<KeyBuilder, CredentialError> {
    let mut key = KeyBuilder::new(purpose).with(&provider.outbound.extra_headers);
    for name in provider.key_names() {
        key.add((name, lookup.get(name)?.as_ref().map(Secret::expose)));
    }
    Ok(key)
}
