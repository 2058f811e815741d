//! What an agent types.

use std::path::Path;
use std::process::Output;

use serde_json::{Value, json};

use crate::support::ati::{Setup, command, stderr, stdout, tells_nothing, write};
use crate::support::tokens::{claims, key_pair};
use crate::support::upstream::Upstream;

const TOOLS: &str = "[[tools]]\nname = 'shop:find'\ndescription = 'Find things'\nendpoint = '/find'\ntags = ['search']\nhint = 'be brief'\nexamples = ['ati run shop:find --q hat']\n\
    [tools.input_schema]\ntype = 'object'\nrequired = ['q']\n[tools.input_schema.properties.q]\ntype = 'string'\n\
    [tools.input_schema.properties.maxResults]\ntype = 'integer'\n\
    [[tools]]\nname = 'shop:buy'\ndescription = 'Buy things'\nendpoint = '/buy'\nmethod = 'POST'\n";

fn manifest(base_url: &str) -> String {
    format!(
        "[provider]\nname = 'shop'\ndescription = 'A shop'\ncategory = 'retail'\nbase_url = '{base_url}'\nauth_type = 'bearer'\nauth_key_name = 'api'\n{TOOLS}"
    )
}

fn here(dir: &Path, env: &[(&str, &str)], args: &[&str]) -> Output {
    command(dir)
        .envs(env.iter().copied())
        .args(args)
        .output()
        .unwrap()
}

fn result(output: &Output) -> Value {
    assert!(output.status.success(), "{}", stderr(output));
    assert_eq!(stderr(output), "", "silent on success");
    serde_json::from_str(&stdout(output)).unwrap()
}

fn failure(output: &Output) -> (i32, String, String) {
    assert_eq!(stdout(output), "");
    let text = stderr(output);
    let line = text
        .lines()
        .find(|line| line.starts_with("{\"error\""))
        .unwrap_or_else(|| panic!("{text}"));
    let error = &serde_json::from_str::<Value>(line).unwrap()["error"];
    assert_eq!(error["exit_code"], output.status.code().unwrap());
    let text = |key: &str| error[key].as_str().unwrap().to_owned();
    (output.status.code().unwrap(), text("code"), text("message"))
}

/// A folder with the shop's manifest and its key.
fn folder(base_url: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    write(&dir.path().join("manifests/shop.toml"), manifest(base_url));
    write(
        &dir.path().join("credentials"),
        json!({"api": "planted-key-1234"}).to_string(),
    );
    dir
}

