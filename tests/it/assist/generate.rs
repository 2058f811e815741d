//! `ati skill install`: a manifest that a language model writes.

use std::path::Path;

use super::llm::Llm;
use super::{code, run};
use crate::support::ati::{command, stderr, write};

const GOOD: &str = "[provider]\nname = \"weather\"\ndescription = \"Weather\"\n\
                    base_url = \"https://api.example.com\"\nauth_type = \"bearer\"\n\
                    auth_key_name = \"weather_api_key\"\n[[tools]]\nname = \"weather:now\"\n\
                    endpoint = \"/now\"\n";

fn skill(dir: &Path) -> String {
    write(
        &dir.join("src/weather-skill/SKILL.md"),
        "---\nname: weather-skill\n---\nGET /now\n",
    );
    let toml = "[skill]\nname = 'weather-skill'\nproviders = ['weather']\n";
    write(&dir.join("src/weather-skill/skill.toml"), toml);
    dir.join("src/weather-skill").to_str().unwrap().to_owned()
}

fn install(dir: &Path, env: &[(&str, &str)], more: &[&str]) -> (Option<i32>, String) {
    let source = skill(dir);
    let mut command = command(dir);
    command.envs(env.iter().copied());
    let output = run(
        &mut command,
        &[&["skill", "install", &source], more].concat(),
    );
    (code(&output), stderr(&output))
}

#[test]
fn generated_manifest_is_shown_and_written() {
    let llm = Llm::saying(&format!("```toml\n{GOOD}```"));
    let dir = tempfile::tempdir().unwrap();
    let url = llm.url();
    let env = [
        ("ANTHROPIC_API_KEY", "planted-a"),
        ("ANTHROPIC_BASE_URL", url.as_str()),
    ];
    let (code, said) = install(dir.path(), &env, &[]);
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("base_url = \"https://api.example.com\""),
        "{said}"
    );
    let path = dir.path().join("manifests/weather.toml");
    assert!(
        std::fs::read_to_string(&path)
            .unwrap()
            .contains("weather:now")
    );
    assert!(llm.prompt().contains("GET /now"));
    // It is never changed.
    let (code, said) = install(dir.path(), &env, &["--force"]);
    assert_eq!(code, Some(0), "{said}");
    let text = "Provider 'weather' already has a manifest, skipping generation.";
    assert!(said.contains(text), "{said}");
    assert_eq!(llm.0.received().len(), 1);
}

#[test]
fn generated_manifest_that_does_more_than_it_should_is_not_written() {
    for (text, why) in [
        (
            GOOD.replace("weather_api_key", "openai_api_key"),
            "sends the key 'openai_api_key'",
        ),
        (
            GOOD.replace("name = \"weather\"", "name = \"other\""),
            "it is of the provider 'other'",
        ),
        (
            "[provider]\nname = 'weather'\nhandler = 'cli'\ncli_command = 'sh'\n".to_owned(),
            "starts a program",
        ),
        ("I am sorry.".to_owned(), "isn't used"),
    ] {
        let llm = Llm::saying(&text);
        let dir = tempfile::tempdir().unwrap();
        let url = llm.url();
        let env = [
            ("ANTHROPIC_API_KEY", "planted-a"),
            ("ANTHROPIC_BASE_URL", url.as_str()),
        ];
        let (code, said) = install(dir.path(), &env, &[]);
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains(why), "{why}: {said}");
        assert!(!dir.path().join("manifests/weather.toml").exists());
        assert!(dir.path().join("skills/weather-skill/SKILL.md").exists());
    }
}

#[test]
fn local_model_that_is_not_there_is_an_error_unless_the_skill_brings_a_manifest() {
    let dir = tempfile::tempdir().unwrap();
    let env = [
        ("OLLAMA_HOST", "127.0.0.1:1"),
        ("ANTHROPIC_API_KEY", "planted-a"),
    ];
    let (code, said) = install(dir.path(), &env, &["--local"]);
    assert_eq!(code, Some(4), "{said}");
    assert!(said.contains("nothing was installed"), "{said}");
    assert!(!dir.path().join("skills/weather-skill").exists());
    write(&dir.path().join("src/weather-skill/provider.toml"), GOOD);
    let (code, said) = install(dir.path(), &env, &["--local"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(dir.path().join("manifests/weather.toml").exists());
    let env = [("ATI_MANIFEST_PROVIDER", "nonsense")];
    assert_eq!(install(dir.path(), &env, &[]).0, Some(2));
    // Without keys no model is asked.
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(install(dir.path(), &[], &[]).0, Some(0));
}

#[test]
fn skill_is_installed_where_the_key_of_the_model_is_missing() {
    for (provider, key) in [
        ("anthropic", "ANTHROPIC_API_KEY"),
        ("cerebras", "CEREBRAS_API_KEY"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let env = [("ATI_MANIFEST_PROVIDER", provider)];
        let (code, said) = install(dir.path(), &env, &[]);
        assert_eq!(code, Some(0), "{said}");
        let why = format!("ATI_MANIFEST_PROVIDER is {provider}, and {key} is not set");
        assert!(said.contains(&why), "{said}");
        assert!(dir.path().join("skills/weather-skill/SKILL.md").exists());
    }
}
