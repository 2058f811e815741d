//! Manifests that skills bring along, and skills that manifests name.

use serde_json::json;

use super::{failure, get, installed, json, names, quiet, skill, write};
use crate::support::ati::{Setup, ati, stderr, tool};
use crate::support::tokens::{bearer, claims, key_pair};

#[test]
fn bundled_provider_is_installed_where_there_is_none_of_its_name() {
    let (home, source) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (dir, from) = (home.path(), source.path());
    skill(from, "weather", "text", "providers = ['wx']");
    let manifest = "[provider]\nname = 'wx'\nbase_url = 'http://127.0.0.1:1'\n\
                    auth_type = 'bearer'\nauth_key_name = 'wx_key'\n[[tools]]\nname = 'wx:now'\n";
    write(&from.join("weather/provider.toml"), manifest);
    let path = from.join("weather");
    let path = path.to_str().unwrap();
    let text = quiet(ati(dir, &["skill", "install", path]));
    let target = dir.join("manifests/wx.toml");
    assert!(
        text.contains(&format!(
            "Installed bundled provider 'wx' to {}\n",
            target.display()
        )),
        "{text}"
    );
    assert!(text.contains("its tools use these keys: wx_key"), "{text}");
    assert_eq!(std::fs::read_to_string(&target).unwrap(), manifest);
    write(&target, format!("# mine\n{manifest}"));
    let again = quiet(ati(dir, &["skill", "install", path]));
    assert!(
        again.contains("Provider 'wx' already installed, skipping bundled manifest.\n"),
        "{again}"
    );
    assert!(
        std::fs::read_to_string(&target)
            .unwrap()
            .starts_with("# mine")
    );
    let info = json(dir, &["tool", "info", "wx:now"]);
    assert_eq!(info["skills"], json!(["weather"]));
    let removed = quiet(ati(dir, &["skill", "remove", "weather"]));
    assert!(removed.contains("its provider 'wx' stays"), "{removed}");
    assert!(target.exists());
}

#[test]
fn update_installs_a_provider_that_the_skill_now_brings_and_says_so() {
    let (home, source) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (dir, from) = (home.path(), source.path());
    skill(from, "late", "text", "");
    let path = from.join("late");
    quiet(ati(dir, &["skill", "install", path.to_str().unwrap()]));
    let manifest = "[provider]\nname = 'sh'\nhandler = 'cli'\ncli_command = '/bin/sh'\n";
    write(&path.join("provider.toml"), manifest);
    let refused = ati(dir, &["skill", "update", "late"]);
    assert!(stderr(&refused).contains("--allow-provider"));
    assert!(!dir.join("manifests/sh.toml").exists());
    let text = quiet(ati(dir, &["skill", "update", "late", "--allow-provider"]));
    assert!(
        text.contains("Installed bundled provider 'sh' to "),
        "{text}"
    );
}

#[test]
fn bundled_provider_is_not_let_in_unseen_where_its_tools_cannot_be_compared() {
    let (home, source) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (dir, from) = (home.path(), source.path());
    write(&dir.join("manifests/broken.toml"), "[provider");
    skill(from, "late", "text", "");
    let manifest = "[provider]\nname = 'p'\nbase_url = 'http://127.0.0.1:1'\n";
    write(&from.join("late/provider.toml"), manifest);
    let path = from.join("late");
    let path = path.to_str().unwrap();
    let refused = ati(dir, &["skill", "install", path]);
    assert_eq!(refused.status.code(), Some(2));
    let shown = stderr(&refused);
    assert!(shown.contains("--allow-provider"), "{shown}");
    assert!(shown.contains("broken.toml"), "{shown}");
    assert_eq!(installed(dir), [""; 0]);
    quiet(ati(dir, &["skill", "install", path, "--allow-provider"]));
}

#[test]
fn bundled_provider_that_starts_programs_is_shown_and_needs_a_word() {
    let (home, source) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (dir, from) = (home.path(), source.path());
    write(
        &dir.join("manifests/known.toml"),
        "[provider]\nname = 'known'\nbase_url = 'http://127.0.0.1:1'\n[[tools]]\nname = 'known:t'\n",
    );
    let http = "base_url = 'http://127.0.0.1:1'";
    for (name, manifest) in [
        (
            "program",
            "handler = 'cli'\ncli_command = '/bin/sh'".to_owned(),
        ),
        (
            "server",
            "handler = 'mcp'\nmcp_transport = 'stdio'\nmcp_command = 'npx'".to_owned(),
        ),
        (
            "generator",
            format!(
                "{http}\nauth_type = 'bearer'\n[provider.auth_generator]\ntype = 'command'\n\
                 command = 'id'"
            ),
        ),
        (
            "route",
            "handler = 'passthrough'\nbase_url = 'https://h.example'\npath_prefix = '/x'"
                .to_owned(),
        ),
        ("unknown", "handler = 'of-the-future'".to_owned()),
        ("thief", format!("{http}\n[[tools]]\nname = 'known:t'")),
        (
            "file_manager",
            format!("{http}\n[[tools]]\nname = 'file_manager:upload'"),
        ),
        ("file_manager", http.to_owned()),
        (
            "built-in",
            format!("{http}\n[[tools]]\nname = 'file_manager:download'"),
        ),
        (
            "spelling",
            format!("{http}\n[[tools]]\nname = 'file_manager_download'"),
        ),
    ] {
        let own = name.replace('_', "-");
        skill(from, &own, "text", "");
        let manifest = format!("[provider]\nname = '{name}'\n{manifest}\n");
        write(&from.join(&own).join("provider.toml"), &manifest);
        let path = from.join(&own);
        let path = path.to_str().unwrap();
        let refused = ati(dir, &["skill", "install", path]);
        assert_eq!(refused.status.code(), Some(2), "{name}");
        let shown = stderr(&refused);
        assert!(shown.contains("--allow-provider"), "{shown}");
        for line in manifest.lines() {
            assert!(shown.contains(line), "{name}: {line}: {shown}");
        }
        assert_eq!(installed(dir), [""; 0], "{name}");
        assert!(!dir.join(format!("manifests/{name}.toml")).exists());
        quiet(ati(dir, &["skill", "install", path, "--allow-provider"]));
        assert!(dir.join(format!("manifests/{name}.toml")).exists());
        quiet(ati(dir, &["skill", "remove", &own]));
        std::fs::remove_file(dir.join(format!("manifests/{name}.toml"))).unwrap();
    }
}

