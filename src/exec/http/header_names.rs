//! Which headers an argument may set.

use http::HeaderName;

use crate::catalog::outbound::{Inject, Outbound};
use crate::config::provider::Auth;
use crate::credential::Credential;
use crate::{hop_by_hop, request_id};

/// Headers that no argument may set.
const DENIED: [&str; 10] = [
    "authorization",
    "host",
    "cookie",
    "set-cookie",
    "content-type",
    "content-length",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-real-ip",
];

/// Not those that ati sets for this provider, nor those that frame or route a request. Many servers
/// read `X_Own` as `X-Own`: such a twin is refused as the header itself.
pub fn may_set(header: &HeaderName, outbound: &Outbound) -> bool {
    let folded = folded(header);
    let credential = match &outbound.auth {
        Auth::Static(Credential::Header { name, .. }) => Some(name),
        _ => None,
    };
    let generators = outbound.generator.iter();
    let minted = generators.flat_map(|generator| &generator.inject);
    let minted = minted.filter_map(|(_, to)| match to {
        Inject::Header(name) => Some(name),
        Inject::Env(_) | Inject::Primary => None,
    });
    let extra = outbound.extra_headers.iter().map(|(name, _)| name);
    let mut ours = credential.into_iter().chain(extra).chain(minted);
    // ati's own id replaces an argument of that name, but not a twin of it.
    let twin_of_id = folded == request_id::HEADER && header.as_str() != folded;
    !(ours.any(|name| self::folded(name) == folded)
        || DENIED.contains(&folded.as_str())
        || hop_by_hop::contains(&folded)
        || twin_of_id)
}

/// A header's name as CGI-style servers read it.
fn folded(name: &HeaderName) -> String {
    name.as_str().replace('_', "-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Catalog;

    #[test]
    fn twin_of_a_header_that_ati_sets_is_refused() {
        let catalog = Catalog::from_text(
            "[provider]\nname = 'p'\nauth_type = 'header'\nauth_header_name = 'X-Own'\n\
             auth_key_name = 'k'\nextra_headers = { X_Extra = 'e' }\n[provider.auth_generator]\n\
             type = 'command'\ncommand = 'true'\noutput_format = 'json'\n\
             inject = { t = { type = 'header', name = 'X-Minted' } }\n[[tools]]\nname = 't'\n",
        );
        let outbound = &catalog.tools()[0].provider.outbound;
        let may = |name: &str| may_set(&HeaderName::try_from(name).unwrap(), outbound);
        for twin in [
            "X-Own",
            "x_own",
            "X_OWN",
            "X-Extra",
            "x-minted",
            "X_Minted",
            "Content_Length",
            "Transfer_Encoding",
            "X_Forwarded-For",
            "X_Request_Id",
            "Set_Cookie",
        ] {
            assert!(!may(twin), "{twin}");
        }
        for fine in ["X-Owner", "X_Trace", "Accept", "X-Request-Id"] {
            assert!(may(fine), "{fine}");
        }
    }
}
