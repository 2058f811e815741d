//! Doors that stand open are closed, or said out loud: a folder that isn't there, tools without
//! token keys, routes without signatures.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;

use ati::keyring::SessionKey;
use serde_json::{Value, json};

use crate::support::ati::{Proxy, Setup, ati, command, stderr, stdout, tool, write};
use crate::support::http::Client;
use crate::support::tokens::{SIGNING, key_pair};

const EVERY_CALLER: &str = "no token keys: every caller may call every tool";
const UPSTREAM: &str = "http://127.0.0.1:1";

/// A proxy with a tool.
fn with_tool() -> Setup {
    Setup::new().tools("t", UPSTREAM, "", &tool("t", ""))
}

/// A route that adds a credential.
fn with_route(setup: Setup) -> Setup {
    let more = "path_prefix = '/svc'\nauth_type = 'bearer'\nauth_key_name = 'key'";
    setup
        .credentials(&json!({"key": "planted-key", "sandbox_signing_shared_secret": SIGNING}))
        .route("svc", UPSTREAM, more)
}

/// The first port that it listens on, on loopback: it may be open to other machines too.
fn healthy(proxy: &Proxy) -> bool {
    let address = SocketAddr::from(([127, 0, 0, 1], proxy.edge.port()));
    Client::connect(address).get("/health").status == 200
}

fn check(dir: &Path, args: &[&str]) -> (Output, Value) {
    let output = ati(dir, &[&["check"], args].concat());
    let report = serde_json::from_str(&stdout(&output));
    let report = report.unwrap_or_else(|e| panic!("{e}: {}", stderr(&output)));
    (output, report)
}