#[test]
fn the_same_command_with_keys_at_hand_and_through_the_proxy() {
    let api = Upstream::echo();
    let (signer, public) = key_pair();
    let proxy = Setup::new()
        .jwt(&public)
        .credentials(&json!({"api": "planted-key-1234"}))
        .manifest("shop", &manifest(&api.url()))
        .start();
    let token = |scope: &str| {
        let claims = ati::auth::token::Claims {
            scope: scope.into(),
            ..claims()
        };
        signer.issue(&claims).unwrap()
    };
    let narrow = token("tool:shop:find");
    let url = format!("http://{}", proxy.edge);
    let local = folder(&api.url());
    let sandbox = tempfile::tempdir().unwrap();
    let pem = local.path().join("public.pem");
    write(&pem, &public);
    let pem = pem.to_str().unwrap().to_owned();
    let places: [(&Path, Vec<(&str, &str)>); 2] = [
        (
            local.path(),
            vec![("ATI_JWT_PUBLIC_KEY", &pem), ("ATI_SESSION_TOKEN", &narrow)],
        ),
        (
            sandbox.path(),
            vec![("ATI_PROXY_URL", &url), ("ATI_SESSION_TOKEN", &narrow)],
        ),
    ];
    for (dir, env) in &places {
        let found = result(&here(
            dir,
            env,
            &["run", "shop:find", "--q", "red hat", "--max-results=5"],
        ));
        assert_eq!(found["target"], "/find?q=red%20hat&maxResults=5");
        assert_eq!(found["authorization"], json!(["Bearer [REDACTED]"]));
        // The old spelling, and JSON wherever it is asked for.
        let found = result(&here(
            dir,
            env,
            &["--output", "text", "run", "shop_find", "--q", "5", "-J"],
        ));
        assert_eq!(found["target"], "/find?q=5");

        let (code, _, message) = failure(&here(dir, env, &["run", "shop:buy"]));
        assert_eq!(code, 3);
        assert!(
            message.contains("Access denied: 'shop:buy' is not in your scopes"),
            "{message}"
        );
        let (code, kind, message) = failure(&here(dir, env, &["run", "shop:sell"]));
        assert_eq!((code, kind.as_str()), (1, "tool.not_found"));
        assert!(message.contains("Unknown tool: 'shop:sell'"), "{message}");
        let (code, _, message) = failure(&here(dir, env, &["run", "shop:find"]));
        assert_eq!(code, 2);
        assert!(
            message.contains("Invalid arguments: q: is required"),
            "{message}"
        );

        // Outside of the scope is outside of every listing.
        let names = |args: &[&str], key: &str| -> Vec<String> {
            let list = result(&here(dir, env, args));
            list.as_array()
                .unwrap()
                .iter()
                .map(|tool| tool[key].as_str().unwrap().to_owned())
                .collect()
        };
        let key = if dir == &local.path() { "tool" } else { "name" };
        assert_eq!(names(&["tool", "list"], key), ["shop:find"]);
        assert_eq!(names(&["tools", "search", "things"], key), ["shop:find"]);
        assert_eq!(
            result(&here(dir, env, &["tool", "info", "shop:find"]))["name"],
            "shop:find"
        );
        let (code, ..) = failure(&here(dir, env, &["tool", "info", "shop:buy"]));
        assert_eq!(code, 1);

        let verbose = here(dir, env, &["--verbose", "run", "shop:find", "--q", "x"]);
        let mode = if dir == &local.path() {
            "mode: local"
        } else {
            "mode: proxy"
        };
        assert!(stderr(&verbose).contains(mode), "{}", stderr(&verbose));
        tells_nothing("verbose", &stderr(&verbose));

        // Every run leaves its line here.
        let audit = std::fs::read_to_string(dir.join("audit.jsonl")).unwrap();
        let first: Value = serde_json::from_str(audit.lines().next().unwrap()).unwrap();
        assert_eq!(
            (&first["tool"], &first["agent_sub"], &first["status"]),
            (&json!("shop:find"), &json!("agent-7"), &json!("ok"))
        );
    }
}

