//! What users of ATI do with skills, in its texts: on one machine, and through a proxy.

use serde_json::json;

use super::{failure, installed, json, names, quiet, skill, text, through, write};
use crate::support::ati::{Setup, ati, stdout};
use crate::support::tokens::{bearer, claims, key_pair};

#[test]
fn skills_are_installed_listed_read_and_removed_with_the_documented_texts() {
    let (home, source) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (dir, from) = (home.path(), source.path());
    assert_eq!(text(dir, &["skill", "list"]), "No skills found.\n");
    assert_eq!(json(dir, &["skills", "list"]), json!([]));
    skill(
        from,
        "screening",
        "# Screen\n\nFirst.",
        "tools = ['ca_search']\nproviders = ['ca']",
    );
    skill(
        from,
        "writing",
        "Second.",
        "categories = ['text']\nkeywords = ['prose']",
    );
    write(&from.join("screening/references/usage.md"), "How.\n");
    write(&from.join("notes/readme.txt"), "no skill");

    let place = dir.join("skills/screening");
    let one = from.join("screening");
    assert_eq!(
        quiet(ati(dir, &["skill", "install", one.to_str().unwrap()])),
        format!("Installed 'screening' to {}\n", place.display())
    );
    assert_eq!(
        quiet(ati(
            dir,
            &["skill", "install", "--all", from.to_str().unwrap()]
        )),
        "Installed 'screening'\nInstalled 'writing'\nInstalled 2 skill(s).\n"
    );
    assert_eq!(
        text(dir, &["skill", "list"]),
        "screening                      v0.1.0    About screening\n\
         writing                        v0.1.0    About writing\n"
    );
    let row = json!({
        "name": "screening", "version": "0.1.0", "description": "About screening",
        "tools": ["ca_search"], "providers": ["ca"], "categories": [],
    });
    for filter in [["--tool", "ca_search"], ["--provider", "ca"]] {
        let args = [&["skill", "list"], &filter[..]].concat();
        assert_eq!(json(dir, &args), json!([row]));
    }
    let by_category = json(dir, &["skill", "list", "--category", "text"]);
    assert_eq!(names(&by_category), ["writing"]);
    assert_eq!(
        names(&json(dir, &["skill", "search", "prose"])),
        ["writing"]
    );
    assert_eq!(
        json(dir, &["skill", "search", "nothing-like-it"]),
        json!([])
    );

    let show = |args: &[&str]| quiet(ati(dir, &[&["skill"], args].concat()));
    assert_eq!(show(&["show", "screening"]), "# Screen\n\nFirst.\n");
    assert_eq!(
        show(&["show", "screening", "--refs"]),
        "# Screen\n\nFirst.\n\n--- References ---\nusage.md\n"
    );
    assert_eq!(
        show(&["read", "screening", "--with-refs"]),
        "# Screen\n\nFirst.\n\n--- Reference: usage.md ---\nHow.\n"
    );
    assert_eq!(
        show(&["read", "--tool", "ca_search"]),
        "# Screen\n\nFirst.\n"
    );
    let meta = json(dir, &["skill", "show", "screening", "--meta"]);
    assert_eq!(meta, json(dir, &["skill", "info", "screening"]));
    assert_eq!(meta["format"], "anthropic");
    let info = text(dir, &["skill", "info", "writing"]);
    for line in [
        "Name:        writing",
        "Format:      anthropic",
        "Keywords:    prose",
    ] {
        assert!(info.lines().any(|shown| shown == line), "{line}: {info}");
    }
    assert!(info.contains(&format!(
        "Directory:   {}",
        dir.join("skills/writing").display()
    )));

    assert_eq!(
        show(&["remove", "screening"]),
        "Removed skill 'screening'.\n"
    );
    assert_eq!(installed(dir), ["writing"]);
    let gone = failure(&ati(dir, &["skill", "remove", "screening"]));
    assert_eq!(gone, ("Skill 'screening' not found.".to_owned(), Some(1)));
    let (message, code) = failure(&ati(dir, &["skill", "show", "screening"]));
    assert!(message.starts_with("Skill 'screening' not found. Run 'ati skill list'"));
    assert_eq!(code, Some(1));
}