fn messages(list: &Value) -> Vec<String> {
    let list = list.as_array().unwrap().iter();
    list.map(|one| one["message"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn named_folder_that_is_missing_is_refused_and_not_created() {
    let dir = tempfile::tempdir().unwrap();
    let typo = dir.path().join("typo");
    let typo_text = typo.to_str().unwrap();
    for subcommand in [
        &["proxy", "--port", "0"][..],
        &["check"],
        &["check", "--strict"],
        &["doctor", "--offline"],
    ] {
        for by_flag in [true, false] {
            let mut command = command(dir.path());
            command.args(subcommand);
            let source = if by_flag {
                command.args(["--ati-dir", typo_text]);
                "--ati-dir"
            } else {
                command.env("ATI_DIR", &typo);
                "ATI_DIR"
            };
            let output = command.output().unwrap();
            assert!(!output.status.success(), "{subcommand:?}");
            let said = stdout(&output) + &stderr(&output);
            assert!(
                said.contains(source)
                    && said.contains(&format!("there is no folder {typo_text}"))
                    && said.contains("ati init"),
                "{subcommand:?}: {said}"
            );
            assert!(!typo.exists(), "{subcommand:?}");
        }
    }
    // What the message says makes it.
    let made = command(dir.path())
        .env("ATI_DIR", &typo)
        .arg("init")
        .output();
    assert!(made.unwrap().status.success());
    assert!(
        check(dir.path(), &["--strict", "--ati-dir", typo_text])
            .0
            .status
            .success()
    );
}

#[test]
fn default_folder_is_still_created_by_the_proxy() {
    let setup = Setup::new();
    let mut command = setup.command();
    command.env_remove("ATI_DIR");
    let proxy = setup.start_with(command);
    assert!(proxy.path(".ati/manifests").is_dir());
}

#[test]
fn tools_beyond_loopback_without_proof_of_the_caller_do_not_start() {
    let beyond = with_tool().arg("--bind").arg("0.0.0.0");
    let listener = "[[listener]]\nname = 'all'\nlisten = '[::]:0'\n";
    let further = with_tool().conf(listener);
    let exempt = with_tool()
        .credentials(&json!({"sandbox_signing_shared_secret": SIGNING}))
        .arg("--bind=0.0.0.0")
        .arg("--sig-verify-mode=enforce")
        .arg("--sig-exempt-paths=/call");
    let mcp = Setup::new().arg("--bind=0.0.0.0").manifest(
        "m",
        "[provider]\nname = 'm'\nhandler = 'mcp'\nmcp_command = 'true'",
    );
    for (setup, address) in [
        (beyond, "0.0.0.0:0"),
        (further, "[::]:0"),
        (exempt, "0.0.0.0:0"),
        (mcp, "0.0.0.0:0"),
    ] {
        let output = setup.output();
        assert_eq!(output.status.code(), Some(2));
        let said = stderr(&output);
        for part in [
            &format!("every caller that reaches {address} could call every tool"),
            "ATI_JWT_PUBLIC_KEY",
            "--sig-verify-mode enforce",
            "--bind 127.0.0.1",
            "--insecure",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }
    let dir = with_tool().dir;
    let (output, report) = check(dir.path(), &["--bind", "0.0.0.0"]);
    assert_eq!(output.status.code(), Some(2), "{report}");
    assert!(
        messages(&report["problems"])[0].contains("--insecure"),
        "{report}"
    );
}

#[test]
fn refused_start_leaves_the_one_shot_key_in_place() {
    let key = SessionKey::generate().unwrap();
    let setup = with_tool()
        .arg("--bind=0.0.0.0")
        .file("keyring.enc", key.seal(b"{\"k\": \"v\"}").unwrap())
        .file("one-shot", key.to_base64().as_bytes());
    assert_eq!(setup.output().status.code(), Some(2));
    assert!(setup.path().join("one-shot").exists());
}

#[test]
fn each_way_out_lets_the_proxy_start_beyond_loopback() {
    let beyond = || with_tool().arg("--bind=0.0.0.0");
    let (_, public) = key_pair();
    let with_keys = beyond().jwt(&public).start();
    assert!(healthy(&with_keys));
    assert!(with_keys.log.find_all("no token keys").is_empty());

    let signed = beyond()
        .credentials(&json!({"sandbox_signing_shared_secret": SIGNING}))
        .arg("--sig-verify-mode=enforce")
        .start();
    assert!(healthy(&signed));
    signed
        .log
        .wait_for("no token keys: every caller with a valid signature may call every tool");

    for insecure in [
        beyond().arg("--insecure"),
        beyond().env("ATI_INSECURE", "1"),
        beyond().conf("[server]\ninsecure = true\n"),
    ] {
        let proxy = insecure.start();
        assert!(healthy(&proxy));
        assert_eq!(proxy.log.wait_for(EVERY_CALLER)["level"], "WARN");
    }

    let on_loopback = with_tool().start();
    assert!(healthy(&on_loopback));
    assert_eq!(on_loopback.log.wait_for(EVERY_CALLER)["level"], "WARN");
}

#[test]
fn unreadable_value_of_the_insecure_variable_is_refused() {
    let output = with_tool().env("ATI_INSECURE", "maybe").output();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("ATI_INSECURE: expected 1, true, 0 or false"));
}

#[test]
fn routes_alone_need_no_token_keys_beyond_loopback() {
    let proxy = with_route(Setup::new()).arg("--bind=0.0.0.0").start();
    assert!(healthy(&proxy));
    let args = ["--bind", "0.0.0.0", "--enable-passthrough", "--strict"];
    let (output, report) = check(proxy.dir.path(), &args);
    assert!(output.status.success(), "{report}");
    let warnings = messages(&report["warnings"]);
    assert_eq!(warnings.len(), 2, "{report}");
    // The file tools are there without a manifest.
    assert!(
        warnings[0].starts_with("no token keys: beyond loopback file_manager:download"),
        "{report}"
    );
    assert!(
        warnings[1].starts_with("signature mode 'log' refuses no request"),
        "{report}"
    );
    assert!(warnings[1].ends_with("the credentials of svc"), "{report}");
}

#[test]
fn reload_that_would_open_the_door_fails_and_changes_nothing() {
    let proxy = Setup::new().arg("--bind=0.0.0.0").start();
    let manifest = proxy.path("manifests/t.toml");
    let text = format!("[provider]\nname = 't'\nbase_url = '{UPSTREAM}'\n[[tools]]\nname = 't'\n");
    write(&manifest, text);
    let failed = proxy.reload();
    assert_eq!(
        failed["message"],
        "reload failed, everything stays as it was"
    );
    assert!(
        failed["problems"].as_str().unwrap().contains("--insecure"),
        "{failed}"
    );
    let address = SocketAddr::from(([127, 0, 0, 1], proxy.edge.port()));
    let tools = Client::connect(address).get("/tools").json();
    assert_eq!(tools, json!([]), "no tool of a manifest");
}

#[test]
fn file_tools_without_a_manifest_are_withheld_beyond_loopback() {
    let beyond = || Setup::new().arg("--bind=0.0.0.0");
    let ask = |proxy: &Proxy, method: &str, path: &str, body: &Value| {
        let address = SocketAddr::from(([127, 0, 0, 1], proxy.edge.port()));
        let headers = [("content-type", "application/json")];
        let body = body.to_string();
        Client::connect(address).send(method, path, &headers, body.as_bytes())
    };
    let download = json!({"tool_name": "file_manager:download", "args": {"url": UPSTREAM}});
    let upload = json!({"tool_name": "file_manager_upload", "args": {"content_base64": "QQ=="}});
    let mcp = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "file_manager:download", "arguments": {"url": UPSTREAM}}});
    let exempt = beyond()
        .credentials(&json!({"sandbox_signing_shared_secret": SIGNING}))
        .arg("--sig-verify-mode=enforce")
        .arg("--sig-exempt-paths=/files,/health");
    let proxy = exempt.start();
    let refused = ask(&proxy, "PUT", "/files", &json!("content"));
    assert_eq!(refused.status, 403, "{}", refused.text());
    let proxy = beyond().start();
    for (method, path, body) in [
        ("POST", "/call", &download),
        ("POST", "/call", &upload),
        ("PUT", "/files", &upload),
        (
            "GET",
            "/files/00000000000000000000000000000000",
            &Value::Null,
        ),
    ] {
        let refused = ask(&proxy, method, path, body);
        let text = refused.text();
        assert_eq!(refused.status, 403, "{path}: {text}");
        for part in [
            "offered to no caller",
            "token keys",
            "enforce",
            "--insecure",
        ] {
            assert!(text.contains(part), "{path}: {text}");
        }
    }
    let refused = ask(&proxy, "POST", "/mcp", &mcp).json();
    assert_eq!(refused["error"]["code"], -32001, "{refused}");
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    let listed = ask(&proxy, "POST", "/mcp", &list).json();
    assert_eq!(listed["result"]["tools"], json!([]));
    let shown = ask(&proxy, "GET", "/tools/file_manager:download", &Value::Null);
    assert_eq!(shown.status, 404);
    // They still count.
    let health = ask(&proxy, "GET", "/health", &Value::Null).json();
    assert_eq!(
        (&health["tools"], &health["providers"]),
        (&json!(2), &json!(1))
    );

    let meant = beyond().arg("--insecure").start();
    let local = Setup::new().start();
    for open in [&meant, &local] {
        assert_eq!(ask(open, "PUT", "/files", &json!("x")).status, 201);
        assert_ne!(ask(open, "POST", "/call", &download).status, 403);
    }
    // A manifest's own count as tools of manifests do.
    let manifest = "[provider]\nname = 'files'\nhandler = 'file_manager'\n";
    let output = beyond().manifest("files", manifest).output();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("--insecure"));
}

