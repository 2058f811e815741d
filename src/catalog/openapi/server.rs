//! Where a document's API is.

use serde_json::Value;
use url::Url;

use super::document::{Dangling, Document, Version};

impl Document {
    /// The base URL, absolute where that can be known: a relative one counts from where the document was found.
    pub fn base_url(&self, found_at: Option<&Url>) -> String {
        let url = match self.version {
            Version::V2 => self.version_2_base(found_at),
            _ => self.root["servers"].get(0).map_or_else(String::new, expand),
        };
        let absolute = match (Url::parse(&url), found_at) {
            (Ok(url), _) => url.to_string(),
            (Err(_), Some(base)) => base.join(&url).map_or(url, |url| url.to_string()),
            (Err(_), None) => url,
        };
        let absolute = absolute.split(['?', '#']).next().unwrap_or_default();
        absolute.trim_end_matches('/').to_owned()
    }

    fn version_2_base(&self, found_at: Option<&Url>) -> String {
        let path = self.root["basePath"].as_str().unwrap_or("/");
        let schemes = self.root["schemes"].as_array();
        let offered = |scheme: &str| {
            schemes
                .into_iter()
                .flatten()
                .any(|known| known.as_str() == Some(scheme))
        };
        let scheme = match schemes {
            Some(_) if offered("https") => "https",
            Some(_) if offered("http") => "http",
            _ => found_at.map_or("https", Url::scheme),
        };
        match self.root["host"].as_str().filter(|host| !host.is_empty()) {
            Some(host) => format!("{scheme}://{host}{path}"),
            None => path.to_owned(),
        }
    }

    /// What a path or an operation with a server of its own puts before its path. Another host would get the provider's credential, so
    /// there are no such tools.
    pub(super) fn server_prefix(
        &self,
        item: &Value,
        operation: &Value,
        base_url: &str,
    ) -> Result<String, Dangling> {
        let own = [operation, item]
            .iter()
            .find_map(|holder| holder["servers"].get(0));
        let Some(own) = own.map(expand) else {
            return Ok(String::new());
        };
        let Ok(base) = Url::parse(base_url) else {
            return Ok(String::new());
        };
        let elsewhere = || Dangling("it has a server of its own, on another host".to_owned());
        let url = Url::parse(&(base_url.trim_end_matches('/').to_owned() + "/"))
            .and_then(|base| base.join(&own))
            .map_err(|_| elsewhere())?;
        if url.origin() != base.origin() {
            return Err(elsewhere());
        }
        let base_path = base.path().trim_end_matches('/');
        let path = url.path().trim_end_matches('/');
        Ok(match path.strip_prefix(base_path) {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => rest.to_owned(),
            // Beside the base URL rather than below it.
            _ => url.origin().ascii_serialization() + path,
        })
    }
}

/// A server's URL with its variables at their defaults.
fn expand(server: &Value) -> String {
    let mut url = server["url"].as_str().unwrap_or_default().to_owned();
    for (name, variable) in server["variables"].as_object().into_iter().flatten() {
        let default = &variable["default"];
        let value = match default {
            Value::String(text) => text.clone(),
            Value::Null => variable["enum"][0].as_str().unwrap_or_default().to_owned(),
            other => other.to_string(),
        };
        url = url.replace(&format!("{{{name}}}"), &value);
    }
    url
}
