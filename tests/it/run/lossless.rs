//! Values arrive as they were typed where the schema says string.

use serde_json::{Value, json};

use super::here;
use crate::support::ati::{Proxy, Setup, stderr, write};
use crate::support::upstream::Upstream;

const TOOLS: &str = r#"
    [[tools]]
    name = 'as:query'
    endpoint = '/q'
    [tools.input_schema.properties]
    v = { type = 'string', x-ati-param-location = 'query' }

    [[tools]]
    name = 'as:path'
    endpoint = '/p/{v}'
    [tools.input_schema.properties]
    v = { type = 'string', x-ati-param-location = 'path' }

    [[tools]]
    name = 'as:body'
    endpoint = '/b'
    method = 'POST'
    [tools.input_schema.properties]
    v = { type = 'string' }
    n = { type = 'number' }

    [[tools]]
    name = 'as:optional'
    endpoint = '/b'
    method = 'POST'
    [tools.input_schema.properties]
    v = { anyOf = [{ type = 'string' }, { type = 'boolean' }] }

    [[tools]]
    name = 'as:free'
    endpoint = '/b'
    method = 'POST'
"#;

const TEXTS: [&str; 16] = [
    "1.10",
    "1234e56",
    "123456789012345678901",
    "007",
    "1e3",
    "true",
    "null",
    "[1,",
    "\u{1f600}",
    "",
    "[1]",
    "{\"a\":  1}",
    "-5",
    "0x1F",
    " padded ",
    "-q",
];

/// The same tools here and behind a proxy.
struct Both {
    api: Upstream,
    proxy: Proxy,
    local: tempfile::TempDir,
    url: String,
}

impl Both {
    fn new() -> Self {
        let api = Upstream::echo();
        let manifest = format!(
            "[provider]\nname = 'as'\nbase_url = '{}'\n{TOOLS}",
            api.url()
        );
        let proxy = Setup::new().manifest("as", &manifest).start();
        let local = tempfile::tempdir().unwrap();
        write(&local.path().join("manifests/as.toml"), &manifest);
        let url = format!("http://{}", proxy.edge);
        Both {
            api,
            proxy,
            local,
            url,
        }
    }

    /// Runs the command in both places and gives what the upstream received.
    fn run(&self, args: &[&str]) -> [crate::support::upstream::Received; 2] {
        let proxied = [("ATI_PROXY_URL", self.url.as_str())];
        [&[][..], &proxied].map(|env| {
            let before = self.api.received().len();
            let output = here(self.local.path(), env, &[&["run"], args].concat());
            assert!(
                output.status.success(),
                "{env:?} {args:?}: {}",
                stderr(&output)
            );
            assert_eq!(stderr(&output), "", "{args:?}");
            assert_eq!(self.api.received().len(), before + 1);
            self.api.last()
        })
    }
}

fn decoded(text: &str) -> String {
    percent_encoding::percent_decode_str(text)
        .decode_utf8()
        .unwrap()
        .into_owned()
}

#[test]
fn string_arrives_as_typed_here_through_the_proxy_and_over_call() {
    let both = Both::new();
    for text in TEXTS {
        let body = json!({"v": text});
        for received in both.run(&["as:query", "--v", text]) {
            let value = received.target.strip_prefix("/q?v=").unwrap();
            assert_eq!(decoded(value), text);
        }
        for received in both.run(&["as:body", &format!("--v={text}")]) {
            let sent: Value = serde_json::from_slice(&received.body).unwrap();
            assert_eq!(sent, body);
        }
        // A path can't have an empty segment.
        if !text.is_empty() {
            for received in both.run(&["as:path", "--v", text]) {
                let value = received.target.strip_prefix("/p/").unwrap();
                assert_eq!(decoded(value), text);
            }
            let answer = both.proxy.call(None, "as:path", body.clone());
            assert_eq!(answer.status, 200, "{}", answer.text());
            assert_eq!(decoded(&both.api.last().target[3..]), text);
        }
        assert_eq!(both.proxy.call(None, "as:query", body.clone()).status, 200);
        assert_eq!(decoded(&both.api.last().target[5..]), text);
        assert_eq!(both.proxy.call(None, "as:body", body.clone()).status, 200);
        let sent: Value = serde_json::from_slice(&both.api.last().body).unwrap();
        assert_eq!(sent, body);
    }
}

