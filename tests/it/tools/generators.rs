//! Credentials that a command or a script prints.

use serde_json::{Value, json};

use super::{json_upstream, upstream, with_key};
use crate::support::ati::{Setup, tool, write};
use crate::support::eventually;
use crate::support::tokens::{bearer, claims, key_pair};
use crate::support::upstream::Upstream;

/// An API that answers with the length of the credential, and with the header `X-Session`.
fn api() -> Upstream {
    upstream(|received| {
        let seen = json!({
            "auth": received.header("authorization").map(str::len),
            "x": received.header("x-session"),
        });
        (200, String::new(), seen.to_string())
    })
}

/// The lines of a provider that presents what this generator prints.
fn provider(generator: &str) -> String {
    format!(
        r#"
            auth_type = 'bearer'
            auth_key_name = 'unused'
            [provider.auth_generator]
            {generator}
        "#
    )
}

/// A setup with one tool, called `name`, of a provider with this generator.
fn with_generator(setup: Setup, api: &Upstream, name: &str, generator: &str) -> Setup {
    setup.tools(name, &api.url(), &provider(generator), &tool(name, ""))
}

fn script(text: &str) -> String {
    format!(
        r#"
            type = 'script'
            interpreter = 'sh'
            script = '''{text}'''
        "#
    )
}

/// Prints the subject, scope and tool of the call, and a part of the key `api`.
const COMMAND: &str = r#"
    type = 'command'
    command = 'sh'
    args = ['-c', 'echo $SUB:$SCOPE:$TOOL:$(echo $K | cut -c9-)']
    [provider.auth_generator.env]
    SUB = '${JWT_SUB}'
    SCOPE = '${JWT_SCOPE}'
    TOOL = '${TOOL_NAME}'
    K = '${api}'
"#;

/// Prints JSON, of which one part is the credential and another a header.
const JSON: &str = r#"
    type = 'command'
    command = 'echo'
    args = ['{"data": {"t": "planted-t0ken", "s": 5}}']
    output_format = 'json'
    [provider.auth_generator.inject]
    "data.t" = { type = 'query' }
    "data.s" = { type = 'header', name = 'X-Session' }
"#;

#[test]
fn generator_output_is_the_presented_credential() {
    let api = api();
    let (signer, public) = key_pair();
    let setup = with_generator(with_key(Setup::new()), &api, "command", COMMAND);
    let proxy = with_generator(setup, &api, "json", JSON)
        .jwt(&public)
        .start();
    let token = bearer(&signer, &claims());
    let call = |tool: &str| proxy.call(Some(&token), tool, json!({})).json();
    let presented = || api.last().header("authorization").unwrap().to_owned();
    call("command");
    assert_eq!(presented(), "Bearer agent-7:*:command:api-key-41c2");
    assert_eq!(call("json")["result"]["x"], "5");
    assert_eq!(presented(), "Bearer planted-t0ken");
}

#[test]
fn generator_output_is_cached_per_subject() {
    let api = api();
    let setup = Setup::new();
    let counter = setup.path().join("count");
    let counted = format!("echo x >> {}; echo planted-minted", counter.display());
    let generator = script(&counted) + "cache_ttl_secs = 600";
    let (signer, public) = key_pair();
    let proxy = with_generator(setup, &api, "script", &generator)
        .jwt(&public)
        .start();
    let token = bearer(&signer, &claims());
    for _ in 0..3 {
        let answer = proxy.call(Some(&token), "script", json!({})).json();
        assert_eq!(answer["result"]["auth"], 21);
    }
    assert_eq!(
        api.last().header("authorization"),
        Some("Bearer planted-minted")
    );
    let other = ati::auth::token::Claims {
        sub: "agent-8".into(),
        ..claims()
    };
    proxy.call(Some(&bearer(&signer, &other)), "script", json!({}));
    assert_eq!(std::fs::read_to_string(&counter).unwrap(), "x\nx\n");
}

