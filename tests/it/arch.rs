//! The rooms and what they may import, and each absence that ARCHITECTURE.md states.

use std::collections::BTreeSet;
use std::path::Path;

use crate::support::sources::{Source, sources};

/// Bottom up. Rooms of one line don't know each other, except for the lowest.
const LAYERS: &[&[&str]] = &[
    &[
        "derived_key",
        "clock",
        "error",
        "telemetry",
        "text",
        "files",
        "hop_by_hop",
        "http1",
        "json",
        "json_scan",
        "mcp",
        "output_folder",
        "pattern",
        "policy",
        "process",
        "request_id",
        "spool",
        "backoff",
        "budget",
        "single_flight",
    ],
    &["keyring"],
    &["store"],
    &["auth", "egress"],
    &["credential"],
    &["config"],
    &["runtime"],
    &["catalog", "route"],
    &["exec"],
    &["skills"],
    &["snapshot"],
    &["filters"],
    &["call"],
    &["assist"],
    &["api"],
    &["gateway"],
    &["server"],
    &["cli"],
];

/// Rooms that serve requests.
const SERVING: &[&str] = &[
    "gateway", "filters", "api", "assist", "call", "route", "exec",
];

/// Files and folders that answer with a status of their own.
const STATUSES: &[&str] = &[
    "server/admin.rs",
    "gateway/tunnel/relay.rs",
    "cli/demo/upstream.rs",
];

/// Files and folders that read the bytes of secrets.
const SECRETS: &[&str] = &[
    "keyring/",
    "credential/",
    "auth/",
    "route/passthrough.rs",
    "exec/http/send.rs",
    "exec/mcp/http.rs",
    "exec/credentials/oauth.rs",
    "exec/credentials/generator.rs",
    "exec/credentials/service_account.rs",
    "exec/files/s3.rs",
    "exec/sigv4.rs",
    "assist/llm/mod.rs",
    "call/credentials.rs",
    "call/files.rs",
    "call/mcp.rs",
    "call/upstream_override.rs",
    "filters/identity.rs",
    "skills/remote/access.rs",
    "skills/remote/store/gcs.rs",
    "skills/remote/store/s3.rs",
    "snapshot/build.rs",
    "store/url.rs",
    "server/lifecycle/reload.rs",
    "cli/admin/place.rs",
    "cli/edge/mod.rs",
];

/// Files and folders that read environment variables.
const ENVIRONMENT: &[&str] = &[
    "config/environment.rs",
    "config/jwt.rs",
    "config/master_keys.rs",
    "config/paths.rs",
    "keyring/load.rs",
    "process/",
    "server/lifecycle/notify.rs",
    "server/lifecycle/relaunch.rs",
    "store/url.rs",
    "auth/session.rs",
    "auth/sandbox.rs",
    "cli/",
];

fn layer(room: &str) -> usize {
    LAYERS
        .iter()
        .position(|layer| layer.contains(&room))
        .unwrap_or_else(|| panic!("'{room}' has no place in LAYERS"))
}

fn root_file(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    std::fs::read_to_string(path).unwrap()
}

/// The sources that use one of `patterns` outside of the `allowed` files and folders.
fn users(patterns: &[&str], allowed: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for source in sources() {
        let is_allowed = allowed.iter().any(|allowed| source.is_in(allowed));
        for pattern in patterns {
            if !is_allowed && source.code().contains(pattern) {
                found.push(format!("{}: {pattern}", source.name));
            }
        }
    }
    found
}

/// That the sources have `patterns` in the `allowed` places only, that each of those places uses
/// one, and that ARCHITECTURE.md names it.
fn assert_only_in(patterns: &[&str], allowed: &[&str]) {
    assert_eq!(users(patterns, allowed), Vec::<String>::new());
    let (all, page) = (sources(), root_file("ARCHITECTURE.md"));
    for place in allowed {
        let uses = |source: &Source| patterns.iter().any(|p| source.code().contains(p));
        let used = all.iter().any(|source| source.is_in(place) && uses(source));
        assert!(used, "{place} doesn't use any of {patterns:?}");
        let named = page.contains(&format!("`{place}`"));
        assert!(named, "ARCHITECTURE.md doesn't name {place}");
    }
}

