//! Questions that ati asks MCP servers by itself, outside of any call.

use std::sync::Arc;

use super::{Call, Context, mcp};
use crate::auth::Identity;
use crate::catalog::Provider;
use crate::credential::{Lookup, UsedSecrets};
use crate::exec::mcp::{McpError, ToolListing, list_tools, tools_may_have_changed};
use crate::request_id::RequestId;
use crate::telemetry::trail::CallTrail;

/// Asks an MCP server for its tools, with the operator's credentials and no tenant's.
pub async fn list(provider: &Arc<Provider>, context: Context<'_>) -> Result<ToolListing, McpError> {
    let (identity, trail) = (Identity::unrestricted(), CallTrail::default());
    let secrets = UsedSecrets::default();
    let call = listing_call(provider, &identity, &trail, &secrets, context);
    let target = mcp::target(&call)?;
    list_tools(&target, call.exec_context()).await
}

/// Whether the server has announced a change since that session listed its tools.
pub fn has_changed(provider: &Arc<Provider>, listed_by: u64, context: Context<'_>) -> bool {
    let (identity, trail) = (Identity::unrestricted(), CallTrail::default());
    let secrets = UsedSecrets::default();
    let call = listing_call(provider, &identity, &trail, &secrets, context);
    mcp::target(&call)
        .is_ok_and(|target| tools_may_have_changed(&target, listed_by, call.exec_context()))
}

fn listing_call<'a>(
    provider: &'a Arc<Provider>,
    identity: &'a Identity,
    trail: &'a CallTrail,
    secrets: &'a UsedSecrets,
    context: Context<'a>,
) -> Call<'a> {
    Call {
        provider,
        tool: None,
        identity,
        lookup: Lookup::tool(context.keyring, None),
        upstream_override: None,
        request_id: RequestId::generate(),
        trail,
        secrets,
        native: false,
        context,
    }
}
