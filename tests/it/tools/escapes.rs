//! A key that an upstream repeats in another spelling.

use serde_json::{Value, json};

use super::{BEARER, upstream};
use crate::support::ati::{Setup, tool};

/// Keys, and how libraries write them.
const SPELLINGS: [(&str, &str, &str); 12] = [
    ("go", "pw&one+two'three", r#"{"v":"pw\u0026one+two'three"}"#),
    (
        "gson",
        "c2stbGl2ZS0xMjM0MTIzNA==",
        r#"{"v":"c2stbGl2ZS0xMjM0MTIzNA\u003d\u003d"}"#,
    ),
    ("first", "secretvalue", r#"{"v":"\u0073ecretvalue"}"#),
    ("upper", "pass/wörd+1", r#"{"v":"pass\/w\u00F6rd\u002B1"}"#),
    ("pair", "key-𝄞-value", r#"{"v":"key-\uD834\udd1e-value"}"#),
    ("name", "secret/value", r#"{"v":{"secret\/value":1}}"#),
    ("quote", "ab/cd+ef==", r#"{"v":"ab/cd%2Bef%3D%3D"}"#),
    ("component", "it's a key=1", r#"{"v":"it's%20a%20key%3d1"}"#),
    ("form", "it's a key=1", r#"{"v":"it%27s+a+key%3D1"}"#),
    (
        "nested",
        "secret/value",
        r#"{"v":"{\"a\":\"{\\\"b\\\":\\\"secret\\\\\\/v\\\\\\u0061lue\\\"}\"}"}"#,
    ),
    (
        "mixed",
        "secret/value",
        r#"{"v":"u=secret\u00252Fvalu\\u0065"}"#,
    ),
    ("twice", "secret/value", r#"{"v":"u=secret%252Fvalue"}"#),
];

#[test]
fn key_in_any_escapes_reaches_no_caller_with_or_without_extract() {
    let api = upstream(|received| {
        let name = received.target.trim_start_matches('/').to_owned();
        let found = SPELLINGS.iter().find(|(known, ..)| *known == name);
        (200, String::new(), found.unwrap().2.to_owned())
    });
    let mut setup = Setup::new();
    let mut keys = serde_json::Map::new();
    for (name, key, _) in SPELLINGS {
        keys.insert(format!("key_{name}"), key.into());
        let provider = BEARER.replace("'api'", &format!("'key_{name}'"));
        let whole = tool(&format!("{name}_whole"), &format!("endpoint = '/{name}'"));
        let part = format!("endpoint = '/{name}'\nresponse = {{ extract = '$.v' }}");
        let part = tool(&format!("{name}_part"), &part);
        setup = setup.tools(name, &api.url(), &provider, &(whole + &part));
    }
    let proxy = setup.credentials(&Value::Object(keys)).start();
    for (name, key, answer) in SPELLINGS {
        for form in ["whole", "part"] {
            let called = proxy.call(None, &format!("{name}_{form}"), json!({}));
            assert_eq!(called.status, 200, "{name}: {}", called.text());
            let text = called.text();
            assert!(text.contains("[REDACTED]"), "{name} {form}: {text}");
            assert!(!text.contains(key), "{name} {form}: {text}");
            let told: Value = serde_json::from_str(answer).unwrap();
            if let Some(told) = told["v"].as_str() {
                assert!(
                    !called.json().to_string().contains(told),
                    "{name} {form}: {text}"
                );
            }
        }
    }
}

#[test]
fn arguments_that_make_a_url_too_long_are_refused_and_not_sent() {
    let api = upstream(|_| (200, String::new(), "{}".to_owned()));
    let proxy = Setup::new()
        .tools("p", &api.url(), "", &tool("long", "endpoint = '/x'"))
        .start();
    let fits = proxy.call(None, "long", json!({"q": "a".repeat(60_000)}));
    assert_eq!(fits.status, 200, "{}", fits.text());
    let long = proxy.call(None, "long", json!({"q": "a".repeat(70_000)}));
    assert_eq!(long.status, 422, "{}", long.text());
    let error = long.json()["error"].as_str().unwrap().to_owned();
    assert!(error.starts_with("Invalid arguments: URL: "), "{error}");
    assert!(error.contains("too long"), "{error}");
    assert_eq!(api.received().len(), 1);
}
