//! `ati explain` against what then really happens.

use serde_json::{Value, json};

use super::*;
use crate::support::ati::{command, stderr, stdout};
use crate::support::tokens::{SIGNING, bearer, key_pair, sign};

fn explain(proxy: &Proxy, asker: &str, question: &Value) -> Value {
    let headers = [
        ("authorization", asker),
        ("content-type", "application/json"),
    ];
    let body = question.to_string();
    let answer = proxy
        .client()
        .send("POST", "/explain", &headers, body.as_bytes());
    assert_eq!(answer.status, 200, "{question}: {}", answer.text());
    answer.json()
}

fn verdict_of(status: u16) -> &'static str {
    match status {
        200 => "allow",
        409 => "confirm",
        _ => "deny",
    }
}

/// The same verdict, status and rule; where no policy decided, the same words.
fn agree(explained: &Value, answer: &Response, what: &str) {
    let text = answer.text();
    assert_eq!(
        explained["status"], answer.status,
        "{what}: {explained}: {text}"
    );
    assert_eq!(
        explained["verdict"],
        verdict_of(answer.status),
        "{what}: {explained}"
    );
    let body: Value = serde_json::from_str(&text).unwrap_or_default();
    let rule = match answer.status {
        409 => &body["confirmation"]["rule"],
        _ => &body["rule"],
    };
    if rule.is_string() {
        assert_eq!(&explained["rule"], rule, "{what}");
    }
    let last = explained["steps"].as_array().unwrap().last().unwrap();
    let detail = last["detail"].as_str().unwrap_or_default();
    match answer.status {
        200 => assert!(explained["rule"].is_null(), "{what}: {explained}"),
        401 => {
            let challenge = answer.header("www-authenticate").unwrap();
            let rule = explained["rule"].as_str().unwrap();
            assert!(
                challenge.contains(&format!("\"{rule}: ")),
                "{what}: {challenge}"
            );
        }
        _ => {
            let error = body["error"].as_str().unwrap_or(&text);
            // An answer may be empty, as that to a method that isn't there.
            assert!(
                error.is_empty() || detail == error,
                "{what}: {detail} != {error}"
            );
            assert!(explained["rule"].is_string(), "{what}: {explained}");
        }
    }
}

