//! `/skills`: bodies and statuses.

use serde_json::{Value, json};

use super::{get, post, skill, write};
use crate::support::ati::Setup;

/// No token is needed where there are no token keys.
const NONE: &str = "";

#[test]
fn skill_is_described_with_its_text_its_metadata_and_its_files() {
    let setup = Setup::new();
    let root = setup.path().join("skills");
    write(
        &root.join("whole/SKILL.md"),
        "---\nname: whole\ndescription: D\nlicense: MIT\nallowed-tools: Bash Read\n\
         compatibility: any\nmetadata:\n  author: ann\n  version: 1.2.3\n---\n\n# Body\n",
    );
    let bindings = "tools = ['t']\nproviders = ['p']\ncategories = ['c']\nkeywords = ['k']\n\
                    hint = 'h'\ndepends_on = ['d']\nsuggests = ['s']";
    write(
        &root.join("whole/skill.toml"),
        format!("[skill]\n{bindings}\n"),
    );
    write(&root.join("whole/references/a.md"), "ref");
    write(&root.join("whole/assets/logo.bin"), [0xff, 0x00]);
    skill(&root, "small", "S.", "");
    let proxy = setup.start();

    assert_eq!(
        get(&proxy, NONE, "/skills").json(),
        json!([
            {"name": "small", "version": "0.1.0", "description": "About small", "tools": [],
             "providers": [], "categories": [], "hint": null},
            {"name": "whole", "version": "1.2.3", "description": "D", "tools": ["t"],
             "providers": ["p"], "categories": ["c"], "hint": "h"},
        ])
    );
    assert_eq!(
        get(&proxy, NONE, "/skills/whole?refs=true").json(),
        json!({"name": "whole", "version": "1.2.3", "description": "D", "content": "# Body\n",
               "references": ["a.md"]})
    );
    assert!(get(&proxy, NONE, "/skills/whole?refs=false").json()["references"].is_null());
    let meta = get(&proxy, NONE, "/skills/whole?meta=true").json();
    for (key, value) in [
        ("author", json!("ann")),
        ("keywords", json!(["k"])),
        ("depends_on", json!(["d"])),
        ("suggests", json!(["s"])),
        ("license", json!("MIT")),
        ("compatibility", json!("any")),
        ("allowed_tools", json!("Bash Read")),
        ("format", json!("anthropic")),
        ("content", Value::Null),
    ] {
        assert_eq!(meta[key], value, "{key}");
    }
    let bundle = get(&proxy, NONE, "/skills/whole/bundle").json();
    assert_eq!(bundle["name"], "whole");
    let files = bundle["files"].as_object().unwrap();
    assert_eq!(files.len(), 4, "{files:?}");
    assert_eq!(files["assets/logo.bin"], json!({"base64": "/wA="}));
    assert_eq!(files["references/a.md"], "ref");
    assert!(files["SKILL.md"].as_str().unwrap().starts_with("---\n"));
    let both = json!({"names": ["small", "absent", "small"]});
    let both = post(&proxy, NONE, "/skills/bundle", &both).json();
    assert_eq!(both["missing"], json!(["absent"]));
    assert!(both["skills"]["small"]["files"]["SKILL.md"].is_string());

    for (query, expected) in [
        ("search=about&category=c", "small"),
        ("category=c&provider=none", "whole"),
        ("provider=p&tool=none", "whole"),
        ("tool=t", "whole"),
    ] {
        let rows = get(&proxy, NONE, &format!("/skills?{query}")).json();
        assert_eq!(super::names(&rows), [expected], "{query}");
    }
    assert_eq!(get(&proxy, NONE, "/skills?tool=none").json(), json!([]));
    assert_eq!(get(&proxy, NONE, "/health").json()["skills"], 2);
}

