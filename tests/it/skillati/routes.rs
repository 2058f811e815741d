//! `/skillati`: bodies, statuses, scopes, and paths that lead out.

use serde_json::json;

use super::{folder, get, get_as, json, names, refusal, with_folder, with_tokens};
use crate::support::ati::Setup;
use crate::support::http::Client;

#[test]
fn bodies_are_as_documented() {
    let proxy = with_folder().start();
    assert_eq!(
        json(&proxy, "/skillati/catalog"),
        json!({"skills": [
            {"name": "bar", "description": "Bar sanctions", "skill_directory": "skillati://bar",
             "keywords": ["kyc"], "tools": ["web:look"]},
            {"name": "foo", "description": "Foo things", "skill_directory": "skillati://foo",
             "when_to_use": "For foo"},
        ]})
    );
    let found = json(&proxy, "/skillati/catalog?search=KYC%20nothing");
    assert_eq!(names(&found), ["bar"]);
    assert_eq!(
        json(&proxy, "/skillati/foo"),
        json!({
            "name": "foo",
            "description": "Foo things",
            "skill_directory": "skillati://foo",
            "content": "Run skillati://foo/scripts/run.sh, read skillati://bar/references/r.md.\n",
        })
    );
    assert_eq!(
        json(&proxy, "/skillati/foo/resources"),
        json!({"name": "foo", "prefix": null, "resources": ["assets/logo.bin", "scripts/run.sh"]})
    );
    assert_eq!(
        json(&proxy, "/skillati/foo/resources?prefix=scripts/"),
        json!({"name": "foo", "prefix": "scripts/", "resources": ["scripts/run.sh"]})
    );
    assert_eq!(
        json(&proxy, "/skillati/foo/file?path=./scripts/run.sh"),
        json!({"requested_skill": "foo", "resolved_skill": "foo", "path": "scripts/run.sh",
               "kind": "text", "content": "#!/bin/sh\n"})
    );
    assert_eq!(
        json(&proxy, "/skillati/foo/file?path=assets%2Flogo.bin"),
        json!({"requested_skill": "foo", "resolved_skill": "foo", "path": "assets/logo.bin",
               "kind": "binary", "encoding": "base64", "content": "/wAB"})
    );
    let sibling = json(&proxy, "/skillati/foo/file?path=../bar/references/r.md");
    assert_eq!(
        (
            &sibling["requested_skill"],
            &sibling["resolved_skill"],
            &sibling["path"]
        ),
        (&json!("foo"), &json!("bar"), &json!("references/r.md"))
    );
    assert_eq!(
        json(&proxy, "/skillati/bar/refs"),
        json!({"name": "bar", "references": ["deep/d.md", "r.md"]})
    );
    for (path, reference, content) in [
        ("r.md", "r.md", "reference\n"),
        ("deep%2Fd.md", "deep/d.md", "deep\n"),
    ] {
        assert_eq!(
            json(&proxy, &format!("/skillati/bar/ref/{path}")),
            json!({"name": "bar", "reference": reference, "content": content})
        );
    }
}

#[test]
fn errors_have_their_statuses_and_texts() {
    let proxy = with_folder().start();
    for (path, status, error) in [
        ("nope", 404, "Skill 'nope' not found"),
        ("nope/refs", 404, "Skill 'nope' not found"),
        ("Bad_Name", 404, "Skill 'Bad_Name' not found"),
        (
            "foo/file?path=x.md",
            404,
            "Path 'x.md' not found in skill 'foo'",
        ),
        (
            "foo/ref/x.md",
            404,
            "Path 'references/x.md' not found in skill 'foo'",
        ),
        ("foo/file", 400, "Invalid skill-relative path ''"),
        (
            "foo/file?path=/etc/passwd",
            400,
            "Invalid skill-relative path '/etc/passwd'",
        ),
    ] {
        let refused = refusal(&proxy, &format!("/skillati/{path}"));
        assert_eq!(refused, (status, error.to_owned()), "{path}");
    }
    let post = Client::connect(proxy.edge).send("POST", "/skillati/catalog", &[], b"");
    assert_eq!(post.status, 405);
}

#[test]
fn registry_that_is_not_configured_is_unavailable_and_says_why() {
    for (registry, error) in [
        (
            None,
            "SkillATI is not configured (set ATI_SKILL_REGISTRY=gcs://<bucket> or \
             ATI_SKILL_REGISTRY=proxy)",
        ),
        (Some("ftp://x"), "Unsupported skill registry URL: ftp://x"),
        (
            Some("gcs://bucket"),
            "GCS credentials not found in keyring: gcp_credentials",
        ),
        (
            Some("s3://bucket"),
            "S3 credentials not found in keyring: s3_access_key",
        ),
        (
            Some("proxy"),
            "ATI_PROXY_URL must be set when ATI_SKILL_REGISTRY=proxy",
        ),
    ] {
        let mut setup = Setup::new();
        if let Some(registry) = registry {
            setup = setup.env("ATI_SKILL_REGISTRY", registry);
        }
        let proxy = setup.start();
        for path in [
            "/skillati/catalog",
            "/skillati/foo",
            "/skillati/foo/file?path=x",
        ] {
            assert_eq!(refusal(&proxy, path), (503, error.to_owned()), "{path}");
        }
    }
}

