//! `ati tool export --cmp`, and an agent that knows nothing but CMP.

use std::process::Command;

use serde_json::{Value, json};

use super::{CAPABILITY, printed, with_inboxd};
use crate::support::ati::{BINARY, ati, command, stderr, tool, write};
use crate::support::upstream::Upstream;

fn read(path: std::path::PathBuf) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn exported_commands_call_the_tools_behind_a_proxy() {
    let upstream = Upstream::echo();
    let tools = tool(
        "web:look",
        "description = 'Looks'\nendpoint = '/look'\n[tools.input_schema]\nrequired = ['q']\n\
         properties = { q = { type = 'string' }, n = { type = 'integer' } }\n\
         [tools.response]\nextract = '$.target'",
    );
    let setup =
        with_inboxd(CAPABILITY, "").tools("web", &upstream.url(), "category = 'net'", &tools);
    let proxy = setup.start();
    let sandbox = proxy.path("sandbox");
    std::fs::create_dir_all(sandbox.join("bin")).unwrap();
    std::os::unix::fs::symlink(BINARY, sandbox.join("bin/ati")).unwrap();
    let url = format!("http://{}", proxy.edge);
    let folder = sandbox.join("cmp-tools");
    let export = || {
        let mut export = command(&sandbox);
        export.env("ATI_PROXY_URL", &url);
        export
            .args(["tool", "export", "--cmp"])
            .arg(&folder)
            .output()
            .unwrap()
    };
    let done = export();
    assert!(done.status.success(), "{}", stderr(&done));
    // Level 1: the list. Level 2: a manifest. Level 3: what it can do.
    let listed: Vec<String> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(listed.contains(&"web".to_owned()) && listed.contains(&"inboxd".to_owned()));
    let manifest = read(folder.join("web/cmp/manifest.json"));
    assert_eq!(
        (&manifest["domain"], &manifest["wraps"]),
        (&json!("net"), &json!("ati"))
    );
    let capability = read(folder.join("web/cmp/capability.json"));
    let intent = &capability["intents"][0];
    assert_eq!(intent["command"], "ati run web:look --q={q}");
    // As an agent does: it puts the value in, and executes the words.
    let words = intent["command"].as_str().unwrap().split(' ').skip(1);
    let words = words.map(|word| word.replace("{q}", "a b"));
    let output = Command::new(sandbox.join("bin/ati"))
        .args(words)
        .env_clear()
        .env("HOME", &sandbox)
        .env("ATI_PROXY_URL", &url)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(
        String::from_utf8_lossy(&output.stdout).contains("q=a%20b"),
        "{output:?}"
    );
    let inboxd = read(folder.join("inboxd/cmp/capability.json"));
    let delete = inboxd["intents"].as_array().unwrap().iter();
    let mut delete = delete.filter(|one| one["destructive"] == true);
    assert_eq!(
        delete.next().unwrap()["command"],
        "ati run inboxd:delete_emails --ids={ids}"
    );
    let validated = printed(
        &sandbox,
        &["provider", "validate", &folder.to_string_lossy()],
    );
    assert_eq!(
        (&validated[0]["ok"], &validated[0]["kind"]),
        (&json!(true), &json!("cmp"))
    );
    assert!(
        export().status.success(),
        "its own folders may be written again"
    );
}

#[test]
fn export_leaves_the_folders_of_others_alone() {
    let setup = with_inboxd(CAPABILITY, "");
    let folder = setup.path().join("tools");
    let before = read(folder.join("inboxd/cmp/capability.json"));
    let output = ati(
        setup.path(),
        &["tool", "export", "--cmp", &folder.to_string_lossy()],
    );
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("not by this command"),
        "{}",
        stderr(&output)
    );
    assert_eq!(read(folder.join("inboxd/cmp/capability.json")), before);
    assert!(!folder.join("file_manager").exists(), "nothing was written");
}

/// ati reads what it writes.
#[test]
fn exported_tools_are_tools_again() {
    let setup = with_inboxd(CAPABILITY, "");
    let folder = setup.path().join("exported");
    let output = ati(
        setup.path(),
        &["tool", "export", "--cmp", &folder.to_string_lossy()],
    );
    assert!(output.status.success(), "{}", stderr(&output));
    let bin = folder.join("inboxd/bin");
    std::fs::create_dir_all(&bin).unwrap();
    std::os::unix::fs::symlink(BINARY, bin.join("ati")).unwrap();
    let manifest = format!(
        "[provider]\nname = 'again'\nhandler = 'cmp'\ncmp_path = '{}/inboxd'\n\
         [provider.cmp_env]\nATI_DIR = '{}'",
        folder.display(),
        setup.path().display()
    );
    write(&setup.path().join("manifests/again.toml"), &manifest);
    let ids = r#"["x", "y z"]"#;
    // No person could confirm the inner call: the operator vouches for it.
    let approved = "\n[[tools]]\nname = 'delete_emails'\neffects = { destructive = false }\n";
    let file = setup.path().join("manifests/inboxd.toml");
    let inner = std::fs::read_to_string(&file).unwrap() + approved;
    write(&file, &inner);
    let words = ["run", "--yes", "again:delete_emails", "--ids", ids];
    let answer = printed(setup.path(), &words);
    assert_eq!(answer["words"], json!(["delete", "--ids", "x", "y z"]));
}
