//! Checks of MCP servers: their programs, the way to their URLs, and what the running proxy says
//! about them.

use serde_json::Value;
use url::Url;

use super::{Findings, network};
use crate::cli::mcp_servers;
use crate::egress;
use crate::error::{Failure, UpstreamFault};
use crate::snapshot::Snapshot;

const CHECK: &str = "mcp";

/// Each server's program, and the way to each URL. No server is started, and no credential is sent.
pub fn servers(snapshot: &Snapshot, offline: bool, found: &mut Findings) -> Result<(), Failure> {
    let faults = mcp_servers::faults(snapshot);
    for fault in &faults {
        let field = fault.key.trim_start_matches("provider.");
        let message = format!("'{}', {field}: {}", fault.provider.name, fault.message);
        found.fail(CHECK, message, &fault.fix);
    }
    let servers = mcp_servers::servers(snapshot).count();
    if faults.is_empty() && servers > 0 {
        let message = format!("{servers} servers: programs and URLs are as they should be");
        found.ok(CHECK, message);
    }
    if offline {
        return Ok(());
    }
    let urls = mcp_servers::urls(snapshot).filter_map(|(provider, url)| {
        let origin = Url::parse(&url.origin().ascii_serialization()).ok()?;
        Some((provider.clone(), origin))
    });
    for (provider, answer) in network::contact(snapshot, urls)? {
        let address = provider.mcp().map(|mcp| mcp.address()).unwrap_or_default();
        let server = format!("'{}' at {address}", provider.name);
        let Err(error) = answer else {
            found.ok(CHECK, format!("{server} can be reached"));
            continue;
        };
        let words = |fault: UpstreamFault| fault.words();
        let fault = egress::fault(&error).ok();
        let message = format!("{server}: {}", fault.map_or("blocked", words));
        match fault {
            // It is there, and speaks no HTTP, or doesn't care for a HEAD.
            Some(UpstreamFault::Timeout | UpstreamFault::Closed | UpstreamFault::Protocol) => {
                let fix = format!(
                    "'ati provider info {}' asks it for its tools",
                    provider.name
                );
                found.warn(CHECK, message, &fix);
            }
            _ => {
                let fix = format!(
                    "start the server, or look at mcp_url of {}, at egress.nameservers, at \
                     egress.ca_file, and at the firewall",
                    provider.file.display()
                );
                found.fail(CHECK, message, &fix);
            }
        }
    }
    Ok(())
}

/// The state of each server in the running proxy. Silent where it doesn't answer: that is reported
/// with the credentials.
pub fn states(admin: &Url, found: &mut Findings) -> Result<(), Failure> {
    let Some(Value::Object(providers)) = network::ask(admin, "/providers")? else {
        return Ok(());
    };
    for (name, provider) in &providers {
        let proxy = format!("in the running proxy '{name}'");
        match provider["state"].as_str() {
            Some("ready") => {
                let tools = provider["tools"].as_u64().unwrap_or_default();
                found.ok(CHECK, format!("{proxy} is ready, with {tools} tools"));
            }
            Some("starting") => {
                let fix = "wait a moment, and look again";
                found.warn(CHECK, format!("{proxy} has not listed its tools yet"), fix);
            }
            _ => {
                let why = provider["error"].as_str().unwrap_or_default();
                let fix = format!(
                    "'ati provider info {name}' asks it now; the proxy asks again by itself"
                );
                found.fail(CHECK, format!("{proxy} is down: {why}"), &fix);
            }
        }
    }
    Ok(())
}
