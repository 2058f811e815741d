//! From the names in a manifest to what a call presents. The keyring stops here.

use std::borrow::Cow;
use std::sync::Arc;

use ring::digest::{Context as Digest, SHA256};
use url::Url;
use zeroize::Zeroizing;

use crate::auth::Identity;
use crate::catalog::Provider;
use crate::catalog::mcp::Mcp;
use crate::catalog::provider::{Generator, Http, Program};
use crate::clock::unix_now;
use crate::config::provider::{Auth, OAuth2};
use crate::credential::{Attachment, Credential, Gaps, Lookup, Template};
use crate::error::ToolError;
use crate::exec::http::{GeneratorRecipe, Mint, OAuthRecipe, Prepared, Presents, Recipe};
use crate::keyring::Secret;

/// `called` is the name of the tool, for generators that want to know.
pub fn resolve(
    provider: &Arc<Provider>,
    called: &str,
    lookup: &Lookup<'_>,
    identity: &Identity,
    prepared: &Prepared,
) -> Result<Presents, ToolError> {
    let Some(http) = provider.presents() else {
        return Ok(Presents::Ready(Arc::default()));
    };
    if let Some(generator) = &http.generator {
        return generated(provider, called, http, generator, lookup, identity);
    }
    if let Auth::OAuth2(oauth) = &http.auth {
        return exchanged(provider, http, oauth, lookup);
    }
    let attachment = || attach(static_credential(http), provider, http, lookup);
    // A tenant's own keys are no business of the others.
    if lookup.is_special(|| provider.key_names()) {
        return Ok(Presents::Ready(Arc::new(attachment()?)));
    }
    let shared = prepared.get_or_resolve(provider.index, attachment)?;
    Ok(Presents::Ready(shared))
}

/// The provider's `base_url`, with its keys filled in where `auth_type = "url"` says that it has some.
pub fn base_url<'a>(http: &'a Http, lookup: &Lookup<'_>) -> Result<Cow<'a, str>, ToolError> {
    let Some(template) = &http.url else {
        return Ok(Cow::Borrowed(&http.base_url));
    };
    let filled = template.expand(lookup).map_err(missing)?;
    Ok(Cow::Owned(String::from_utf8_lossy(&filled).into_owned()))
}

fn static_credential(http: &Http) -> &Credential {
    match &http.auth {
        Auth::Static(credential) => credential,
        _ => &Credential::None,
    }
}

fn attach(
    credential: &Credential,
    provider: &Provider,
    http: &Http,
    lookup: &Lookup<'_>,
) -> Result<Attachment, ToolError> {
    let (attachment, gaps) = Attachment::resolve(credential, &http.extra_headers, lookup);
    let Gaps {
        missing,
        unsendable,
    } = gaps;
    if let Some(name) = missing.into_iter().next() {
        return Err(ToolError::MissingKey(name));
    }
    if let Some(name) = unsendable.into_iter().next() {
        return Err(ToolError::UnusableKey(name));
    }
    // An answer may repeat the URL, or a program its environment.
    let in_url = http.url.iter().flat_map(Template::keys);
    let in_env = provider.mcp().map(Mcp::env_keys).unwrap_or_default();
    let values = in_url.chain(in_env).filter_map(|key| lookup.get(key));
    Ok(attachment.with_redacted(values.map(Secret::expose)))
}

fn exchanged(
    provider: &Arc<Provider>,
    http: &Http,
    oauth: &OAuth2,
    lookup: &Lookup<'_>,
) -> Result<Presents, ToolError> {
    let get = |name: &str| {
        let missing = || ToolError::MissingKey(name.to_owned());
        lookup.get(name).ok_or_else(missing)
    };
    let (id, secret) = (get(&oauth.id_key)?, get(&oauth.secret_key)?);
    let token_url = token_url(&http.base_url, &oauth.token_url)?;
    let mut parts = beside(provider, http, lookup);
    for part in [
        provider.name.as_bytes(),
        token_url.as_str().as_bytes(),
        &[u8::from(oauth.basic_auth)],
    ] {
        parts.push(Zeroizing::new(part.to_vec()));
    }
    let key = hash(parts.iter().map(|part| part.as_slice()));
    Ok(Presents::Minted(Box::new(Mint {
        key,
        recipe: Recipe::OAuth2(OAuthRecipe {
            token_url,
            id: id.clone(),
            secret: secret.clone(),
            basic_auth: oauth.basic_auth,
        }),
        credential: Credential::Bearer {
            key: oauth.id_key.clone(),
        },
        beside: Arc::new(attach(&Credential::None, provider, http, lookup)?),
    })))
}