#[test]
fn explained_call_is_what_then_happens() {
    let api = upstream();
    let (signer, public) = key_pair();
    let (_, stranger) = (key_pair().0, key_pair().0);
    let conf = "[policy]\nrequire_confirmation = ['effects.cost=high']\n\
                denied_commands = ['gh secret']\npreset = 'careful'\n";
    let keyless = format!(
        "[provider]\nname = 'keyed'\nbase_url = '{}'\nauth_type = 'bearer'\n\
         auth_key_name = 'absent_key'\n[[tools]]\nname = 'keyed:get'\n\
         [[tools]]\nname = 'gh:secret_read'\n",
        api.url()
    );
    let proxy = setup(&api, conf)
        .jwt(&public)
        .manifest("keyed", &keyless)
        .start();
    let with = |change: &dyn Fn(&mut Claims)| {
        let mut claims = claims();
        change(&mut claims);
        bearer(&signer, &claims)
    };
    let asker = with(&|_| ());
    let now = ati::clock::unix_now();
    let limited = with(&|claims| {
        claims.sub = "limited".to_owned();
        claims.ati = Some(ati::auth::token::Namespace {
            v: 1,
            rate: [("tool:gh:repo_view".to_owned(), "1/hour".to_owned())].into(),
            customer_id: None,
            delegation: None,
        });
    });
    let tokens = [
        asker.clone(),
        limited.clone(),
        with(&|claims| claims.scope = "tool:gh:repo_view help".to_owned()),
        with(&|claims| claims.exp = now - 5),
        with(&|claims| claims.exp = now - 500),
        with(&|claims| claims.aud = "another".to_owned()),
        bearer(&stranger, &claims()),
        delegated(
            &signer,
            "d",
            &json!({"effectRestrictions": {"destructive": false}}),
        ),
        delegated(&signer, "d", &json!({"allowedTools": ["gh:repo_view"]})),
        delegated(
            &signer,
            "d",
            &json!({"requireConfirmation": ["effects.idempotent"]}),
        ),
        delegated(&signer, "d", &json!({"unheard": 1})),
    ];
    let calls = [
        ("gh:repo_delete", json!({"repo": "o/r"})),
        ("gh_repo_delete", json!({"repo": "o/r"})),
        ("gh:repo_delete", json!({})),
        ("gh:repo_delete", json!({"repo": 5})),
        ("gh:repo_delete", json!({"repo": "o/r", "force": "perhaps"})),
        ("gh:repo_view", json!({})),
        ("gh:issue_remove", json!({})),
        ("gh:asks", json!({})),
        ("gh:costly", json!({})),
        ("gh:secret_read", json!({})),
        ("keyed:get", json!({})),
        ("no:such", json!({})),
    ];
    let mut count = 0;
    for token in &tokens {
        for (tool, args) in &calls {
            let bare = token.strip_prefix("Bearer ").unwrap();
            let question = json!({"tool": tool, "args": args, "token": bare});
            let explained = explain(&proxy, &asker, &question);
            // Asking doesn't change the answer.
            assert_eq!(explain(&proxy, &asker, &question), explained, "{tool}");
            let answer = proxy.call(Some(token), tool, args.clone());
            agree(&explained, &answer, &format!("{tool} {args}"));
            count += 1;
        }
    }
    let again = json!({"tool": "gh:repo_view", "token": limited.strip_prefix("Bearer ").unwrap()});
    let explained = explain(&proxy, &asker, &again);
    assert_eq!(explained["rule"], "rate_limited", "{explained}");
    agree(
        &explained,
        &proxy.call(Some(&limited), "gh:repo_view", json!({})),
        "limited",
    );
    assert!(count >= 60, "{count}");
    // Nothing was issued by asking: what waits was wanted by real calls.
    let audited = proxy.wait_for_audit(1);
    assert!(audited.iter().all(|line| line["tool"] != "explain"));
}

/// What `/explain` says to a caller with this token.
fn explained(proxy: &Proxy, token: &str, question: &Value) -> Value {
    let asker = [
        ("authorization", token),
        ("x-sandbox-signature", &sign("POST", "/explain")),
    ];
    let body = question.to_string();
    let mut client = proxy.client();
    client
        .send("POST", "/explain", &asker, body.as_bytes())
        .json()
}

fn body_with_two_lengths_is_explained_as_refused(proxy: &Proxy, token: &str) {
    for (method, url) in [("GET", "/tools"), ("POST", "/tools"), ("GET", "/nope")] {
        let headers = json!({"transfer-encoding": "chunked", "content-length": "5"});
        let question = json!({"request": {"method": method, "url": url, "headers": headers}});
        let explained = explained(proxy, token, &question);
        let text = format!(
            "{method} {url} HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\
             content-length: 5\r\n\r\n0\r\n\r\n"
        );
        let mut client = proxy.client();
        client.write(text.as_bytes());
        let answer = client.read(false);
        agree(&explained, &answer, &format!("{method} {url}"));
    }
}

