use super::*;

fn build(texts: &[&str]) -> (Catalog, Vec<String>, Vec<String>) {
    let (mut problems, mut warnings) = (Vec::new(), Vec::new());
    let mut manifests: Vec<_> = texts
        .iter()
        .enumerate()
        .map(|(n, text)| ManifestFile::from_text(&format!("{n}.toml"), text))
        .collect();
    let egress = egress::Settings::default();
    let catalog = Catalog::build(
        &mut manifests,
        &Specs::none(),
        Some(&egress),
        &mut problems,
        &mut warnings,
    );
    let text = |list: Vec<Problem>| list.iter().map(ToString::to_string).collect();
    (catalog, text(problems), text(warnings))
}

#[test]
fn tool_is_found_by_name_and_alias_within_its_scope() {
    let (catalog, problems, _) = build(&[
        "[provider]\nname = 'test_api'\nbase_url = 'http://h'\n[[tools]]\nname = 'test_api:get_data'\n\
         [[tools]]\nname = 'plain'\nscope = ''\n[[tools]]\nname = 'own'\nscope = 'tool:shared'\nmethod = 'post'",
        "[provider]\nname = '_llm'\ninternal = true\nbase_url = 'http://h'\n[[tools]]\nname = '_chat_completion'",
    ]);
    assert!(problems.is_empty(), "{problems:?}");
    let found = |name: &str| catalog.find(name).map(|tool| tool.name.as_str());
    assert_eq!(found("test_api:get_data"), Some("test_api:get_data"));
    assert_eq!(found("test_api_get_data"), Some("test_api:get_data"));
    assert_eq!(found("test_api__get_data"), Some("test_api:get_data"));
    assert_eq!(found("test:api_get_data"), None);
    assert_eq!(found(&"_".repeat(100_000)), None);
    // Internal tools can't be found.
    assert_eq!(found("_chat_completion"), None);
    let scope = |name: &str| catalog.find(name).unwrap().scope.clone();
    assert_eq!(
        scope("test_api:get_data").as_deref(),
        Some("tool:test_api:get_data")
    );
    assert_eq!(scope("plain"), None);
    assert_eq!(scope("own").as_deref(), Some("tool:shared"));
    let scopes = Scopes::parse("tool:shared");
    let visible: Vec<_> = catalog.visible(&scopes).map(|t| t.name.as_str()).collect();
    assert_eq!(visible, ["plain", "own"]);
}

#[test]
fn later_tool_of_the_same_name_wins_with_a_warning() {
    let manifest = |endpoint: &str| {
        format!(
            "[provider]\nname = 'p'\nbase_url = 'http://h'\n[[tools]]\nname = 't'\nendpoint = '{endpoint}'"
        )
    };
    let (catalog, _, warnings) = build(&[&manifest("/a"), &manifest("/b")]);
    assert_eq!(
        catalog.find("t").unwrap().invocation.listed_endpoint(),
        "/b"
    );
    assert_eq!(catalog.tools().len(), 1);
    assert!(
        warnings[0].contains("replaces the tool of the same name"),
        "{warnings:?}"
    );
}

#[test]
fn problems_of_all_manifests_are_reported_together() {
    let (_, problems, warnings) = build(&[
        "[provider]\nname = 'a'\nauth_type = 'bearer'\nbase_ulr = 'x'\n[[tools]]\nmethod = 'BREW'\n[[tools]]\nname = 't'\ntags = 5",
        "[provider]\nname = 'b'\nauth_type = 'magic'\n[provider.auth_generator]\ntype = 'command'",
        "[provider]\nname = 'c'\nhandler = 'cli'",
        "[provider]\nname = 'd'\nhandler = 'mcp'",
        "[provider]\nname = 'e'\nhandler = 'mcp'\nmcp_transport = 'pigeon'",
    ]);
    let expected = [
        "Manifest 0.toml is invalid: provider.auth_key_name: auth_type 'bearer' needs it",
        "Manifest 0.toml is invalid: tools[0].name: a tool needs a name of at most 256 characters",
        "Manifest 0.toml is invalid: tools[0].method: unknown method 'BREW'; known are GET, POST, PUT, DELETE, PATCH",
        "Manifest 0.toml is invalid: tools.t.tags: invalid type: integer `5`, expected a sequence",
        "Manifest 1.toml is invalid: provider.auth_type: unknown auth type 'magic'; known are none, bearer, header, query, basic, oauth2, url",
        "Manifest 1.toml is invalid: provider.auth_generator.command: type 'command' needs it",
        "Manifest 4.toml is invalid: provider.mcp_transport: expected 'stdio' or 'http'",
    ];
    assert_eq!(problems, expected);
    assert!(
        warnings.contains(
            &"0.toml: provider.base_ulr: unknown key; did you mean 'base_url'?".to_owned()
        ),
        "{warnings:?}"
    );
    assert!(
        warnings
            .iter()
            .any(|w| w.contains("2.toml: provider.cli_command: without it"))
    );
    assert!(
        warnings
            .iter()
            .any(|w| w.contains("3.toml: provider.mcp_command: without it"))
    );
}

/// The reference page, the schema for editors and the reader have the same fields.
#[test]
fn every_documented_field_is_read() {
    use crate::config::fields;
    for handler in ["http", "openapi", "xai", "mcp", "cli", "file_manager"] {
        let mut provider = fields::sample_table("provider");
        for (key, value) in [("handler", handler), ("auth_type", "none")] {
            provider.insert(key.into(), value.into());
        }
        provider.remove("egress");
        provider.remove("mcp_url_env");
        // It would have to name one of the destinations.
        provider.remove("upload_default_destination");
        if handler == "mcp" {
            provider.insert("mcp_transport".into(), "http".into());
            // Only for a server that ati starts.
            provider.remove("run_as");
            provider.insert("mcp_url_env".into(), "THEIR_URL".into());
        }
        let mut tool = fields::sample_table("tools");
        tool.insert("endpoint".into(), "download".into());
        tool.insert("examples".into(), toml::Value::Array(Vec::new()));
        let mut manifest = toml::Table::new();
        manifest.insert("provider".into(), provider.into());
        manifest.insert("tools".into(), vec![toml::Value::from(tool)].into());
        let text = toml::to_string(&manifest).unwrap();
        let (_, problems, warnings) = build(&[&text]);
        assert!(problems.is_empty(), "{problems:?}");
        assert!(
            !warnings.iter().any(|w| w.contains("unknown key")),
            "{warnings:?}"
        );
    }
}

#[test]
fn mistakes_that_only_fail_calls_are_warnings() {
    let (catalog, problems, mut warnings) = build(&[
        "[provider]\nname = 'a'\nbase_url = 'http://h'\n[[tools]]\nname = 't'\nendpoint = '/x/{id}'\n\
         input_schema = { type = 'objekt' }\nresponse = { extract = '$[', format = 'yaml' }",
    ]);
    assert!(problems.is_empty(), "{problems:?}");
    let mut found = Vec::new();
    catalog.compile_schemas(&mut found);
    warnings.extend(found.iter().map(ToString::to_string));
    for expected in [
        "{id} is sent as it stands",
        "every call will fail",
        "unknown format 'yaml' has no effect",
        "arguments are not checked",
    ] {
        assert!(
            warnings.iter().any(|w| w.contains(expected)),
            "{expected}: {warnings:?}"
        );
    }
}