fn token_url(base_url: &str, token_url: &str) -> Result<Url, ToolError> {
    let text = if token_url.contains("://") {
        token_url.to_owned()
    } else {
        let base = base_url.trim_end_matches('/');
        format!("{base}/{}", token_url.trim_start_matches('/'))
    };
    let url = Url::parse(&text).map_err(|_| ToolError::BadUrl("oauth2_token_url is no URL"))?;
    if url.scheme() != "https" {
        return Err(ToolError::InsecureTokenUrl(token_url.to_owned()));
    }
    Ok(url)
}

fn generated(
    provider: &Arc<Provider>,
    called: &str,
    http: &Http,
    generator: &Generator,
    lookup: &Lookup<'_>,
    identity: &Identity,
) -> Result<Presents, ToolError> {
    let scope = identity.scopes.iter().collect::<Vec<_>>().join(" ");
    let now = unix_now().to_string();
    let fill = |template: &Template, timestamp: &str| {
        let filled = template.expand_with(|name| match name {
            "JWT_SUB" => Some(identity.subject.as_bytes()),
            "JWT_SCOPE" => Some(scope.as_bytes()),
            "TOOL_NAME" => Some(called.as_bytes()),
            "TIMESTAMP" => Some(timestamp.as_bytes()),
            name => lookup.get(name).map(|secret| secret.expose()),
        });
        let filled = filled.map_err(missing)?;
        Ok::<_, ToolError>(Zeroizing::new(
            String::from_utf8_lossy(&filled).into_owned(),
        ))
    };
    let templates: &[Template] = match &generator.program {
        Program::Command { args, .. } => args,
        Program::Script { .. } => &[],
    };
    // What it is, whom it is for and what it is given decide what it makes; the time doesn't.
    let mut parts = beside(provider, http, lookup);
    let mut depends_on = |part: &str| parts.push(Zeroizing::new(part.as_bytes().to_vec()));
    depends_on(&format!("{:?}", provider.file));
    depends_on(&format!("{:?} {:?}", generator.program, generator.inject));
    depends_on(&http.base_url);
    depends_on(&identity.subject);
    depends_on(identity.customer_id.as_deref().unwrap_or_default());
    let (mut args, mut env) = (Vec::new(), Vec::new());
    for template in templates {
        depends_on(&fill(template, "")?);
        args.push(fill(template, &now)?);
    }
    for (name, template) in &generator.env {
        depends_on(name);
        depends_on(&fill(template, "")?);
        env.push((name.clone(), fill(template, &now)?));
    }
    let secrets = generator.key_names().filter_map(|name| lookup.get(name));
    Ok(Presents::Minted(Box::new(Mint {
        key: hash(parts.iter().map(|part| part.as_slice())),
        recipe: Recipe::Generator(GeneratorRecipe {
            provider: provider.clone(),
            args,
            env,
            secrets: secrets.cloned().collect(),
        }),
        credential: static_credential(http).clone(),
        beside: Arc::new(attach(&Credential::None, provider, http, lookup)?),
    })))
}

/// What goes out beside something minted is kept with it, so it depends on this, too: the headers, and every key with its value.
fn beside(provider: &Provider, http: &Http, lookup: &Lookup<'_>) -> Vec<Zeroizing<Vec<u8>>> {
    let headers = format!("{:?}", http.extra_headers);
    let mut parts = vec![Zeroizing::new(headers.into_bytes())];
    for name in provider.key_names() {
        let value = lookup.get(name).map_or(&b""[..], Secret::expose);
        parts.push(Zeroizing::new(name.as_bytes().to_vec()));
        parts.push(Zeroizing::new(value.to_vec()));
    }
    parts
}

pub fn missing(names: Vec<String>) -> ToolError {
    ToolError::MissingKey(names.into_iter().next().unwrap_or_default())
}

/// Each part with its length, so that no two lists give the same text.
pub fn hash<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> [u8; 32] {
    let mut digest = Digest::new(&SHA256);
    for part in parts {
        digest.update(&(part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    let mut key = [0; 32];
    key.copy_from_slice(digest.finish().as_ref());
    key
}