#[test]
fn web_page_of_another_site_calls_no_tool_where_no_token_is_asked_for() {
    let body = json!({"tool_name": "t", "args": {}}).to_string();
    let page = [
        ("origin", "http://evil.example"),
        ("content-type", "text/plain"),
    ];
    let status = |proxy: &Proxy, method: &str, path: &str, headers: &[(&str, &str)]| {
        let mut client = proxy.client();
        client.send(method, path, headers, body.as_bytes()).status
    };
    let proxy = with_tool().start();
    for (method, path) in [("POST", "/call"), ("PUT", "/files"), ("GET", "/files/0")] {
        assert_eq!(status(&proxy, method, path, &page), 403, "{path}");
        assert_ne!(status(&proxy, method, path, &page[1..]), 403, "{path}");
        let own = [("origin", "http://127.0.0.1:3000")];
        assert_ne!(status(&proxy, method, path, &own), 403, "{path}");
    }
    let (_, public) = key_pair();
    let with_keys = with_tool().jwt(&public).start();
    assert_eq!(status(&with_keys, "POST", "/call", &page), 401);
}

#[test]
fn tools_without_token_keys_are_a_warning_of_check_and_an_error_with_strict() {
    let setup = with_tool();
    let (output, report) = check(setup.path(), &[]);
    assert!(output.status.success(), "{report}");
    assert_eq!(messages(&report["warnings"]), [EVERY_CALLER]);
    assert_eq!(check(setup.path(), &["--strict"]).0.status.code(), Some(2));
    let with_keys = command(setup.path())
        .args(["check", "--strict"])
        .env("ATI_JWT_SECRET", "ab".repeat(32))
        .output()
        .unwrap();
    assert!(with_keys.status.success(), "{}", stdout(&with_keys));
}

