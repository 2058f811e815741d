//! The token of the command line: from a variable, from the file that `<NAME>_FILE` names, or from
//! the default file. Files are read at each use, so that a supervisor can rotate them.

use std::io::{self, ErrorKind};
use std::path::PathBuf;

use super::virtual_keys;

pub const SESSION_TOKEN: &str = "ATI_SESSION_TOKEN";

/// The `Authorization` header that shows this token to a proxy: it may be a virtual key.
pub fn authorization(token: &str) -> String {
    let scheme = match virtual_keys::is_one(token) {
        true => "Ati-Key",
        false => "Bearer",
    };
    format!("{scheme} {token}")
}

/// The token under this name, if there is one. A file that exists and can't be read is an error.
pub fn resolve(name: &str) -> io::Result<Option<String>> {
    resolve_with(name, |key| std::env::var(key).ok())
}

/// The file that `<NAME>_FILE` names, where it isn't there: why there is no token.
pub fn absent_file(name: &str) -> Option<PathBuf> {
    let named = PathBuf::from(std::env::var(format!("{name}_FILE")).ok()?.trim());
    let absent = !named.as_os_str().is_empty() && !named.exists();
    absent.then_some(named)
}

fn resolve_with(name: &str, env: impl Fn(&str) -> Option<String>) -> io::Result<Option<String>> {
    let set = |key: &str| {
        let value = env(key)?.trim().to_owned();
        (!value.is_empty()).then_some(value)
    };
    if let Some(token) = set(name) {
        return Ok(Some(token));
    }
    let path = set(&format!("{name}_FILE")).map_or_else(|| default_file(name), PathBuf::from);
    match std::fs::read_to_string(&path) {
        Ok(text) => Ok(Some(text.trim().to_owned()).filter(|token| !token.is_empty())),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(io::Error::new(e.kind(), format!("{}: {e}", path.display()))),
    }
}

fn default_file(name: &str) -> PathBuf {
    let file = match name {
        SESSION_TOKEN => "session_token".to_owned(),
        other => other
            .strip_suffix("_SESSION_TOKEN")
            .unwrap_or(other)
            .to_lowercase(),
    };
    PathBuf::from("/run/ati").join(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn token_comes_from_the_variable_then_from_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        std::fs::write(&file, " from-file \n").unwrap();
        let mut env = HashMap::from([("X_FILE", file.to_str().unwrap().to_owned())]);
        let get =
            |env: &HashMap<&str, String>| resolve_with("X", |key| env.get(key).cloned()).unwrap();
        assert_eq!(get(&env).as_deref(), Some("from-file"));
        env.insert("X", "  ".into());
        assert_eq!(get(&env).as_deref(), Some("from-file"));
        env.insert("X", " direct ".into());
        assert_eq!(get(&env).as_deref(), Some("direct"));
        assert_eq!(
            get(&HashMap::from([("X_FILE", "/nonexistent/x".into())])),
            None
        );
        assert!(resolve_with("X", |k| (k == "X_FILE").then(|| "/".into())).is_err());
    }

    #[test]
    fn default_file_is_named_after_the_variable() {
        assert_eq!(
            default_file(SESSION_TOKEN),
            PathBuf::from("/run/ati/session_token")
        );
        assert_eq!(
            default_file("PARCHA_TOOLS_SESSION_TOKEN"),
            PathBuf::from("/run/ati/parcha_tools")
        );
    }
}