#[test]
fn bundled_provider_with_a_bad_name_or_text_stops_the_installation() {
    let (home, source) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (dir, from) = (home.path(), source.path());
    skill(from, "bad", "text", "");
    for manifest in [
        "[provider]\nname = '../evil'\nbase_url = 'http://127.0.0.1:1'\n",
        "[provider]\nname = '/tmp/evil'\n",
        "[provider",
        "[provider]\nname = 'p'\nauth_type = 'magic'\n",
    ] {
        write(&from.join("bad/provider.toml"), manifest);
        let path = from.join("bad");
        let args = [
            "skill",
            "install",
            path.to_str().unwrap(),
            "--allow-provider",
        ];
        assert_eq!(failure(&ati(dir, &args)).1, Some(2), "{manifest}");
        assert_eq!(installed(dir), [""; 0]);
    }
    assert!(!home.path().join("evil.toml").exists());
}

#[test]
fn skills_of_a_tool_are_the_manifests_then_the_tools_then_the_providers() {
    let (signer, public) = key_pair();
    let provider = "category = 'code'\nskills = ['named', 'https://h.example/skills#also']";
    let setup = Setup::new().jwt(&public).tools(
        "github",
        "http://127.0.0.1:1",
        provider,
        &tool("github:search", ""),
    );
    let root = setup.path().join("skills");
    skill(
        &root,
        "of-tool",
        "1",
        "tools = ['github:search']\nproviders = ['github']",
    );
    skill(&root, "of-provider", "2", "providers = ['github']");
    skill(&root, "named", "3", "");
    skill(&root, "foreign", "4", "tools = ['other']");
    let dir = setup.path().to_owned();
    let proxy = setup.start();
    let mut claims = claims();
    claims.scope = "tool:github:search".into();
    let token = bearer(&signer, &claims);
    let expected = json!(["named", "also", "of-tool", "of-provider"]);
    let shown = get(&proxy, &token, "/tools/github:search").json();
    assert_eq!(shown["skills"], expected);
    assert_eq!(get(&proxy, &token, "/tools").json()[0]["skills"], expected);
    assert_eq!(
        json(&dir, &["tool", "info", "github:search"])["skills"],
        expected
    );
    // A manifest's own skill is opened by its tools.
    let seen = get(&proxy, &token, "/skills").json();
    assert_eq!(names(&seen), ["named", "of-provider", "of-tool"]);
    let info = json(&dir, &["provider", "info", "github"]);
    assert_eq!(
        info["skills_declared"],
        json!(["named", "https://h.example/skills#also"])
    );
    assert_eq!(info["skills_installed"], json!(["named"]));
}

#[test]
fn skills_that_a_manifest_names_are_installed_by_its_providers_name() {
    let (home, source) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (dir, from) = (home.path(), source.path());
    skill(from, "local-one", "text", "");
    let path = from.join("local-one");
    let manifest = |skills: &str| {
        format!("[provider]\nname = 'p'\nbase_url = 'http://127.0.0.1:1'\nskills = [{skills}]\n")
    };
    let both = format!("'google-workspace', '{}'", path.display());
    write(&dir.join("manifests/p.toml"), manifest(&both));
    let text = quiet(ati(dir, &["provider", "install-skills", "p"]));
    assert!(text.contains("Installed 'google-workspace' to "), "{text}");
    assert!(text.contains("Installed 'local-one' to "), "{text}");
    assert_eq!(
        quiet(ati(dir, &["provider", "install-skills", "p"])),
        "Skill 'google-workspace' already installed.\nSkill 'local-one' already installed.\n"
    );
    write(&dir.join("manifests/p.toml"), manifest("'nowhere'"));
    let unknown = failure(&ati(dir, &["provider", "install-skills", "p"]));
    assert!(unknown.0.contains("'nowhere'"), "{}", unknown.0);
    let absent = failure(&ati(dir, &["provider", "install-skills", "absent"]));
    assert_eq!(absent.1, Some(4));
}