#[test]
fn routes_that_accept_unsigned_requests_are_logged_at_the_start() {
    for mode in ["log", "warn"] {
        let mode_arg = format!("--sig-verify-mode={mode}");
        let proxy = with_route(Setup::new()).arg(&mode_arg).start();
        let record = proxy
            .log
            .wait_for(&format!("signature mode '{mode}' refuses"));
        assert_eq!(record["level"], "WARN");
        let proxy = with_route(Setup::new())
            .credentials(&json!({"key": "planted-key"}))
            .arg(&mode_arg)
            .start();
        let record = proxy
            .log
            .wait_for("sandbox_signing_shared_secret: not in the keyring");
        assert_eq!(record["level"], "ERROR", "{record}");
    }
    let enforced = with_route(Setup::new())
        .arg("--sig-verify-mode=enforce")
        .start();
    assert!(enforced.log.find_all("signature mode").is_empty());
}

#[test]
fn doctor_reports_open_doors_with_a_fix_for_each() {
    let found = |setup: &Setup, args: &[&str]| -> Vec<Value> {
        let args = [&["doctor", "--json", "--offline"], args].concat();
        let output = ati(setup.path(), &args);
        serde_json::from_str(&stdout(&output)).unwrap()
    };
    let warned = |found: &[Value], check: &str, message: &str, fix: &str| {
        found.iter().any(|one| {
            one["check"] == check
                && one["status"] == "warn"
                && one["message"].as_str().unwrap().contains(message)
                && one["fix"].as_str().unwrap().contains(fix)
        })
    };
    let open = with_route(with_tool());
    let all = found(&open, &["--enable-passthrough"]);
    assert!(
        warned(&all, "jwt", EVERY_CALLER, "ATI_JWT_PUBLIC_KEY"),
        "{all:#?}"
    );
    assert!(
        warned(&all, "signing", "signature mode 'log'", "enforce"),
        "{all:#?}"
    );

    let open = open.credentials(&json!({"key": "planted-key"}));
    let all = found(&open, &["--enable-passthrough"]);
    let fix = "ati key set sandbox_signing_shared_secret";
    assert!(
        warned(&all, "signing", "passthrough is open", fix),
        "{all:#?}"
    );
    let about_signing = all.iter().filter(|one| one["check"] == "signing");
    assert_eq!(about_signing.count(), 1, "{all:#?}");

    let all = found(&with_route(Setup::new()), &[]);
    assert!(
        warned(
            &all,
            "manifests",
            "passthrough is off",
            "--enable-passthrough"
        ),
        "{all:#?}"
    );
    let without_tools = |one: &Value| {
        one["check"] == "jwt" && one["message"].as_str().unwrap().contains("no tools")
    };
    assert!(all.iter().any(without_tools), "{all:#?}");
}

#[test]
fn check_warns_about_routes_that_are_off_and_files_that_are_open() {
    let setup = with_route(Setup::new()).file("jwt-private.pem", "planted-pem");
    let chmod = |path: &Path, mode| {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    };
    let (_, report) = check(setup.path(), &[]);
    let off = "passthrough is off, and not served are: svc \
               (--enable-passthrough, or [passthrough] enabled = true in the conf file)";
    assert_eq!(messages(&report["warnings"]), [off]);
    chmod(&setup.path().join("jwt-private.pem"), 0o644);
    chmod(&setup.path().join("credentials"), 0o644);
    chmod(setup.path(), 0o777);
    let (_, report) = check(
        setup.path(),
        &["--enable-passthrough", "--sig-verify-mode=enforce"],
    );
    let warnings = report["warnings"].as_array().unwrap();
    let about = |name: &str| {
        let named = |one: &&Value| one["file"].as_str().is_some_and(|it| it.ends_with(name));
        warnings.iter().filter(named).count()
    };
    let folder = setup.path().file_name().unwrap().to_str().unwrap();
    for name in ["jwt-private.pem", "credentials", folder] {
        assert_eq!(about(name), 1, "{name}: {report}");
    }
}
