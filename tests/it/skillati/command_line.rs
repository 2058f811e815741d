//! `ati skillati` and `ati skill fetch`, on this machine and through a proxy.

use std::process::Output;

use serde_json::{Value, json};

use super::{FILES, folder, names, with_folder, with_tokens};
use crate::support::ati::{command, stderr, stdout};

#[test]
fn commands_answer_alike_on_this_machine_and_through_a_proxy() {
    let dir = tempfile::tempdir().unwrap();
    folder(&dir.path().join("remote"), FILES);
    let registry = format!("file://{}", dir.path().join("remote").display());
    let (proxy, token) = with_tokens(with_folder());
    let token = token("skill:foo skill:bar");
    let token = token.strip_prefix("Bearer ").unwrap();
    let here = |words: &[&str]| {
        let mut command = command(dir.path());
        command.env("ATI_SKILL_REGISTRY", &registry);
        command.args(words).output().unwrap()
    };
    let there = |words: &[&str]| {
        let mut command = command(dir.path());
        command.env("ATI_PROXY_URL", format!("http://{}", proxy.edge));
        command.env("ATI_SESSION_TOKEN", token);
        command.args(words).output().unwrap()
    };
    for words in [
        &["catalog"][..],
        &["catalog", "--search", "sanctions"],
        &["catalog", "--search", "absent", "--output", "text"],
        &["catalog", "--output", "text"],
        &["catalog", "--output", "table"],
        &["read", "foo"],
        &["read", "foo", "--output", "text"],
        &["resources", "foo"],
        &[
            "resources",
            "foo",
            "--prefix",
            "scripts/",
            "--output",
            "text",
        ],
        &["cat", "foo", "scripts/run.sh", "--output", "text"],
        &["cat", "foo", "../bar/references/r.md"],
        &["cat", "foo", "assets/logo.bin"],
        &["refs", "bar"],
        &["refs", "bar", "--output", "text"],
        &["ref", "bar", "deep/d.md", "--output", "text"],
    ] {
        let by_alias = [&["skill", "fetch"], words].concat();
        let words = [&["skillati"], words].concat();
        let (here, through, alias) = (here(&words), there(&words), here(&by_alias));
        assert!(here.status.success(), "{words:?}: {}", stderr(&here));
        assert_eq!(stdout(&here), stdout(&through), "{words:?}");
        assert_eq!(stdout(&here), stdout(&alias), "{words:?}");
        assert_eq!(
            (stderr(&here), stderr(&through)),
            (String::new(), String::new())
        );
    }
    let read = stdout(&here(&["skillati", "read", "foo", "--output", "text"]));
    assert_eq!(
        read,
        "Base directory for this skill: skillati://foo\n\nFoo things\n\n\
         Run skillati://foo/scripts/run.sh, read skillati://bar/references/r.md.\n"
    );
    for words in [
        &["skillati", "read", "absent"][..],
        &["skillati", "cat", "foo", "absent.md"],
        &["skillati", "cat", "foo", "../../etc/passwd"],
        &[
            "skillati",
            "cat",
            "foo",
            "assets/logo.bin",
            "--output",
            "text",
        ],
        &["skillati", "ref", "foo", "../SKILL.md"],
    ] {
        for output in [here(words), there(words)] {
            assert!(!output.status.success(), "{words:?}");
            assert!(
                output.stdout.is_empty() && !output.stderr.is_empty(),
                "{words:?}"
            );
        }
    }
}

#[test]
fn fetching_is_refused_where_skills_are_installed_and_indexes_are_still_made() {
    let dir = tempfile::tempdir().unwrap();
    folder(&dir.path().join("skills"), FILES);
    let run = |value: &str, words: &[&str]| -> Output {
        let mut command = command(dir.path());
        command.env("ATI_SKILL_FETCH_DISABLED", value);
        command.env("ATI_SKILL_REGISTRY", "file:///nonexistent");
        command.args(words).output().unwrap()
    };
    for value in ["1", "true"] {
        let refused = run(value, &["skillati", "catalog", "--output", "text"]);
        assert_eq!(refused.status.code(), Some(1));
        let said = stderr(&refused);
        assert!(
            said.contains("Skills are pre-installed in this environment."),
            "{said}"
        );
    }
    let folder = dir.path().join("skills");
    let made = run("1", &["skillati", "build-index", folder.to_str().unwrap()]);
    assert!(made.status.success(), "{}", stderr(&made));
    let failed = run("0", &["skillati", "catalog"]);
    assert!(
        stderr(&failed).contains("Skill registry error"),
        "{}",
        stderr(&failed)
    );
}

#[test]
fn index_is_built_from_a_folder_named_in_either_way_and_is_what_the_catalogue_is_read_from() {
    let setup = with_folder();
    let source = setup.path().join("remote");
    let source = source.to_str().unwrap();
    let target = setup.path().join("catalog.v1.json");
    let target = target.to_str().unwrap();
    let run = |words: &[&str]| {
        let output = command(setup.path())
            .arg("skillati")
            .args(words)
            .output()
            .unwrap();
        assert!(output.status.success(), "{words:?}: {}", stderr(&output));
        stdout(&output)
    };
    let by_place = run(&["build-index", source]);
    let mut printed: Value = serde_json::from_str(&by_place).unwrap();
    assert_eq!(printed["version"], 1);
    assert_eq!(names(&printed), ["bar", "foo"]);
    assert_eq!(
        printed["skills"][1]["resources"],
        json!(["assets/logo.bin", "scripts/run.sh"])
    );
    let told = run(&[
        "build-index",
        "--source-dir",
        source,
        "--output-file",
        target,
    ]);
    assert_eq!(
        serde_json::from_str::<Value>(&told).unwrap(),
        json!({"output": target, "skills": 2, "recommended_object": "_skillati/catalog.v1.json"})
    );
    let written = std::fs::read_to_string(target).unwrap();
    let mut written: Value = serde_json::from_str(&written).unwrap();
    written["generated_at"] = Value::Null;
    printed["generated_at"] = Value::Null;
    assert_eq!(written, printed);
    std::fs::create_dir(setup.path().join("remote/_skillati")).unwrap();
    std::fs::rename(
        target,
        setup.path().join("remote/_skillati/catalog.v1.json"),
    )
    .unwrap();
    let proxy = setup.start();
    let catalogue = super::json(&proxy, "/skillati/catalog");
    assert_eq!(names(&catalogue), ["bar", "foo"]);
    let usage = command(&proxy.path(""))
        .args(["skillati", "build-index"])
        .output()
        .unwrap();
    assert_eq!(usage.status.code(), Some(2));
}
