//! The rooms, and who may import whom.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

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
        "json",
        "pattern",
        "process",
        "request_id",
        "spool",
    ],
    &["keyring"],
    &["auth", "egress"],
    &["credential"],
    &["config"],
    &["runtime"],
    &["catalog", "route"],
    &["exec"],
    &["snapshot"],
    &["filters"],
    &["call"],
    &["api"],
    &["gateway"],
    &["server"],
    &["cli"],
];

/// Rooms in which Pingora may be named.
const PINGORA: &[&str] = &["server", "gateway", "egress"];

fn sources() -> Vec<(String, PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let relative = path.strip_prefix(&root).unwrap();
            let room = relative.iter().next().unwrap().to_str().unwrap();
            let room = room.trim_end_matches(".rs").to_owned();
            let text = std::fs::read_to_string(&path).unwrap();
            found.push((room, path, text));
        }
    }
    found.retain(|(room, ..)| room != "lib" && room != "main");
    assert!(found.len() > 30);
    found
}

fn layer(room: &str) -> usize {
    LAYERS
        .iter()
        .position(|layer| layer.contains(&room))
        .unwrap_or_else(|| panic!("'{room}' has no place in LAYERS"))
}

/// The code of a file without comments and without the tests at its end.
fn code(path: &Path, text: &str) -> String {
    if path.ends_with("tests.rs") {
        return String::new();
    }
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
    code.lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn rooms_import_only_from_below() {
    let mut wrong = BTreeSet::new();
    for (room, path, text) in sources() {
        for part in code(&path, &text).split("crate::").skip(1) {
            let used: String = part
                .chars()
                .take_while(|c| c.is_alphanumeric() || *c == '_')
                .collect();
            if used == room || used.is_empty() {
                continue;
            }
            let fine = layer(&used) < layer(&room) || (layer(&room) == 0 && layer(&used) == 0);
            if !fine {
                wrong.insert(format!("{} uses {used}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_room_is_a_module_of_the_library() {
    let lib =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs")).unwrap();
    for room in LAYERS.iter().flat_map(|layer| layer.iter()) {
        assert!(lib.contains(&format!("pub mod {room};")), "{room}");
    }
}

#[test]
fn pingora_stays_in_its_rooms() {
    for (room, path, text) in sources() {
        if !PINGORA.contains(&room.as_str()) {
            assert!(
                !code(&path, &text).contains("pingora_"),
                "{}",
                path.display()
            );
        }
    }
}

#[test]
fn statuses_are_chosen_in_one_place() {
    for (room, path, text) in sources() {
        let code = code(&path, &text);
        let admin = path.ends_with("server/admin.rs");
        if room != "error" && !admin {
            let chosen =
                code.matches("StatusCode::").count() - code.matches("StatusCode::OK").count();
            assert_eq!(chosen, 0, "{}", path.display());
        }
    }
}

#[test]
fn secrets_have_no_way_to_be_printed() {
    for (room, path, text) in sources() {
        if room != "keyring" {
            continue;
        }
        let code = code(&path, &text);
        for forbidden in [
            "impl fmt::Display for Secret",
            "impl Display for Secret",
            "Serialize",
        ] {
            assert!(!code.contains(forbidden), "{}: {forbidden}", path.display());
        }
    }
}

#[test]
fn only_output_writes_to_stdout() {
    for (_, path, text) in sources() {
        let code = code(&path, &text);
        for forbidden in ["println!", "print!(", "stdout()"] {
            if !path.ends_with("cli/output.rs") {
                assert!(!code.contains(forbidden), "{}: {forbidden}", path.display());
            }
        }
    }
}

#[test]
fn unsafe_code_is_where_it_is_argued_for() {
    let mut allowed = Vec::new();
    for (_, path, text) in sources() {
        if text.contains("allow(unsafe_code)") {
            allowed.push(path.file_name().unwrap().to_str().unwrap().to_owned());
        }
    }
    allowed.sort();
    assert_eq!(allowed, ["locked.rs"]);
}
