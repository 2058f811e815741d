//! Which database `ATI_DB_URL` names.

use std::path::PathBuf;
use std::str::FromStr as _;

use sqlx::postgres::PgConnectOptions;

use super::error::StoreError;
use crate::keyring::Secret;

/// No `Debug`: the URL of PostgreSQL may hold a password.
pub enum Url {
    Sqlite(PathBuf),
    Postgres(Box<PgConnectOptions>),
}

pub fn parse(url: &Secret) -> Result<Url, StoreError> {
    let invalid = |what: &str| Err(StoreError::InvalidUrl(what.to_owned()));
    let Ok(text) = std::str::from_utf8(url.expose()) else {
        return invalid("it isn't text");
    };
    let text = text.trim();
    if let Some(rest) = text.strip_prefix("sqlite:") {
        // `sqlite://path` is usual, and `sqlite:///path` is absolute.
        let path = rest.strip_prefix("//").unwrap_or(rest);
        return match path {
            "" => invalid("sqlite: needs the path of a file"),
            ":memory:" => invalid("a database in memory would be lost; name a file"),
            path if path.contains(['?', '#']) => {
                invalid("sqlite: takes the path of a file and no parameters")
            }
            path => Ok(Url::Sqlite(PathBuf::from(path))),
        };
    }
    if !text.starts_with("postgres://") && !text.starts_with("postgresql://") {
        return Err(StoreError::UnknownEngine);
    }
    // The parser's own message may quote a part of the URL, and that may be the password.
    let Ok(options) = PgConnectOptions::from_str(text) else {
        return invalid(
            "expected postgres://user:password@host:port/database, with percent-encoded \
             characters in the password",
        );
    };
    Ok(Url::Postgres(Box::new(options)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Url, StoreError> {
        parse(&Secret::new(text.as_bytes()).unwrap())
    }

    #[test]
    fn sqlite_url_is_the_path_of_a_file() {
        for (url, path) in [
            ("sqlite:store.db", "store.db"),
            ("sqlite:/var/lib/ati/store.db", "/var/lib/ati/store.db"),
            ("sqlite:///var/lib/ati/store.db", "/var/lib/ati/store.db"),
            (" sqlite://store.db\n", "store.db"),
        ] {
            let Ok(Url::Sqlite(found)) = parsed(url) else {
                panic!("{url}");
            };
            assert_eq!(found, PathBuf::from(path));
        }
    }

    #[test]
    fn wrong_url_is_refused_without_quoting_it() {
        for url in [
            "mysql://root:planted-password@db/x",
            "planted-password",
            "postgres:planted-password",
            "postgres://u:planted-password@host:port/x",
            "sqlite:",
            "sqlite::memory:",
            "sqlite:x?mode=planted-password",
        ] {
            let error = parsed(url).err().unwrap_or_else(|| panic!("{url}"));
            assert!(!error.to_string().contains("planted"), "{error}");
        }
    }
}