#[test]
fn bad_requests_are_told_what_is_wrong() {
    let setup = Setup::new();
    skill(&setup.path().join("skills"), "one", "1", "");
    let proxy = setup.start();
    let absent = get(&proxy, NONE, "/skills/absent");
    assert_eq!(absent.status, 404);
    assert_eq!(absent.json(), json!({"error": "Skill 'absent' not found"}));
    assert_eq!(get(&proxy, NONE, "/skills/absent/bundle").status, 404);
    for query in ["meta=1", "refs=yes", "meta="] {
        let bad = get(&proxy, NONE, &format!("/skills/one?{query}"));
        assert_eq!(bad.status, 400, "{query}");
        assert!(bad.text().starts_with("Failed to deserialize query string"));
    }
    let send = |path: &str, kind: &str, body: &str| {
        let headers = [("content-type", kind)];
        proxy.client().send("POST", path, &headers, body.as_bytes())
    };
    const JSON: &str = "application/json";
    for path in ["/skills/resolve", "/skills/bundle"] {
        assert_eq!(send(path, "text/plain", "{}").status, 415, "{path}");
        assert_eq!(send(path, JSON, "{").status, 400, "{path}");
        assert_eq!(send(path, JSON, "").status, 400, "{path}");
        assert_eq!(send(path, JSON, "{}").status, 422, "{path}");
        assert_eq!(
            send(path, JSON, r#"{"names":1,"scopes":1}"#).status,
            422,
            "{path}"
        );
        let wrong = get(&proxy, NONE, path);
        assert_eq!(
            (wrong.status, wrong.header("allow")),
            (405, Some("POST")),
            "{path}"
        );
    }
    let many: Vec<String> = (0..51).map(|n| format!("s{n}")).collect();
    let many = post(&proxy, NONE, "/skills/bundle", &json!({"names": many}));
    assert_eq!(many.status, 400);
    assert_eq!(
        many.json(),
        json!({"error": "batch size 51 exceeds limit of 50"})
    );
    let fifty: Vec<String> = (0..50).map(|n| format!("s{n}")).collect();
    assert_eq!(
        post(&proxy, NONE, "/skills/bundle", &json!({"names": fifty})).status,
        200
    );
}

#[test]
fn resolved_skills_follow_the_cascade_and_a_lone_star_loads_none() {
    let setup = Setup::new().tools(
        "github",
        "http://127.0.0.1:1",
        "category = 'code'",
        "[[tools]]\nname = 'github:search'",
    );
    let root = setup.path().join("skills");
    skill(
        &root,
        "by-tool",
        "1",
        "tools = ['github:search']\ndepends_on = ['needed']",
    );
    skill(&root, "by-provider", "2", "providers = ['github']");
    skill(&root, "by-category", "3", "categories = ['code']");
    skill(&root, "needed", "4", "");
    skill(&root, "apart", "5", "");
    let proxy = setup.start();
    let resolve = |scopes: &[&str]| {
        let rows = post(&proxy, NONE, "/skills/resolve", &json!({"scopes": scopes})).json();
        let names = super::names(&rows).into_iter().map(str::to_owned);
        names.collect::<Vec<_>>().join(" ")
    };
    let all = "by-category by-provider by-tool needed";
    for (scopes, expected) in [
        (&["*"][..], ""),
        (&[], ""),
        (&["help"], ""),
        (&["skill:apart"], "apart"),
        (&["skill:by-*"], all),
        (&["tool:github:search"], all),
        (&["tool:github_search"], all),
        (&["tool:github:*"], all),
        (&["tool:other:*"], ""),
        (&["*", "skill:apart"], "apart"),
    ] {
        assert_eq!(resolve(scopes), expected, "{scopes:?}");
    }
    let body = json!({"scopes": ["skill:apart"], "include_content": true});
    assert_eq!(
        post(&proxy, NONE, "/skills/resolve", &body).json(),
        json!([{"name": "apart", "version": "0.1.0", "description": "About apart", "tools": [],
                "providers": [], "categories": [], "content": "5\n"}])
    );
}
