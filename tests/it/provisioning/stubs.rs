//! `ati tool stubs` and `ati prompt`: what agents are given.

use serde_json::{Value, json};

use crate::support::ati::{BINARY, Setup, ati, command, stderr, stdout, tool};
use crate::support::upstream::Upstream;

/// Names and texts that a careless generator would break on.
fn hostile_tools() -> String {
    let schema = r#"
        [tools.input_schema]
        type = 'object'
        required = ['query.term']
        [tools.input_schema.properties]
        'query.term' = {type = 'string', description = 'ends """ here */ \'}
        class = {type = ['integer', 'null']}
        kind = {enum = ['a', "it's", true]}
        deep = {type = 'object', properties = {x = {type = 'array', items = {type = 'number'}}}}
    "#;
    let description = r#"description = '''Says """ and */ and \N{BULLET} and
a second line'''"#;
    tool("shop:find", &format!("{description}\n{schema}"))
        + &tool("shop_find_", "")
        + &tool("shop:class", "")
}

#[test]
fn python_stubs_call_the_tools() {
    let api = Upstream::echo();
    let proxy = Setup::new()
        .tools("shop", &api.url(), "", &hostile_tools())
        .start();
    let home = tempfile::tempdir().unwrap();
    let url = format!("http://{}", proxy.edge);
    let output = command(home.path())
        .args(["tool", "stubs", "--lang", "py", "--provider", "shop"])
        .env("ATI_PROXY_URL", &url)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    std::fs::write(home.path().join("tools.py"), &output.stdout).unwrap();
    let script = "import json, tools\n\
                  found = tools.shop_find(query_term='red hat', class_=5)\n\
                  try: tools.shop_find(query_term=5, kind='nonsense')\n\
                  except tools.AtiError as error: found['failed'] = [error.code, error.exit_code]\n\
                  found['open'] = tools.shop_class(item=1)['target']\n\
                  tools.os.environ['ATI_BIN'] = '/nonexistent/ati'\n\
                  try: tools.shop_class()\n\
                  except tools.AtiError as error: found['absent'] = [error.exit_code, error.hint]\n\
                  print(json.dumps(found))";
    let ran = std::process::Command::new("python3")
        .args(["-W", "error", "-c", script])
        .current_dir(home.path())
        .env("ATI_BIN", BINARY)
        .env("ATI_DIR", home.path())
        .env("ATI_PROXY_URL", &url)
        .output()
        .unwrap();
    let found: Value =
        serde_json::from_str(&stdout(&ran)).unwrap_or_else(|_| panic!("{}", stderr(&ran)));
    assert_eq!(found["target"], "/?query.term=red%20hat&class=5");
    assert_eq!(found["failed"], json!(["input.invalid_value", 2]));
    assert_eq!(found["open"], "/?item=1");
    assert_eq!(
        found["absent"],
        json!([127, "put ati on PATH, or name it by ATI_BIN"])
    );
}

#[test]
fn stubs_are_the_same_with_keys_at_hand_and_in_json() {
    let setup = Setup::new().tools("shop", "http://127.0.0.1:1", "", &hostile_tools());
    for lang in ["py", "ts", "python", "typescript"] {
        let line = ["tool", "stubs", "--lang", lang, "--provider", "shop"];
        let text = stdout(&ati(setup.path(), &line));
        assert_eq!(text.matches("\"shop:find\"").count(), 1, "{text}");
        let line = [&["-J"][..], &line].concat();
        let answer: Value = serde_json::from_str(&stdout(&ati(setup.path(), &line))).unwrap();
        assert_eq!(answer["functions"], 3);
        assert_eq!(
            answer["source"].as_str().unwrap().trim_end(),
            text.trim_end()
        );
    }
    // A file without functions would look like success.
    for line in [
        &["tool", "stubs", "--lang", "ts", "--provider", "none"][..],
        &["tool", "export", "--atip", "--provider", "none"],
    ] {
        let none = ati(setup.path(), line);
        assert_eq!(none.status.code(), Some(4), "{line:?}");
        assert_eq!(stdout(&none), "", "{line:?}");
        assert!(stderr(&none).contains("no provider 'none' has tools"));
    }
    assert_eq!(ati(setup.path(), &["tool", "stubs"]).status.code(), Some(2));
}

#[test]
fn prompt_is_short_and_is_what_the_snippets_say() {
    let dir = tempfile::tempdir().unwrap();
    let prompt = stdout(&ati(dir.path(), &["prompt"]));
    let words = prompt.split_whitespace().count();
    assert!((40..=70).contains(&words), "{words} words");
    for command in ["ati tool search", "ati tool info", "ati run"] {
        assert!(prompt.contains(command), "{command}");
    }
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");
    for snippet in [
        "snippets/AGENTS.md",
        "snippets/CLAUDE.md",
        "codex/AGENTS.md",
    ] {
        let text = std::fs::read_to_string(format!("{examples}/{snippet}")).unwrap();
        assert_eq!(text, prompt, "{snippet}");
    }
}

#[test]
fn python_package_has_the_version_of_the_binary() {
    let package = concat!(env!("CARGO_MANIFEST_DIR"), "/ati-client/python");
    let version = env!("CARGO_PKG_VERSION");
    for (file, line) in [
        ("pyproject.toml", format!("version = \"{version}\"")),
        (
            "src/ati/__init__.py",
            format!("__version__ = \"{version}\""),
        ),
    ] {
        let text = std::fs::read_to_string(format!("{package}/{file}")).unwrap();
        assert!(text.lines().any(|one| one == line), "{file}: {line}");
    }
}
