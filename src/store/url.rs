//! Which database `ATI_DB_URL` names.

use std::path::PathBuf;
use std::str::FromStr as _;

use sqlx::postgres::{PgConnectOptions, PgSslMode};

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
    postgres(text).map(|options| Url::Postgres(Box::new(options)))
}

/// What `sslmode` may be.
const MODES: [&str; 6] = [
    "disable",
    "allow",
    "prefer",
    "require",
    "verify-ca",
    "verify-full",
];
/// The value of `sslrootcert` that means the certificates of the system.
const SYSTEM: &str = "system";

/// The parsers' own messages may quote a part of the URL, and that may be the password.
fn postgres(text: &str) -> Result<PgConnectOptions, StoreError> {
    let invalid = || {
        StoreError::InvalidUrl(
            "expected postgres://user:password@host:port/database, with percent-encoded \
             characters in the password"
                .to_owned(),
        )
    };
    let mut url = ::url::Url::parse(text).map_err(|_| invalid())?;
    let roots = check_tls(&url)?;
    if roots == Some(Roots::System) {
        forget_roots(&mut url);
    }
    let options = PgConnectOptions::from_str(url.as_str()).map_err(|_| invalid())?;
    Ok(match (roots, options.get_ssl_mode()) {
        (Some(Roots::System), _) => options.ssl_mode(PgSslMode::VerifyFull),
        // As in libpq: who names an authority wants the server to have a certificate of it.
        (Some(Roots::File), PgSslMode::Require) => options.ssl_mode(PgSslMode::VerifyCa),
        _ => options,
    })
}

/// Where the certificates are that the server's has to be signed with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Roots {
    File,
    System,
}

fn is_roots(key: &str) -> bool {
    matches!(key, "sslrootcert" | "ssl-root-cert" | "ssl-ca")
}

/// Checks what the URL says about TLS.
fn check_tls(url: &::url::Url) -> Result<Option<Roots>, StoreError> {
    let invalid = |what: String| Err(StoreError::InvalidUrl(what));
    let mut roots = std::env::var_os("PGSSLROOTCERT")
        .filter(|path| !path.is_empty())
        .map(|_| Roots::File);
    for (key, value) in url.query_pairs() {
        if matches!(&*key, "sslmode" | "ssl-mode") {
            let mode = value.to_ascii_lowercase();
            if !MODES.contains(&mode.as_str()) {
                return invalid(format!("its sslmode is none of {}", MODES.join(", ")));
            }
        }
        if is_roots(&key) && value == SYSTEM {
            roots = Some(Roots::System);
        } else if is_roots(&key) {
            let found = std::fs::metadata(&*value).map(|found| found.is_file());
            match found {
                Ok(true) => roots = Some(Roots::File),
                Ok(false) => return invalid(format!("its sslrootcert, {value}, is not a file")),
                Err(e) => return invalid(format!("its sslrootcert, {value}: {e}")),
            }
        }
    }
    Ok(roots)
}

/// Without them, the system's are used.
fn forget_roots(url: &mut ::url::Url) {
    let pairs = url.query_pairs().into_owned();
    let kept: Vec<(String, String)> = pairs.filter(|(key, _)| !is_roots(key)).collect();
    url.query_pairs_mut().clear().extend_pairs(kept);
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
            "postgres://u:planted-password@host/x?sslmode=bogus",
            "postgres://u:planted-password@host/x?sslrootcert=/nonexistent/ca.pem",
        ] {
            let error = parsed(url).err().unwrap_or_else(|| panic!("{url}"));
            assert!(!error.to_string().contains("planted"), "{error}");
        }
    }
    fn mode(text: &str) -> PgSslMode {
        match parsed(text) {
            Ok(Url::Postgres(options)) => options.get_ssl_mode(),
            Ok(Url::Sqlite(_)) => panic!("{text}"),
            Err(e) => panic!("{text}: {e}"),
        }
    }

    #[test]
    fn certificate_of_an_authority_is_checked_where_one_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let roots = format!("sslrootcert={}", file.path().display());
        let url = |query: &str| format!("postgres://u@host/x?{query}");
        for (query, expected) in [
            ("sslmode=require".to_owned(), "Require"),
            (format!("sslmode=require&{roots}"), "VerifyCa"),
            (format!("{roots}&sslmode=REQUIRE"), "VerifyCa"),
            (format!("sslmode=verify-full&{roots}"), "VerifyFull"),
            (format!("sslmode=disable&{roots}"), "Disable"),
            ("sslrootcert=system".to_owned(), "VerifyFull"),
        ] {
            assert_eq!(format!("{:?}", mode(&url(&query))), expected, "{query}");
        }
    }

    #[test]
    fn wrong_tls_parameter_is_named() {
        for (query, part) in [
            ("sslmode=bogus", "sslmode is none of disable"),
            (
                "sslrootcert=/nonexistent/ca.pem",
                "/nonexistent/ca.pem: No such file",
            ),
            ("sslrootcert=/", "is not a file"),
        ] {
            let error = parsed(&format!("postgres://u@host/x?{query}")).err();
            let text = error.map(|e| e.to_string()).unwrap_or_default();
            assert!(text.contains(part), "{text}");
        }
    }
}
