//! Many skills, and tokens that each open a part of them.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{get, names, post, skill, through};
use crate::support::ati::{Setup, stdout};
use crate::support::tokens::{bearer, claims, key_pair};

#[test]
fn three_tokens_each_see_exactly_their_own_of_500_skills() {
    let (signer, public) = key_pair();
    let tool = |name: &str| format!("[[tools]]\nname = '{name}'\n");
    let setup = Setup::new()
        .jwt(&public)
        .tools("market", "http://127.0.0.1:1", "", &tool("market:quote"))
        .tools(
            "mail",
            "http://127.0.0.1:1",
            "category = 'office'",
            &tool("mail:send"),
        );
    let root = setup.path().join("skills");
    // By name, by tool, by provider, by category; every fourth depends on one that has no binding.
    for n in 0..500 {
        let (kind, bindings) = match n % 4 {
            0 => ("research", String::new()),
            1 => ("quotes", "tools = ['market:quote']".to_owned()),
            2 => ("letters", "providers = ['mail']".to_owned()),
            _ => (
                "office",
                format!("categories = ['office']\ndepends_on = ['base-{}']", n % 8),
            ),
        };
        let name = format!("{kind}-{n}");
        skill(&root, &name, &format!("Text of {name}"), &bindings);
    }
    for n in [3, 7] {
        skill(&root, &format!("base-{n}"), "Base", "");
    }
    let proxy = setup.start();
    assert_eq!(get(&proxy, "", "/health").json()["skills"], 502);
    let every = |kinds: &[&str]| -> BTreeSet<String> {
        let of = |n: usize| ["research", "quotes", "letters", "office"][n % 4];
        let all = (0..500).filter(|n| kinds.contains(&of(*n)));
        let mut all: BTreeSet<String> = all.map(|n| format!("{}-{n}", of(n))).collect();
        if kinds.contains(&"office") {
            all.extend(["base-3".to_owned(), "base-7".to_owned()]);
        }
        all
    };
    for (scope, expected, foreign) in [
        ("skill:research-*", every(&["research"]), "quotes-1"),
        ("tool:market:quote help", every(&["quotes"]), "research-0"),
        ("tool:mail:*", every(&["letters", "office"]), "research-0"),
    ] {
        let mut claims = claims();
        claims.scope = scope.into();
        let token = bearer(&signer, &claims);
        let set = |rows: &Value| -> BTreeSet<String> {
            names(rows).into_iter().map(str::to_owned).collect()
        };
        assert_eq!(
            set(&get(&proxy, &token, "/skills").json()),
            expected,
            "{scope}"
        );
        let found = get(&proxy, &token, "/skills?search=about").json();
        assert_eq!(set(&found), expected, "{scope}");
        // Everything is asked for, and only the caller's own comes back.
        let wanted = json!({"scopes": ["skill:*", "tool:*"]});
        let resolved = post(&proxy, &token, "/skills/resolve", &wanted).json();
        assert_eq!(set(&resolved), expected, "{scope}");
        let own = expected.first().unwrap();
        let bundles = json!({"names": [own, foreign]});
        let bundles = post(&proxy, &token, "/skills/bundle", &bundles).json();
        assert_eq!(bundles["missing"], json!([foreign]));
        assert!(bundles["skills"][own.as_str()]["files"]["SKILL.md"].is_string());
        assert_eq!(get(&proxy, &token, &format!("/skills/{own}")).status, 200);
        for path in ["", "?meta=true", "/bundle"] {
            let path = format!("/skills/{foreign}{path}");
            let refused = get(&proxy, &token, &path);
            assert_eq!(refused.status, 404, "{scope} {path}");
            let error = format!("Skill '{foreign}' not found");
            assert_eq!(refused.json(), json!({"error": error}));
        }
        let listed = stdout(&through(&proxy, &token, &["skill", "list"]));
        assert_eq!(
            set(&serde_json::from_str(&listed).unwrap()),
            expected,
            "{scope}"
        );
    }
    let mut claims = claims();
    claims.scope = "help".into();
    let none = bearer(&signer, &claims);
    assert_eq!(get(&proxy, &none, "/skills").json(), json!([]));
    assert_eq!(get(&proxy, "", "/skills").status, 401);
}

#[test]
fn session_token_limits_the_skills_of_this_machine_too() {
    let (signer, public) = key_pair();
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    super::write(&dir.join("public.pem"), public);
    for name in ["mine", "foreign"] {
        skill(&dir.join("skills"), name, name, "");
    }
    let mut claims = claims();
    claims.scope = "skill:mine".into();
    let token = bearer(&signer, &claims);
    let run = |args: &[&str]| {
        crate::support::ati::command(dir)
            .env("ATI_JWT_PUBLIC_KEY", dir.join("public.pem"))
            .env("ATI_SESSION_TOKEN", token.trim_start_matches("Bearer "))
            .args(args)
            .output()
            .unwrap()
    };
    let listed: Value = serde_json::from_str(&stdout(&run(&["skill", "list"]))).unwrap();
    assert_eq!(names(&listed), ["mine"]);
    let denied = run(&["skill", "show", "foreign"]);
    assert!(
        super::failure(&denied)
            .0
            .starts_with("Skill 'foreign' not found")
    );
    let resolved: Value = serde_json::from_str(&stdout(&run(&["skill", "resolve"]))).unwrap();
    assert_eq!(names(&resolved), ["mine"]);
}
