//! `@{key}`: credentials in files below `.creds/`.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use serde_json::json;

use super::{call, error, here, printed, result, setup, with_script};
use crate::support::ati::{Setup, stderr};
use crate::support::eventually;
use crate::support::tokens::{bearer_of, key_pair};

const ENV: &str = "cli_env = { FILE = '@{account}' }";
/// Tells the name of its file and the length of what stands in it.
const SHOW: &str = r#"echo "$(basename "$FILE") $(wc -c < "$FILE")""#;
/// Waits for a file that its first word names, then tells what is in its credential file.
const WAIT: &str =
    r#"touch "$1.begun"; while ! [ -e "$1" ]; do sleep 0.01; done; cut -c9- "$FILE""#;

fn names(dir: &Path) -> Vec<String> {
    let Ok(all) = std::fs::read_dir(dir.join(".creds")) else {
        return Vec::new();
    };
    let names = all
        .flatten()
        .map(|it| it.file_name().into_string().unwrap());
    names.collect()
}

fn with_account(setup: Setup, value: &str) -> Setup {
    setup.credentials(&json!({"account": value}))
}

#[test]
fn file_of_a_credential_has_its_name_and_is_used_again() {
    let setup = with_account(with_script(setup(), "show", SHOW, ENV), "planted-one");
    let dir = setup.path().to_owned();
    let proxy = setup.start();
    assert_eq!(result(&proxy, "show", &[]), "account 11");
    let file = dir.join(".creds/account");
    let about = std::fs::metadata(&file).unwrap();
    assert_eq!(about.permissions().mode() & 0o777, 0o600);
    assert_eq!(printed(here(&dir).args(["run", "show"])), "account 11");
    assert_eq!(std::fs::metadata(&file).unwrap().ino(), about.ino());
    assert_eq!(names(&dir), ["account"]);
}

#[test]
fn reload_leaves_the_file_of_a_running_program_alone() {
    let setup = with_account(with_script(setup(), "wait", WAIT, ENV), "planted-old");
    let dir = setup.path().to_owned();
    let proxy = setup.start();
    let go = |name: &str| dir.join(name).to_str().unwrap().to_owned();
    std::thread::scope(|scope| {
        let old = scope.spawn(|| result(&proxy, "wait", &[&go("old")]));
        eventually("the first program", || {
            Path::new(&go("old.begun")).exists().then_some(())
        });
        crate::support::ati::write(&dir.join("credentials"), r#"{"account": "planted-new"}"#);
        proxy.reload();
        std::fs::write(go("new"), "").unwrap();
        assert_eq!(result(&proxy, "wait", &[&go("new")]), "new");
        std::fs::write(go("old"), "").unwrap();
        assert_eq!(old.join().unwrap(), "old");
    });
    assert_eq!(result(&proxy, "wait", &[&go("new")]), "new");
    assert_eq!(names(&dir), ["account"]);
}

#[test]
fn tenants_have_files_of_their_own() {
    let (signer, public) = key_pair();
    let setup = with_script(setup(), "wait", WAIT, ENV);
    let setup =
        setup.credentials(&json!({"account": "planted-all", "account@acme": "planted-acme"}));
    let dir = setup.path().to_owned();
    let proxy = setup.jwt(&public).start();
    let go = dir.join("go").to_str().unwrap().to_owned();
    let ask = |customer: Option<&str>| {
        let token = bearer_of(&signer, customer);
        let answer = proxy.call(Some(&token), "wait", json!([go]));
        answer.json()["result"].clone()
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = [Some("acme"), None, Some("globex"), Some("acme")]
            .into_iter()
            .map(|customer| scope.spawn(move || (customer, ask(customer))))
            .collect();
        eventually("the programs", || (names(&dir).len() == 3).then_some(()));
        std::fs::write(&go, "").unwrap();
        for other in others {
            let (customer, told) = other.join().unwrap();
            let expected = if customer == Some("acme") {
                "acme"
            } else {
                "all"
            };
            assert_eq!(told, expected, "{customer:?}");
        }
    });
    assert_eq!(names(&dir), ["account"]);
}

#[test]
fn sealed_keyring_leaves_no_file_behind() {
    let setup = with_script(setup(), "show", SHOW, ENV);
    let dir = setup.path().to_owned();
    let source = dir.join("source.json");
    std::fs::write(&source, r#"{"account": "planted-sealed"}"#).unwrap();
    let seal = |to: &Path| {
        let output = here(&dir)
            .args(["edge", "bootstrap-keyring", "--from-file"])
            .arg(&source)
            .arg("--ati-dir")
            .arg(&dir)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        std::fs::rename(dir.join(".keyring-key"), to).unwrap();
    };
    seal(&dir.join("one-shot"));
    let proxy = setup.start();
    assert!(!dir.join("one-shot").exists());
    for _ in 0..3 {
        let told = result(&proxy, "show", &[]);
        let name = told
            .as_str()
            .unwrap()
            .strip_suffix(" 14")
            .unwrap()
            .to_owned();
        let random = name.strip_prefix("account_").unwrap();
        assert!(random.len() >= 16, "{name}");
        assert!(names(&dir).is_empty(), "{:?}", names(&dir));
    }
}

#[test]
fn credential_that_a_program_repeats_is_redacted() {
    let script = r#"cat "$FILE"; cat "$FILE" >&2; exit $1"#;
    let setup = with_account(
        with_script(setup(), "repeat", script, ENV),
        "planted-{\"k\": 1}\n",
    );
    let proxy = setup.start();
    assert_eq!(result(&proxy, "repeat", &["0"]), "[REDACTED]");
    let (_, error) = error(&proxy, "repeat", &["1"]);
    assert_eq!(error, "CLI error: CLI exited with code 1: [REDACTED]");
    // A caller that knows a credential doesn't get it into the audit.
    let body = json!({"tool_name": "repeat", "args": ["0", "planted-{\"k\": 1}\n"]});
    assert_eq!(call(&proxy, &body).status, 200);
    let audited = proxy.wait_for_audit(3);
    assert_eq!(audited[2]["args"], json!(["0", "[REDACTED]"]));
}