#[test]
fn failures_have_their_codes() {
    let api = Upstream::fixed("HTTP/1.1 500 X\r\ncontent-length: 4\r\n\r\noops");
    let dir = folder(&api.url());
    let (code, kind, message) = failure(&here(dir.path(), &[], &["run", "shop:buy"]));
    assert_eq!(
        (code, kind.as_str(), message.as_str()),
        (
            4,
            "provider.upstream_error",
            "Upstream API error: API error (500): oops"
        )
    );
    write(&dir.path().join("credentials"), "{}");
    let (code, kind, message) = failure(&here(dir.path(), &[], &["run", "shop:buy"]));
    assert_eq!((code, kind.as_str()), (3, "auth.missing_key"));
    assert_eq!(
        message,
        "Upstream API error: API key 'api' not found in keyring"
    );
    let (_, _, message) = failure(&here(dir.path(), &[], &["run", "shop:sell"]));
    assert_eq!(
        message,
        "Unknown tool: 'shop:sell'. Run 'ati tool list' to see available tools. Did you mean one of:\n  - shop:find\n  - shop:buy"
    );
    let unreachable = failure(&here(
        dir.path(),
        &[("ATI_PROXY_URL", "http://127.0.0.1:1")],
        &["run", "x"],
    ));
    assert_eq!(
        (unreachable.0, unreachable.1.as_str()),
        (4, "provider.upstream_error")
    );
    assert!(
        unreachable.2.starts_with("Proxy request failed: "),
        "{}",
        unreachable.2
    );
    let odd = failure(&here(
        dir.path(),
        &[("ATI_PROXY_URL", "not a url")],
        &["run", "x"],
    ));
    assert_eq!(odd.0, 2);

    // A token is needed where tokens are checked, and a wrong one says what is wrong with it.
    let secret = "ab".repeat(32);
    let needed = failure(&here(
        dir.path(),
        &[("ATI_JWT_SECRET", &secret)],
        &["run", "shop:buy"],
    ));
    assert_eq!(needed.0, 3);
    assert!(
        needed.2.starts_with(
            "ATI_SESSION_TOKEN is required because JWT validation is configured locally."
        ),
        "{}",
        needed.2
    );
    let wrong = failure(&here(
        dir.path(),
        &[("ATI_JWT_SECRET", &secret), ("ATI_SESSION_TOKEN", "x.y.z")],
        &["tool", "list"],
    ));
    assert!(
        wrong.2.starts_with("Invalid ATI_SESSION_TOKEN: "),
        "{}",
        wrong.2
    );

    write(&dir.path().join("manifests/b.toml"), "[provider");
    let broken = failure(&here(dir.path(), &[], &["tool", "list"]));
    assert!(
        broken.2.starts_with("Failed to parse manifest "),
        "{}",
        broken.2
    );
}

#[test]
fn limits_hold_across_processes() {
    let api = Upstream::echo();
    let dir = folder(&api.url());
    let secret = "ab".repeat(32);
    let rate = [("tool:*".to_owned(), "3/hour".to_owned())]
        .into_iter()
        .collect();
    let ati = ati::auth::token::Namespace {
        v: 1,
        rate,
        customer_id: None,
    };
    let token = crate::support::tokens::shared(&secret)
        .issue(&ati::auth::token::Claims {
            ati: Some(ati),
            ..claims()
        })
        .unwrap();
    let env = [
        ("ATI_JWT_SECRET", secret.as_str()),
        ("ATI_SESSION_TOKEN", token.as_str()),
    ];
    let outputs: Vec<Output> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| here(dir.path(), &env, &["run", "shop:buy"])))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    let passed = outputs
        .iter()
        .filter(|output| output.status.success())
        .count();
    assert_eq!(passed, 3);
    let refused = outputs
        .iter()
        .find(|output| !output.status.success())
        .unwrap();
    let (code, kind, message) = failure(refused);
    assert_eq!((code, kind.as_str()), (5, "rate.exceeded"));
    assert_eq!(
        message,
        "Rate limit exceeded for 'tool:*': 3/hour (limit: 3/hour)"
    );
    assert!(!std::fs::read_dir(dir.path()).unwrap().any(|entry| {
        entry
            .unwrap()
            .file_name()
            .to_string_lossy()
            .ends_with(".tmp")
    }));
}

