//! `--help` after a tool's name.

use crate::support::ati::{Setup, stderr, stdout, write};
use crate::support::upstream::Upstream;

use super::here;

const TOOLS: &str = r#"
    [[tools]]
    name = 'danger:wipe'
    description = 'Delete everything'
    endpoint = '/wipe'
    method = 'DELETE'

    [[tools]]
    name = 'danger:ask'
    endpoint = '/ask'
    [tools.input_schema]
    required = ['topic']
    [tools.input_schema.properties]
    topic = { type = 'string', description = 'What to ask about' }
    limit = { type = 'integer', default = 10 }

    [[tools]]
    name = 'danger:helpful'
    endpoint = '/helpful'
    [tools.input_schema.properties]
    help = { type = 'boolean' }
"#;

#[test]
fn help_after_the_name_prints_usage_and_sends_nothing() {
    let api = Upstream::echo();
    let manifest = format!(
        "[provider]\nname = 'danger'\nbase_url = '{}'\nauth_type = 'bearer'\nauth_key_name = 'k'\n{TOOLS}",
        api.url()
    );
    let proxy = Setup::new().manifest("danger", &manifest).start();
    let dir = tempfile::tempdir().unwrap();
    write(&dir.path().join("manifests/danger.toml"), &manifest);
    let url = format!("http://{}", proxy.edge);
    for env in [&[][..], &[("ATI_PROXY_URL", url.as_str())]] {
        for line in [
            &["danger:wipe", "--help"][..],
            &["danger:wipe", "-h"],
            &["danger_wipe", "words", "--x", "1", "--help"],
        ] {
            let output = here(dir.path(), env, &[&["run"], line].concat());
            assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
            assert_eq!(stderr(&output), "");
            let card = stdout(&output);
            assert!(
                card.starts_with("danger:wipe\nDelete everything\n"),
                "{card}"
            );
            assert!(card.contains("ati run danger:wipe"), "{card}");
        }
        let card = stdout(&here(dir.path(), env, &["run", "danger:ask", "--help"]));
        for line in [
            "  ati run danger:ask --topic <string> [--NAME VALUE]...",
            "  --topic <string>                  required; What to ask about",
            "  --limit <integer>                 default 10",
            "  ati run danger:ask --topic text",
        ] {
            assert!(card.lines().any(|known| known == line), "{line}:\n{card}");
        }
        let unknown = here(dir.path(), env, &["run", "danger:gone", "--help"]);
        assert_eq!(unknown.status.code(), Some(1));
    }
    assert_eq!(api.received().len(), 0);
    assert!(!dir.path().join("audit.jsonl").exists());

    // A value is no request for help, and a schema may have the name.
    write(
        &dir.path().join("credentials"),
        "{\"k\":\"planted-key-1234\"}",
    );
    let value = here(dir.path(), &[], &["run", "danger:ask", "--topic", "-h"]);
    assert!(value.status.success(), "{}", stderr(&value));
    assert_eq!(api.last().target, "/ask?topic=-h&limit=10");
    let own = here(dir.path(), &[], &["run", "danger:helpful", "--help"]);
    assert!(own.status.success(), "{}", stderr(&own));
    assert_eq!(api.last().target, "/helpful?help=true");
}

#[test]
fn help_of_a_file_tool_has_what_a_command_line_takes() {
    let proxy = Setup::new().start();
    let dir = tempfile::tempdir().unwrap();
    let url = format!("http://{}", proxy.edge);
    for env in [&[][..], &[("ATI_PROXY_URL", url.as_str())]] {
        for (tool, has, lacks) in [
            ("download", "--out <string>", "--delivery"),
            ("upload", "--path <string>", "--filename"),
        ] {
            let name = format!("file_manager:{tool}");
            let card = stdout(&here(dir.path(), env, &["run", &name, "--help"]));
            assert!(card.contains(has) && !card.contains(lacks), "{card}");
            let example = format!("Example:\n  ati run {name} --");
            assert!(card.contains(&example), "{card}");
        }
    }
}
