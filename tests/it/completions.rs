//! Completions know the tools and providers: the script of bash, in a real bash.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::ati::{BINARY, Setup, ati, command, stderr, stdout, tool, write};

/// What bash offers for the end of a command line.
fn offered(dir: &Path, line: &str, env: &[(&str, &str)]) -> Vec<String> {
    let script = r#"
        source <("$ATI" completions bash)
        COMP_LINE="$LINE" COMP_POINT=${#LINE}
        # As bash does it: a colon is a word of its own.
        read -r -a COMP_WORDS <<< "${LINE//:/ : }"
        [[ "$LINE" == *" " || "$LINE" == *: ]] && COMP_WORDS+=("")
        COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 ))
        registered=$(complete -p ati)
        [[ "$registered" =~ -F\ ([^ ]+) ]] || exit 9
        "${BASH_REMATCH[1]}" ati "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
        printf '%s\n' "${COMPREPLY[@]}"
    "#;
    let bin = Path::new(BINARY).parent().unwrap();
    let path = std::env::var("PATH").unwrap();
    let output = Command::new("bash")
        .args(["--norc", "-c", script])
        .env_clear()
        .env("PATH", format!("{}:{path}", bin.display()))
        .env("HOME", dir)
        .env("ATI_DIR", dir)
        .env("ATI", BINARY)
        .env("LINE", line)
        .envs(env.iter().copied())
        .output()
        .unwrap();
    assert!(output.status.success(), "{line}: {}", stderr(&output));
    assert_eq!(stderr(&output), "", "{line}");
    let text = stdout(&output);
    text.lines()
        .filter(|line| !line.is_empty())
        .map(str::to_owned)
        .collect()
}

/// Two HTTP tools, and an MCP server that must not be started.
fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let quote = tool(
        "market:quote",
        "endpoint = '/q'\ninput_schema = { type = 'object', properties = { symbol = {}, day = {} } }",
    );
    let other = tool("weather", "endpoint = '/w'");
    write(
        &dir.path().join("manifests/market_file.toml"),
        format!("[provider]\nname = 'market'\nbase_url = 'http://127.0.0.1:9'\n{quote}{other}"),
    );
    let started = dir.path().join("started");
    write(
        &dir.path().join("manifests/srv.toml"),
        format!(
            "[provider]\nname = 'srv'\nhandler = 'mcp'\nmcp_transport = 'stdio'\n\
             mcp_command = 'touch'\nmcp_args = ['{}']\n",
            started.display()
        ),
    );
    dir
}

#[test]
fn bash_completes_names_of_tools_and_providers() {
    let dir = folder();
    let dir = dir.path();
    for (line, expected) in [
        (
            "ati run ",
            &[
                "file_manager:download",
                "file_manager:upload",
                "market:quote",
                "weather",
            ][..],
        ),
        ("ati run we", &["weather"]),
        ("ati -J --output text run ma", &["market:quote"]),
        // bash replaces only what comes after the colon.
        ("ati run market:", &["quote"]),
        ("ati run market:qu", &["quote"]),
        ("ati tool info market:q", &["quote"]),
        ("ati tools info w", &["weather"]),
        ("ati tool list --provider ", &["file_manager", "market"]),
        ("ati run market:quote --", &["--day", "--symbol"]),
        ("ati run market:quote --s", &["--symbol"]),
        ("ati provider info ", &["market", "srv"]),
        ("ati provider remove m", &["market_file"]),
    ] {
        assert_eq!(offered(dir, line, &[]), expected, "{line}");
    }
    assert!(
        !dir.join("started").exists(),
        "completion started the MCP server"
    );
}

#[test]
fn bash_completes_cached_providers_for_unload_only() {
    let dir = folder();
    let spec = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/it/specs/petstore-3.0.yaml"
    );
    let loaded = ati(dir.path(), &["provider", "load", spec, "--name", "pets"]);
    assert!(loaded.status.success(), "{}", stderr(&loaded));
    assert_eq!(offered(dir.path(), "ati provider unload ", &[]), ["pets"]);
    let removable = offered(dir.path(), "ati provider remove ", &[]);
    assert_eq!(removable, ["market_file", "srv"]);
}

#[test]
fn bash_completes_commands_as_before() {
    let dir = folder();
    let commands = offered(dir.path(), "ati ", &[]);
    for (name, expected) in [
        ("run", true),
        ("man", true),
        ("__complete", false),
        ("mcp", true),
        ("admin", true),
    ] {
        assert_eq!(
            commands.iter().any(|it| it == name),
            expected,
            "{name}: {commands:?}"
        );
    }
    assert_eq!(offered(dir.path(), "ati prov", &[]), ["provider"]);
    assert!(
        offered(dir.path(), "ati proxy --enable", &[]).contains(&"--enable-passthrough".into())
    );
}

#[test]
fn bash_completes_tools_of_the_proxy() {
    let proxy = Setup::new()
        .tools(
            "far",
            "http://127.0.0.1:9",
            "",
            &tool("far:away", "endpoint = '/x'"),
        )
        .start();
    let dir = tempfile::tempdir().unwrap();
    let url = format!("http://{}", proxy.edge);
    let env = [("ATI_PROXY_URL", url.as_str())];
    let offered_tools = ["far:away", "file_manager:download", "file_manager:upload"];
    assert_eq!(offered(dir.path(), "ati run ", &env), offered_tools);
    assert_eq!(offered(dir.path(), "ati run far:", &env), ["away"]);
    assert_eq!(
        offered(dir.path(), "ati tool list --provider fa", &env),
        ["far"]
    );
}

#[test]
fn names_are_left_out_where_the_proxy_does_not_answer() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let begun = Instant::now();
    let output = command(dir.path())
        .args(["__complete", "--", "run", ""])
        .env("ATI_PROXY_URL", format!("http://{address}"))
        .output()
        .unwrap();
    assert!(
        begun.elapsed() < Duration::from_secs(20),
        "{:?}",
        begun.elapsed()
    );
    assert!(output.status.success());
    assert_eq!(
        (stdout(&output), stderr(&output)),
        (String::new(), String::new())
    );
}

#[test]
fn names_are_left_out_where_manifests_are_broken() {
    let dir = tempfile::tempdir().unwrap();
    write(&dir.path().join("manifests/a.toml"), "[provider");
    for words in [
        &["run", ""][..],
        &["provider", "info", ""],
        &["nonsense", ""],
    ] {
        let line = [&["__complete", "--"], words].concat();
        let output = ati(dir.path(), &line);
        assert!(output.status.success(), "{words:?}");
        assert_eq!(
            (stdout(&output), stderr(&output)),
            (String::new(), String::new())
        );
    }
}
