//! From an MCP manifest to a target: which server, with which credential, in which shared session.

use std::sync::Arc;

use url::Url;
use zeroize::Zeroizing;

use super::{Call, credentials};
use crate::catalog::Provider;
use crate::catalog::mcp::{self, Mcp, Transport};
use crate::catalog::outbound::BaseUrl;
use crate::credential::{CredentialError, Lookup, Template};
use crate::derived_key::{Key, KeyBuilder};
use crate::egress::{EgressError, host_and_port, is_http_url};
use crate::exec::credentials::CallCredential;
use crate::exec::mcp::{McpError, ServerSpec, Target};
use crate::keyring::{Keyring, Secret};

pub fn target(call: &Call<'_>) -> Result<Arc<Target>, McpError> {
    let provider = call.provider;
    let no_server = || EgressError::Setup("this provider has no MCP server".to_owned());
    let mcp = provider.mcp().ok_or_else(no_server)?;
    let credential = credentials::resolve(call)?;
    // The listing is the manifest's own server's; one that the caller names may have other tools.
    let last_listing = match call.upstream_override {
        None => call.context.catalog.listing(&provider.name).cloned(),
        Some(_) => None,
    };
    let upstream_override = call.upstream_override.as_ref();
    let server = server(provider, mcp, &call.lookup, upstream_override)?;
    let shown = match &call.upstream_override {
        Some(url) => url.as_str(),
        None => mcp.url_text(),
    };
    let address = mcp::address(shown);
    call.trail.leads_to(host_and_port(shown));
    Ok(Arc::new(Target {
        provider: provider.name.as_str().into(),
        key: session_key(call, &server, &credential)?,
        server,
        credential,
        source: provider.outbound.source,
        last_listing,
        manifest_url: mcp.url_text().to_owned(),
        address,
    }))
}

/// The server as the manifest has it, for checks that don't contact it. None for a provider of
/// another handler.
pub fn server_of(provider: &Provider, keyring: &Keyring) -> Option<Result<ServerSpec, McpError>> {
    let lookup = Lookup::tool(keyring, None);
    let mcp = provider.mcp()?;
    Some(server(provider, mcp, &lookup, None))
}

fn server(
    provider: &Provider,
    mcp: &Mcp,
    lookup: &Lookup<'_>,
    upstream_override: Option<&Url>,
) -> Result<ServerSpec, McpError> {
    match &mcp.transport {
        Transport::Stdio {
            command,
            args,
            env,
            run_as,
        } => {
            let env = env
                .iter()
                .map(|(name, template)| Ok::<_, McpError>((name.clone(), fill(template, lookup)?)));
            Ok(ServerSpec::Program {
                program: command.clone(),
                args: args.clone(),
                env: env.collect::<Result<_, _>>()?,
                run_as: run_as.clone(),
                sandbox: provider.sandbox.clone(),
            })
        }
        Transport::Http { url, .. } => Ok(ServerSpec::Endpoint(match upstream_override {
            Some(url) => url.clone(),
            None => own_url(url, lookup)?,
        })),
    }
}

/// Sessions are shared by calls with the same key. It depends on everything that the server could
/// tell two callers apart by: how it is reached, what it is given, every credential with its value.
fn session_key(
    call: &Call<'_>,
    server: &ServerSpec,
    credential: &CallCredential,
) -> Result<Key, CredentialError> {
    let outbound = &call.provider.outbound;
    let mut key = KeyBuilder::new("mcp session").with(&call.provider.name);
    match server {
        ServerSpec::Program {
            program,
            args,
            env,
            run_as,
            sandbox,
        } => {
            key.add((program, args, run_as, sandbox));
            for (name, value) in env {
                key.add((name, value.as_str()));
            }
        }
        ServerSpec::Endpoint(url) => {
            // Clients carry the allowlist and the trusted roots: a reload that changes them makes
            // new ones.
            key.add((url.as_str(), call.context.clients.id(), outbound.source));
        }
    }
    key.add((&outbound.auth, &outbound.extra_headers));
    for name in call.provider.key_names() {
        key.add((name, call.lookup.get(name)?.as_ref().map(Secret::expose)));
    }
    if let CallCredential::Deferred(deferred) = credential {
        key.add(deferred.key);
    }
    Ok(key.finish())
}

fn own_url(url: &BaseUrl, lookup: &Lookup<'_>) -> Result<Url, McpError> {
    let text = match &url.template {
        Some(template) => fill(template, lookup)?,
        None => Zeroizing::new(url.text.clone()),
    };
    let url = Url::parse(&text).ok();
    url.filter(is_http_url)
        .ok_or(EgressError::BadUrl("mcp_url is no http or https URL").into())
}

fn fill(template: &Template, lookup: &Lookup<'_>) -> Result<Zeroizing<String>, McpError> {
    let filled = template.expand(lookup).map_err(CredentialError::from)?;
    Ok(Zeroizing::new(
        String::from_utf8_lossy(&filled).into_owned(),
    ))
}
