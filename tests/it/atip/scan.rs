//! `ati provider scan`.

use std::time::{Duration, Instant};

use super::*;

/// The folder of the RFC's probing rule: a native tool, a slow one, one that prints garbage, one
/// with a shim, and one that every user may write.
fn mixed(dir: &Path) -> String {
    add_native(dir, "native", &metadata("native"));
    add_program(dir, "slow", "#!/bin/sh\nsleep 60\n");
    add_program(dir, "garbage", "#!/bin/sh\necho this is no JSON\n");
    add_program(
        dir,
        "failing",
        "#!/bin/sh\necho '{\"atip\": \"0.6\"}'; exit 3\n",
    );
    let touched = dir.join("shimmed-ran");
    let script = format!("#!/bin/sh\ntouch {}\n", touched.display());
    add_program(dir, "shimmed", &script);
    let mut shim = seed_gh();
    shim["name"] = "shimmed".into();
    add_shim(dir, "shimmed", &shim);
    let open = add_native(dir, "open", &metadata("open"));
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o757)).unwrap();
    dir.join("bin").display().to_string()
}

fn found(scan: &Value) -> Vec<(&str, &str)> {
    let text = |tool: &'_ Value, key: &str| tool[key].as_str().unwrap().to_owned();
    let tools = scan["tools"].as_array().unwrap().iter();
    tools
        .map(|tool| {
            let _ = text(tool, "hash");
            (
                tool["name"].as_str().unwrap(),
                tool["source"].as_str().unwrap(),
            )
        })
        .collect()
}

#[test]
fn probing_finds_the_right_two_in_time_and_a_second_scan_runs_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let bin = mixed(dir.path());
    let words = ["provider", "scan", "--probe", "--path", &bin];
    let started = Instant::now();
    let first = ati(dir.path(), &words);
    assert!(
        started.elapsed() < Duration::from_secs(4),
        "{:?}",
        started.elapsed()
    );
    assert_eq!(found(&first), [("native", "native"), ("shimmed", "shim")]);
    assert_eq!(first["probed"], 4);
    let refused = first["refused"].as_array().unwrap();
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert!(refused[0]["path"].as_str().unwrap().ends_with("/open"));
    assert!(!dir.path().join("shimmed-ran").exists());
    let second = ati(dir.path(), &words);
    assert_eq!(
        (&second["probed"], found(&second)),
        (&0.into(), found(&first))
    );
    // Another content is another program.
    add_native(dir.path(), "garbage", &metadata("garbage"));
    let third = ati(dir.path(), &words);
    assert_eq!(third["probed"], 1);
    assert_eq!(found(&third).len(), 3);
}

#[test]
fn registry_is_that_of_the_specification_and_drops_what_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let bin = mixed(dir.path());
    // A registry of the first shape, of another program.
    let other = add_printer(&dir.path().join("other"), "tool");
    let folder = agent_tools(dir.path());
    let file = folder.join("registry.json");
    let old = json!({"version": "1", "tools": [
        {"name": "tool", "path": other, "source": "native", "version": "9"},
        {"name": "gone", "path": "/nonexistent/gone", "source": "native"},
    ]});
    std::fs::write(&file, old.to_string()).unwrap();
    ati(dir.path(), &["provider", "scan", "--probe", "--path", &bin]);
    let read = || -> Value { serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap() };
    let registry = read();
    assert_eq!(registry["version"], "2");
    let names: Vec<&String> = registry["tools"].as_object().unwrap().keys().collect();
    assert_eq!(names, ["native", "shimmed", "tool"]);
    let native = &registry["tools"]["native"];
    assert!(native["path"].as_str().unwrap().ends_with("/bin/native"));
    assert!(native["hash"].as_str().unwrap().starts_with("sha256:"));
    assert!(native["lastChecked"].is_string());
    assert!(folder.join("tools/native.json").is_file());
    std::fs::remove_file(dir.path().join("bin/native")).unwrap();
    ati(dir.path(), &["provider", "scan", "--path", &bin]);
    assert_eq!(read()["tools"].get("native"), None);
    assert!(!folder.join("tools/native.json").exists());
}

#[test]
fn scan_without_probe_runs_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let bin = mixed(dir.path());
    let scan = ati(dir.path(), &["provider", "scan", "--path", &bin]);
    assert_eq!(found(&scan), [("shimmed", "shim")]);
    assert_eq!(
        (&scan["probed"], &scan["not_probed"]),
        (&0.into(), &4.into())
    );
}

#[test]
fn programs_of_the_skip_list_are_not_run() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["rm", "mine", "ours"] {
        add_native(dir.path(), name, &metadata(name));
    }
    let config = dir.path().join(".config/agent-tools");
    std::fs::create_dir_all(&config).unwrap();
    std::fs::write(config.join("skip-list"), "our*  # not ready\n").unwrap();
    let bin = dir.path().join("bin").display().to_string();
    let words = [
        "provider", "scan", "--probe", "--skip", "mine", "--path", &bin,
    ];
    let scan = ati(dir.path(), &words);
    assert_eq!((&scan["skipped"], &scan["probed"]), (&3.into(), &0.into()));
}

#[test]
fn probed_program_gets_no_secrets_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (seen, written) = (dir.path().join("seen"), dir.path().join("written"));
    std::fs::create_dir_all(dir.path().join("open")).unwrap();
    let script = format!(
        "#!/bin/sh\necho \"$ATI_KEY_SECRET$MY_TOKEN\" > {seen}\ntouch {written}\n\
         printf '{{\"atip\":\"0.6\",\"name\":\"nosy\",\"version\":\"%s\",\"description\":\"d\"}}' \
         \"v$ATI_KEY_SECRET$MY_TOKEN\"\n",
        seen = seen.display(),
        written = written.display()
    );
    add_program(dir.path(), "nosy", &script);
    let bin = dir.path().join("bin").display().to_string();
    let mut scan = command(dir.path());
    scan.env("MY_TOKEN", "planted-mine")
        .env("ATI_KEY_SECRET", "planted-key");
    scan.args(["-J", "provider", "scan", "--probe", "--path", &bin]);
    let scan = printed(&mut scan);
    assert_eq!(scan["tools"][0]["version"], "v", "{scan}");
    assert!(!seen.exists() && !written.exists());
}

#[test]
fn folder_that_every_user_may_write_is_not_looked_at() {
    let dir = tempfile::tempdir().unwrap();
    add_native(dir.path(), "native", &metadata("native"));
    let bin = dir.path().join("bin");
    std::fs::set_permissions(&bin, std::fs::Permissions::from_mode(0o1777)).unwrap();
    let bin = bin.display().to_string();
    let scan = ati(dir.path(), &["provider", "scan", "--probe", "--path", &bin]);
    assert_eq!((&scan["tools"], &scan["probed"]), (&json!([]), &0.into()));
    assert!(
        scan["refused"][0]["why"]
            .as_str()
            .unwrap()
            .contains("every user")
    );
}