#[test]
fn a_one_shot_key_is_spent_only_on_a_call_that_needs_it() {
    let api = Upstream::echo();
    let dir = folder(&api.url());
    std::fs::remove_file(dir.path().join("credentials")).unwrap();
    let key = ati::keyring::SessionKey::generate().unwrap();
    write(
        &dir.path().join("keyring.enc"),
        key.seal(br#"{"api":"planted-sealed-key"}"#).unwrap(),
    );
    let one_shot = dir.path().join("one-shot");
    write(&one_shot, key.to_base64().as_bytes());
    failure(&here(dir.path(), &[], &["run", "shop:nothing"]));
    assert!(one_shot.exists());
    result(&here(dir.path(), &[], &["run", "shop:find", "--q", "x"]));
    assert!(!one_shot.exists());
    assert!(
        api.saw(|received| received.header("authorization") == Some("Bearer planted-sealed-key"))
    );
}

#[test]
fn a_provider_can_have_a_token_of_its_own() {
    let api = Upstream::echo();
    let (signer, public) = key_pair();
    let proxy = Setup::new()
        .jwt(&public)
        .env("ATI_JWT_ACCEPTED_AUDIENCES", "ati-proxy,special")
        .tools(
            "special",
            &api.url(),
            "",
            "[[tools]]\nname = 'special:do'\n[[tools]]\nname = 'odd_name'",
        )
        .start();
    let issue = |sub: &str, aud: &str| {
        signer
            .issue(&ati::auth::token::Claims {
                sub: sub.into(),
                aud: aud.into(),
                ..claims()
            })
            .unwrap()
    };
    let (own, usual) = (issue("own", "special"), issue("usual", "ati-proxy"));
    let url = format!("http://{}", proxy.edge);
    let sandbox = tempfile::tempdir().unwrap();
    write(
        &sandbox.path().join("manifests/special.toml"),
        "[provider]\nname = 'special'\nauth_session_token_env = 'SPECIAL_SESSION_TOKEN'\n[[tools]]\nname = 'odd_name'",
    );
    let file = sandbox.path().join("token");
    write(&file, &own);
    let subjects = || -> Vec<String> {
        proxy
            .audit()
            .iter()
            .map(|line| line["agent_sub"].as_str().unwrap().to_owned())
            .collect()
    };
    let env = [
        ("ATI_PROXY_URL", url.as_str()),
        ("ATI_SESSION_TOKEN", &usual),
    ];
    let with = |name: &'static str, value: &str, tool: &str| {
        let mut env = env.to_vec();
        let value = value.to_owned();
        env.push((name, &value));
        result(&here(sandbox.path(), &env, &["run", tool]));
    };
    with("SPECIAL_SESSION_TOKEN", &own, "special:do");
    with(
        "SPECIAL_SESSION_TOKEN_FILE",
        file.to_str().unwrap(),
        "odd_name",
    );
    with("SPECIAL_SESSION_TOKEN", "", "special:do");
    // Files are read anew each time.
    write(&file, issue("rotated", "special"));
    with(
        "SPECIAL_SESSION_TOKEN_FILE",
        file.to_str().unwrap(),
        "special:do",
    );
    proxy.wait_for_audit(4);
    assert_eq!(subjects(), ["own", "own", "usual", "rotated"]);
}

#[test]
fn results_look_as_they_are_asked_for() {
    let api = Upstream::answering(|_, stream| {
        let body = json!([{"b": 1, "a": "x"}, {"a": null, "c": [true]}]).to_string();
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
        std::io::Write::write_all(stream, (head + &body).as_bytes()).is_ok()
    });
    let dir = folder(&api.url());
    let look = |format: &str| {
        stdout(&here(
            dir.path(),
            &[("ATI_OUTPUT", format)],
            &["run", "shop:buy"],
        ))
    };
    assert_eq!(
        look("json"),
        "[\n  {\n    \"b\": 1,\n    \"a\": \"x\"\n  },\n  {\n    \"a\": null,\n    \"c\": [\n      true\n    ]\n  }\n]\n"
    );
    assert_eq!(
        look("text"),
        "{\"b\":1,\"a\":\"x\"}\n{\"a\":null,\"c\":[true]}\n"
    );
    let table = look("table");
    for part in ["┌", "╞", "╪", "┆", "│ a ", " b ", " c      │", "[true]"] {
        assert!(table.contains(part), "{part}:\n{table}");
    }
    let bad = here(dir.path(), &[("ATI_OUTPUT", "yaml")], &["tool", "list"]);
    assert_eq!(bad.status.code(), Some(2));
}

