//! Runs that succeed: locally and through a proxy.

use std::process::Output;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{failure, folder, here, manifest, result};
use crate::support::ati::{Proxy, Setup, stderr, stdout, tells_nothing, write};
use crate::support::tokens::{claims, key_pair};
use crate::support::upstream::Upstream;

/// The same tools in two places, under the same token, whose scope is `shop:find`.
struct Places {
    api: Upstream,
    proxy: Proxy,
    local: Place,
    remote: Place,
}

/// A folder and the environment in which commands are run.
struct Place {
    dir: TempDir,
    env: Vec<(&'static str, String)>,
}

impl Place {
    fn run(&self, args: &[&str]) -> Output {
        let env: Vec<(&str, &str)> = self
            .env
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        here(self.dir.path(), &env, args)
    }
}

impl Places {
    fn new() -> Self {
        Places::describing("Find things")
    }

    /// With this description of `shop:find`.
    fn describing(text: &str) -> Self {
        let api = Upstream::echo();
        let manifest = manifest(&api.url()).replace("Find things", text);
        let (signer, public) = key_pair();
        let proxy = Setup::new()
            .jwt(&public)
            .credentials(&json!({"api": "planted-key-1234"}))
            .manifest("shop", &manifest)
            .start();
        let narrow = ati::auth::token::Claims {
            scope: "tool:shop:find".into(),
            ..claims()
        };
        let token = signer.issue(&narrow).unwrap();
        let local = folder(&api.url());
        write(&local.path().join("manifests/shop.toml"), manifest);
        let pem = local.path().join("public.pem");
        write(&pem, &public);
        let pem = pem.to_str().unwrap().to_owned();
        let url = format!("http://{}", proxy.edge);
        Places {
            local: Place {
                dir: local,
                env: vec![
                    ("ATI_JWT_PUBLIC_KEY", pem),
                    ("ATI_SESSION_TOKEN", token.clone()),
                ],
            },
            remote: Place {
                dir: tempfile::tempdir().unwrap(),
                env: vec![("ATI_PROXY_URL", url), ("ATI_SESSION_TOKEN", token)],
            },
            proxy,
            api,
        }
    }