#[test]
fn new_skill_is_scaffolded_and_validated() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    write(
        &dir.join("manifests/p.toml"),
        "[provider]\nname = 'p'\nbase_url = 'http://127.0.0.1:1'\n[[tools]]\nname = 'p:there'\n",
    );
    let made = quiet(ati(
        dir,
        &["skill", "init", "fresh", "--tools", "p:there,p:absent"],
    ));
    let place = dir.join("skills/fresh");
    assert_eq!(
        made,
        format!("Scaffolded skill 'fresh' at {}\n", place.display())
    );
    assert!(place.join("references").is_dir());
    assert!(
        failure(&ati(dir, &["skill", "init", "fresh"]))
            .0
            .contains("exists already")
    );
    let report = quiet(ati(dir, &["skill", "validate", "fresh"]));
    let bytes = std::fs::read(place.join("SKILL.md")).unwrap().len();
    for line in [
        "Skill: fresh",
        "Version: 0.1.0",
        "Format: anthropic",
        "Frontmatter: present (Anthropic spec)",
        "Tool bindings: 2 (use --check-tools to validate)",
    ] {
        assert!(
            report.lines().any(|shown| shown == line),
            "{line}: {report}"
        );
    }
    assert!(
        report.contains(&format!("SKILL.md: {bytes} bytes, ")),
        "{report}"
    );
    let checked = quiet(ati(dir, &["skill", "validate", "fresh", "--check-tools"]));
    assert!(
        checked.ends_with(
            "Valid tool bindings (1):\n  + p:there\n\
             Unknown tool bindings (1):\n  ! p:absent — not found in manifests\n"
        ),
        "{checked}"
    );
    let strict = ati(
        dir,
        &["skill", "validate", "fresh", "--check-tools", "--strict"],
    );
    assert_eq!(strict.status.code(), Some(1));

    quiet(ati(dir, &["skill", "init", "bare"]));
    assert!(!dir.join("skills/bare/skill.toml").exists());
    write(
        &dir.join("skills/bare/skill.toml"),
        "[skill]\ndepends_on = ['fresh', 'absent']\n",
    );
    let report = quiet(ati(dir, &["skill", "validate", "bare"]));
    assert!(
        report.ends_with("Dependencies:\n  fresh — installed\n  absent — NOT FOUND\n"),
        "{report}"
    );
}

#[test]
fn changed_byte_is_found_shown_and_restored() {
    let (home, source) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (dir, from) = (home.path(), source.path());
    skill(from, "tight", "One line.", "hint = 'h'");
    write(&from.join("tight/scripts/run.sh"), "echo 1\n");
    let path = from.join("tight");
    quiet(ati(dir, &["skill", "install", path.to_str().unwrap()]));
    let verified = quiet(ati(dir, &["skill", "verify", "tight"]));
    assert!(
        verified.starts_with("VERIFIED — 'tight' integrity OK (SHA-256: "),
        "{verified}"
    );
    assert!(verified.ends_with("...)\n"));
    let no_difference = quiet(ati(dir, &["skill", "diff", "tight"]));
    assert!(
        no_difference.starts_with("No differences"),
        "{no_difference}"
    );

    for (file, old, new) in [
        ("SKILL.md", "One line.", "One lime."),
        ("scripts/run.sh", "echo 1", "echo 2"),
        ("skill.toml", "hint = 'h'", "hint = 'g'"),
    ] {
        let at = dir.join("skills/tight").join(file);
        let text = std::fs::read_to_string(&at).unwrap();
        assert!(text.contains(old), "{file}");
        std::fs::write(&at, text.replacen(old, new, 1)).unwrap();
        let (message, code) = failure(&ati(dir, &["skill", "verify", "tight"]));
        assert_eq!(
            message,
            format!("Integrity check failed for 'tight': {file} was changed")
        );
        assert_eq!(code, Some(1));
        let shown = quiet(ati(dir, &["skill", "diff", "tight"]));
        assert!(
            shown.contains(&format!("M {file} (changed here")),
            "{shown}"
        );
        assert!(shown.contains(&format!("- {new}\n+ {old}")), "{shown}");
        // Installing again doesn't lose the change.
        let again = ati(dir, &["skill", "install", path.to_str().unwrap()]);
        assert!(failure(&again).0.contains("was changed since"), "{file}");
        let (message, code) = failure(&ati(dir, &["skill", "update", "tight"]));
        assert!(
            message.ends_with(&format!("was changed since it was installed: {file}")),
            "{message}"
        );
        assert_eq!(code, Some(2));
        assert!(std::fs::read_to_string(&at).unwrap().contains(new));
        let updated = quiet(ati(dir, &["skill", "update", "tight", "--force"]));
        assert!(
            updated.contains(&format!("  M {file} (changed here")),
            "{updated}"
        );
        quiet(ati(dir, &["skill", "verify", "tight"]));
    }

    // The source goes on.
    write(&from.join("tight/references/new.md"), "new");
    std::fs::remove_file(from.join("tight/scripts/run.sh")).unwrap();
    let shown = json(dir, &["skill", "diff", "tight"]);
    assert_eq!(shown["files"][0]["path"], "references/new.md");
    assert_eq!(shown["files"][1]["change"], "D");
    let updated = json(dir, &["skill", "update", "tight"]);
    assert_eq!(updated["status"], "updated");
    assert!(!dir.join("skills/tight/scripts").exists());
    assert_eq!(
        quiet(ati(dir, &["skill", "update", "tight"])),
        "'tight' is up to date.\n"
    );
    assert_eq!(installed(dir), ["tight"]);

    // A skill that was written by hand has nothing to be compared with.
    quiet(ati(dir, &["skill", "init", "own"]));
    assert!(quiet(ati(dir, &["skill", "verify", "own"])).contains("no recorded hash"));
    assert!(
        failure(&ati(dir, &["skill", "update", "own"]))
            .0
            .contains("came from")
    );
}