#[test]
fn explained_request_is_what_then_happens() {
    let api = upstream();
    let (signer, public) = key_pair();
    let proxy = Setup::new()
        .credentials(&json!({
            "sandbox_signing_shared_secret": SIGNING,
            "api_key": "planted-api-key",
        }))
        .jwt(&public)
        .route(
            "api",
            &api.url(),
            "path_prefix = '/api'\nauth_type = 'bearer'\nauth_key_name = 'api_key'\n\
             deny_paths = ['/admin']\nmax_request_bytes = 10",
        )
        .arg("--sig-verify-mode")
        .arg("enforce")
        .start();
    let token = bearer(&signer, &claims());
    let bare = token.strip_prefix("Bearer ").unwrap().to_owned();
    let requests = [
        ("GET", "/api/v1/models"),
        ("GET", "/api/v1/models?x=1"),
        ("POST", "/api/v1/models"),
        ("GET", "/api/admin"),
        ("GET", "/api/admin/users"),
        ("GET", "/api/%61dmin"),
        ("GET", "/api/../admin"),
        ("GET", "/api/%2e%2e/x"),
        ("GET", "/api//admin"),
        ("TRACE", "/api/x"),
        ("DELETE", "/api/x"),
        ("GET", "/nothing/here"),
        ("GET", "/health"),
        ("POST", "/health"),
        ("GET", "/tools"),
        ("GET", "/call"),
        ("PUT", "/mcp"),
        ("GET", "/admin/keys"),
        ("GET", "/.well-known/jwks.json"),
        ("GET", "http://[::1"),
        ("CONNECT", "/api/v1"),
    ];
    let mut count = 0;
    for (method, url) in requests {
        for (is_signed, has_token) in [(true, true), (true, false), (false, true), (false, false)] {
            let path = url.split('?').next().unwrap();
            let signature = sign(method, path);
            let mut question = json!({"request": {"method": method, "url": url}});
            let mut headers: Vec<(&str, &str)> = Vec::new();
            if is_signed {
                question["request"]["headers"] = json!({"x-sandbox-signature": signature});
                headers.push(("x-sandbox-signature", &signature));
            }
            if has_token {
                question["token"] = json!(bare);
                headers.push(("authorization", &token));
            }
            let explained = explained(&proxy, &token, &question);
            let what = format!("{method} {url} signed {is_signed} token {has_token}");
            let answer = proxy.client().send(method, url, &headers, b"");
            match explained["verdict"].as_str() {
                // The endpoint or the upstream answers, whatever it says.
                Some("allow") => assert_eq!(answer.status, 200, "{what}: {}", answer.text()),
                _ => agree(&explained, &answer, &what),
            }
            let text = explained.to_string();
            assert!(
                !text.contains("planted-") && !text.contains(&bare),
                "{what}: {text}"
            );
            count += 1;
        }
    }
    assert!(count >= 60, "{count}");
    body_with_two_lengths_is_explained_as_refused(&proxy, &token);
    // A caller without proof learns nothing.
    let question = json!({"request": {"method": "GET", "url": "/api/x"}}).to_string();
    let unproved = proxy
        .client()
        .send("POST", "/explain", &[], question.as_bytes());
    assert_eq!(unproved.status, 403);
    let signed = [("x-sandbox-signature", sign("POST", "/explain"))];
    let signed: Vec<(&str, &str)> = signed.iter().map(|(n, v)| (*n, v.as_str())).collect();
    let without_token = proxy
        .client()
        .send("POST", "/explain", &signed, question.as_bytes());
    assert_eq!(without_token.status, 401);
}

