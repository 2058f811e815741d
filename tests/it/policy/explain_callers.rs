//! `ati explain tool` on this machine: whose call it is, and what file tools are asked for.

use serde_json::{Value, json};

use super::*;
use crate::support::ati::{command, stderr, stdout};
use crate::support::tokens::{bearer, key_pair};

#[test]
fn token_of_the_question_or_the_callers_own_decides_and_a_bad_one_is_explained() {
    let api = upstream();
    let (signer, public) = key_pair();
    let proxy = setup(&api, "[policy]\n").jwt(&public).start();
    let conf = proxy.path("ati.toml");
    let key = proxy.path("public.pem");
    std::fs::write(&key, &public).unwrap();
    let good = bearer(&signer, &claims());
    let good = good.strip_prefix("Bearer ").unwrap();
    let unread = delegated(&signer, "d", &json!({"unheard": 1}));
    let unread = unread.strip_prefix("Bearer ").unwrap();
    let run = |own: Option<&str>, words: &[&str]| -> Value {
        let mut command = command(&proxy.path(""));
        command.env("ATI_JWT_PUBLIC_KEY", &key);
        if let Some(own) = own {
            command.env("ATI_SESSION_TOKEN", own);
        }
        let words = ["-J", "explain", "tool"].iter().chain(words);
        let output = command.args(words).arg("gh:repo_view").output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        serde_json::from_str(&stdout(&output)).unwrap()
    };
    for place in [&[][..], &["--conf", conf.to_str().unwrap()]] {
        for (own, token, expected) in [
            (None, Some(good), ("allow", Value::Null)),
            (Some("junk"), Some(good), ("allow", Value::Null)),
            (Some(good), None, ("allow", Value::Null)),
            (
                Some(good),
                Some(unread),
                ("deny", json!("token_delegation")),
            ),
            (Some(unread), None, ("deny", json!("token_delegation"))),
            (None, None, ("deny", json!("token_missing"))),
            (Some("junk"), None, ("deny", json!("token_malformed"))),
        ] {
            let given: Vec<&str> = token.into_iter().flat_map(|it| ["--token", it]).collect();
            let explained = run(own, &[place, &given].concat());
            let told = (&explained["verdict"], &explained["rule"]);
            assert_eq!(told, (&json!(expected.0), &expected.1), "{explained}");
            if expected.0 == "deny" {
                assert_eq!(explained["status"], 401, "{explained}");
                assert_eq!(explained["steps"][0]["step"], "token");
            }
        }
    }
    assert_eq!(api.received().len(), 0);
}

#[test]
fn file_tool_is_explained_by_its_arguments_and_its_destination() {
    let setup = Setup::new();
    let text = format!(
        "[provider]\nname = 'file_manager'\nhandler = 'file_manager'\n\
         upload_default_destination = 'disk'\n\
         [provider.upload_destinations.disk]\nkind = 'local'\ndirectory = '{}'\n\
         [provider.upload_destinations.bucket]\nkind = 'gcs'\nbucket = 'b'\n",
        setup.path().join("store").display()
    );
    let proxy = setup
        .manifest("file_manager", &text)
        .env("ATI_SSRF_PROTECTION", "1")
        .start();
    let mut count = 0;
    for (tool, args) in [
        ("upload", json!({})),
        ("upload", json!({"filename": "x"})),
        ("upload", json!({"filename": "x", "content_base64": "!"})),
        (
            "upload",
            json!({"filename": "..", "content_base64": "YQ=="}),
        ),
        ("upload", json!({"filename": "x", "file": "none"})),
        (
            "upload",
            json!({"filename": "x", "content_base64": "YQ==", "destination": "no"}),
        ),
        (
            "upload",
            json!({"filename": "x", "content_base64": "YQ==", "destination": "bucket"}),
        ),
        ("upload", json!({"filename": "x", "content_base64": "YQ=="})),
        ("download", json!({})),
        ("download", json!({"url": "notaurl"})),
        ("download", json!({"url": "file:///etc/passwd"})),
        ("download", json!({"url": "http://169.254.169.254/x"})),
        ("download", json!({"url": "http://h/", "max_bytes": 0})),
        ("download", json!({"url": "http://h/", "delivery": "post"})),
    ] {
        let tool = format!("file_manager:{tool}");
        let question = json!({"tool": tool, "args": args}).to_string();
        let explained = proxy
            .client()
            .send("POST", "/explain", &[], question.as_bytes())
            .json();
        let answer = proxy.call(None, &tool, args.clone());
        assert_eq!(explained["status"], answer.status, "{args}: {explained}");
        let steps = explained["steps"].as_array().unwrap();
        if answer.status != 200 {
            assert_eq!(steps.last().unwrap()["detail"], error(&answer), "{args}");
            count += 1;
        }
    }
    assert_eq!(count, 13);
    // Options of the command are about files of this machine, and are no arguments of the call.
    let file = proxy.path("x.txt");
    std::fs::write(&file, "x").unwrap();
    let file = file.to_str().unwrap();
    for words in [
        &["file_manager:upload", "--path", file][..],
        &[
            "file_manager:download",
            "--url",
            "http://files.example.com/x",
            "--out",
            file,
        ],
    ] {
        for url in [None, Some(format!("http://{}", proxy.edge))] {
            let mut command = command(&proxy.path(""));
            command.envs(url.map(|url| ("ATI_PROXY_URL", url)));
            let output = command.args(["-J", "explain", "tool"]).args(words).output();
            let output = output.unwrap();
            assert!(output.status.success(), "{}", stderr(&output));
            let explained: Value = serde_json::from_str(&stdout(&output)).unwrap();
            assert_eq!(explained["verdict"], "allow", "{words:?}: {explained}");
        }
    }
}
