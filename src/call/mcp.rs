//! From an MCP manifest to a server: which one, and as whom.

use std::sync::Arc;

use url::Url;
use zeroize::Zeroizing;

use super::{Context, credentials};
use crate::auth::Identity;
use crate::catalog::Provider;
use crate::catalog::mcp::{Mcp, Transport};
use crate::credential::{Lookup, Template};
use crate::error::ToolError;
use crate::exec::http::Presents;
use crate::exec::mcp::{Server, Target};

/// `elsewhere` is the URL that the caller has for it, checked already.
pub fn target(
    provider: &Arc<Provider>,
    called: &str,
    elsewhere: Option<Url>,
    lookup: &Lookup<'_>,
    identity: &Identity,
    context: Context<'_>,
) -> Result<Arc<Target>, ToolError> {
    let Some(mcp) = provider.mcp() else {
        return Err(ToolError::Setup(
            "this provider has no MCP server".to_owned(),
        ));
    };
    let presents = credentials::resolve(provider, called, lookup, identity, context.prepared)?;
    // What a caller brings is another server.
    let listed = match elsewhere {
        None => context.catalog.listing(&provider.name).cloned(),
        Some(_) => None,
    };
    let mut parts: Vec<Zeroizing<Vec<u8>>> = Vec::new();
    let mut depends_on = |part: &[u8]| parts.push(Zeroizing::new(part.to_vec()));
    depends_on(provider.name.as_bytes());
    let server = match &mcp.transport {
        Transport::Stdio { command, args, env } => {
            depends_on(command.as_bytes());
            for arg in args {
                depends_on(b"argument");
                depends_on(arg.as_bytes());
            }
            let mut filled = Vec::new();
            for (name, template) in env {
                let value = fill(template, lookup)?;
                depends_on(name.as_bytes());
                depends_on(value.as_bytes());
                filled.push((name.clone(), value));
            }
            Server::Program {
                program: command.clone(),
                args: args.clone(),
                env: filled,
            }
        }
        Transport::Http { .. } => {
            let url = match elsewhere {
                Some(url) => url,
                None => own_url(mcp, lookup)?,
            };
            depends_on(url.as_str().as_bytes());
            // And the way there: whom it may lead to, and whom it trusts. A session keeps its own alive, so none takes its address.
            depends_on(
                format!("{:p} {:?}", Arc::as_ptr(context.clients), mcp.http.source).as_bytes(),
            );
            Server::Endpoint(url)
        }
    };
    // Whoever presents something else, or in another way, is somebody else to the server.
    let how = format!("{:?} {:?}", mcp.http.auth, mcp.http.extra_headers);
    depends_on(how.as_bytes());
    for name in mcp.http.key_names() {
        depends_on(name.as_bytes());
        depends_on(lookup.get(name).map_or(&b""[..], |secret| secret.expose()));
    }
    if let Presents::Minted(mint) = &presents {
        depends_on(&mint.key);
    }
    Ok(Arc::new(Target {
        provider: provider.name.as_str().into(),
        key: credentials::hash(parts.iter().map(|part| part.as_slice())),
        server,
        presents,
        source: mcp.http.source,
        listed,
        told_url: mcp.http.base_url.clone(),
    }))
}

fn own_url(mcp: &Mcp, lookup: &Lookup<'_>) -> Result<Url, ToolError> {
    let text = match &mcp.http.url {
        Some(template) => fill(template, lookup)?,
        None => Zeroizing::new(mcp.http.base_url.clone()),
    };
    let url = Url::parse(&text).ok();
    url.filter(crate::egress::is_http_url)
        .ok_or(ToolError::BadUrl("mcp_url is no http or https URL"))
}

fn fill(template: &Template, lookup: &Lookup<'_>) -> Result<Zeroizing<String>, ToolError> {
    let filled = template.expand(lookup).map_err(credentials::missing)?;
    Ok(Zeroizing::new(
        String::from_utf8_lossy(&filled).into_owned(),
    ))
}
