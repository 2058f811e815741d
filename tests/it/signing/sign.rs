//! `ati sign`.

use std::process::Command;

use serde_json::json;

use super::{HEX, Sandbox, has, setup};
use crate::support::ati::{BINARY, stdout};

/// The output of a shell that has the sandbox's variables, `$ati` and `$url`.
fn shell(sandbox: &Sandbox, url: &str, line: &str) -> String {
    let output = Command::new("sh")
        .args(["-c", line])
        .envs(sandbox.env.iter().cloned())
        .env("ATI_DIR", sandbox.path())
        .env("ati", BINARY)
        .env("url", url)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    stdout(&output)
}

#[test]
fn header_pasted_into_curl_is_accepted() {
    let (_api, edge) = setup("enforce");
    let proxy = edge.start();
    let mut sandbox = Sandbox::new();
    sandbox.set_secret(HEX);
    let url = format!("http://{}/tools", proxy.edge);
    let curl = "curl -s -o /dev/null -w '%{http_code}'";
    for line in [
        r#"-H "$("$ati" sign GET "$url")" "$url""#,
        r#"-H "$("$ati" sign get "$url?search=x")" "$url?search=y""#,
        r#"-H "$("$ati" sign GET /tools/shop:find)" "$url/shop:find""#,
        r#"-H "$(ATI_OUTPUT=table "$ati" sign GET "$url")" "$url""#,
    ] {
        let status = shell(&sandbox, &url, &format!("{curl} {line}"));
        assert_eq!(status, "200", "{line}");
    }
    let other = r#"-H "$("$ati" sign POST "$url")" "$url""#;
    assert_eq!(shell(&sandbox, &url, &format!("{curl} {other}")), "403");
    assert!(sandbox.path().join("manifests").metadata().is_err());
}

#[test]
fn json_of_sign_has_the_header_its_value_and_its_time() {
    let mut sandbox = Sandbox::new();
    sandbox.set("ATI_SANDBOX_SECRET", HEX);
    let signed = sandbox.result(&["-J", "sign", "GET", "/tools"]);
    assert_eq!(signed["header"], "X-Sandbox-Signature");
    let value = signed["value"].as_str().unwrap();
    let begins = format!("t={},s=", signed["timestamp"]);
    assert!(value.starts_with(&begins), "{signed}");
    let line = stdout(&sandbox.run(&["sign", "GET", "/tools"]));
    assert!(line.starts_with("X-Sandbox-Signature: t="), "{line}");
    assert_eq!(line.lines().count(), 1);
}

#[test]
fn sign_without_a_secret_names_the_three_places_for_it() {
    let sandbox = Sandbox::new();
    let (code, error) = sandbox.failure(&["sign", "GET", "/tools"]);
    assert_eq!((code, &error["code"]), (3, &json!("auth.missing_key")));
    for place in [
        "ATI_SANDBOX_SECRET,",
        "ATI_SANDBOX_SECRET_FILE",
        "/run/ati/sandbox_secret",
    ] {
        has(&error["message"], place);
    }
}

#[test]
fn sign_refuses_what_is_no_method_or_no_path_as_it_is_sent() {
    let mut sandbox = Sandbox::new();
    sandbox.set("ATI_SANDBOX_SECRET", HEX);
    for args in [
        ["sign", "G T", "/x"],
        ["sign", "GET", "x"],
        ["sign", "GET", "ftp://h/x"],
        ["sign", "GET", "/a b"],
        ["sign", "GET", "http://h/a/../b"],
    ] {
        let (code, error) = sandbox.failure(&args);
        assert_eq!(
            (code, &error["code"]),
            (2, &json!("input.invalid_value")),
            "{args:?}"
        );
    }
}