#[test]
fn rooms_import_only_from_below() {
    let mut wrong = BTreeSet::new();
    for source in sources() {
        let room = source.room();
        for part in source.code().split("crate::").skip(1) {
            let is_name = |c: &char| c.is_alphanumeric() || *c == '_';
            let used: String = part.chars().take_while(is_name).collect();
            if used == room || used.is_empty() {
                continue;
            }
            let fine = layer(&used) < layer(room) || (layer(room) == 0 && layer(&used) == 0);
            if !fine {
                wrong.insert(format!("{}: uses {used}", source.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn layers_name_every_room() {
    let lib = root_file("src/lib.rs");
    for room in LAYERS.iter().flat_map(|layer| layer.iter()) {
        assert!(lib.contains(&format!("pub mod {room};")), "{room}");
    }
}

#[test]
fn pingora_stays_in_its_rooms() {
    assert_only_in(&["pingora_"], &["server/", "gateway/", "egress/peer.rs"]);
}

#[test]
fn statuses_are_chosen_in_error_only() {
    let allowed: Vec<&str> = [&["error/"], STATUSES].concat();
    let page = root_file("ARCHITECTURE.md");
    for place in &allowed {
        assert!(page.contains(&format!("`{place}`")), "{place}");
    }
    let constants = users(&["StatusCode::", "StatusCode::from_u16"], &allowed);
    assert_eq!(constants, Vec::<String>::new());
    for source in sources() {
        if allowed.iter().any(|allowed| source.is_in(allowed)) {
            continue;
        }
        // As text in a status line, and as a number for Pingora's header.
        for begin in ["HTTP/1.1 ", "HTTP/1.0 ", "ResponseHeader::build("] {
            let text = source.code_with_texts();
            let chosen = text
                .split(begin)
                .skip(1)
                .any(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
            assert!(!chosen, "{}: {begin}", source.name);
        }
    }
}

#[test]
fn errors_have_no_wildcard_arm() {
    for source in sources() {
        if source.is_in("error/refusal.rs") || source.is_in("error/call.rs") {
            assert!(!source.code().contains("_ =>"), "{}", source.name);
        }
    }
}

#[test]
fn executors_import_no_other_executor() {
    let handlers: BTreeSet<String> = sources()
        .iter()
        .filter_map(|source| {
            let (folder, _) = source.name.strip_prefix("exec/")?.split_once('/')?;
            (folder != "credentials").then(|| folder.to_owned())
        })
        .collect();
    assert!(handlers.contains("http") && handlers.contains("mcp"));
    for source in sources() {
        for own in &handlers {
            if !source.is_in(&format!("exec/{own}/")) {
                continue;
            }
            // A folder's mod.rs reaches its neighbours by `super`, its other files by two of them.
            let up = match source.name.ends_with("/mod.rs") {
                true => "super::",
                false => "super::super::",
            };
            for other in handlers.iter().filter(|other| *other != own) {
                let code = source.code();
                let uses = [format!("exec::{other}"), format!("{up}{other}")]
                    .iter()
                    .any(|path| code.contains(path));
                let in_group = code.split("exec::{").skip(1).any(|rest| {
                    let group = rest.split(';').next().unwrap_or_default();
                    group
                        .split([',', '{', '}', ':', ' ', '\n'])
                        .any(|word| word == other)
                });
                assert!(!uses && !in_group, "{} imports {other}", source.name);
            }
        }
    }
}

#[test]
fn executors_never_see_the_keyring() {
    for source in sources().iter().filter(|source| source.is_in("exec/")) {
        for forbidden in ["Keyring", "Lookup"] {
            assert!(!source.has_word(forbidden), "{}: {forbidden}", source.name);
        }
    }
}

#[test]
fn admission_alone_admits() {
    let makes = |source: &&Source| {
        let code = source.code();
        // The type's definition and its `impl` block end the same way.
        let all = code.matches("Admitted {").count();
        let others =
            code.matches("struct Admitted {").count() + code.matches("impl Admitted {").count();
        all > others
    };
    let all = sources();
    let makers: Vec<&str> = all
        .iter()
        .filter(makes)
        .map(|source| source.name.as_str())
        .collect();
    assert_eq!(makers, ["filters/mod.rs"]);
}

#[test]
fn secrets_have_no_way_to_be_printed() {
    for source in sources().iter().filter(|source| source.is_in("keyring/")) {
        for forbidden in ["Display for Secret", "Serialize"] {
            assert!(
                !source.code().contains(forbidden),
                "{}: {forbidden}",
                source.name
            );
        }
        let derived = source.code().replace(['\n', ' '], "");
        assert!(
            !derived.contains("Debug)]pubstructSecret"),
            "{}",
            source.name
        );
    }
}

#[test]
fn secrets_are_read_where_it_is_stated() {
    assert_only_in(&[".expose()", "Secret::expose"], SECRETS);
}

#[test]
fn environment_is_read_where_it_is_stated() {
    let reads = ["env::var(", "env::var_os(", "env::vars(", "env::vars_os("];
    assert_only_in(&reads, ENVIRONMENT);
}

#[test]
fn rooms_that_serve_requests_touch_no_files() {
    let patterns = [
        "std::fs",
        "tokio::fs",
        "fs::File",
        "File::open",
        "OpenOptions",
    ];
    for source in sources() {
        if SERVING.contains(&source.room()) && !source.is_in("exec/credentials/generator.rs") {
            for forbidden in patterns {
                assert!(
                    !source.code().contains(forbidden),
                    "{}: {forbidden}",
                    source.name
                );
            }
        }
    }
}

/// A pipe without a writer, or a device without an end, must not hold up a reload.
#[test]
fn rooms_that_a_reload_reads_with_open_files_in_one_place() {
    let rooms = [
        "auth/",
        "catalog/",
        "config/",
        "egress/",
        "keyring/",
        "skills/",
        "snapshot/",
    ];
    // Commands read the caller's own token and secret.
    let allowed = ["auth/session.rs", "auth/sandbox.rs"];
    for source in sources() {
        let is_read = rooms.iter().any(|room| source.is_in(room));
        if !is_read || allowed.contains(&source.name.as_str()) {
            continue;
        }
        for forbidden in ["fs::read(", "fs::read_to_string(", "File::open("] {
            let code = source.code();
            assert!(!code.contains(forbidden), "{}: {forbidden}", source.name);
        }
    }
}

#[test]
fn blocking_locks_are_parking_lots() {
    for source in sources() {
        for part in source.code().split("std::sync::").skip(1) {
            let import = part.split(';').next().unwrap_or_default();
            // `std::sync::{Arc, Mutex}` and `std::sync::Mutex`; `Mutex` alone may be another's.
            let import = match import.strip_prefix('{') {
                Some(group) => group.split('}').next().unwrap_or_default(),
                None => import
                    .split([',', '(', ')', '>', '<', ' '])
                    .next()
                    .unwrap_or_default(),
            };
            for forbidden in ["Mutex", "RwLock", "Condvar", "PoisonError"] {
                assert!(!import.contains(forbidden), "{}: {forbidden}", source.name);
            }
        }
    }
    let cargo = root_file("Cargo.toml");
    assert!(cargo.contains("await_holding_lock = \"deny\""));
}

#[test]
fn only_output_writes_to_stdout() {
    assert_eq!(
        users(&["println!", "print!(", "stdout()"], &["cli/output.rs"]),
        Vec::<String>::new()
    );
}

#[test]
fn unsafe_code_is_where_it_is_argued_for() {
    assert_only_in(&["allow(unsafe_code)"], &["keyring/locked.rs"]);
    for source in sources() {
        let allowed = source.is_in("keyring/locked.rs");
        assert!(allowed || !source.has_word("unsafe"), "{}", source.name);
    }
    assert!(root_file("Cargo.toml").contains("unsafe_code = \"deny\""));
}

#[test]
fn dependencies_log_nothing() {
    let cargo = root_file("Cargo.toml");
    assert!(!cargo.contains("tracing-log"));
    assert!(!cargo.contains("\nlog = "));
    let telemetry = root_file("src/telemetry/mod.rs");
    assert!(telemetry.contains("meta.target().starts_with(\"ati::\")"));
}

#[test]
fn errors_are_typed() {
    assert!(!root_file("Cargo.toml").contains("\nanyhow"));
    assert_eq!(users(&["anyhow"], &[]), Vec::<String>::new());
}
