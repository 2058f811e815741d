//! Requests that ati makes for itself with a tool of a manifest: to the language model of
//! `_llm.toml`, which no caller can call.

use std::net::IpAddr;
use std::sync::Arc;

use url::Url;

use super::{Call, Context, credentials};
use crate::auth::Identity;
use crate::catalog::{Invocation, Tool};
use crate::credential::{Attachment, CredentialError, Lookup, UsedSecrets};
use crate::egress::EgressError;
use crate::exec::credentials::obtain;
use crate::request_id::RequestId;
use crate::telemetry::trail::CallTrail;

/// Where such a request goes, and what it authenticates with.
pub struct Endpoint {
    pub url: Url,
    pub credential: Arc<Attachment>,
    /// The address that connections come from.
    pub source: Option<IpAddr>,
}

/// The credential is that of the caller's customer, if there is one.
pub async fn endpoint(
    tool: &Arc<Tool>,
    identity: &Identity,
    context: Context<'_>,
) -> Result<Endpoint, CredentialError> {
    let (trail, secrets) = (CallTrail::default(), UsedSecrets::default());
    let provider = &tool.provider;
    let call = Call {
        provider,
        tool: Some(tool),
        identity,
        lookup: Lookup::tool(context.keyring, identity.customer_id.as_deref()),
        upstream_override: None,
        request_id: RequestId::generate(),
        trail: &trail,
        secrets: &secrets,
        native: false,
        context,
    };
    let base = credentials::base_url(provider, &call.lookup)?;
    let path = match &tool.invocation {
        Invocation::Http(http) => http.endpoint.as_str(),
        _ => "",
    };
    let url = match path.trim_start_matches('/') {
        "" => base.into_owned(),
        path => format!("{}/{path}", base.trim_end_matches('/')),
    };
    let url = Url::parse(&url).ok().filter(crate::egress::is_http_url);
    let source = provider.outbound.source;
    let credential = credentials::resolve(&call)?;
    Ok(Endpoint {
        url: url.ok_or(EgressError::NO_BASE_URL)?,
        credential: obtain(&credential, source, call.exec_context()).await?,
        source,
    })
}
