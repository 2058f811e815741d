//! `ati --agent` and `ati tool export --atip`.

use super::*;

/// The leaf commands of a document, each with its words.
fn leaves(commands: &Value, path: &[&str], found: &mut Vec<(Vec<String>, Value)>) {
    for (name, command) in commands.as_object().unwrap() {
        let path = [path, &[name.as_str()]].concat();
        match command.get("commands") {
            Some(below) => leaves(below, &path, found),
            None => found.push((
                path.iter().map(|it| (*it).to_owned()).collect(),
                command.clone(),
            )),
        }
    }
}

#[test]
fn own_metadata_pass_the_probing_rule_and_touch_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("ati");
    let mut asked = command(dir.path());
    asked.env("ATI_DIR", &folder).arg("--agent");
    let output = asked.output().unwrap();
    assert_eq!(
        (output.status.code(), stderr(&output).as_str()),
        (Some(0), "")
    );
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    // The field table of the RFC.
    for field in ["atip", "name", "version", "description"] {
        assert!(document[field].is_string(), "{field}");
    }
    assert_eq!(document["name"], "ati");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    // Other discoverers look for it in the help.
    let help = command(dir.path()).arg("--help").output().unwrap();
    assert!(stdout(&help).contains("--agent"));
}

#[test]
fn every_command_of_the_metadata_is_there_with_its_options() {
    let dir = tempfile::tempdir().unwrap();
    let document = printed(command(dir.path()).arg("--agent"));
    let mut found = Vec::new();
    leaves(&document["commands"], &[], &mut found);
    assert!(found.len() > 30);
    for (path, leaf) in found {
        let help = command(dir.path())
            .args(&path)
            .arg("--help")
            .output()
            .unwrap();
        assert!(help.status.success(), "{path:?}");
        let help = stdout(&help);
        assert!(leaf["effects"]["destructive"].is_boolean(), "{path:?}");
        for option in leaf["options"].as_array().into_iter().flatten() {
            for flag in option["flags"].as_array().unwrap() {
                assert!(help.contains(flag.as_str().unwrap()), "{path:?} {flag}");
            }
        }
    }
}

#[test]
fn agent_can_ask_for_a_part() {
    let dir = tempfile::tempdir().unwrap();
    let part = printed(command(dir.path()).args(["--agent", "--commands=tool", "--depth=2"]));
    assert_eq!(part["partial"], true);
    assert_eq!(part["filter"], json!({"commands": ["tool"], "depth": 2}));
    let names: Vec<&String> = part["commands"].as_object().unwrap().keys().collect();
    assert_eq!(names, ["tool"]);
    let wrong = command(dir.path())
        .args(["--agent", "--commands=nonsense"])
        .output()
        .unwrap();
    assert_eq!(wrong.status.code(), Some(2));
    assert!(stderr(&wrong).contains("there is no command 'nonsense'"));
    let wrong = command(dir.path())
        .args(["--agent", "version"])
        .output()
        .unwrap();
    assert_eq!(wrong.status.code(), Some(2));
}

#[test]
fn scan_takes_ati_for_a_native_tool() {
    let dir = tempfile::tempdir().unwrap();
    let bin = dir.path().join("bin");
    std::fs::create_dir_all(&bin).unwrap();
    std::fs::set_permissions(&bin, std::fs::Permissions::from_mode(0o755)).unwrap();
    // `ati` itself is in the skip list.
    let binary = crate::support::ati::BINARY;
    let script = format!("#!/bin/sh\nexec {binary} \"$@\"\n");
    add_program(dir.path(), "edge", &script);
    let bin = bin.display().to_string();
    let scan = ati(dir.path(), &["provider", "scan", "--probe", "--path", &bin]);
    assert_eq!(scan["tools"][0]["source"], "native", "{scan}");
    assert!(scan["tools"][0]["commands"].as_u64().unwrap() > 30);
}

#[test]
fn exported_tools_can_be_loaded_again_and_called() {
    let dir = tempfile::tempdir().unwrap();
    let gh = add_printer(dir.path(), "gh");
    add_shim(dir.path(), "gh", &seed_gh());
    add_manifest(dir.path(), "gh", &gh, "");
    let document = ati(
        dir.path(),
        &["tool", "export", "--atip", "--provider", "gh"],
    );
    let delete = &document["commands"]["run"]["commands"]["gh:repo_delete"];
    assert_eq!(delete["effects"]["destructive"], true);
    assert_eq!(delete["options"][0]["flags"], json!(["--repository"]));
    // Another ati that knows only this document runs the tool by it.
    let second = dir.path().join("second");
    std::fs::create_dir_all(second.join("manifests")).unwrap();
    std::fs::write(second.join("manifests/edge.json"), document.to_string()).unwrap();
    let folder = dir.path().display();
    let home = "HOME";
    let wrapper = format!(
        "#!/bin/sh\nexport ATI_DIR={folder} {home}={folder}\nexec {} \"$@\"\n",
        crate::support::ati::BINARY
    );
    let edge = add_program(&second, "ati", &wrapper);
    add_manifest(&second, "edge", &edge, "atip_metadata = 'edge.json'");
    let words = ["run", "edge:run_gh_pr_list", "--state", "closed"];
    let result = ati(&second, &words);
    assert_eq!(super::words(&result), ["pr", "list", "--state", "closed"]);
}
