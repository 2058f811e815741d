//! The short way: plain requests to routes, without pingora-proxy. Whether it does what Pingora
//! does, and what it does when callers, upstreams and operators get in its way.
//!
//! `ATI_SHORT_WAY=off` switches it off.

mod answers;
mod caller;
mod compare;
mod differential;
mod generate;
mod lifecycle;
mod requests;
mod scripted;
mod smuggling;
mod upstreams;

use serde_json::json;

use crate::support::ati::Setup;
use crate::support::tokens::SIGNING;

/// The credential of the routes. [`crate::support::ati::tells_nothing`] finds it in any output.
const KEY: &str = "planted-upstream-key-0001";

/// A proxy on the short way, whatever the environment of the tests says.
fn on() -> Setup {
    Setup::new().env("ATI_SHORT_WAY", "on")
}

fn off() -> Setup {
    Setup::new().env("ATI_SHORT_WAY", "off")
}

/// A proxy with one worker that checks signatures.
fn signed(setup: Setup) -> Setup {
    setup
        .credentials(&json!({"sandbox_signing_shared_secret": SIGNING, "key": KEY}))
        .arg("--sig-verify-mode")
        .arg("enforce")
        .conf("[server]\nworkers = 1\n[audit]\nroutes = true\n")
}

/// Routes of each kind, whose paths end with `number`, to one upstream.
fn routes(mut setup: Setup, number: usize, url: &str) -> Setup {
    let bearer = "auth_type = 'bearer'\nauth_key_name = 'key'\n";
    let exempt = "signature = 'exempt'\n";
    let kinds = [
        ("open", format!("{exempt}{bearer}")),
        ("svc", bearer.to_owned()),
        (
            "key",
            format!(
                "{exempt}auth_type = 'header'\nauth_key_name = 'key'\nstrip_prefix = false\n\
                 host_override = 'api.test'\n\
                 [provider.extra_headers]\nX-Extra = 'one'\nX-Secret = '${{key}}'\n"
            ),
        ),
        (
            "query",
            format!("{exempt}auth_type = 'query'\nauth_key_name = 'key'\n"),
        ),
        (
            "deny",
            format!("{exempt}deny_paths = ['/secret']\npath_replace = ['/old', '/new']\n"),
        ),
        (
            "fwd",
            format!("{exempt}{bearer}forward_authorization_paths = ['/mine']\n"),
        ),
        (
            "small",
            format!("{exempt}max_request_bytes = 64\nmax_response_bytes = 50000\n"),
        ),
        ("scrub", format!("{exempt}{bearer}scrub = true\n")),
    ];
    for (kind, more) in kinds {
        let name = format!("{kind}{number}");
        setup = setup.route(&name, url, &format!("path_prefix = '/{name}'\n{more}"));
    }
    let hosted = format!("host_match = 'h{number}.test'\n{exempt}{bearer}");
    setup.route(&format!("hosted{number}"), url, &hosted)
}
