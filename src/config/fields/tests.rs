use std::collections::BTreeSet;

use super::*;
use crate::catalog::Catalog;
use crate::config::ManifestFile;
use crate::config::section::recorded_keys;
use crate::egress;
use crate::error::Problem;
use crate::keyring::Keyring;
use crate::route;

/// The table and the field that a key like `provider.auth_generator.args` or
/// `tools.t.response.extract` stands for.
fn table_and_field(key: &str) -> (&'static str, &str) {
    let (path, field) = key.rsplit_once('.').unwrap();
    let table = match path {
        "provider" => "provider",
        "provider.cli_sandbox" => "cli_sandbox",
        "provider.auth_generator" => "auth_generator",
        _ if path.starts_with("tools") && path.ends_with(".response") => "response",
        _ if path.starts_with("tools") => "tools",
        other => panic!("{other} is a table without a group"),
    };
    (table, field)
}

#[test]
fn fields_read_for_tools_are_documented() {
    for handler in ["http", "openapi", "xai", "mcp"] {
        let mut provider = sample_table("provider");
        provider.insert("handler".into(), handler.into());
        provider.insert("auth_type".into(), "none".into());
        provider.remove("egress");
        provider.remove("mcp_url_env");
        if handler == "mcp" {
            provider.insert("mcp_transport".into(), "http".into());
            // Only for a server that ati starts.
            provider.remove("run_as");
            provider.insert("mcp_url_env".into(), "THEIR_URL".into());
        }
        let mut tool = sample_table("tools");
        tool.insert("examples".into(), toml::Value::Array(Vec::new()));
        let mut manifest = toml::Table::new();
        manifest.insert("provider".into(), provider.into());
        manifest.insert("tools".into(), vec![toml::Value::from(tool)].into());
        recorded_keys();
        Catalog::from_text(&toml::to_string(&manifest).unwrap());
        let read = recorded_keys();
        assert!(read.contains("provider.auth_type"), "{read:?}");
        for key in &read {
            let (table, field) = table_and_field(key);
            assert!(names(table).any(|name| name == field), "{key}");
        }
    }
}

/// The fields that the page lists for `handler = "passthrough"` and for every provider.
fn passthrough_fields() -> impl Iterator<Item = &'static Field> {
    let is_for_routes =
        |group: &&Group| matches!(group.handler, None | Some(HandlerKind::Passthrough));
    let groups = GROUPS.iter().filter(|group| group.table == "provider");
    groups.filter(is_for_routes).flat_map(|group| group.fields)
}

fn passthrough_problems(provider: toml::Table) -> Vec<Problem> {
    let mut manifest = ManifestFile::from_text("m.toml", "[provider]\nname = 'm'");
    manifest.handler = HandlerKind::Passthrough;
    manifest.provider = provider;
    let mut problems = Vec::new();
    route::Table::build(
        &[manifest],
        true,
        &Keyring::empty(),
        &egress::Settings::default(),
        &mut problems,
        &mut Vec::new(),
    );
    problems
}

#[test]
fn documented_fields_of_passthrough_are_read() {
    let provider: toml::Table = passthrough_fields()
        .map(|field| (field.name.to_owned(), sample(field.kind)))
        .collect();
    let is_unknown = |problem: &&Problem| problem.message.starts_with("unknown key");
    let problems = passthrough_problems(provider.clone());
    assert_eq!(
        problems.iter().filter(is_unknown).count(),
        0,
        "{problems:?}"
    );
    let mut wrong = provider;
    wrong.insert("deny_path".into(), "/x".into());
    let problems = passthrough_problems(wrong);
    assert_eq!(
        problems.iter().filter(is_unknown).count(),
        1,
        "{problems:?}"
    );
}

#[test]
fn fields_read_for_passthrough_are_documented() {
    recorded_keys();
    passthrough_problems(toml::Table::new());
    let read = recorded_keys();
    assert!(read.contains("deny_paths"), "{read:?}");
    let documented: BTreeSet<String> = passthrough_fields()
        .map(|field| field.name.to_owned())
        .collect();
    let undocumented: Vec<&String> = read.difference(&documented).collect();
    assert!(undocumented.is_empty(), "{undocumented:?}");
}

#[test]
fn groups_of_absent_handlers_say_so() {
    for group in GROUPS {
        let is_absent = matches!(group.handler, Some(HandlerKind::FileManager));
        assert_eq!(group.note().is_some(), is_absent, "{}", group.title);
    }
}
