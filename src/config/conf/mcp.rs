use std::path::Path;

use serde::Deserialize;
use url::Url;

use super::value::{Plain, Positive, raw_section};
use crate::error::Problem;

raw_section! {
    /// `[mcp]`.
    RawMcp {
        allowed_origins: Plain<Vec<String>>,
        authorization_servers: Plain<Vec<String>>,
        resource: Plain<String>,
        page_size: Positive,
        skills: Plain<SkillsOffer>,
    }
}

/// Which clients of `/mcp` are offered skills.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SkillsOffer {
    /// Those that say that they know the extension.
    #[default]
    Negotiated,
    Always,
    Never,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpSettings {
    /// Web pages of these origins may ask for `/mcp`, in addition to those of this machine.
    pub allowed_origins: Vec<String>,
    /// Where clients get tokens. Where there is one, its metadata is published.
    pub authorization_servers: Vec<String>,
    /// The URL of `/mcp` as clients know it. None: made of the `Host` of each request.
    pub resource: Option<Url>,
    /// Tools on one page of a list.
    pub page_size: usize,
    pub skills: SkillsOffer,
}

impl Default for McpSettings {
    fn default() -> Self {
        McpSettings {
            allowed_origins: Vec::new(),
            authorization_servers: Vec::new(),
            resource: None,
            // More than most catalogues have: clients that don't read further pages see every tool.
            page_size: 1000,
            skills: SkillsOffer::default(),
        }
    }
}

impl RawMcp {
    pub(in crate::config) fn resolve(
        self,
        path: Option<&Path>,
        problems: &mut Vec<Problem>,
    ) -> McpSettings {
        let default = McpSettings::default();
        let mut problem = |key: &str, message: String| {
            let problem = Problem::new(message).key(key);
            problems.push(match path {
                Some(path) => problem.file(path),
                None => problem,
            });
        };
        let origins = self.allowed_origins.unwrap_or_default();
        for text in origins.iter().filter(|text| !is_origin(text)) {
            let message = format!("'{text}' is no origin like \"https://app.example.com\"");
            problem("mcp.allowed_origins", message);
        }
        let servers = self.authorization_servers.unwrap_or_default();
        for text in servers.iter().filter(|text| http_url(text).is_none()) {
            let message = format!("'{text}' is no http or https URL");
            problem("mcp.authorization_servers", message);
        }
        let resource = self.resource.and_then(|text| {
            let url = http_url(&text);
            if url.is_none() {
                problem("mcp.resource", format!("'{text}' is no http or https URL"));
            }
            url
        });
        McpSettings {
            allowed_origins: origins,
            authorization_servers: servers,
            resource,
            page_size: self.page_size.unwrap_or(default.page_size),
            skills: self.skills.unwrap_or_default(),
        }
    }
}

fn http_url(text: &str) -> Option<Url> {
    let url = Url::parse(text).ok();
    url.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
}

/// A scheme, a host and perhaps a port, as browsers send them.
fn is_origin(text: &str) -> bool {
    let parsed = Url::parse(text).ok();
    parsed.is_some_and(|url| url.has_host() && url.origin().ascii_serialization() == *text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origin_is_as_browsers_send_it() {
        for good in ["https://app.example.com", "http://localhost:3000"] {
            assert!(is_origin(good), "{good}");
        }
        for bad in [
            "app.example.com",
            "https://a.b/",
            "https://a.b:443",
            "null",
            "*",
        ] {
            assert!(!is_origin(bad), "{bad}");
        }
    }
}
