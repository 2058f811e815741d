//! The base URL of a document's API.

use serde_json::Value;
use url::Url;

use super::document::{Dangling, Document, Version};

impl Document {
    /// The base URL. A relative one is resolved against the document's own URL, where that is
    /// known.
    pub fn base_url(&self, found_at: Option<&Url>) -> String {
        let url = match self.version {
            Version::V2 => self.version_2_base(found_at),
            // The specification's default is `/`.
            _ => match self.root["servers"].get(0) {
                Some(server) => expand(server),
                None if found_at.is_some() => "/".to_owned(),
                None => String::new(),
            },
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
        let path = format!("/{}", path.trim_start_matches('/'));
        match self.root["host"].as_str().filter(|host| !host.is_empty()) {
            Some(host) => format!("{scheme}://{host}{path}"),
            None => path,
        }
    }

    /// The prefix that a path or an operation with a server of its own adds to its path. A server
    /// on another host would get the provider's credential, so such operations are left out.
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
        let other_host = || Dangling("it has a server of its own, on another host".to_owned());
        let url = Url::parse(&(base_url.trim_end_matches('/').to_owned() + "/"))
            .and_then(|base| base.join(&own))
            .map_err(|_| other_host())?;
        if url.origin() != base.origin() {
            return Err(other_host());
        }
        let base_path = base.path().trim_end_matches('/');
        let path = url.path().trim_end_matches('/');
        Ok(match path.strip_prefix(base_path) {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => rest.to_owned(),
            // Next to the base URL, not below it.
            _ => url.origin().ascii_serialization() + path,
        })
    }
}

/// A server's URL with its variables at their defaults. Inserted values are not expanded again.
fn expand(server: &Value) -> String {
    let template = server["url"].as_str().unwrap_or_default();
    let mut url = String::with_capacity(template.len());
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        url.push_str(before);
        let Some((name, behind)) = after.split_once('}') else {
            url.push('{');
            rest = after;
            continue;
        };
        let variable = &server["variables"][name];
        match &variable["default"] {
            Value::String(text) => url.push_str(text),
            Value::Null => url.push_str(variable["enum"][0].as_str().unwrap_or_default()),
            other => url.push_str(&other.to_string()),
        }
        rest = behind;
    }
    url + rest
}
