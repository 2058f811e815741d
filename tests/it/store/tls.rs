//! Is the server that an edge talks to the right one?

use ati::keyring::Secret;
use ati::store::{Store, StoreError, Tables, sql};

use crate::support::database::{Database, rows};
use crate::support::tls::Authority;

#[test]
fn connection_to_postgresql_is_checked_as_the_url_asks() {
    let (own, other) = (Authority::new(), Authority::new());
    let (certificate, key) = own.issue("127.0.0.1");
    let right = Database::postgres_with_tls(&certificate, &key);
    let (certificate, key) = own.issue("db.example.com");
    let misnamed = Database::postgres_with_tls(&certificate, &key);
    drop((right.migrated(), misnamed.migrated()));
    let folder = tempfile::tempdir().unwrap();
    let roots = |name: &str, authority: &Authority| {
        let path = folder.path().join(name);
        std::fs::write(&path, authority.pem()).unwrap();
        format!("sslrootcert={}", path.display())
    };
    let (own, other) = (roots("own.pem", &own), roots("other.pem", &other));
    let open = |database: &Database, parameters: String| {
        let url = database.tls_url(&parameters);
        Store::open(&Secret::new(url.as_bytes()).unwrap(), Tables::Check)
    };
    for (database, parameters) in [
        (&right, format!("sslmode=verify-full&{own}")),
        (&right, format!("sslmode=verify-ca&{own}")),
        (&right, format!("sslmode=require&{own}")),
        (&right, "sslmode=require".to_owned()),
        (&misnamed, format!("sslmode=verify-ca&{own}")),
        (&misnamed, format!("sslmode=require&{own}")),
    ] {
        let store = open(database, parameters.clone());
        let store = store.unwrap_or_else(|e| panic!("{parameters}: {e}"));
        let encrypted = sql("select ssl from pg_stat_ssl where pid = pg_backend_pid()");
        assert!(rows(&store, encrypted)[0].bool("ssl").unwrap());
    }
    for (database, parameters) in [
        (&right, format!("sslmode=verify-full&{other}")),
        (&right, format!("sslmode=verify-ca&{other}")),
        // As in libpq: an authority that is named is an authority that is checked.
        (&right, format!("sslmode=require&{other}")),
        // The system doesn't know this authority.
        (&right, "sslmode=verify-full".to_owned()),
        (&right, "sslrootcert=system".to_owned()),
        (&misnamed, format!("sslmode=verify-full&{own}")),
    ] {
        let error = open(database, parameters.clone()).err();
        let is_refused = matches!(&error, Some(StoreError::Unreachable(why)) if why.contains("TLS")
            || why.contains("certificate"));
        assert!(is_refused, "{parameters}: {error:?}");
    }
}
