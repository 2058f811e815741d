use super::super::path;
use super::*;
use crate::error::Refusal;
use std::path::PathBuf;

fn compile_text(text: &str) -> (Option<Compiled>, Vec<String>, Vec<String>) {
    let manifest = ManifestFile {
        path: PathBuf::from("m.toml"),
        name: "m".into(),
        handler: "passthrough".into(),
        provider: text.parse().unwrap(),
        tools: Vec::new(),
        unknown: Vec::new(),
        origin: crate::config::Origin::Permanent,
        spec: None,
    };
    let (mut problems, mut warnings) = (Vec::new(), Vec::new());
    let egress = egress::Settings::default();
    let keyring = Keyring::empty();
    let mut compiler = Compiler::new(&keyring, &egress, &mut problems, &mut warnings);
    let compiled = compiler.compile(&manifest);
    let text = |list: Vec<Problem>| list.iter().map(ToString::to_string).collect();
    (compiled, text(problems), text(warnings))
}

fn route(text: &str) -> Route {
    let text = format!("base_url = 'https://up.example/v1/'\n{text}");
    let (compiled, problems, _) = compile_text(&text);
    assert!(problems.is_empty(), "{problems:?}");
    compiled.unwrap().route
}

#[test]
fn invalid_manifest_is_reported_in_the_words_of_existing_deployments() {
    for (text, expected) in [
        (
            "path_prefix = '/x'",
            "passthrough provider requires non-empty base_url",
        ),
        (
            "base_url = 'http://h'",
            "passthrough provider requires at least one of host_match or path_prefix",
        ),
        (
            "base_url = 'http://h'\npath_prefix = 'x'",
            "passthrough path_prefix must start with '/'",
        ),
        (
            "base_url = 'http://h'\nhost_match = ' '",
            "passthrough host_match must be non-empty when set",
        ),
        (
            "base_url = 'ftp://h'\npath_prefix = '/x'\nforward_websockets = true",
            "forward_websockets requires base_url to use http:// or https://",
        ),
        (
            "base_url = 'http://h'\npath_prefix = '/x'\npath_replace = ['v1', '/v2']",
            "passthrough path_replace source must start with '/'",
        ),
    ] {
        let (compiled, problems, _) = compile_text(text);
        assert!(compiled.is_none());
        assert_eq!(
            problems,
            [format!("Manifest m.toml is invalid: {expected}")]
        );
    }
}

#[test]
fn misspelt_or_unusable_key_is_a_problem() {
    let (_, problems, _) =
        compile_text("base_url = 'http://h'\npath_prefix = '/x'\ndeny_path = ['/admin']");
    assert_eq!(
        problems,
        ["Manifest m.toml is invalid: deny_path: unknown key; did you mean 'deny_paths'?"]
    );
    let (_, problems, _) =
        compile_text("base_url = 'http://h'\npath_prefix = '/x'\ndeny_paths = ['admin/*']");
    assert!(
        problems[0].contains("'admin/*' can match nothing"),
        "{problems:?}"
    );
    let (_, problems, _) =
        compile_text("base_url = 'http://h'\npath_prefix = '/x'\nauth_type = 'bearer'");
    assert!(problems[0].contains("auth_key_name"), "{problems:?}");
    let (_, problems, _) =
        compile_text("base_url = 'http://u:p@h?x=1'\npath_prefix = '/x'\nstrip_prefix = 'yes'");
    assert_eq!(problems.len(), 3, "{problems:?}");
}

#[test]
fn missing_credential_is_a_warning() {
    let (compiled, problems, warnings) = compile_text(
        "base_url = 'http://h'\npath_prefix = '/x'\nauth_type = 'bearer'\nauth_key_name = 'k'",
    );
    assert!(compiled.is_some() && problems.is_empty());
    assert!(
        warnings[0].contains("'k' is not in the keyring"),
        "{warnings:?}"
    );
}

#[test]
fn denied_path_covers_everything_below_it() {
    let route = route("path_prefix = '/svc'\ndeny_paths = ['/admin', '/private/*', '/*.php']");
    let ask = |decoded: &str| route.rewrite(&format!("/svc{decoded}"), &format!("/svc{decoded}"));
    for denied in [
        "/admin",
        "/admin/",
        "/admin/x/y",
        "/private/x",
        "/private/x/y",
        "/a/b.php",
    ] {
        assert_eq!(ask(denied), Err(Refusal::PathDenied), "{denied}");
    }
    for denied in [
        "/admin;x",
        "/admin;/y",
        "/private;a=1/x",
        "/;x/admin",
        "/;/admin",
        "/;a=1/;b/admin",
        "/%61dmin",
        "/%3bx/admin",
        "/%2fadmin",
    ] {
        assert_eq!(ask(denied), Err(Refusal::PathDenied), "{denied}");
    }
    for fine in ["/administrator", "/private", "/x", "/", "/php"] {
        assert!(ask(fine).is_ok(), "{fine}");
    }
}

#[test]
fn replaced_path_is_checked_and_denied_again() {
    let away = route("path_prefix = '/svc'\npath_replace = ['/api', '']\ndeny_paths = ['/admin']");
    let ask = |route: &Route, path: &str| {
        let received = format!("/svc{path}");
        let decoded = path::normalise(&received).unwrap().into_owned();
        route.rewrite(&received, &decoded).map(|path| path.path)
    };
    for path in [
        "/api../admin",
        "/api%2e%2e/admin",
        "/api..%2fadmin",
        "/api./x",
    ] {
        assert_eq!(ask(&away, path).unwrap_err().status(), 400, "{path}");
    }
    assert_eq!(ask(&away, "/api/admin"), Err(Refusal::PathDenied));
    let root = route("path_prefix = '/svc'\npath_replace = ['/v1', '/']\ndeny_paths = ['/admin']");
    assert_eq!(ask(&root, "/v1/admin"), Err(Refusal::PathDenied));
    assert_eq!(ask(&root, "/v1/fine").unwrap(), "//fine");
}

#[test]
fn target_joins_base_path_rewritten_path_and_query() {
    let route = route("path_prefix = '/svc'\npath_replace = ['/old', '/new']");
    let path = route.rewrite("/svc/old/a%2fb", "/svc/old/a/b").unwrap();
    let sent = &route.attachment;
    let target = |query| String::from_utf8(route.target(&path.path, query, sent, true)).unwrap();
    assert_eq!(target(None), "/v1/new/a%2fb");
    assert_eq!(target(Some("x=1&y")), "/v1/new/a%2fb?x=1&y");
    assert_eq!(route.host_header, "up.example");
    assert_eq!((route.upstream.tls, route.upstream.port), (true, 443));
}