#[test]
fn generator_that_fails_hangs_or_lacks_its_key_is_reported_redacted() {
    let api = api();
    let mut setup = with_key(Setup::new());
    let generators = [
        (
            "fails",
            r#"
                type = 'command'
                command = 'sh'
                args = ['-c', 'echo oops $K >&2; exit 3']
                env = { K = '${api}' }
            "#,
        ),
        (
            "hangs",
            r#"
                type = 'command'
                command = 'sleep'
                args = ['60']
                timeout_secs = 1
            "#,
        ),
        (
            "keyless",
            r#"
                type = 'command'
                command = 'true'
                env = { K = '${absent}' }
            "#,
        ),
    ];
    for (name, generator) in generators {
        setup = with_generator(setup, &api, name, generator);
    }
    let partial =
        script("echo bad key: ${H#Bearer } >&2; exit 3") + "env = { H = 'Bearer ${api}' }";
    let proxy = with_generator(setup, &api, "partial", &partial).start();
    for (tool, error) in [
        (
            "fails",
            "Upstream API error: auth_generator: Generator exited with code 3: oops [REDACTED]",
        ),
        (
            "hangs",
            "Upstream API error: auth_generator: Generator timed out after 1s",
        ),
        (
            "keyless",
            "Upstream API error: API key 'absent' not found in keyring",
        ),
        // The key is redacted where it is a part of a variable, too.
        (
            "partial",
            "Upstream API error: auth_generator: Generator exited with code 3: bad key: [REDACTED]",
        ),
    ] {
        let answer: Value = proxy.call(None, tool, json!({})).json();
        assert_eq!(answer["error"], error);
    }
    assert!(api.received().is_empty());
}

#[test]
fn generator_cache_is_keyed_by_the_script() {
    let api = json_upstream(json!({}));
    let manifest = |token: &str| {
        let generator = script(&format!("echo {token}")) + "cache_ttl_secs = 9223372036854775807";
        format!(
            "[provider]\nname = 'kept'\nbase_url = '{}'\n{}\n{}",
            api.url(),
            provider(&generator),
            tool("kept", "")
        )
    };
    let proxy = Setup::new()
        .manifest("kept", &manifest("planted-first"))
        .start();
    assert_eq!(proxy.call(None, "kept", json!({})).status, 200);
    assert_eq!(
        api.last().header("authorization"),
        Some("Bearer planted-first")
    );
    write(
        &proxy.path("manifests/kept.toml"),
        manifest("planted-second"),
    );
    assert_eq!(proxy.reload()["message"], "reload done");
    proxy.call(None, "kept", json!({}));
    assert_eq!(
        api.last().header("authorization"),
        Some("Bearer planted-second")
    );
}

/// Processes whose command line has this text.
fn processes(text: &str) -> usize {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = all.filter_map(|entry| std::fs::read_to_string(entry.path().join("cmdline")).ok());
    lines.filter(|line| line.contains(text)).count()
}

#[test]
fn generators_of_300_calls_are_bounded_and_end_with_their_callers() {
    let api = api();
    let (signer, public) = key_pair();
    let setup = Setup::new();
    let started = setup.path().join("started").display().to_string();
    let wait = format!("echo x >> {started}; sleep 600; echo planted-t");
    let generator = format!(
        "type = 'command'\ncommand = 'sh'\nargs = ['-c', '{wait}', '${{JWT_SUB}}']\n\
         timeout_secs = 600"
    );
    let proxy = with_generator(setup, &api, "slow", &generator)
        .conf("[tools]\nmax_programs = 7\n")
        .jwt(&public)
        .start();
    let started = || {
        let lines = std::fs::read_to_string(proxy.path("started")).unwrap_or_default();
        lines.lines().count()
    };
    let marker = proxy.path("started").display().to_string();
    // 150 callers that wait for the same, and 150 that wait for a value of their own each.
    let call = |number: usize| {
        let sub = format!("agent-{}", number.max(150));
        let token = bearer(&signer, &ati::auth::token::Claims { sub, ..claims() });
        let body = r#"{"tool_name":"slow","args":{}}"#;
        let head = format!(
            "POST /call HTTP/1.1\r\nHost: h\r\nAuthorization: {token}\r\nContent-Type: \
             application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let mut client = proxy.client();
        client.write(head.as_bytes());
        client
    };
    let same: Vec<_> = (0..150).map(call).collect();
    proxy.rises_to(r#"ati_in_flight{route="/call"}"#, 150.0);
    eventually("a program", || (started() > 0).then_some(()));
    let own: Vec<_> = (150..300).map(call).collect();
    proxy.rises_to(r#"ati_in_flight{route="/call"}"#, 300.0);
    eventually("as many programs as may run", || {
        (started() == 7).then_some(())
    });
    assert!(processes(&marker) <= 7, "{}", processes(&marker));
    drop((same, own));
    proxy.settles(r#"ati_in_flight{route="/call"}"#, 0.0);
    eventually("the end of all programs", || {
        (processes(&marker) == 0).then_some(())
    });
}
