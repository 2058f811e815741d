//! `--log-format`: JSON for machines, lines for people.

use std::process::{Command, Stdio};

use crate::support::ati::{Log, Setup};
use crate::support::upstream::Upstream;
use crate::support::{eventually, free_address};

/// Starts the proxy, makes a request that is served and one that fails, and returns its log.
fn log_of(setup: Setup) -> String {
    let proxy = setup.start();
    assert_eq!(proxy.client().get("/up/good").status, 200);
    assert_eq!(proxy.client().get("/dead/x").status, 502);
    eventually("both access lines", || {
        let text = proxy.log.text();
        (text.matches("bytes_out").count() == 2).then_some(text)
    })
}

fn routes(setup: Setup, upstream: &Upstream) -> Setup {
    setup
        .route("up", &upstream.url(), "path_prefix = '/up'")
        .route(
            "dead",
            &format!("http://{}", free_address()),
            "path_prefix = '/dead'",
        )
}

#[test]
fn log_without_a_terminal_is_json() {
    let upstream = Upstream::echo();
    let auto = "[log]\nformat = 'auto'\n";
    for setup in [
        Setup::new(),
        Setup::new().conf(auto),
        Setup::new().arg("--log-format").arg("json"),
        // A flag wins over the conf file.
        Setup::new()
            .conf("[log]\nformat = 'text'\n")
            .arg("--log-format")
            .arg("json"),
    ] {
        for line in log_of(routes(setup, &upstream)).lines() {
            let record: serde_json::Value = serde_json::from_str(line).expect(line);
            assert!(record["level"].is_string() && record["timestamp"].is_string());
        }
    }
}

#[test]
fn log_as_text_is_readable_records_of_requests_included() {
    let upstream = Upstream::echo();
    for setup in [
        Setup::new().arg("--log-format").arg("text"),
        Setup::new().conf("[log]\nformat = 'text'\n"),
    ] {
        let log = log_of(routes(setup, &upstream));
        let line = |part: &str| {
            let mut lines = log.lines();
            lines
                .find(|line| line.contains(part))
                .unwrap_or_else(|| panic!("{part} in:\n{log}"))
        };
        assert!(!log.contains("{\""), "{log}");
        assert!(line("ATI proxy server starting").contains(" INFO "));
        let served = line("path=/up/good");
        assert!(served.contains("Z  INFO sig_verify:"), "{served}");
        let served = log
            .lines()
            .find(|line| line.contains("INFO request: request_id="));
        assert!(served.unwrap().contains(" status=200 "), "{log}");
        let dead = line("upstream_error=connect");
        assert!(dead.contains("Z  WARN request:"), "{dead}");
        assert!(dead.contains(r#" cause="Connection refused"#), "{dead}");
    }
}

#[test]
fn log_format_that_does_not_exist_is_refused() {
    let output = Setup::new().arg("--log-format").arg("xml").output();
    assert_eq!(output.status.code(), Some(2));
    let output = Setup::new().conf("[log]\nformat = 'xml'\n").output();
    assert!(!output.status.success());
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("log.format"), "{text}");
}

#[test]
fn failed_start_at_a_terminal_is_told_in_plain_words() {
    // `script` gives the proxy a terminal.
    let setup = Setup::new();
    let original = setup.command();
    let words = [original.get_program()]
        .into_iter()
        .chain(original.get_args());
    let words: Vec<String> = words
        .map(|word| format!("'{}'", word.to_str().unwrap()))
        .collect();
    let mut terminal = Command::new("script");
    terminal
        .args(["-q", "-e", "-c"])
        .arg(format!("{} --bind nonsense", words.join(" ")))
        .arg("/dev/null")
        .stdin(Stdio::null())
        .env_clear();
    for (name, value) in original.get_envs() {
        terminal.env(name, value.unwrap());
    }
    let mut child = terminal.stdout(Stdio::piped()).spawn().unwrap();
    let log = Log::follow(child.stdout.take().unwrap());
    assert_eq!(child.wait().unwrap().code(), Some(2));
    let text = log.whole_text();
    assert!(
        text.contains("ERROR ati command failed: ") && text.contains("not an IP address"),
        "{text}"
    );
    assert!(!text.contains('{'), "{text}");
}
