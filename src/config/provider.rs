//! The fields of `[provider]` about credentials and egress, which every handler has.

use std::collections::BTreeMap;
use std::net::IpAddr;

use http::HeaderName;

use super::Section;
use super::section::offer;
use crate::credential::{Credential, Template};
use crate::egress;

/// The header of `auth_type = "header"`, for tools over HTTP and for routes.
pub const DEFAULT_HEADER: &str = "X-Api-Key";

/// What `auth_type` may be.
const AUTH_TYPES: [&str; 7] = [
    "none", "bearer", "header", "query", "basic", "oauth2", "url",
];

/// `auth_type` and the fields that belong to it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Auth {
    None,
    Static(Credential),
    OAuth2(OAuth2),
    /// `${key}` in the URL itself.
    Url,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OAuth2 {
    pub id_key: String,
    pub secret_key: String,
    /// Absolute, or relative to the provider's `base_url`.
    pub token_url: String,
    pub basic_auth: bool,
}

impl Auth {
    /// As manifests write it.
    pub fn name(&self) -> &'static str {
        match self {
            Auth::None | Auth::Static(Credential::None) => "none",
            Auth::Static(Credential::Bearer { .. }) => "bearer",
            Auth::Static(Credential::Header { .. }) => "header",
            Auth::Static(Credential::Query { .. }) => "query",
            Auth::Static(Credential::Basic { .. } | Credential::BasicUser { .. }) => "basic",
            Auth::OAuth2(_) => "oauth2",
            Auth::Url => "url",
        }
    }
}

/// `generated`: a program makes the credential, so that no key needs to be named.
pub fn read_auth(s: &mut Section<'_>, generated: bool, default_header: &str) -> Auth {
    let kind = s.take::<String>("auth_type").unwrap_or_default();
    let mut filled = |key| s.take::<String>(key).filter(|text| !text.is_empty());
    let key = filled("auth_key_name");
    let header = filled("auth_header_name");
    let query = filled("auth_query_name");
    let secret = filled("auth_secret_name");
    let token_url = filled("oauth2_token_url");
    let prefix = s.take::<String>("auth_value_prefix").unwrap_or_default();
    let basic_auth = s.take("oauth2_basic_auth").unwrap_or(false);
    let mut needed = |value: Option<String>, name: &str| {
        if value.is_none() && !generated {
            s.problem(name, format!("auth_type '{kind}' needs it"));
        }
        value.unwrap_or_default()
    };
    match kind.as_str() {
        "" | "none" => Auth::None,
        "url" => Auth::Url,
        "oauth2" => Auth::OAuth2(OAuth2 {
            id_key: needed(key, "auth_key_name"),
            secret_key: needed(secret, "auth_secret_name"),
            token_url: needed(token_url, "oauth2_token_url"),
            basic_auth,
        }),
        "bearer" => Auth::Static(Credential::Bearer {
            key: needed(key, "auth_key_name"),
        }),
        "basic" => Auth::Static(Credential::Basic {
            key: needed(key, "auth_key_name"),
        }),
        "query" => Auth::Static(Credential::Query {
            key: needed(key, "auth_key_name"),
            name: query.unwrap_or_else(|| "api_key".to_owned()),
        }),
        "header" => {
            let key = needed(key, "auth_key_name");
            let name = header.unwrap_or_else(|| default_header.to_owned());
            match HeaderName::try_from(&name) {
                Ok(name) => Auth::Static(Credential::Header { key, name, prefix }),
                Err(_) => {
                    s.problem("auth_header_name", format!("'{name}' is not a header name"));
                    Auth::None
                }
            }
        }
        _ => {
            let message = format!("unknown auth type '{kind}'; {}", offer(&kind, &AUTH_TYPES));
            s.problem("auth_type", message);
            Auth::None
        }
    }
}

pub fn read_extra_headers(s: &mut Section<'_>) -> Vec<(HeaderName, Template)> {
    let raw = s
        .take::<BTreeMap<String, String>>("extra_headers")
        .unwrap_or_default();
    let mut headers = Vec::new();
    for (name, value) in raw {
        match HeaderName::try_from(&name) {
            Ok(name) => headers.push((name, Template::parse(&value))),
            Err(_) => s.problem("extra_headers", format!("'{name}' is not a header name")),
        }
    }
    headers
}

/// The local address for connections of this provider. Without settings (on the command line) there
/// are no named addresses, and the system chooses.
pub fn read_source(s: &mut Section<'_>, egress: Option<&egress::Settings>) -> Option<IpAddr> {
    let Some(egress) = egress else {
        s.ignore("egress");
        return None;
    };
    let Some(name) = s.take::<String>("egress") else {
        return egress.source;
    };
    let known = egress.named.get(&name).copied();
    if known.is_none() {
        s.problem(
            "egress",
            format!("'{name}' is not one of [egress.addresses]"),
        );
    }
    known
}