#[test]
fn path_that_leads_out_of_a_skill_is_refused_in_every_spelling() {
    let setup = with_folder();
    folder(setup.path(), &[("secret.md", b"planted-secret")]);
    std::os::unix::fs::symlink("../../secret.md", setup.path().join("remote/foo/link.md")).unwrap();
    let proxy = setup.start();
    for path in [
        "/skillati/foo/file?path=../../secret.md",
        "/skillati/foo/file?path=..%2F..%2Fsecret.md",
        "/skillati/foo/file?path=%252e%252e%252f%252e%252e%252fsecret.md",
        "/skillati/foo/file?path=..%5C..%5Csecret.md",
        "/skillati/foo/file?path=scripts/../../../secret.md",
        "/skillati/foo/file?path=../remote/../../secret.md",
        "/skillati/foo/file?path=%2Fetc%2Fpasswd",
        "/skillati/foo/file?path=scripts%00",
        "/skillati/foo/file?path=.hidden",
        "/skillati/foo/resources?prefix=../",
        "/skillati/foo/resources?prefix=%2e%2e%2f",
        "/skillati/bar/ref/..%2FSKILL.md",
        "/skillati/bar/ref/..%2F..%2Ffoo%2FSKILL.md",
        "/skillati/bar/ref/%2e%2e",
        "/skillati/..%2F..%2Fsecret.md",
        "/skillati/%2e%2e/file?path=secret.md",
        "/skillati/../catalog",
    ] {
        let answer = get(&proxy, path);
        assert!(
            matches!(answer.status, 400 | 404),
            "{path}: {}",
            answer.status
        );
        assert!(!answer.text().contains("planted"), "{path}");
    }
    // A link that leads out isn't there.
    let link = get(&proxy, "/skillati/foo/file?path=link.md");
    assert_eq!(link.status, 404, "{}", link.text());
}

#[test]
fn token_sees_its_own_skills_and_no_sibling() {
    let tools = "[[tools]]\nname = 'web:look'\n";
    let setup = with_folder().tools("web", "http://127.0.0.1:1", "", tools);
    let (proxy, token) = with_tokens(setup);
    for (scope, expected) in [
        ("skill:foo", &["foo"][..]),
        ("skill:f*", &["foo"]),
        ("tool:web:look", &["bar"]),
        ("tool:web:*", &["bar"]),
        ("skill:foo tool:web_look", &["bar", "foo"]),
        ("*", &["bar", "foo"]),
        ("tool:other", &[]),
        ("help", &[]),
    ] {
        let token = token(scope);
        let catalogue = get_as(&proxy, &token, "/skillati/catalog").json();
        assert_eq!(names(&catalogue), expected, "{scope}");
        let search = get_as(&proxy, &token, "/skillati/catalog?search=things+sanctions").json();
        assert_eq!(names(&search), expected, "{scope}");
        for skill in ["foo", "bar"] {
            let status = if expected.contains(&skill) { 200 } else { 404 };
            for rest in ["", "/resources", "/refs", "/file?path=SKILL.md"] {
                let answer = get_as(&proxy, &token, &format!("/skillati/{skill}{rest}"));
                assert_eq!(answer.status, status, "{scope} {skill}{rest}");
            }
        }
    }
    let foo = token("skill:foo");
    let through = get_as(&proxy, &foo, "/skillati/foo/file?path=../bar/SKILL.md");
    let absent = get_as(&proxy, &foo, "/skillati/foo/file?path=../absent/SKILL.md");
    assert_eq!((through.status, absent.status), (404, 404));
    assert_eq!(through.json(), json!({"error": "Skill 'bar' not found"}));
    assert_eq!(absent.json(), json!({"error": "Skill 'absent' not found"}));
    let both = token("skill:foo skill:bar");
    let through = get_as(&proxy, &both, "/skillati/foo/file?path=../bar/SKILL.md");
    assert_eq!(through.status, 200);
    let without = get(&proxy, "/skillati/catalog");
    assert_eq!(without.status, 401);
}

#[test]
fn caller_that_has_the_answer_gets_no_body() {
    let proxy = with_folder().start();
    let answer = get(&proxy, "/skillati/catalog");
    let tag = answer.header("etag").unwrap().to_owned();
    let mut client = Client::connect(proxy.edge);
    let again = client.send("GET", "/skillati/catalog", &[("if-none-match", &tag)], b"");
    assert_eq!((again.status, again.body.len()), (304, 0));
    let other = client.send(
        "GET",
        "/skillati/catalog",
        &[("if-none-match", "\"x\"")],
        b"",
    );
    assert_eq!((other.status, other.body), (200, answer.body));
    let head = client.send("HEAD", "/skillati/catalog", &[], b"");
    assert_eq!(head.status, 200);
}

#[test]
fn proxy_reads_the_catalogue_of_another_proxy_with_its_own_token() {
    let (inner, token) = with_tokens(with_folder());
    let own = token("skill:foo skill:bar");
    let own = own.strip_prefix("Bearer ").unwrap();
    let outer = Setup::new()
        .env("ATI_SKILL_REGISTRY", "proxy")
        .env("ATI_PROXY_URL", format!("http://{}", inner.edge))
        .env("ATI_SESSION_TOKEN", own)
        .start();
    let through = |path: &str| json(&outer, path);
    let direct = |path: &str| get_as(&inner, &token("*"), path).json();
    for path in [
        "/skillati/catalog",
        "/skillati/foo",
        "/skillati/foo/resources?prefix=scripts",
        "/skillati/foo/file?path=assets/logo.bin",
        "/skillati/foo/file?path=../bar/references/r.md",
        "/skillati/bar/refs",
        "/skillati/bar/ref/r.md",
    ] {
        assert_eq!(through(path), direct(path), "{path}");
    }
    let missing = refusal(&outer, "/skillati/foo/file?path=x.md");
    assert_eq!(
        missing,
        (404, "Path 'x.md' not found in skill 'foo'".to_owned())
    );
    assert_eq!(refusal(&outer, "/skillati/nope").0, 404);
}
