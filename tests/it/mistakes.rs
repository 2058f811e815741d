//! Mistakes in manifests and in the conf file: what is said about them, and where they are.

use serde_json::{Value, json};

use crate::support::ati::{Setup, ati, stderr, stdout, tool, write};

const UPSTREAM: &str = "http://127.0.0.1:1";

fn check(setup: &Setup, args: &[&str]) -> Value {
    let output = ati(setup.path(), &[&["check"], args].concat());
    let report = serde_json::from_str(&stdout(&output));
    report.unwrap_or_else(|e| panic!("{e}: {}", stderr(&output)))
}

#[test]
fn check_names_file_key_and_line_of_each_mistake() {
    let setup = Setup::new()
        .manifest("a", "[provider]\nname = 'a'\n\n[[tools]]\nname = 't'\n")
        .manifest("b", "[provider]\nname = 'b'\nauth_type = 'barer'\n")
        .manifest("c", "[provider]\nname = 'c'\nhandler = 'htttp'\n")
        .manifest("d", "[provider]\nname = 'd'\nauth_type = 'bearer'\n")
        .route("e", UPSTREAM, "path_prefix = '/tools/x'")
        .route("f", UPSTREAM, "path_prefix = 'x'")
        .conf("[admin]\nlisten = '9090'\n\n[server.tls]\ncertificate = 'nope.pem'\nkey = 'nope.pem'\n");
    let conf = setup.path().join("ati.toml");
    let args = ["--enable-passthrough", "--conf", conf.to_str().unwrap()];
    let report = check(&setup, &args);
    let find = |list: &str, key: &str, part: &str| {
        let found = report[list]
            .as_array()
            .unwrap()
            .iter()
            .find(|one| one["key"] == key && one["message"].as_str().unwrap().contains(part));
        let found = found.unwrap_or_else(|| panic!("{key} {part}: {report}"));
        assert!(found["file"].is_string(), "{found}");
        found["line"].as_u64()
    };
    let (problems, warnings) = ("problems", "warnings");
    assert_eq!(
        find(warnings, "provider.base_url", "it is not set"),
        Some(1)
    );
    assert_eq!(
        find(
            problems,
            "provider.auth_type",
            "did you mean 'bearer'? Known are none"
        ),
        Some(3)
    );
    assert_eq!(
        find(
            warnings,
            "provider.handler",
            "did you mean 'http'? Known are http"
        ),
        Some(3)
    );
    assert_eq!(
        find(
            problems,
            "provider.auth_key_name",
            "auth_type 'bearer' needs it"
        ),
        Some(1)
    );
    assert!(find(warnings, "path_prefix", "no request can reach this route").is_some());
    assert!(find(problems, "path_prefix", "must start with '/'").is_some());
    assert_eq!(
        find(problems, "admin.listen", "'9090' is not an address"),
        Some(2)
    );
    assert!(
        !report.to_string().contains("'' is not in the keyring"),
        "{report}"
    );

    // The certificate is looked at once the settings hold.
    write(
        &conf,
        "[server.tls]\ncertificate = 'nope.pem'\nkey = 'nope.pem'\n",
    );
    let report = check(&setup, &args);
    let nope = &report["problems"].as_array().unwrap()[0];
    assert_eq!(nope["file"], conf.to_str().unwrap(), "{report}");
    assert_eq!(
        (&nope["key"], &nope["line"]),
        (&json!("server.tls.certificate"), &json!(2))
    );
    assert!(
        nope["message"]
            .as_str()
            .unwrap()
            .contains("nope.pem: can't be read"),
        "{nope}"
    );
}

#[test]
fn bad_name_of_the_url_variable_is_a_problem_in_the_words_of_existing_deployments() {
    let mcp = "handler = 'mcp'\nmcp_transport = 'http'\nmcp_url = 'http://h'";
    for (text, expected) in [
        (
            format!("{mcp}\nmcp_url_env = ' '"),
            "mcp_url_env must not be empty when set",
        ),
        (
            format!("{mcp}\nmcp_url_env = '1-X'"),
            "mcp_url_env '1-X' is not a valid POSIX env var name",
        ),
        (
            "handler = 'mcp'\nmcp_command = 'x'\nmcp_url_env = 'X'".to_owned(),
            "mcp_url_env requires handler = \"mcp\" and mcp_transport = \"http\"",
        ),
        (
            "base_url = 'http://h'\nmcp_url_env = 'X'".to_owned(),
            "mcp_url_env requires handler = \"mcp\" and mcp_transport = \"http\"",
        ),
    ] {
        let setup = Setup::new().manifest("m", &format!("[provider]\nname = 'm'\n{text}\n"));
        let said = stderr(&setup.output());
        let path = setup.path().join("manifests/m.toml");
        let expected = format!("Manifest {} is invalid: {expected}", path.display());
        assert!(
            said.replace("\\\"", "\"").contains(&expected),
            "{expected}: {said}"
        );
    }
}

#[test]
fn tool_without_a_base_url_says_so_when_it_is_called() {
    let dir = Setup::new()
        .tools("t", "", "", &tool("t", "endpoint = '/x'"))
        .dir;
    let output = ati(dir.path(), &["run", "t"]);
    assert!(!output.status.success());
    assert!(
        stderr(&output).contains("base_url of its manifest is missing"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn taken_admin_port_names_the_option_that_chooses_it() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let dir = tempfile::tempdir().unwrap();
    let output = ati(dir.path(), &["proxy", "--port", "0", "--admin", &address]);
    assert!(
        stderr(&output).contains("choose one with --admin"),
        "{}",
        stderr(&output)
    );
}
