//! Skills that can't be used are skipped and named; a reload takes new ones.

use serde_json::json;

use super::{get, json, names, quiet, skill, text, write};
use crate::support::ati::{Setup, ati, stderr, stdout};

fn with_bad_ones(setup: Setup) -> Setup {
    let root = setup.path().join("skills");
    skill(&root, "good", "G.", "");
    write(&root.join("broken/SKILL.md"), "text");
    write(&root.join("broken/skill.toml"), "[skill");
    write(&root.join("binary/SKILL.md"), [0xff, 0xfe]);
    write(
        &root.join("misnamed/SKILL.md"),
        "---\nname: Mis Named\n---\n",
    );
    write(&root.join("empty/notes.txt"), "");
    setup
}

#[test]
fn bad_skills_are_skipped_and_named_in_the_log_in_check_and_in_doctor() {
    let setup = with_bad_ones(Setup::new());
    let dir = setup.path().to_owned();
    let proxy = setup.start();
    assert_eq!(names(&get(&proxy, "", "/skills").json()), ["good"]);
    let log = proxy.log.text();
    let check = stdout(&ati(&dir, &["check"]));
    let doctor = stdout(&ati(&dir, &["doctor", "--offline"]));
    for bad in ["broken", "binary", "misnamed", "empty"] {
        let path = format!("skills/{bad}");
        for (place, text) in [("log", &log), ("check", &check), ("doctor", &doctor)] {
            assert!(text.contains(&path), "{bad} is not in the {place}: {text}");
        }
    }
    assert!(doctor.contains("WARN skills: "), "{doctor}");
    let report: serde_json::Value = serde_json::from_str(&check).unwrap();
    assert_eq!(report["loaded"]["skills"], 1);
    assert_eq!(proxy.log.wait_for("ATI proxy server starting")["skills"], 1);

    // A command that succeeds says nothing of them.
    assert_eq!(names(&json(&dir, &["skill", "list"])), ["good"]);
    assert!(text(&dir, &["skill", "list"]).starts_with("good "));
    for (bad, why) in [
        ("broken", "skill.toml"),
        ("binary", "is not UTF-8"),
        ("misnamed", "'Mis Named' is no name for a skill"),
        ("empty", "neither SKILL.md nor skill.toml"),
    ] {
        let output = ati(&dir, &["skill", "validate", bad]);
        assert_eq!(output.status.code(), Some(2), "{bad}");
        assert!(stderr(&output).contains(why), "{bad}: {}", stderr(&output));
    }
    quiet(ati(&dir, &["skill", "remove", "broken"]));
    assert!(!dir.join("skills/broken").exists());
}

#[test]
fn reload_takes_new_and_changed_skills_and_drops_removed_ones() {
    let setup = Setup::new();
    let root = setup.path().join("skills");
    skill(&root, "first", "1", "");
    let proxy = setup.start();
    skill(&root, "second", "2", "");
    assert_eq!(names(&get(&proxy, "", "/skills").json()), ["first"]);
    let done = proxy.reload();
    assert_eq!(
        (&done["message"], &done["skills"]),
        (&json!("reload done"), &json!(2))
    );
    assert_eq!(
        names(&get(&proxy, "", "/skills").json()),
        ["first", "second"]
    );
    assert_eq!(get(&proxy, "", "/health").json()["skills"], 2);
    skill(&root, "second", "changed", "");
    std::fs::remove_dir_all(root.join("first")).unwrap();
    // What is gone is gone at once, though its name is known until the reload.
    assert_eq!(get(&proxy, "", "/skills/first/bundle").status, 404);
    write(&root.join("third/skill.toml"), "[skill");
    proxy.reload();
    assert_eq!(names(&get(&proxy, "", "/skills").json()), ["second"]);
    let text = get(&proxy, "", "/skills/second").json();
    assert_eq!(text["content"], "changed\n");
    assert!(proxy.log.text().contains("skills/third"));
}