#[test]
fn a_tool_explains_itself() {
    let dir = folder("https://shop.example/v1/");
    let list = result(&here(
        dir.path(),
        &[],
        &["tool", "list", "--provider", "shop"],
    ));
    assert_eq!(
        list[0],
        json!({"description": "Find things", "method": "GET", "provider": "shop", "scope": "tool:shop:find", "tool": "shop:find"})
    );
    let none = here(dir.path(), &[], &["tool", "list", "--provider", "nobody"]);
    assert_eq!((none.status.code(), stdout(&none).as_str()), (Some(0), ""));
    assert!(!stderr(&none).is_empty());
    let info = result(&here(dir.path(), &[], &["tool", "info", "shop:find"]));
    assert_eq!(
        (&info["base_url"], &info["endpoint"], &info["scope"]),
        (
            &json!("https://shop.example/v1/"),
            &json!("/find"),
            &json!("tool:shop:find")
        )
    );
    let text = stdout(&here(
        dir.path(),
        &[],
        &["--output", "text", "tool", "info", "shop:find"],
    ));
    for line in [
        "Tool:        shop:find",
        "Provider:    shop (A shop)",
        "Handler:     http",
        "Endpoint:    GET https://shop.example/v1/find",
        "Description: Find things",
        "Scope:       tool:shop:find",
        "Category:    retail",
        "Tags:        search",
        "Hint:        be brief",
        "Input Schema:",
        "Examples:",
        "  ati run shop:find --q <q>",
    ] {
        assert!(text.lines().any(|known| known == line), "{line}:\n{text}");
    }
    let found = result(&here(
        dir.path(),
        &[],
        &["tool", "search", "find", "things"],
    ));
    assert_eq!(
        found[0],
        json!({"category": "retail", "description": "Find things", "handler": "http", "provider": "shop", "tags": ["search"], "tool": "shop:find"})
    );
    let help = here(dir.path(), &[], &["run", "--help"]);
    assert!(stdout(&help).contains("--name value"), "{}", stdout(&help));
    let table = stdout(&here(
        dir.path(),
        &[],
        &["--output", "table", "tool", "list"],
    ));
    assert!(
        table.contains("DESCRIPTION") && table.contains("shop:buy"),
        "{table}"
    );
}

#[test]
fn a_proxy_that_wants_a_token_says_so_through_the_command() {
    let (_, public) = key_pair();
    let proxy = Setup::new().jwt(&public).start();
    let url = format!("http://{}", proxy.edge);
    let sandbox = tempfile::tempdir().unwrap();
    let (code, kind, message) = failure(&here(
        sandbox.path(),
        &[("ATI_PROXY_URL", &url)],
        &["run", "x"],
    ));
    assert_eq!(
        (code, kind.as_str(), message.as_str()),
        (3, "auth.expired", "Proxy error (401): ")
    );
}

#[test]
fn answers_nested_deeper_than_anybody_lays_out_are_printed_as_they_came() {
    let deep = "[".repeat(300) + &"]".repeat(300);
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{deep}",
        deep.len()
    );
    let api = Upstream::fixed(answer);
    let proxy = Setup::new()
        .credentials(&json!({"api": "planted-key-1234"}))
        .manifest("shop", &manifest(&api.url()))
        .start();
    let url = format!("http://{}", proxy.edge);
    let local = folder(&api.url());
    for env in [&[][..], &[("ATI_PROXY_URL", url.as_str())]] {
        let output = here(local.path(), env, &["run", "shop:buy"]);
        assert_eq!(stdout(&output).trim(), deep);
    }
}

#[test]
fn an_address_that_only_the_appliance_has_is_no_matter_here() {
    let api = Upstream::echo();
    let dir = folder(&api.url());
    let text = manifest(&api.url()).replace("auth_type", "egress = 'eu'\nauth_type");
    write(&dir.path().join("manifests/shop.toml"), text);
    result(&here(dir.path(), &[], &["run", "shop:find", "--q", "x"]));
}
