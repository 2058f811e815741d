//! Security schemes: the first that ati can use, and the others in words.

use http::HeaderName;
use serde_json::Value;

use super::document::{Document, Version};

/// How the API authenticates its callers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Detected {
    pub scheme: Scheme,
    /// The others, in words, for the operator to choose from.
    pub others: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Scheme {
    #[default]
    None,
    Bearer,
    Basic,
    Header(String),
    Query(String),
    OAuth2 {
        token_url: String,
    },
}

impl Scheme {
    /// The `auth_type` of a manifest.
    pub fn auth_type(&self) -> &'static str {
        match self {
            Scheme::None => "none",
            Scheme::Bearer => "bearer",
            Scheme::Basic => "basic",
            Scheme::Header(_) => "header",
            Scheme::Query(_) => "query",
            Scheme::OAuth2 { .. } => "oauth2",
        }
    }
}

impl Document {
    pub fn auth(&self) -> Detected {
        let schemes = match self.version {
            Version::V2 => &self.root["securityDefinitions"],
            _ => &self.root["components"]["securitySchemes"],
        };
        let mut detected = Detected::default();
        for (name, scheme) in schemes.as_object().into_iter().flatten() {
            let scheme = self.resolve(scheme).unwrap_or(scheme);
            let usable = usable(scheme);
            if usable != Scheme::None && detected.scheme == Scheme::None {
                detected.scheme = usable;
            } else {
                detected
                    .others
                    .push(format!("{name}: {}", describe(scheme)));
            }
        }
        detected
    }
}

fn usable(scheme: &Value) -> Scheme {
    let text = |key: &str| scheme[key].as_str().unwrap_or_default();
    match text("type") {
        "basic" => Scheme::Basic,
        "http" => match text("scheme").to_lowercase().as_str() {
            "bearer" => Scheme::Bearer,
            "basic" => Scheme::Basic,
            _ => Scheme::None,
        },
        "apiKey" => match text("in") {
            // `Authorization: <key>`, with the prefix in the key: a header like any other.
            "header" if HeaderName::try_from(text("name")).is_ok() => {
                Scheme::Header(text("name").to_owned())
            }
            "query" if !text("name").is_empty() => Scheme::Query(text("name").to_owned()),
            _ => Scheme::None,
        },
        "oauth2" => {
            token_url(scheme).map_or(Scheme::None, |token_url| Scheme::OAuth2 { token_url })
        }
        _ => Scheme::None,
    }
}

/// Only the flow in which a client gets a token for itself.
fn token_url(scheme: &Value) -> Option<String> {
    let flow = match scheme["flow"].as_str() {
        Some("application") => scheme,
        Some(_) => return None,
        None => scheme["flows"].get("clientCredentials")?,
    };
    let url = flow["tokenUrl"].as_str()?;
    (!url.is_empty()).then(|| url.to_owned())
}

fn describe(scheme: &Value) -> String {
    let text = |key: &str| scheme[key].as_str().unwrap_or_default();
    match text("type") {
        "http" => format!("http {}", text("scheme")),
        "apiKey" => format!("apiKey in {} '{}'", text("in"), text("name")),
        "oauth2" => {
            let flows: Vec<&str> = match scheme["flows"].as_object() {
                Some(flows) => flows.keys().map(String::as_str).collect(),
                None => vec![text("flow")],
            };
            format!("oauth2 ({})", flows.join(", "))
        }
        other => other.to_owned(),
    }
    .replace(['\n', '\r'], " ")
}