    fn both(&self) -> [&Place; 2] {
        [&self.local, &self.remote]
    }
}

#[test]
fn run_gives_the_same_results_locally_and_through_the_proxy() {
    let places = Places::new();
    for place in places.both() {
        let line = ["run", "shop:find", "--q", "red hat", "--max-results=5"];
        let found = result(&place.run(&line));
        assert_eq!(found["target"], "/find?q=red%20hat&maxResults=5");
        assert_eq!(found["authorization"], json!(["Bearer [REDACTED]"]));
        // The older spelling of a name, and `-J` after the tool.
        let line = ["--output", "text", "run", "shop_find", "--q", "5", "-J"];
        let found = result(&place.run(&line));
        assert_eq!(found["target"], "/find?q=5");

        let (code, _, message) = failure(&place.run(&["run", "shop:buy"]));
        assert_eq!(code, 3);
        assert!(
            message.contains("Access denied: 'shop:buy' is not in your scopes"),
            "{message}"
        );
        let (code, kind, message) = failure(&place.run(&["run", "shop:sell"]));
        assert_eq!((code, kind.as_str()), (1, "tool.not_found"));
        assert!(message.contains("Unknown tool: 'shop:sell'"), "{message}");
        let (code, _, message) = failure(&place.run(&["run", "shop:find"]));
        assert_eq!(code, 2);
        assert!(
            message.contains("Invalid arguments: q: is required"),
            "{message}"
        );
    }
    assert_eq!(places.api.received().len(), 4);
}

#[test]
fn tool_commands_show_only_the_scope_locally_and_through_the_proxy() {
    let places = Places::new();
    for place in places.both() {
        let names = |args: &[&str]| -> Vec<String> {
            let list = result(&place.run(args));
            let tools = list.as_array().unwrap().iter();
            tools
                .map(|tool| tool["tool"].as_str().unwrap().to_owned())
                .collect()
        };
        assert_eq!(names(&["tool", "list"]), ["shop:find"]);
        assert_eq!(names(&["tools", "search", "things"]), ["shop:find"]);
        let info = result(&place.run(&["tool", "info", "shop:find"]));
        assert_eq!(info["name"], "shop:find");
        let (code, ..) = failure(&place.run(&["tool", "info", "shop:buy"]));
        assert_eq!(code, 1);
    }
}

#[test]
fn tool_commands_print_the_same_locally_and_through_the_proxy() {
    let long = "ü".repeat(200);
    let places = Places::describing(&long);
    for args in [
        &["tool", "list"][..],
        &["tool", "search", "find"],
        &["tool", "search", "zzz"],
        &["tool", "list", "--provider", "absent"],
        &["--output", "text", "tool", "list"],
        &["--output", "table", "tool", "list"],
        &["--output", "text", "tool", "search", "find"],
        &["--output", "table", "tool", "search", "find"],
    ] {
        let [local, remote] = places.both().map(|place| stdout(&place.run(args)));
        assert_eq!(local, remote, "{args:?}");
        assert!(!local.contains("input_schema"), "{local}");
    }
    let row = &result(&places.remote.run(&["tool", "list"]))[0];
    let description = row["description"].as_str().unwrap();
    assert_eq!(description.chars().count(), 120);
    assert!(description.ends_with("ü…"), "{description}");
    assert_eq!(
        (&row["tool"], &row["method"]),
        (&row["name"], &json!("GET"))
    );

    // Where the upstream is is the one thing that a proxy keeps to itself.
    let args = ["--output", "text", "tool", "info", "shop:find"];
    let [local, remote] = places.both().map(|place| stdout(&place.run(&args)));
    assert_eq!(local.replace(&places.api.url(), ""), remote);
    for line in [
        "Handler:     http",
        "Endpoint:    GET /find",
        "  ati run shop:find --q <q>",
    ] {
        assert!(
            remote.lines().any(|known| known == line),
            "{line}:\n{remote}"
        );
    }
    let [local, remote] = places.both().map(|place| {
        let info = result(&place.run(&["tool", "info", "shop:find"]));
        let keys = info.as_object().unwrap().keys().cloned();
        keys.collect::<Vec<String>>()
    });
    assert_eq!(local, remote);
}

#[test]
fn run_is_audited_and_verbose_output_names_the_mode() {
    let places = Places::new();
    for (place, mode) in [
        (&places.local, "mode: local"),
        (&places.remote, "mode: proxy"),
    ] {
        let verbose = place.run(&["--verbose", "run", "shop:find", "--q", "x"]);
        assert!(stderr(&verbose).contains(mode), "{}", stderr(&verbose));
        tells_nothing("verbose", &stderr(&verbose));

        let audit = std::fs::read_to_string(place.dir.path().join("audit.jsonl")).unwrap();
        let first: Value = serde_json::from_str(audit.lines().next().unwrap()).unwrap();
        assert_eq!(
            (&first["tool"], &first["agent_sub"], &first["status"]),
            (&json!("shop:find"), &json!("agent-7"), &json!("ok"))
        );
        assert!(first["request_id"].is_string(), "{first}");
        if mode == "mode: proxy" {
            let of_proxy = &places.proxy.wait_for_audit(1)[0];
            assert_eq!(first["request_id"], of_proxy["request_id"]);
        }
    }
}

#[test]
fn rate_limit_holds_across_processes() {
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
        delegation: None,
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
fn one_shot_key_is_spent_only_by_a_call_that_needs_it() {
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
fn provider_with_its_own_session_token_uses_it() {
    let api = Upstream::echo();
    let (signer, public) = key_pair();
    let proxy = Setup::new()
        .jwt(&public)
        .env("ATI_JWT_ACCEPTED_AUDIENCES", "ati-proxy,special")
        .tools(
            "special",
            &api.url(),
            "",
            r#"
                [[tools]]
                name = 'special:do'

                [[tools]]
                name = 'odd_name'
            "#,
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
        r#"
            [provider]
            name = 'special'
            auth_session_token_env = 'SPECIAL_SESSION_TOKEN'

            [[tools]]
            name = 'odd_name'
        "#,
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
    // The file is read for each run.
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
fn egress_address_of_the_appliance_is_ignored_locally() {
    let api = Upstream::echo();
    let dir = folder(&api.url());
    let text = manifest(&api.url()).replace("auth_type", "egress = 'eu'\nauth_type");
    write(&dir.path().join("manifests/shop.toml"), text);
    result(&here(dir.path(), &[], &["run", "shop:find", "--q", "x"]));
}
