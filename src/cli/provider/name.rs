//! Names of providers. They become names of files, so they must not contain a path.

use crate::config::{LONGEST_PROVIDER_NAME, is_provider_name};
use crate::error::Failure;

/// Refuse a name that can't be the name of a file.
pub fn check(name: &str) -> Result<&str, Failure> {
    if is_provider_name(name) {
        return Ok(name);
    }
    Err(Failure::invalid(format!(
        "'{name}' is no name for a provider: letters, digits, '_', '-' and '.', \
         at most {LONGEST_PROVIDER_NAME} of them"
    )))
}

/// A name derived from a URL or a path.
pub fn derive(source: &str) -> String {
    let raw = match source.split_once("://") {
        Some((_, rest)) => of_host(rest),
        None => {
            let file = source.rsplit('/').next().unwrap_or(source);
            file.split_once('.')
                .map_or(file, |(stem, _)| stem)
                .to_owned()
        }
    };
    let plain: String = raw
        .to_lowercase()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
        .collect();
    let plain = plain.trim_matches('_');
    match plain {
        "" => "provider".to_owned(),
        plain => plain.chars().take(LONGEST_PROVIDER_NAME).collect(),
    }
}

/// The host of a URL, without labels that many APIs have.
fn of_host(rest: &str) -> String {
    const FIRST: [&str; 4] = ["api", "www", "mcp", "rest"];
    const LAST: [&str; 9] = ["com", "org", "net", "io", "dev", "ai", "co", "gov", "edu"];
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let authority = authority.rsplit('@').next().unwrap_or_default();
    let host = match authority.strip_prefix('[') {
        Some(literal) => literal.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    let host = host.to_lowercase();
    let mut labels: Vec<&str> = host.split('.').collect();
    if labels.len() > 1 && FIRST.contains(&labels[0]) {
        labels.remove(0);
    }
    if labels.len() > 1 && labels.last().is_some_and(|last| LAST.contains(last)) {
        labels.pop();
    }
    labels.join("_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_derived_from_hosts_and_files() {
        for (source, name) in [
            ("https://api.finnhub.io/v1/openapi.json", "finnhub"),
            (
                "https://petstore3.swagger.io/api/v3/openapi.json",
                "petstore3_swagger",
            ),
            ("https://api.data.census.gov/x", "data_census"),
            ("http://127.0.0.1:8080/openapi.json", "127_0_0_1"),
            ("http://user:pw@h.example:1/x", "h_example"),
            ("./specs/my-spec.yaml", "my_spec"),
            ("petstore.openapi.json", "petstore"),
            ("../../etc/passwd", "passwd"),
            ("...", "provider"),
            ("https://api", "api"),
        ] {
            assert_eq!(derive(source), name, "{source}");
        }
    }

    #[test]
    fn names_with_a_path_or_odd_characters_are_refused() {
        for bad in [
            "",
            "..",
            "../x",
            "a/b",
            "a\\b",
            ".hidden",
            "a b",
            "ü",
            &"x".repeat(65),
            "a\0",
        ] {
            assert!(check(bad).is_err(), "{bad}");
        }
        for good in ["finnhub", "_llm", "a-b.c_1"] {
            assert!(check(good).is_ok(), "{good}");
        }
    }
}