#[test]
fn number_of_a_json_caller_keeps_its_digits_as_a_string() {
    let both = Both::new();
    for literal in ["123456789012345678901", "1.10", "1e3", "5"] {
        let body = format!(r#"{{"tool_name":"as:body","args":{{"v":{literal}}}}}"#);
        let answer = both
            .proxy
            .client()
            .send("POST", "/call", &[], body.as_bytes());
        assert_eq!(answer.status, 200, "{}", answer.text());
        let sent: Value = serde_json::from_slice(&both.api.last().body).unwrap();
        assert_eq!(sent, json!({"v": literal}));
    }
}

#[test]
fn integer_of_more_than_64_bits_is_refused_wherever_it_is_given() {
    let both = Both::new();
    let what = "n: has more digits than can be sent exactly";
    let long = "123456789012345678901";
    let padding = "x".repeat(100_000);
    for value in [
        long.to_owned(),
        format!("[{long}]"),
        format!(r#"{{"a": {long}}}"#),
    ] {
        // Small, and too big to be parsed on a worker.
        for text in ["", &padding] {
            let args = format!(r#"{{"n": {value}, "v": "{text}"}}"#);
            let body = format!(r#"{{"tool_name": "as:body", "args": {args}}}"#);
            let mut client = both.proxy.client();
            let answer = client.send("POST", "/call", &[], body.as_bytes());
            assert_eq!(answer.status, 422, "{value}");
            assert!(answer.text().contains(what), "{}", answer.text());
        }
    }
    let file = both.local.path().join("args.json");
    write(&file, format!(r#"{{"n": {long}}}"#));
    let file = file.to_str().unwrap();
    let proxied = [("ATI_PROXY_URL", both.url.as_str())];
    for env in [&[][..], &proxied] {
        for args in [
            &["--args-file", file, "as:body"][..],
            &["as:body", "--n", long],
        ] {
            let output = here(both.local.path(), env, &[&["run"], args].concat());
            assert!(!output.status.success(), "{env:?} {args:?}");
            assert!(stderr(&output).contains(what), "{}", stderr(&output));
        }
    }
    assert!(both.api.received().is_empty());
}

#[test]
fn value_has_the_type_that_the_schema_asks_for() {
    let both = Both::new();
    let sent = |args: &[&str]| -> [Value; 2] {
        both.run(args)
            .map(|received| serde_json::from_slice(&received.body).unwrap())
    };
    let twice = |value: Value| [value.clone(), value];
    // Quotes belong to a text.
    for text in ["\"1.10\"", "\"; id; \""] {
        let line = ["as:body", "--v", text, "--n", "1.10"];
        assert_eq!(sent(&line), twice(json!({"v": text, "n": 1.1})));
        let line = ["as:body", &format!("--v={text}")];
        assert_eq!(sent(&line), twice(json!({"v": text})));
    }
    assert_eq!(
        sent(&["as:optional", "--v", "true"]),
        twice(json!({"v": true}))
    );
    assert_eq!(
        sent(&["as:optional", "--v", "null"]),
        twice(json!({"v": "null"}))
    );
    let line = [
        "as:free", "--a", "1.10", "--b", "1.5", "--c", "007", "--d", "[1]",
    ];
    let free = json!({"a": "1.10", "b": 1.5, "c": "007", "d": [1]});
    assert_eq!(sent(&line), twice(free));
    let line = ["as:free", "--a", "x", "--a", "1.10", "--a"];
    assert_eq!(sent(&line), twice(json!({"a": ["x", "1.10", true]})));
}

#[test]
fn words_of_an_older_client_are_read_as_typed() {
    let both = Both::new();
    // Such a client reads every word that parses as JSON.
    for (args, words, expected) in [
        (json!({"v": 1.1}), json!(["--v", "1.10"]), "1.10"),
        (json!({"v": [1]}), json!(["--v", "[ 1 ]"]), "[ 1 ]"),
        (json!({"v": null}), json!(["--v", "null"]), "null"),
        (json!({"v": "a"}), json!(["--v", "\"a\""]), "\"a\""),
        // The arguments count where the words say something else.
        (json!({"v": "b"}), json!(["--v", "a"]), "b"),
    ] {
        let body = json!({"tool_name": "as:body", "args": args, "raw_args": words});
        let answer = both
            .proxy
            .client()
            .send("POST", "/call", &[], body.to_string().as_bytes());
        assert_eq!(answer.status, 200, "{}", answer.text());
        let sent: Value = serde_json::from_slice(&both.api.last().body).unwrap();
        assert_eq!(sent, json!({"v": expected}));
    }
}
