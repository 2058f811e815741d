//! What a reload must not change: listeners stay as they were opened, and protections stay.

use tracing::warn;

use crate::config::{self, Listener, Settings, Tls};
use crate::error::Problem;
use crate::keyring::Source;
use crate::snapshot::Snapshot;

/// The listeners as they were opened at the start. A listener that is the same in the new settings
/// takes its certificates from there.
pub fn keep_listeners(running: &[Listener], wanted: &[Listener]) -> Vec<Listener> {
    let same = |one: &Listener, other: &Listener| {
        one.name == other.name
            && one.address == other.address
            && one.tls.is_some() == other.tls.is_some()
    };
    let keep = |kept: &Listener| {
        let new = wanted.iter().find(|other| same(kept, other));
        Listener {
            tls: new.unwrap_or(kept).tls.clone(),
            ..kept.clone()
        }
    };
    running.iter().map(keep).collect()
}

/// The new settings are consistent, but may contradict the listeners that were kept: a listener
/// that still expects PROXY headers needs trusted proxies that may send them.
pub fn check_kept_listeners(settings: &Settings) -> Result<(), Vec<Problem>> {
    let found = config::check_listeners(&settings.listeners, &settings.trusted_proxies);
    let problem = |what: &String| Problem::new(format!("{what}; a restart is needed for that"));
    let problems: Vec<Problem> = found.iter().map(problem).collect();
    if problems.is_empty() {
        Ok(())
    } else {
        Err(problems)
    }
}

/// What protected the old snapshot and is missing from the new one. A file that is missing for a
/// moment must not let callers in: a protection can be removed only with a restart.
pub fn lost_protections(old: &Snapshot, new: &Snapshot) -> Vec<Problem> {
    let mut problems = Vec::new();
    if old.verifier.is_some() && new.verifier.is_none() {
        problems.push(Problem::new(
            "the JWT keys are gone, and every caller would be let in; a restart is needed for that",
        ));
    }
    let wants_certificates = |settings: &Settings, name: &str| {
        let listener = settings.listeners.iter().find(|one| one.name == name);
        let tls = listener.and_then(|listener| listener.tls.as_ref());
        tls.is_some_and(Tls::wants_certificates)
    };
    for name in new.certificates.keys() {
        if wants_certificates(&old.settings, name) && !wants_certificates(&new.settings, name) {
            problems.push(Problem::new(format!(
                "listener '{name}' would let callers in without a certificate; \
                 a restart is needed for that"
            )));
        }
    }
    for provider in new.catalog.lost_since(&old.catalog) {
        problems.push(Problem::new(format!(
            "the document of '{provider}' can't be read, and its tools would be lost"
        )));
    }
    let sealed = |source| matches!(source, Source::Sealed | Source::Persistent);
    let (was, is) = (old.keyring.source(), new.keyring.source());
    let emptied = was != Source::Empty && is == Source::Empty;
    if emptied || (sealed(was) && !sealed(is)) {
        problems.push(Problem::new(format!(
            "the keyring was {}, and now it is {}; a restart is needed for that",
            was.as_str(),
            is.as_str()
        )));
    }
    problems
}

/// Logs each changed setting that a reload can't apply.
pub fn warn_about_restart(old: &Settings, new: &Settings) {
    let without_certificates = |settings: &Settings| -> Vec<Listener> {
        let without = |listener: &Listener| Listener {
            tls: listener.tls.as_ref().map(|_| Tls::default()),
            ..listener.clone()
        };
        settings.listeners.iter().map(without).collect()
    };
    let changed = [
        (
            "server.bind, server.port or a listener",
            without_certificates(old) != without_certificates(new),
        ),
        (
            "server.upgrade_socket",
            old.upgrade_socket != new.upgrade_socket,
        ),
        ("admin.listen", old.admin != new.admin),
        ("server.workers", old.workers != new.workers),
        (
            "files.spool_bytes",
            old.files.spool_bytes != new.files.spool_bytes,
        ),
        ("audit.chain", old.audit.chain != new.audit.chain),
        (
            "store.call_log, call_log_days or call_log_rows",
            (old.store.call_log, old.store.retention) != (new.store.call_log, new.store.retention),
        ),
        ("egress.ca_file", old.egress.ca_file != new.egress.ca_file),
    ];
    for (key, _) in changed.iter().filter(|(_, changed)| *changed) {
        warn!("{key} has changed; a restart is needed for that");
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::config::Address;

    fn listener(name: &str, port: u16, certificate: Option<&str>) -> Listener {
        Listener {
            name: name.to_owned(),
            address: Address::Tcp(([127, 0, 0, 1], port).into()),
            proxy_protocol: false,
            tls: certificate.map(|path| Tls {
                certificate: PathBuf::from(path),
                ..Tls::default()
            }),
        }
    }

    #[test]
    fn kept_listener_takes_new_certificates_only_if_it_is_the_same() {
        let running = [
            listener("same", 1, Some("old")),
            listener("moved", 2, Some("old")),
            listener("plain", 3, None),
            listener("removed", 4, Some("old")),
        ];
        let wanted = [
            listener("same", 1, Some("new")),
            listener("moved", 22, Some("new")),
            listener("plain", 3, Some("new")),
            listener("added", 5, Some("new")),
        ];
        let expected = [
            listener("same", 1, Some("new")),
            listener("moved", 2, Some("old")),
            listener("plain", 3, None),
            listener("removed", 4, Some("old")),
        ];
        assert_eq!(keep_listeners(&running, &wanted), expected);
    }
}
