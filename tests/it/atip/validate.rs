//! `ati provider validate` of ATIP's files.

use super::*;

#[test]
fn every_problem_is_told_with_its_file_and_place() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tool.json");
    let text = "{\"atip\": \"0.6\", \"name\": \"a b\", \"version\": \"1\",\n\
                \"commands\": {\"x\": {\"description\": \"d\",\n\
                \"options\": [{\"name\": \"q\", \"flags\": [\"q\"], \"type\": \"strng\"}],\n\
                \"effects\": {\"destructive\": \"yes\", \"duration\": {\"timeout\": \"soon\"}}}}}";
    std::fs::write(&file, text).unwrap();
    let output = command(dir.path())
        .args(["-J", "provider", "validate"])
        .arg(&file)
        .output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(2));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report[0]["kind"], "atip");
    let problems = report[0]["problems"].to_string();
    for expected in [
        "tool.json: name: only letters, digits, '_' and '-' are allowed (line 1)",
        "tool.json: description: it is missing (line 1)",
        "tool.json: commands.x.options[0].flags: 'q' is no flag",
        "tool.json: commands.x.options[0].type: 'strng' is none of string, integer",
        "tool.json: commands.x.effects.destructive: true or false is wanted, not a text (line 4)",
        "tool.json: commands.x.effects.duration.timeout: 'soon' is no time",
    ] {
        assert!(problems.contains(expected), "{expected}: {problems}");
    }
    std::fs::write(&file, "{\"atip\": \"0.6\",\n}").unwrap();
    let output = command(dir.path())
        .args(["provider", "validate"])
        .arg(&file)
        .output();
    let text = stdout(&output.unwrap());
    assert!(
        text.contains("it is no JSON") && text.contains("line 2"),
        "{text}"
    );
}

#[test]
fn folder_of_tools_shims_and_patterns_is_checked_as_a_whole() {
    let dir = tempfile::tempdir().unwrap();
    add_shim(dir.path(), "gh", &seed_gh());
    let folder = agent_tools(dir.path());
    let validate = || {
        let output = command(dir.path())
            .args(["-J", "provider", "validate"])
            .arg(&folder)
            .output();
        let output = output.unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        (output.status.code(), report[0].clone())
    };
    // The example of the RFC is valid.
    assert_eq!(validate().0, Some(0), "{}", validate().1);
    let hashed = folder.join("shims/sha256");
    std::fs::create_dir_all(&hashed).unwrap();
    std::fs::write(hashed.join("00.json"), seed_gh().to_string()).unwrap();
    std::fs::create_dir_all(folder.join("patterns")).unwrap();
    std::fs::write(
        folder.join("patterns/p.json"),
        "{\"patterns\": [{\"steps\": [{}]}]}",
    )
    .unwrap();
    let (code, report) = validate();
    assert_eq!(code, Some(2));
    let problems = report["problems"].to_string();
    assert!(problems.contains("00.json: binary.hash: "), "{problems}");
    assert!(
        problems.contains("p.json: patterns[0].name: it is missing"),
        "{problems}"
    );
    assert!(
        problems.contains("p.json: patterns[0].steps[0].command"),
        "{problems}"
    );
}
