//! Exit codes and error texts.

use super::{failure, folder, here};
use crate::support::ati::{Setup, write};
use crate::support::tokens::key_pair;
use crate::support::upstream::Upstream;

#[test]
fn run_failures_have_distinct_exit_codes() {
    let api = Upstream::fixed("HTTP/1.1 500 X\r\ncontent-length: 4\r\n\r\noops");
    let dir = folder(&api.url());
    let (code, kind, message) = failure(&here(dir.path(), &[], &["run", "shop:buy"]));
    assert_eq!(
        (code, kind.as_str(), message.as_str()),
        (
            4,
            "provider.upstream_error",
            "Upstream API error: API error (500): oops"
        )
    );
    write(&dir.path().join("credentials"), "{}");
    let (code, kind, message) = failure(&here(dir.path(), &[], &["run", "shop:buy"]));
    assert_eq!((code, kind.as_str()), (3, "auth.missing_key"));
    assert_eq!(
        message,
        "Upstream API error: API key 'api' not found in keyring"
    );
    let (_, _, message) = failure(&here(dir.path(), &[], &["run", "shop:sell"]));
    assert_eq!(
        message,
        "Unknown tool: 'shop:sell'. Run 'ati tool list' to see available tools. Did you mean one of:\n  - shop:find\n  - shop:buy"
    );
    let unreachable = failure(&here(
        dir.path(),
        &[("ATI_PROXY_URL", "http://127.0.0.1:1")],
        &["run", "x"],
    ));
    assert_eq!(
        (unreachable.0, unreachable.1.as_str()),
        (4, "provider.upstream_error")
    );
    assert!(
        unreachable.2.starts_with("Proxy request failed: "),
        "{}",
        unreachable.2
    );
    let odd = failure(&here(
        dir.path(),
        &[("ATI_PROXY_URL", "not a url")],
        &["run", "x"],
    ));
    assert_eq!(odd.0, 2);

    // Where tokens are verified, a missing and a wrong one have different errors.
    let secret = "ab".repeat(32);
    let needed = failure(&here(
        dir.path(),
        &[("ATI_JWT_SECRET", &secret)],
        &["run", "shop:buy"],
    ));
    assert_eq!(needed.0, 3);
    assert!(
        needed.2.starts_with(
            "ATI_SESSION_TOKEN is required because JWT validation is configured locally."
        ),
        "{}",
        needed.2
    );
    let wrong = failure(&here(
        dir.path(),
        &[("ATI_JWT_SECRET", &secret), ("ATI_SESSION_TOKEN", "x.y.z")],
        &["tool", "list"],
    ));
    assert!(
        wrong.2.starts_with("Invalid ATI_SESSION_TOKEN: "),
        "{}",
        wrong.2
    );

    write(&dir.path().join("manifests/b.toml"), "[provider");
    let broken = failure(&here(dir.path(), &[], &["tool", "list"]));
    assert!(
        broken.2.starts_with("Failed to parse manifest "),
        "{}",
        broken.2
    );
}

#[test]
fn run_without_a_token_on_a_guarded_proxy_exits_with_3() {
    let (_, public) = key_pair();
    let proxy = Setup::new().jwt(&public).start();
    let url = format!("http://{}", proxy.edge);
    let sandbox = tempfile::tempdir().unwrap();
    let (code, kind, message) = failure(&here(
        sandbox.path(),
        &[("ATI_PROXY_URL", &url)],
        &["run", "x"],
    ));
    assert_eq!(
        (code, kind.as_str(), message.as_str()),
        (
            3,
            "auth.missing_key",
            "Proxy error (401): no session token was sent"
        )
    );
}

#[test]
fn answer_of_another_program_is_no_success() {
    let upstream = Upstream::echo();
    let dir = tempfile::tempdir().unwrap();
    let env = [("ATI_PROXY_URL", upstream.url())];
    let env = [(env[0].0, env[0].1.as_str())];
    for words in [
        &["run", "x:y"][..],
        &["run", "x:y", "--help"],
        &["tool", "info", "x:y"],
    ] {
        let (exit, code, message) = failure(&here(dir.path(), &env, words));
        assert_eq!(
            (exit, code.as_str()),
            (4, "provider.upstream_error"),
            "{words:?}"
        );
        assert!(message.contains("is not that of an ATI proxy"), "{message}");
    }
}

#[test]
fn output_that_cannot_be_written_fails_the_command() {
    let dir = tempfile::tempdir().unwrap();
    for words in [
        &["token", "keygen"][..],
        &["-J", "version"],
        &["tool", "list"],
    ] {
        let full = std::fs::File::create("/dev/full").unwrap();
        let output = crate::support::ati::command(dir.path())
            .args(words)
            .stdout(full)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1), "{words:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(
            said.contains("No space left on device"),
            "{words:?}: {said}"
        );
    }
}
