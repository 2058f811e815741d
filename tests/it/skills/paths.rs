//! Names, paths and links that would lead out of a skill's folder.

use std::os::unix::fs::symlink;

use serde_json::json;

use super::{failure, get, installed, post, quiet, skill, write};
use crate::support::ati::{Setup, ati};
use crate::support::tokens::{bearer, claims, key_pair};

const ESCAPES: &[&str] = &[
    "../bar",
    "../bar/SKILL.md",
    "..",
    ".",
    "/etc/passwd",
    "%2e%2e%2fbar",
    "..%2fbar%2fSKILL.md",
    "%2e%2e/bar",
    "..%252fbar",
    "..\\bar",
    "..%5cbar",
    "foo/../bar",
    "foo%2f..%2fbar",
    "foo%00",
    "bar%00foo",
    "foo/SKILL.md",
    "foo%2fSKILL.md",
];

#[test]
fn token_for_one_skill_reads_no_other_by_any_path() {
    let (signer, public) = key_pair();
    let setup = Setup::new().jwt(&public);
    let root = setup.path().join("skills");
    skill(&root, "foo", "foo's text", "");
    skill(&root, "bar", "planted-text-of-bar", "");
    write(&setup.path().join("outside"), "planted-outside");
    symlink("../../outside", root.join("foo/link")).unwrap();
    symlink("../bar", root.join("foo/folder")).unwrap();
    symlink("/etc/passwd", root.join("foo/absolute")).unwrap();
    let proxy = setup.start();
    let mut claims = claims();
    claims.scope = "skill:foo".into();
    let token = bearer(&signer, &claims);
    for escape in ESCAPES {
        for path in [
            format!("/skills/{escape}"),
            format!("/skills/{escape}/bundle"),
            format!("/skills/foo/{escape}"),
        ] {
            let answer = get(&proxy, &token, &path);
            assert!(
                [400, 404].contains(&answer.status),
                "{path}: {}",
                answer.status
            );
            assert!(!answer.text().contains("planted"), "{path}");
        }
        let bundles = post(
            &proxy,
            &token,
            "/skills/bundle",
            &json!({"names": [escape]}),
        );
        assert_eq!(bundles.json(), json!({"skills": {}, "missing": [escape]}));
        let scopes = json!({"scopes": [format!("skill:{escape}")], "include_content": true});
        let resolved = post(&proxy, &token, "/skills/resolve", &scopes);
        assert_eq!(resolved.json(), json!([]), "{escape}");
    }
    let bundle = get(&proxy, &token, "/skills/foo/bundle");
    assert_eq!(bundle.json()["files"].as_object().unwrap().len(), 1);
    assert!(!bundle.text().contains("planted") && !bundle.text().contains("root:"));
    let references = get(&proxy, &token, "/skills/foo?refs=true");
    assert_eq!(references.json()["references"], json!([]));
}

#[test]
fn command_takes_no_name_that_is_a_path() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("ati");
    write(&home.path().join("kept/SKILL.md"), "kept");
    write(&dir.join("kept/SKILL.md"), "kept");
    skill(&dir.join("skills"), "foo", "foo", "");
    let absolute = home.path().join("kept");
    let absolute = absolute.to_str().unwrap();
    for name in [
        "../kept",
        "../../kept",
        "..",
        ".",
        "",
        absolute,
        "foo/",
        "foo/../foo",
    ] {
        for command in ["remove", "show", "info", "read", "verify", "diff", "update"] {
            let output = ati(&dir, &["skill", command, name]);
            assert!(!output.status.success(), "{command} {name}");
        }
        let init = ati(&dir, &["skill", "init", name]);
        assert!(
            failure(&init).0.contains("is no name for a skill"),
            "{name}"
        );
    }
    for path in [home.path().join("kept/SKILL.md"), dir.join("kept/SKILL.md")] {
        assert!(path.exists(), "{}", path.display());
    }
    assert_eq!(installed(&dir), ["foo"]);
}

#[test]
fn installing_takes_no_name_and_no_link_out_of_its_place() {
    let (home, source) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (dir, from) = (home.path(), source.path());
    skill(from, "good", "text", "");
    write(&from.join("secret"), "planted-secret");
    symlink("../secret", from.join("good/stolen")).unwrap();
    symlink("..", from.join("good/above")).unwrap();
    let path = from.join("good");
    let path = path.to_str().unwrap();
    for name in ["../evil", "/tmp/evil", "a/b", "Bad_Name", ".hidden", "a--b"] {
        let refused = failure(&ati(dir, &["skill", "install", path, "--name", name]));
        assert!(refused.0.contains("is no name for a skill"), "{name}");
        assert_eq!(refused.1, Some(2));
    }
    write(&from.join("named/SKILL.md"), "---\nname: ../../evil\n---\n");
    let named = from.join("named");
    let refused = failure(&ati(dir, &["skill", "install", named.to_str().unwrap()]));
    assert!(
        refused.0.contains("is no name for a skill"),
        "{}",
        refused.0
    );
    assert_eq!(installed(dir), [""; 0]);
    quiet(ati(dir, &["skill", "install", path]));
    let copied = dir.join("skills/good");
    assert!(copied.join("SKILL.md").exists());
    for link in ["stolen", "above"] {
        assert!(copied.join(link).symlink_metadata().is_err(), "{link}");
    }
    // One bad skill among several: none of them is installed.
    quiet(ati(dir, &["skill", "remove", "good"]));
    let all = failure(&ati(
        dir,
        &["skill", "install", "--all", from.to_str().unwrap()],
    ));
    assert!(all.0.contains("is no name for a skill"), "{}", all.0);
    assert_eq!(installed(dir), [""; 0]);
}