#[test]
fn commands_that_read_ask_the_proxy_and_those_that_write_do_not() {
    let (signer, public) = key_pair();
    let setup = Setup::new().jwt(&public);
    let root = setup.path().join("skills");
    skill(&root, "alpha", "A.", "tools = ['p:t']");
    skill(&root, "beta", "B.", "");
    write(&root.join("alpha/references/r.md"), "ref\n");
    let proxy = setup.start();
    let mut claims = claims();
    claims.scope = "tool:p:t".into();
    let token = bearer(&signer, &claims);
    let ask = |args: &[&str]| quiet(through(&proxy, &token, args));
    assert_eq!(
        ask(&["--output", "text", "skill", "list"]),
        "alpha                          v0.1.0    About alpha\n"
    );
    assert_eq!(
        ask(&["skill", "show", "alpha", "--refs"]),
        "A.\n\n--- References ---\nr.md\n"
    );
    assert_eq!(
        ask(&["skill", "read", "alpha", "--with-refs"]),
        "A.\n\n--- Reference: r.md ---\nref\n"
    );
    assert_eq!(ask(&["skill", "read", "--tool", "p:t"]), "A.\n");
    let info = ask(&["--output", "text", "skill", "info", "alpha"]);
    assert!(info.starts_with("Name:        alpha\n"), "{info}");
    assert!(ask(&["skill", "search", "about"]).contains("alpha"));
    assert_eq!(
        ask(&["--output", "text", "skill", "resolve"]),
        "Skills that auto-load for current scopes:\n  alpha                          About alpha\n"
    );
    let denied = through(&proxy, &token, &["skill", "show", "beta"]);
    assert!(
        failure(&denied)
            .0
            .starts_with("Skill 'beta' not found. Run 'ati skill list'")
    );
    let wide = json!({"scopes": ["skill:beta", "skill:alpha"]}).to_string();
    let file = proxy.path("wide.json");
    std::fs::write(&file, wide).unwrap();
    let args = [
        "--output",
        "text",
        "skill",
        "resolve",
        "--scopes",
        file.to_str().unwrap(),
    ];
    assert!(!ask(&args).contains("beta"));
    // Installing is local.
    let made = through(&proxy, &token, &["skill", "init", "mine"]);
    assert!(stdout(&made).starts_with("Scaffolded skill 'mine' at "));
    assert_eq!(installed(proxy.dir.path()), ["alpha", "beta"]);
}

#[test]
fn shipped_skill_is_installed_by_its_name() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    quiet(ati(dir, &["skill", "install", "google-workspace"]));
    let info = json(dir, &["skill", "info", "google-workspace"]);
    assert_eq!(info["providers"], json!(["google_workspace"]));
    assert_eq!(info["categories"], json!(["productivity"]));
    let body = quiet(ati(dir, &["skill", "show", "google-workspace"]));
    assert!(body.contains("ati run google_workspace -- drive files list"));
    quiet(ati(dir, &["skill", "verify", "google-workspace"]));
    assert_eq!(
        quiet(ati(dir, &["skill", "update", "google-workspace"])),
        "'google-workspace' is up to date.\n"
    );
}