#[test]
fn command_explains_on_this_machine_and_asks_the_proxy() {
    let api = upstream();
    let proxy = setup(&api, "[policy]\ndenied_commands = ['gh repo view']\n")
        .route(
            "api",
            &format!("{}/base", api.url()),
            "path_prefix = '/api'\ndeny_paths = ['/admin']",
        )
        .start();
    let url = format!("http://{}", proxy.edge);
    let conf = proxy.path("ati.toml");
    let conf = conf.to_str().unwrap();
    let run = |url: Option<&str>, words: &[&str]| -> Value {
        let mut command = command(&proxy.path(""));
        if let Some(url) = url {
            command.env("ATI_PROXY_URL", url);
        }
        let output = command
            .args(["-J", "explain"])
            .args(words)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        serde_json::from_str(&stdout(&output)).unwrap()
    };
    let delete = ["tool", "gh:repo_delete", "--repo", "o/r"];
    let local = run(None, &delete);
    assert_eq!(
        (&local["verdict"], &local["status"]),
        (&json!("confirm"), &json!(409))
    );
    assert_eq!(local["rule"], "declared.destructive");
    let asked = run(Some(&url), &delete);
    assert_eq!(asked, local);
    let steps: Vec<&str> = asked["steps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|step| step["step"].as_str().unwrap())
        .collect();
    assert_eq!(steps, ["resolve", "scope", "schema", "effects", "policy"]);
    let rule = "policy.deniedCommands: gh repo view";
    assert_eq!(run(Some(&url), &["tool", "gh:repo_view"])["rule"], rule);
    assert_eq!(run(None, &["tool", "gh:repo_view"])["verdict"], "allow");
    assert_eq!(
        run(None, &["tool", "--conf", conf, "gh:repo_view"])["rule"],
        rule
    );
    let denied = ["request", "GET", "/api/admin/x"];
    let asked = run(Some(&url), &denied);
    assert_eq!(
        (&asked["status"], &asked["rule"]),
        (&json!(403), &json!("path_denied"))
    );
    // Which pattern denies it, and what the upstream would have got.
    let steps = asked["steps"].as_array().unwrap();
    let step = |name: &str| steps.iter().find(|step| step["step"] == name).unwrap();
    assert_eq!(step("rewrite")["detail"], "/base/admin/x");
    assert_eq!(step("deny")["pattern"], "/admin");
    let here = run(
        None,
        &[&denied[..], &["--conf", conf, "--enable-passthrough"]].concat(),
    );
    assert_eq!(here, asked);
    let output = command(&proxy.path(""))
        .args(["--output", "text", "explain", "tool"])
        .args(["gh:repo_delete", "--repo", "o/r"])
        .output()
        .unwrap();
    assert!(stdout(&output).ends_with("confirm (409) by declared.destructive\n"));
    assert_eq!(api.received().len(), 0);
}

#[test]
fn explain_says_what_it_leaves_out() {
    let api = upstream();
    let proxy = setup(&api, "[policy]\npreset = 'careful'\n")
        .route(
            "api",
            &api.url(),
            "path_prefix = '/api'\nauth_type = 'bearer'\nauth_key_name = 'absent_key'",
        )
        .start();
    let run = |words: &[&str]| {
        let mut command = command(&proxy.path(""));
        command.env("ATI_PROXY_URL", format!("http://{}", proxy.edge));
        command.arg("explain").args(words).output().unwrap()
    };
    let details = |words: &[&str]| {
        let output = run(words);
        assert!(output.status.success(), "{}", stderr(&output));
        stdout(&output)
    };
    let text = ["--output", "text"];
    let sent = details(&[&["request", "GET", "/api/x"][..], &text].concat());
    assert!(
        sent.contains("'absent_key' is missing: sent without it"),
        "{sent}"
    );
    // Options of ati count after the tool's name, as for `ati run`.
    let asked = details(&[
        "tool",
        "--token",
        "junk",
        "gh:repo_view",
        "--output",
        "text",
    ]);
    let unread = "no token keys are configured: it isn't looked at";
    assert!(
        asked.starts_with("token ") && asked.contains(unread),
        "{asked}"
    );
    let help = details(&["tool", "gh:repo_delete", "--help"]);
    assert!(help.contains("--repo"), "{help}");
    let conf = proxy.path("ati.toml");
    let conf = conf.to_str().unwrap();
    for words in [
        &["tool", "--conf", conf, "gh:repo_view"][..],
        &["request", "GET", "/api/x", "--conf", conf],
        &["request", "GET", "/api/x", "--enable-passthrough"],
    ] {
        let refused = run(words);
        assert_eq!(refused.status.code(), Some(2), "{words:?}");
        let why = stderr(&refused);
        assert!(why.contains("ATI_PROXY_URL is set"), "{why}");
    }
    assert_eq!(api.received().len(), 0);
}
